//! Overload: more requests than the server can answer, from `fairlane load`. A hardened server
//! answers as many as at its best, rejects the others in time, and lets the administrator log in.
//!
//! 1. Start a server on one core, so that the load generator has the other core.
//! 2. Find the capacity: the best of closed loops with few to many requests in flight.
//! 3. Run a closed loop with 8,192 requests in flight, then an open loop at ten times the capacity.
//!    Both run beside the administrator. Then check the server.
//! 4. Repeat the best closed loop, which shows recovery. The best of all runs is the capacity.
//!
//! Requests are slices of 100 rows, so that the generator needs only a small part of its core even
//! at ten times the capacity. With reads of single rows it could not reach that rate.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::admin::Admin;
use crate::cpu::{self, Phase};
use crate::memory::RESIDENT_MAX;
use crate::report;
use crate::results::{Load, Results};
use crate::server::{Conditions, Server};
use crate::setup;
use crate::target::{ADMIN, PASSWORD};
use crate::verdict::FOREIGN_MAX;

/// Numbers of requests in flight whose best goodput is the capacity.
const LADDER: [u32; 3] = [64, 256, 1_024];
/// Requests in flight of the closed loop.
const IN_FLIGHT: u32 = 8_192;
/// Rate of the open loop, as a multiple of the capacity.
const RATE_FACTOR: f64 = 10.0;
/// Smallest accepted goodput under overload, as a fraction of the best goodput.
const GOODPUT_MIN: f64 = 0.9;
/// Number of partitions, of 100 rows each.
const KEYS: &str = "500";
/// Time a run of the load generator may take beyond its duration.
const GRACE: Duration = Duration::from_secs(60);
/// Interval at which the end of the generator is checked.
const CHILD_POLL: Duration = Duration::from_millis(20);

/// Options of a run.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) server: PathBuf,
    /// Duration of each of the two overloads.
    pub(crate) time: Duration,
    /// Page of the report. The results as JSON and the table as Markdown go beside it.
    pub(crate) report: Option<PathBuf>,
}

/// Runs the loads and prints their results. Returns missed criteria as an error.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let begun = Results::begin();
    let mut server = Server::start(&options.server, &Conditions { cores: "0,", ..Conditions::default() })?;
    let file = std::env::temp_dir().join(format!("fairlane-overload-{}.json", std::process::id()));
    // Creates the level that the administrator alters.
    setup::make(&server.target)?;
    let outcome = measure(options, &mut server, &file);
    drop(std::fs::remove_file(&file));
    let loads = outcome?;
    if let Some(page) = &options.report {
        let results = Results { loads: loads.clone(), ..begun };
        results.write(&page.with_extension("json"))?;
        report::write(&results, page)?;
    }
    let failed: Vec<String> = loads
        .iter()
        .flat_map(|load| load.reasons.iter().map(|reason| format!("{}: {reason}", load.name)))
        .collect();
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

fn measure(options: &Options, server: &mut Server, file: &Path) -> Result<Vec<Load>, String> {
    let short = (options.time / 4).clamp(Duration::from_secs(3), Duration::from_secs(20));
    load(options, server, file, &["prefill", "--rows-per-partition", "100"], None)?;
    let mut loads = Vec::new();
    let closed = |in_flight: u32| {
        let words = ["slice", "--streams", "1024", "--in-flight", &in_flight.to_string()];
        let name = format!("closed loop, {in_flight} in flight");
        Ok::<Load, String>(Load { name, ..load(options, server, file, &words, Some(short))? })
    };
    for in_flight in LADDER {
        loads.push(closed(in_flight)?);
    }
    let (best, in_flight) = loads
        .iter()
        .zip(LADDER)
        .map(|(load, in_flight)| (load.goodput_per_s, in_flight))
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .ok_or("the ladder is empty")?;
    let words = ["slice", "--streams", "1024", "--in-flight", &IN_FLIGHT.to_string()];
    let overload = beside_admin(options, server, file, &words)?;
    loads.push(Load { name: format!("closed loop, {IN_FLIGHT} in flight"), ..overload });
    let rate = format!("{:.0}", best * RATE_FACTOR);
    let words = ["slice", "--streams", "2048", "--max-in-flight", "32768", "--rate", &rate];
    let overload = beside_admin(options, server, file, &words)?;
    loads.push(Load { name: format!("open loop, {rate} a second"), ..overload });
    let words = ["slice", "--streams", "1024", "--in-flight", &in_flight.to_string()];
    let after = load(options, server, file, &words, Some(short))?;
    loads.push(Load { name: format!("closed loop, {in_flight} in flight, after"), ..after });
    judge(&mut loads);
    loads.iter().for_each(|load| println!("{}", load.line()));
    Ok(loads)
}

/// Compares the goodput of overloads and of the recovery with the best one.
fn judge(loads: &mut [Load]) {
    let best = loads.iter().map(|load| load.goodput_per_s).fold(0.0, f64::max);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    for (index, load) in loads.iter_mut().enumerate() {
        load.of_best = load.goodput_per_s / best;
        if index < LADDER.len() || load.of_best >= GOODPUT_MIN {
            continue;
        }
        let (percent, least) = (load.of_best * 100.0, GOODPUT_MIN * 100.0);
        let text = format!("goodput is {percent:.1} % of the best, at least {least:.0} %");
        let foreign = load.cpu.foreign(cores);
        if foreign > FOREIGN_MAX {
            let part = foreign * 100.0;
            load.unclear.push(format!("{text}; other programs and the host took {part:.0} % of the machine"));
        } else {
            load.reasons.push(text);
        }
    }
}

