//! Accounting of `fairlane load sql`: every query is counted, whatever the server does. The fake
//! server speaks a minimum of the Postgres protocol. No test asserts a duration.
#![expect(clippy::disallowed_methods, reason = "the load generator stands outside the lanes")]

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use load::{Experiment, RepeatedLoad};
use serde_json::Value;

/// Behaviour of the server. Query numbers are over all connections.
#[derive(Clone, Copy, Debug, Default)]
struct Script {
    /// Every n-th query fails for lack of memory.
    fail_every: u64,
    /// This query (from 1) is lost together with its connection.
    drop_at: u64,
    /// Queries from this number on get no answer.
    silent_from: u64,
    delay: Duration,
}

#[derive(Debug, Default)]
struct Seen {
    /// Client ports of the connections with a query.
    used: Mutex<BTreeSet<u16>>,
    queries: AtomicU64,
    setups: AtomicU64,
    cancels: AtomicU64,
}

fn start(script: Script) -> (SocketAddr, Arc<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let seen = Arc::new(Seen::default());
    let counted = seen.clone();
    // The thread ends with the test process.
    std::thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let seen = counted.clone();
            std::thread::spawn(move || serve(stream, script, &seen));
        }
    });
    (address, seen)
}

/// Appends a message: kind, length including itself, body.
fn message(out: &mut Vec<u8>, kind: u8, body: &[u8]) {
    out.push(kind);
    out.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    out.extend_from_slice(body);
}

const CANCEL: u32 = 80_877_102;

