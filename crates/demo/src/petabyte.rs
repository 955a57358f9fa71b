//! Repeats a published experiment in small: user data a thousand times as large as application
//! data, in one server with memory for 1/39 of it. Users read, or read and write. The application
//! has 4 % of the load.
//!
//! ```text
//!   users, reads    two generators, each with normal keys in its half   ┐
//!   users, writes   at rate 0 where users only read                     ├─ open loops, one step a phase
//!   application     half reads, half writes                             ┘
//!   phases          A B B A A B B A A B B A, each after a pause at its own rates
//! ```
//!
//! Rates are parts of the highest rate of user reads that is answered in time: less than a closed
//! loop's, whose deep queues make a read cheaper. Only ratios of neighbouring phases are compared.
//! Each chapter writes its expectation to a file before it runs.

use load::{Distribution, Keys, Latency, OpKind, Pacing, Report, Rows, Spec, Step, ValueSizes, Workload};

use crate::compare::expected;
use crate::error::DemoError;
use crate::metrics::now_s;
use crate::names::{APPLICATION, APPLICATION_WRITES, USER_WRITES, USERS};
use crate::overload;
use crate::results::{Capacity, Chapter, Run, Series, Window, WindowLoad};
use crate::server::ADMIN;
use crate::stage::{KEYSPACE, Stage};

/// Keyspace of the application's table.
const APP_KEYSPACE: &str = "application";
/// Memory of the server, and of its memtables.
const FLAGS: [&str; 4] = ["--memory", "64MiB", "--memtable-memory", "64MiB"];
/// Mean bytes of a value, and the part of it that compression removes: 600 bytes are stored.
const VALUE_BYTES: usize = 2000;
const COMPRESSIBILITY: f64 = 0.7;
/// User rows over application rows, and the application's part of the requests.
const USER_ROWS_OVER: u64 = 1000;
const APPLICATION_PART: f64 = 0.04;
/// Requests in flight of the closed loop.
const BACKLOG: usize = 128;
/// Rates of the open loop that measures capacity, as parts of the closed loop's: the first, the
/// ratio of two neighbours, and their number. And the time in which a read is to be answered.
const SEARCH: (f64, f64, i32) = (0.25, 1.13, 12);
const IN_TIME_S: f64 = 0.1;
/// Generators of user reads.
const GENERATORS: u64 = 2;
/// Pause before each phase, at its rates: changes take effect, and queues of the phase before end.
const PAUSE_S: f64 = 2.5;
/// Time to open all connections before the loads begin together, ms.
const CONNECT_MS: f64 = 2500.0;
/// Parts of capacity: the ladder, and the two that are compared.
const LADDER: [f64; 3] = [0.55, 0.70, 0.78];
const LOW: f64 = 0.61;
const HIGH: f64 = 0.85;
/// Shares of the users' level, from the default.
const SHARES: [u32; 4] = [1000, 500, 250, 100];

/// Note about what the experiment leaves out.
pub(crate) const NOT_MODELLED: &str = concat!(
    "Not modelled: 20 machines, two replicas, a network and their device. A single queue would give ratios of ",
    "(1 - 0.61) / (1 - 0.85) = 2.6 from 61 to 85 % of capacity: a row proves something only where it differs."
);

/// Rates of a phase, and the statements before it.
#[derive(Clone, Debug)]
struct Setting {
    id: String,
    /// Rates as parts of capacity: user reads, user writes, application.
    reads: f64,
    writes: f64,
    application: f64,
    statements: Vec<String>,
}

impl Setting {
    fn new(id: impl Into<String>, reads: f64, writes: f64) -> Setting {
        let application = (reads + writes) * APPLICATION_PART / (1.0 - APPLICATION_PART);
        Setting { id: id.into(), reads, writes, application, statements: Vec::new() }
    }

    fn after(mut self, statement: String) -> Setting {
        self.statements.push(statement);
        self
    }
}

/// Returns the flags of the server.
pub(crate) fn flags() -> Vec<String> {
    FLAGS.map(str::to_string).to_vec()
}

fn data(stage: &Stage, user: &str, pacing: Pacing, workload: Workload) -> Spec {
    let plain = stage.spec(user, workload, pacing);
    let application = user == APPLICATION;
    let population = stage.times.user_rows / if application { USER_ROWS_OVER } else { 1 };
    Spec {
        keys: Keys { population, distribution: Distribution::Gaussian, slice: (1, 1) },
        rows: Rows {
            keyspace: if application { APP_KEYSPACE } else { KEYSPACE }.to_string(),
            columns: 1,
            value_bytes: VALUE_BYTES,
            value_sizes: ValueSizes::Exponential,
            compressibility: COMPRESSIBILITY,
            per_partition: 0,
            ..plain.rows.clone()
        },
        ..plain
    }
}