/// Runs a load beside the administrator, and checks the server afterwards.
fn beside_admin(options: &Options, server: &mut Server, file: &Path, words: &[&str]) -> Result<Load, String> {
    let panics = server.panics().len();
    server.memory.take_peak();
    let admin = Admin::start(server.target);
    let outcome = load(options, server, file, words, Some(options.time));
    let visits = admin.stop();
    let mut load = outcome?;
    load.resident_mib = server.memory.take_peak() >> 20;
    load.reasons.extend(server.check().err().map(|how| format!("the server died: {how}")));
    load.reasons.extend(server.panics().get(panics).map(|line| format!("the server panicked: {line}")));
    if load.resident_mib > RESIDENT_MAX >> 20 {
        load.reasons.push(format!("{} MiB resident, at most {}", load.resident_mib, RESIDENT_MAX >> 20));
    }
    for (way, visits) in visits {
        load.admin_ms.push((way.to_owned(), visits.max_ms));
        if visits.failures.labels().next().is_some() {
            load.reasons.push(format!("administrator over {way}: {}", visits.failures.summary()));
        }
    }
    Ok(load)
}

/// Runs `fairlane load` and reads its report.
fn load(
    options: &Options,
    server: &Server,
    file: &Path,
    words: &[&str],
    time: Option<Duration>,
) -> Result<Load, String> {
    let failed = |error: std::io::Error| format!("starting the load generator failed: {error}");
    let mut command = Command::new(&options.server);
    command.arg("load").args(words).args(["--keys", KEYS, "--user", ADMIN, "--quiet"]);
    command.args(["--hosts", &server.target.cql.to_string()]);
    command.args(time.iter().flat_map(|time| ["--duration".to_owned(), format!("{}s", time.as_secs())]));
    command.arg("--json").arg(file).env("FAIRLANE_PASSWORD", PASSWORD);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().map_err(failed)?;
    let phase = Phase::begin(server.pid());
    let mut generator_s = 0.0;
    let deadline = Instant::now() + time.unwrap_or_default() + GRACE;
    loop {
        generator_s = cpu::of_process(child.id()).max(generator_s);
        match child.try_wait() {
            Ok(Some(_)) => break,
            Ok(None) if Instant::now() < deadline => std::thread::sleep(CHILD_POLL),
            _ => {
                drop(child.kill());
                drop(child.wait());
                return Err(format!("`fairlane load {}` did not end", words.join(" ")));
            }
        }
    }
    // Ignore the exit status, which an overloaded run may change. The report decides.
    let text = std::fs::read_to_string(file).map_err(|error| {
        format!("`fairlane load {}` left no report in {}: {error}", words.join(" "), file.display())
    })?;
    drop(std::fs::remove_file(file));
    let load = parse(&text).map(|load| Load { cpu: phase.end(generator_s), ..load });
    load.ok_or_else(|| format!("expected a report of `fairlane load`, got `{text:.200}`"))
}

/// Parses the report of `fairlane load`.
fn parse(text: &str) -> Option<Load> {
    let report: serde_json::Value = serde_json::from_str(text).ok()?;
    let step = report.get("steps")?.get(0)?;
    let count = |name: &str| step.get(name)?.as_u64();
    let seconds = step.get("seconds")?.as_f64()?;
    Some(Load {
        seconds,
        sent_per_s: count("sent")? as f64 / seconds,
        goodput_per_s: count("answered")? as f64 / seconds,
        overloaded: count("overloaded")?,
        other_errors: count("errors")?.checked_sub(count("overloaded")?)?,
        lost: count("lost")? + count("unanswered")?,
        unsent: count("unsent")?,
        generator_cpu: report.get("generator_cpu")?.as_f64()?,
        ..Load::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Cpu;

    #[test]
    fn generator_report_is_parsed() {
        let text = r#"{"generator_cpu":0.5,"steps":[{"seconds":2.0,"sent":100,"answered":60,"errors":30,
            "overloaded":28,"lost":1,"unanswered":9,"unsent":4}]}"#;
        let load = parse(text).expect("a report");
        assert_eq!(
            (load.sent_per_s, load.goodput_per_s, load.overloaded, load.other_errors),
            (50.0, 30.0, 28, 2)
        );
        assert_eq!((load.lost, load.unsent), (10, 4));
        assert!(parse("{}").is_none());
    }

    #[test]
    fn goodput_below_nine_tenths_of_the_best_fails() {
        let load = |goodput_per_s: f64, others_s: f64| {
            let cpu = Cpu { wall_s: 1.0, others_s, ..Cpu::default() };
            Load { goodput_per_s, cpu, ..Load::default() }
        };
        let ladder = [load(10.0, 0.0), load(100.0, 0.0), load(90.0, 0.0)];
        let overloads = [load(90.0, 0.0), load(89.0, 0.0), load(89.0, 9.0)];
        let mut loads = [ladder, overloads].concat();
        judge(&mut loads);
        let found: Vec<_> = loads.iter().map(|load| (load.reasons.len(), load.unclear.len())).collect();
        assert_eq!(found, [(0, 0), (0, 0), (0, 0), (0, 0), (1, 0), (0, 1)]);
        assert!(loads[4].reasons[0].contains("89.0 % of the best"));
    }
}