fn serve(mut stream: TcpStream, script: Script, seen: &Seen) -> std::io::Result<()> {
    let port = stream.peer_addr()?.port();
    let mut head = [0; 8];
    stream.read_exact(&mut head)?;
    let [length, code] =
        [0, 4].map(|at| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
    if code == CANCEL {
        seen.cancels.fetch_add(1, Ordering::Relaxed);
        return Ok(());
    }
    stream.read_exact(&mut vec![0; length as usize - 8])?;
    let mut out = Vec::new();
    message(&mut out, b'R', &[0; 4]);
    message(&mut out, b'K', &[0; 8]);
    message(&mut out, b'Z', b"I");
    stream.write_all(&out)?;
    loop {
        let mut head = [0; 5];
        stream.read_exact(&mut head)?;
        let mut body = vec![0; u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize - 4];
        stream.read_exact(&mut body)?;
        if head[0] != b'Q' {
            return Ok(());
        }
        out.clear();
        if body.starts_with(b"SET ") {
            seen.setups.fetch_add(1, Ordering::Relaxed);
            message(&mut out, b'C', b"SET\0");
        } else if !query(&mut out, script, seen, port) {
            return Ok(());
        }
        if !out.is_empty() {
            message(&mut out, b'Z', b"I");
        }
        stream.write_all(&out)?;
    }
}

/// Answers a query with two rows, or as scripted. Returns false to close the connection.
fn query(out: &mut Vec<u8>, script: Script, seen: &Seen, port: u16) -> bool {
    seen.used.lock().expect("no panic").insert(port);
    let number = seen.queries.fetch_add(1, Ordering::Relaxed) + 1;
    std::thread::sleep(script.delay);
    if script.drop_at == number {
        return false;
    }
    if script.silent_from > 0 && number >= script.silent_from {
        return true;
    }
    if script.fail_every > 0 && number.is_multiple_of(script.fail_every) {
        message(out, b'E', b"SERROR\0C53200\0Mout of memory\0Hallow more\0\0");
        return true;
    }
    message(out, b'T', b"\0\x01n\0\0\0\0\0\0\0\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0");
    for row in [b"\0\x01\0\0\0\x011", b"\0\x01\0\0\0\x012"] {
        message(out, b'D', row);
    }
    message(out, b'C', b"SELECT 2\0");
    true
}

/// Runs a load of two queries, checks the accounting, and returns the report.
fn check(name: &str, script: Script, flags: &str) -> (Value, Arc<Seen>) {
    let (address, seen) = start(script);
    let folder = testkit::Folder::empty(&format!("queries-{name}"));
    for query in ["q01", "q02"] {
        std::fs::write(folder.join(format!("{query}.sql")), "-- a comment\nselect 1;\n").expect("written");
    }
    let path = folder.display();
    let line = format!(
        "sql --queries {path} --search-path tpch --hosts {address} \
         --json {path}/report --hdr {path}/hdr --quiet {flags}"
    );
    let code = load::cli(&line.split_whitespace().map(str::to_string).collect::<Vec<_>>());
    let report: Value =
        serde_json::from_str(&std::fs::read_to_string(folder.join("report")).expect("a report"))
            .expect("JSON");
    assert!(std::fs::read_to_string(folder.join("hdr")).is_ok_and(|text| text.starts_with("fairlane-load")));
    assert_eq!(code, 0, "{report}");
    for step in report["steps"].as_array().expect("steps") {
        let n = |field: &str| step[field].as_u64().expect(field);
        assert_eq!(n("due"), n("sent") + n("unsent"), "{step}");
        assert_eq!(n("sent"), n("answered") + n("errors") + n("lost") + n("unanswered"), "{step}");
        let of_queries = |field: &str| {
            step["queries"].as_array().expect("queries").iter().filter_map(|q| q[field].as_u64()).sum::<u64>()
        };
        assert_eq!(
            (n("answered"), n("errors") + n("lost")),
            (of_queries("count"), of_queries("failed")),
            "{step}"
        );
    }
    (report, seen)
}

fn total(report: &Value, field: &str) -> u64 {
    report["steps"].as_array().expect("steps").iter().filter_map(|step| step[field].as_u64()).sum()
}

#[test]
fn rounds_limit_the_runs_of_every_query() {
    let (report, seen) = check("rounds", Script::default(), "--rounds 5 --concurrency 3");
    assert_eq!(seen.queries.load(Ordering::Relaxed), 10);
    let counts: Vec<(&str, u64, u64)> = report["steps"][0]["queries"]
        .as_array()
        .expect("queries")
        .iter()
        .filter_map(|q| Some((q["name"].as_str()?, q["count"].as_u64()?, q["rows"].as_u64()?)))
        .collect();
    assert_eq!(counts, [("q01", 5, 10), ("q02", 5, 10)]);
    assert_eq!(seen.setups.load(Ordering::Relaxed), 3, "one on every connection");
}

#[test]
fn closed_loop_continues_after_errors_and_losses() {
    let script = Script { fail_every: 3, drop_at: 20, delay: Duration::from_millis(1), ..Script::default() };
    let (report, _) = check("closed", script, "--duration 600ms --warmup 100ms --concurrency 4");
    assert!(total(&report, "answered") > 0 && total(&report, "overloaded") > 0, "{report}");
    assert_eq!(total(&report, "overloaded"), total(&report, "errors"), "{report}");
    let error = &report["steps"][0]["error_codes"][0];
    assert_eq!(
        (error["name"].as_str(), error["example"].as_str()),
        (Some("53200"), Some("out of memory (allow more)"))
    );
}

#[test]
fn open_loop_arrivals_do_not_depend_on_the_server() {
    let due = |name: &str, script: Script| {
        let (report, _) = check(name, script, "--rate 400:400ms,100:200ms --concurrency 2 --drain 100ms");
        (total(&report, "due"), report)
    };
    let (quick, report) = due("quick", Script::default());
    assert!((quick as f64 - 180.0).abs() < 5.0 * 180f64.sqrt(), "{quick} due");
    assert_eq!(report["steps"].as_array().map(Vec::len), Some(2));
    let (slow, report) = due("slow", Script { delay: Duration::from_millis(20), ..Script::default() });
    assert_eq!(slow, quick);
    assert!(total(&report, "held_back") > 0 && total(&report, "unsent") > 0, "{report}");
}

#[test]
fn unanswered_queries_are_counted_and_cancelled() {
    let script = Script { silent_from: 3, ..Script::default() };
    let (report, seen) = check("silent", script, "--duration 200ms --concurrency 2 --drain 50ms");
    assert_eq!((total(&report, "answered"), total(&report, "unanswered")), (2, 2), "{report}");
    assert_eq!(seen.cancels.load(Ordering::Relaxed), 2);
}

#[test]
fn open_loop_lasts_its_full_time() {
    // Ending with the last arrival would report too high a rate.
    let (report, _) = check("pause", Script::default(), "--rate 50:100ms,0:200ms");
    let seconds: Vec<f64> = report["steps"]
        .as_array()
        .expect("steps")
        .iter()
        .filter_map(|step| step["seconds"].as_f64())
        .collect();
    assert_eq!(seconds, [0.1, 0.2]);
}

/// Returns a load of one query over six connections.
fn target(address: SocketAddr, warmup_s: f64) -> RepeatedLoad {
    RepeatedLoad::Sql(load::sql::SqlSpec {
        hosts: vec![address.to_string()],
        user: "admin".into(),
        password: None,
        database: "fairlane".into(),
        queries: vec![load::sql::Query { name: "q01".into(), text: "select 1".into() }],
        setup: Vec::new(),
        pacing: load::Pacing::Closed { in_flight: 1, seconds: 1.0 },
        rounds: 0,
        concurrency: 6,
        pipeline: 1,
        warmup_s,
        drain_s: 5.0,
        seed: 1,
    })
}

/// Measures a ladder of these rungs. Without a warm-up N is lower until the first queries are sent.
fn climb(script: Script, rungs: Vec<usize>, warmup_s: f64) -> (load::Ladder, Arc<Seen>) {
    let (address, seen) = start(script);
    let load = target(address, warmup_s);
    let experiment = Experiment { load, seconds: 0.3, seed: 1, metrics: None };
    let plan = load::usl::LadderPlan { experiment, rungs, rounds: 1 };
    (load::ladder(&plan, &load::StopFlag::new(), |_| {}).expect("it runs"), seen)
}

#[test]
fn ladder_of_queries_uses_all_connections_in_turn() {
    let (found, seen) =
        climb(Script { delay: Duration::from_millis(2), ..Script::default() }, vec![1, 4], 0.1);
    assert_eq!(
        (found.concurrencies(), found.conditions.connections, found.conditions.threads),
        (vec![1, 4], 6, 1)
    );
    for rung in &found.rungs {
        assert!((rung.n_reached - rung.n as f64).abs() < 1e-6 && rung.failed == 0, "{rung:?}");
    }
    let used = seen.used.lock().expect("no panic").len();
    assert_eq!(used, 12, "each of six connections is used at both rungs");
}

#[test]
fn more_queries_than_connections_are_pipelined() {
    // The time from an answer to the next query counts as in flight, so that N is reached.
    let (found, seen) =
        climb(Script { delay: Duration::from_millis(1), ..Script::default() }, vec![7, 48], 0.1);
    for rung in &found.rungs {
        assert!((rung.n_reached - rung.n as f64).abs() < 1e-6, "{rung:?}");
        assert!((rung.failed, rung.sent > rung.n as u64) == (0, true), "{rung:?}");
    }
    assert_eq!(seen.used.lock().expect("no panic").len(), 12);
}

#[test]
fn lost_connection_loses_its_pipeline_and_is_opened_again() {
    let script = Script { drop_at: 60, delay: Duration::from_millis(1), ..Script::default() };
    let (found, seen) = climb(script, vec![48], 0.0);
    let failed = found.rungs[0].failed;
    assert!((1..=8).contains(&failed), "{:?}", found.rungs[0]);
    assert_eq!(seen.used.lock().expect("no panic").len(), 7, "six connections and a new one");
}

#[test]
fn sweep_of_queries_is_bounded_and_loses_none() {
    let (address, _) = start(Script { delay: Duration::from_millis(20), ..Script::default() });
    let plan = |bound: usize, peak_per_s: f64| load::sweep::SweepPlan {
        experiment: Experiment { load: target(address, 0.0), seconds: 1.2, seed: 1, metrics: None },
        peak: load::sweep::PeakRate { per_s: peak_per_s, from: "a test".into() },
        runs: 1,
        bound,
        warnings: Vec::new(),
    };
    // Six connections answer 300 a second.
    let found = load::run_sweep(&plan(512, 100.0), &load::StopFlag::new(), |_| {}).expect("it runs");
    for run in &found.runs {
        assert_eq!((run.counts.held_back, run.counts.failed), (0, 0), "{run:?}");
        let answered = run.seconds.iter().map(|second| second.answered).sum::<u64>();
        assert!((1..=run.counts.sent).contains(&answered), "{run:?}");
    }
    let crowded = load::run_sweep(&plan(12, 2000.0), &load::StopFlag::new(), |_| {}).expect("it runs");
    let last = crowded.runs.last().expect("three runs");
    assert!(last.counts.held_back > 0 && last.in_flight.n_max == 12 && !last.unstable.is_empty(), "{last:?}");
}