/// Writes all rows, creates roles and levels, and measures the capacity for user reads.
pub(crate) fn prepare(stage: &mut Stage) -> Result<Capacity, DemoError> {
    let filling = Pacing::Closed { in_flight: 256, seconds: 0.0 };
    for (user, keyspace) in [(USERS, KEYSPACE), (APPLICATION, APP_KEYSPACE)] {
        let spec = data(stage, user, filling.clone(), Workload::Prefill);
        stage.print(&format!("writing {} rows of {user}", spec.keys.population));
        let keys = Keys { distribution: Distribution::Uniform, ..spec.keys.clone() };
        let spec = Spec { user: Some(ADMIN.to_string()), keys, create: true, ..spec };
        stage.fill(&spec)?;
        stage.reader(user, keyspace)?;
        stage.cql(&[
            &format!("GRANT MODIFY ON KEYSPACE {keyspace} TO {user}"),
            &format!("CREATE SERVICE LEVEL {user} WITH shares = 1000"),
            &format!("ATTACH SERVICE LEVEL {user} TO {user}"),
        ])?;
    }
    stage.settle(3.0, "reads are slower than without compactions")?;
    let pacing = Pacing::Closed { in_flight: BACKLOG, seconds: stage.times.capacity };
    let spec = Spec { warmup_s: stage.times.settle, ..data(stage, USERS, pacing, Workload::Read) };
    let report = stage.run("user reads, closed loop", &spec)?;
    let reads = Run::of("user reads, closed loop", &report, 0);
    let closed_per_s = reads.as_ref().map_or(0.0, |run| run.throughput_per_s);
    if closed_per_s < 1.0 {
        return Err(DemoError::Failed("The server answered no reads.".into()));
    }
    let (first, ratio, count) = SEARCH;
    let step = |n: i32| Step {
        rate_per_s: first * ratio.powi(n) * closed_per_s,
        seconds: stage.times.petabyte / 4.0,
    };
    let rising = data(stage, USERS, Pacing::Open((0..count).map(step).collect()), Workload::Read);
    let rising = Spec { time_limit_s: Some(IN_TIME_S), ..rising };
    let report = stage.run("user reads, open loop at rising rates", &rising)?;
    stage.reads_per_s = overload::capacity(&report.steps);
    stage.print(&format!(
        "capacity: {:.0} reads/s; {closed_per_s:.0}/s in the closed loop",
        stage.reads_per_s
    ));
    Ok(Capacity { reads, ..Capacity::default() })
}

/// Read-only users at rising rates.
pub(crate) fn rates(stage: &mut Stage) -> Result<Chapter, DemoError> {
    let at = |part: f64| Setting::new(format!("{:.0} %", part * 100.0), part, 0.0);
    let mut settings = pairs(stage, &at(LOW), &at(HIGH));
    settings.splice(0..0, LADDER.map(at));
    let mut chapter = run(stage, "petabyte_rates", &settings)?;
    chapter.title = "Users read at rising rates".to_string();
    chapter.what =
        "User reads at 55, 70 and 78 % of capacity, then 61 and 85 % in turn. Both levels have the \
                    same shares, and the application's part of the requests stays 4 %."
            .to_string();
    Ok(chapter)
}

/// A fifth of the users' requests are writes, at the same rate.
pub(crate) fn mixed(stage: &mut Stage) -> Result<Chapter, DemoError> {
    let (read_only, mixed) =
        (Setting::new("read-only", LOW, 0.0), Setting::new("80/20", LOW * 0.8, LOW * 0.2));
    let settings = pairs(stage, &read_only, &mixed);
    let mut chapter = run(stage, "petabyte_mixed", &settings)?;
    chapter.title = "Users read, or read and write".to_string();
    chapter.what = "The same number of user requests, at 61 % of capacity: reads only, and with a fifth of \
                    writes, whose flushes and compactions run alongside."
        .to_string();
    Ok(chapter)
}

