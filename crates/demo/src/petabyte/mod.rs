//! Repeats a published experiment in small: user data a thousand times as large as application
//! data, in one server with memory for 1/39 of it. Users read, or read and write. The application
//! has 4 % of the load.
//!
//! ```text
//!   users, reads    two generators, each with normal keys in its half   ┐
//!   users, writes   where a chapter has some                            ├─ open loops, one step a phase
//!   application     half reads, half writes                             ┘
//!   phases          A B B A A B B A A B B A, each after a pause at its own rates
//! ```
//!
//! Rates are parts of the highest rate of user reads that is answered in time: less than a closed
//! loop's, whose deep queues make a read cheaper. Only ratios of neighbouring phases are compared.
//! Each chapter writes its expectation to a file before it runs.
//!
//! The last chapters are [`ingest`], each on a server of its own.

mod bypass;
mod ingest;
mod run;

use load::{Distribution, Keys, Pacing, RowLayout, Spec, ValueSizes, Workload};

pub(crate) use bypass::bypass;
pub(crate) use ingest::{incremental, size_tiered};
use run::{Setting, run};

use crate::error::DemoError;
use crate::names::{APPLICATION, USERS};
use crate::open_loop::{self, Search};
use crate::pairs::pairs;
use crate::results::{Capacity, Chapter, LoadRun};
use crate::server::ADMIN;
use crate::stage::{KEYSPACE, Stage};

/// Keyspace of the application's table, and the name of both tables.
const APP_KEYSPACE: &str = "application";
const TABLE: &str = "columns1";
/// Memory of the server, and of its memtables.
const FLAGS: [&str; 4] = ["--memory", "64MiB", "--memtable-memory", "64MiB"];
/// Mean bytes of a value, and the part of it that compression removes: 600 bytes are stored.
const VALUE_BYTES: usize = 2000;
const COMPRESSIBILITY: f64 = 0.7;
/// User rows over application rows.
const USER_ROWS_OVER: u64 = 1000;
/// Requests in flight of the closed loop.
const BACKLOG: usize = 128;
/// Time in which a request is to be answered up to capacity. A queue that grows by less in the time
/// of a step is not seen: 2 % too high a rate in three seconds.
const IN_TIME_S: f64 = 0.05;
/// Parts of capacity: the ladder, and the two that are compared.
const LADDER: [f64; 3] = [0.55, 0.70, 0.78];
const LOW: f64 = 0.61;
const HIGH: f64 = 0.85;

/// Note about what the experiment leaves out.
pub(crate) const NOT_MODELLED: &str = concat!(
    "Not modelled: 20 machines, two replicas, a network and their device. A single queue would give ratios of ",
    "(1 - 0.61) / (1 - 0.85) = 2.6 from 61 to 85 % of capacity: a row proves something only where it differs."
);

/// Returns the flags of the server.
pub(crate) fn flags() -> Vec<String> {
    FLAGS.map(str::to_string).to_vec()
}