/// Shares of the users' level fall.
pub(crate) fn shares(stage: &mut Stage) -> Result<Chapter, DemoError> {
    let at = |shares: u32| {
        Setting::new(format!("shares {shares}"), HIGH, 0.0)
            .after(format!("ALTER SERVICE LEVEL {USERS} WITH shares = {shares}"))
    };
    let [first, second, third, fourth] = SHARES.map(at);
    let mut settings = pairs(stage, &first, &second);
    settings.extend([third, fourth]);
    let mut chapter = run(stage, "petabyte_shares", &settings)?;
    stage.cql(&[&format!("ALTER SERVICE LEVEL {USERS} WITH shares = 1000")])?;
    chapter.title = "Fewer shares for users".to_string();
    chapter.what = "User reads at 85 % of capacity, with 1000 and 500 shares in turn, then 250 and 100. The \
                    application keeps 1000."
        .to_string();
    Ok(chapter)
}

/// Both loads in one level, and a level each.
pub(crate) fn levels(stage: &mut Stage) -> Result<Chapter, DemoError> {
    let attach = |setting: Setting, level: &str| {
        setting.after(format!("ATTACH SERVICE LEVEL {level} TO {APPLICATION}"))
    };
    let own = attach(Setting::new("a level each", HIGH, 0.0), APPLICATION);
    let one = attach(Setting::new("one level", HIGH, 0.0), USERS);
    let alone = Setting { reads: 0.0, ..attach(Setting::new("alone", HIGH, 0.0), APPLICATION) };
    let mut settings = pairs(stage, &alone, &own);
    settings.extend([one.clone(), own, one]);
    let mut chapter = run(stage, "petabyte_levels", &settings)?;
    stage.cql(&[&format!("ATTACH SERVICE LEVEL {APPLICATION} TO {APPLICATION}")])?;
    chapter.title = "One level, and a level each".to_string();
    chapter.what = "The application alone and next to user reads at 85 % of capacity in turn, with a level \
                    each. At last both are in one level."
        .to_string();
    Ok(chapter)
}

/// Returns two settings in the order A B B A, as many pairs as the form of the demo has.
fn pairs(stage: &Stage, a: &Setting, b: &Setting) -> Vec<Setting> {
    let pair = |number: usize| {
        if number.is_multiple_of(2) { [a.clone(), b.clone()] } else { [b.clone(), a.clone()] }
    };
    (0..stage.times.petabyte_pairs).flat_map(pair).collect()
}

/// Returns a pause and a phase for each setting.
fn steps(settings: &[Setting], seconds: f64, rate_per_s: impl Fn(&Setting) -> f64) -> Vec<Step> {
    let steps = settings.iter().flat_map(|setting| {
        let rate_per_s = rate_per_s(setting);
        [PAUSE_S, seconds].map(|seconds| Step { rate_per_s, seconds })
    });
    steps.collect()
}

/// Returns the setting whose pause has this step.
fn setting_of(step: i64) -> Option<usize> {
    let step = usize::try_from(step).ok()?;
    (step % 2 == 0).then_some(step / 2)
}

/// Writes what is expected of the chapter, and runs all loads through its settings.
fn run(stage: &mut Stage, id: &str, settings: &[Setting]) -> Result<Chapter, DemoError> {
    stage.expect(id, &expected(id))?;
    let (capacity, seconds) = (stage.reads_per_s, stage.times.petabyte);
    let begin_unix_ms = Some((now_s() * 1e3 + CONNECT_MS) as u64);
    let open = |user: &str, workload, rate: &dyn Fn(&Setting) -> f64| {
        let pacing = Pacing::Open(steps(settings, seconds, |setting| rate(setting) * capacity));
        Spec { begin_unix_ms, drain_s: 2.0, ..data(stage, user, pacing, workload) }
    };
    let reads = (1..=GENERATORS).map(|part| {
        let spec = open(USERS, Workload::Read, &|setting| setting.reads / GENERATORS as f64);
        Spec { keys: Keys { slice: (part, GENERATORS), ..spec.keys.clone() }, seed: 20 + part, ..spec }
    });
    let writes = Spec { seed: 31, ..open(USERS, Workload::Write, &|setting| setting.writes) };
    let users: Vec<Spec> = reads.chain([writes]).collect();
    let application = Spec {
        seed: 37,
        write_ratio: 0.5,
        ..open(APPLICATION, Workload::Mixed, &|setting| setting.application)
    };
    let (stop, mut set, mut fault) = (stage.stop.clone(), None, None);
    let (application, users) = std::thread::scope(|scope| {
        let users: Vec<_> = users.iter().map(|spec| scope.spawn(|| load::run(spec, &stop, |_| {}))).collect();
        let report = load::run(&application, &stop, |second| {
            let next = setting_of(second.step);
            if let Some(next) = next.filter(|next| set != Some(*next)) {
                set = Some(next);
                let statements: Vec<&str> = settings[next].statements.iter().map(String::as_str).collect();
                fault = stage.cql(&statements).err().or(fault.take());
            }
            stage.progress(APPLICATION, second);
        });
        (report, users.into_iter().map(std::thread::ScopedJoinHandle::join).collect::<Vec<_>>())
    });
    stage.interrupted()?;
    stage.server_check()?;
    if let Some(fault) = fault {
        return Err(fault);
    }
    let mut reports = vec![application?];
    for report in users {
        let gone = |_| DemoError::Failed("The thread of a load failed.".into());
        reports.push(report.map_err(gone)??);
    }
    for (name, report) in [APPLICATION, USERS, USERS, USER_WRITES].into_iter().zip(&reports) {
        stage.note_failures(name, report);
    }
    stage.probe.mark();
    Ok(Chapter { id: id.into(), ..chapter(stage, settings, &reports) })
}

/// Returns the phases of the reports: the application's, two of user reads, and user writes.
fn chapter(stage: &Stage, settings: &[Setting], reports: &[Report]) -> Chapter {
    let [application, first, second, writes] = reports else { unreachable!("four loads run") };
    let mut chapter = Chapter {
        series: vec![
            Series::of(APPLICATION, &application.seconds),
            Series::of(USERS, &first.seconds).plus(&Series::of(USERS, &second.seconds)),
        ],
        ..Chapter::default()
    };
    for (number, setting) in settings.iter().enumerate() {
        let step = 2 * number + 1;
        let Some(measured) = application.steps.get(step) else { break };
        let begin_s = measured.begin_unix_ms as f64 / 1e3;
        let end_s = begin_s + measured.seconds;
        let mut loads = Vec::new();
        let mut add = |name: &str, report: &Report, latency: Option<Latency>, per_s: Option<f64>| {
            let Some((run, step)) = Run::of(name, report, step).zip(report.steps.get(step)) else { return };
            let load = WindowLoad::of(run, step);
            let throughput_per_s = per_s.unwrap_or(load.throughput_per_s);
            loads.push(WindowLoad { latency, throughput_per_s, ..load });
        };
        let of = |operations: &Option<load::Operations>| operations.as_ref().map(|found| found.latency);
        add(APPLICATION, application, of(&measured.reads), None);
        add(APPLICATION_WRITES, application, of(&measured.writes), None);
        if setting.reads > 0.0 {
            let (per_s, latency) = both(first, second, step).unzip();
            add(USERS, first, latency, per_s);
        }
        if setting.writes > 0.0 {
            let latency = writes.steps.get(step).and_then(|step| of(&step.writes));
            add(USER_WRITES, writes, latency, None);
        }
        let cpu = stage.probe.between(begin_s, end_s);
        let id = format!("{}-{number}", setting.id);
        chapter.windows.push(Window { id, label: setting.id.clone(), begin_s, end_s, loads, cpu });
    }
    chapter.windows.iter_mut().for_each(|window| window.cpu.served.clear());
    let (begin_s, end_s) = chapter.ends();
    chapter.cpu = stage.probe.points(begin_s, end_s);
    chapter.storage = stage.probe.storage(begin_s, end_s);
    chapter
}

/// Returns the throughput and the latency of both generators of user reads in a step.
fn both(first: &Report, second: &Report, step: usize) -> Option<(f64, Latency)> {
    let (first, second) = first.steps.get(step).zip(second.steps.get(step))?;
    let mut all = first.latencies.clone();
    all.add(&second.latencies);
    Some((first.throughput_per_s + second.throughput_per_s, Latency::of(all.of(OpKind::Read))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn application_has_four_percent_of_all_requests() {
        let setting = Setting::new("80/20", 0.4, 0.1);
        let all = setting.reads + setting.writes + setting.application;
        assert!((setting.application / all - 0.04).abs() < 1e-9, "{setting:?}");
    }

    #[test]
    fn each_setting_has_a_pause_in_which_it_is_set() {
        let settings = [Setting::new("a", 0.5, 0.0), Setting::new("b", 0.8, 0.1)];
        let all = steps(&settings, 10.0, |setting| setting.reads * 100.0);
        let expected = [(50.0, PAUSE_S), (50.0, 10.0), (80.0, PAUSE_S), (80.0, 10.0)];
        let found: Vec<(f64, f64)> = all.iter().map(|step| (step.rate_per_s, step.seconds)).collect();
        assert_eq!(found, expected);
        assert_eq!([-1, 0, 1, 2, 3].map(setting_of), [None, Some(0), None, Some(1), None]);
    }
}