fn data(stage: &Stage, user: &str, pacing: Pacing, workload: Workload) -> Spec {
    let plain = stage.spec(user, workload, pacing);
    let application = user == APPLICATION;
    let population = stage.times.petabyte.user_rows / if application { USER_ROWS_OVER } else { 1 };
    Spec {
        keys: Keys { population, distribution: Distribution::Gaussian, slice: (1, 1) },
        rows: RowLayout {
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

/// Writes `rows` rows, and creates a role and a level that has their table.
fn table(stage: &mut Stage, user: &str, rows: u64) -> Result<(), DemoError> {
    let filling = Pacing::Closed { in_flight: 256, seconds: 0.0 };
    stage.print(&format!("writing {rows} rows of {user}"));
    let spec = data(stage, user, filling, Workload::Prefill);
    let keys = Keys { population: rows, distribution: Distribution::Uniform, ..spec.keys.clone() };
    let keyspace = spec.rows.keyspace.clone();
    stage.fill(&Spec { user: Some(ADMIN.to_string()), keys, create: true, ..spec })?;
    stage.reader(user, &keyspace)?;
    stage.cql(&[
        &format!("GRANT MODIFY ON KEYSPACE {keyspace} TO {user}"),
        &format!("CREATE SERVICE LEVEL {user} WITH shares = 1000"),
        &format!("ATTACH SERVICE LEVEL {user} TO {user}"),
    ])
}

/// Returns the results of a closed loop, with the highest rate of an open loop that is answered in
/// time as its throughput.
fn capacity(stage: &mut Stage, name: &str, spec: Spec, search: &Search) -> Result<LoadRun, DemoError> {
    let pacing = Pacing::Closed { in_flight: BACKLOG, seconds: stage.times.capacity };
    let closed = Spec { warmup_s: stage.times.settle, pacing, ..spec.clone() };
    let report = stage.run(&format!("{name}, closed loop"), &closed)?;
    let closed = LoadRun::of(name, &report, 0).filter(|run| run.throughput_per_s >= 1.0);
    let closed = closed.ok_or_else(|| DemoError::Failed("The server answered no requests.".into()))?;
    let rising = Spec { time_limit_s: Some(IN_TIME_S), ..spec };
    let per_s = open_loop::capacity(stage, rising, search, closed.throughput_per_s)?;
    let closed_per_s = closed.throughput_per_s;
    stage.print(&format!("{name}: {per_s:.0}/s in time; {closed_per_s:.0}/s in the closed loop"));
    Ok(LoadRun { throughput_per_s: per_s, ..closed })
}

/// Returns the highest rate of reads of these rows that is answered in time.
fn read_capacity(
    stage: &mut Stage,
    name: &str,
    user: &str,
    bypass_cache: bool,
) -> Result<LoadRun, DemoError> {
    let search = Search { first: 0.25, ratio: 1.13, count: 12, seconds: stage.times.petabyte.phase / 2.0 };
    let spec = data(stage, user, Pacing::Open(Vec::new()), Workload::Read);
    capacity(stage, name, Spec { bypass_cache, ..spec }, &search)
}

/// Writes all rows, creates roles and levels, and measures the capacity for user reads.
pub(crate) fn prepare(stage: &mut Stage) -> Result<Capacity, DemoError> {
    let rows = stage.times.petabyte.user_rows;
    table(stage, USERS, rows)?;
    table(stage, APPLICATION, rows / USER_ROWS_OVER)?;
    stage.settle(3.0, "reads are slower than without compactions")?;
    let reads = read_capacity(stage, "user reads", USERS, false)?;
    stage.measured.reads_per_s = reads.throughput_per_s;
    Ok(Capacity { reads: Some(reads), ..Capacity::default() })
}

/// Read-only users at rising rates.
pub(crate) fn rates(stage: &mut Stage) -> Result<Chapter, DemoError> {
    let at = |part: f64| Setting::new(format!("{:.0} %", part * 100.0), part, 0.0);
    let mut settings = pairs(&at(LOW), &at(HIGH), stage.times.petabyte.pairs);
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
    let settings = pairs(&read_only, &mixed, stage.times.petabyte.pairs);
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
    let count = stage.times.petabyte.pairs;
    // Only the first ratio is published. The others have half as many pairs.
    let pairs = [(500, count), (250, count / 2), (100, count / 2)]
        .map(|(shares, count)| pairs(&at(1000), &at(shares), count));
    let mut chapter = run(stage, "petabyte_shares", &pairs.concat())?;
    stage.cql(&[&format!("ALTER SERVICE LEVEL {USERS} WITH shares = 1000")])?;
    chapter.title = "Fewer shares for users".to_string();
    chapter.what =
        "User reads at 85 % of capacity, with 1000 and 500 shares in turn, then 1000 and 250, and 1000 \
                    and 100. The application keeps 1000."
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
    let count = stage.times.petabyte.pairs;
    let settings = [pairs(&alone, &own, count), pairs(&own, &one, count)].concat();
    let mut chapter = run(stage, "petabyte_levels", &settings)?;
    stage.cql(&[&format!("ATTACH SERVICE LEVEL {APPLICATION} TO {APPLICATION}")])?;
    chapter.title = "One level, and a level each".to_string();
    chapter.what = "The application alone and next to user reads at 85 % of capacity in turn, with a level \
                    each. Then next to them with a level each and in one level in turn."
        .to_string();
    Ok(chapter)
}
