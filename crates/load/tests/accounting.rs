//! Accounting of a load: due = sent + unsent, and sent = answered + errors + lost + unanswered,
//! whatever the server does. No test asserts a duration.
#![expect(clippy::disallowed_methods, reason = "the load generator stands outside the lanes")]

mod fake;

use std::sync::atomic::Ordering;
use std::time::Duration;

use fake::{Fake, Script};
use load::session::Session;
use load::{
    Experiment, LoadError, Pacing, RateStep, RepeatedLoad, Report, Spec, StepReport, StopFlag, Workload,
};

fn spec(fake: &Fake) -> Spec {
    Spec {
        hosts: vec![fake.address.to_string()],
        pacing: Pacing::Closed { in_flight: 8, seconds: 0.3 },
        connections: 4,
        threads: 2,
        drain_s: 2.0,
        ..Spec::default()
    }
}

fn open(rate_per_s: f64, seconds: f64) -> Pacing {
    Pacing::Open(vec![RateStep { rate_per_s, seconds }])
}

fn check_balance(step: &StepReport) {
    assert_eq!(step.due, step.sent + step.unsent + step.turned_away, "{step:?}");
    assert_eq!(step.sent, step.answered + step.errors + step.lost + step.unanswered, "{step:?}");
    let kinds = [&step.reads, &step.writes].map(|kind| kind.as_ref().map_or(0, |kind| kind.count));
    assert_eq!(step.answered, kinds[0] + kinds[1], "{step:?}");
}

/// Runs a load against a scripted server, checks the accounting, and returns the report.
fn check(script: Script, change: impl Fn(&mut Spec)) -> (Report, Fake) {
    let fake = Fake::start(script);
    let mut spec = spec(&fake);
    change(&mut spec);
    let mut observed = Vec::new();
    let report = load::run(&spec, &StopFlag::new(), |second| observed.push(second.clone())).expect("it runs");
    assert_eq!(observed, report.seconds);
    report.steps.iter().for_each(check_balance);
    let total = |field: fn(&StepReport) -> u64| report.steps.iter().map(field).sum::<u64>();
    if spec.warmup_s == 0.0 {
        assert_eq!(report.seconds.iter().map(|second| second.sent).sum::<u64>(), total(|s| s.sent));
        assert_eq!(report.seconds.iter().map(|second| second.all.ops).sum::<u64>(), total(|s| s.answered));
    }
    assert!(report.seconds.windows(2).all(|w| w[0].unix_ms <= w[1].unix_ms));
    let json = serde_json::to_string(&report).expect("a report serializes");
    let back: Report = serde_json::from_str(&json).expect("the JSON parses");
    assert_eq!(back.steps.len(), report.steps.len());
    assert!(report.text().contains("answers/s"));
    (report, fake)
}

#[test]
fn closed_loop_keeps_its_number_in_flight() {
    let (report, fake) = check(Script { rows: 1, ..Script::default() }, |_| {});
    let step = &report.steps[0];
    assert!(step.answered > 0 && step.in_flight_max == 8, "{step:?}");
    assert_eq!(step.sent, fake.seen.executes.load(Ordering::Relaxed));
    assert_eq!(step.reads.as_ref().map(|reads| (reads.rows, reads.empty)), Some((step.answered, 0)));
    assert!(fake.seen.queries.lock().expect("no panic")[1].contains("CREATE TABLE IF NOT EXISTS"));
}

#[test]
fn open_loop_arrivals_do_not_depend_on_the_server() {
    let due =
        |script: Script| check(script, |s| (s.pacing, s.drain_s) = (open(2000.0, 0.4), 0.1)).0.steps[0].due;
    let quick = due(Script::default());
    assert!((quick as f64 - 800.0).abs() < 5.0 * 800f64.sqrt(), "{quick} due");
    assert_eq!(quick, due(Script { silent_from: Some(1), ..Script::default() }));
    assert_eq!(quick, due(Script { fail_every: Some(2), ..Script::default() }));
}

#[test]
fn steps_and_warm_up_are_reported_separately() {
    let (report, _fake) = check(Script::default(), |s| {
        s.warmup_s = 0.1;
        let step = |rate_per_s, seconds| RateStep { rate_per_s, seconds };
        s.pacing = Pacing::Open(vec![step(500.0, 0.2), step(0.0, 0.1), step(3000.0, 0.2)]);
    });
    let due: Vec<f64> = report.steps.iter().map(|step| step.due as f64).collect();
    assert!((due[0] - 100.0).abs() < 50.0 && due[1] == 0.0 && (due[2] - 600.0).abs() < 123.0, "{due:?}");
    assert!(report.seconds.iter().any(|second| second.step == -1));
    assert!(report.warnings.iter().any(|warning| warning.contains("found nothing")), "{:?}", report.warnings);
}

#[test]
fn limit_on_requests_in_flight_is_kept_and_reported() {
    let (report, fake) = check(Script { silent_from: Some(1), ..Script::default() }, |s| {
        (s.pacing, s.max_in_flight, s.drain_s) = (open(1000.0, 0.3), 4, 0.1);
    });
    let step = &report.steps[0];
    assert_eq!((step.sent, step.unanswered, step.in_flight_max), (4, 4, 4));
    assert_eq!(step.unsent, step.due - 4);
    assert_eq!(fake.seen.executes.load(Ordering::Relaxed), 4);
    assert!(report.warnings.iter().any(|warning| warning.contains("never sent")), "{:?}", report.warnings);
}

#[test]
fn requests_delayed_by_the_limit_are_counted() {
    let slow = Script { delay: Duration::from_millis(10), rows: 1, ..Script::default() };
    let (report, _fake) = check(slow, |s| {
        (s.pacing, s.max_in_flight, s.streams, s.threads) = (open(2000.0, 0.3), 4, 1, 1);
    });
    let step = &report.steps[0];
    // Four connections send at most 100 requests a second each, far fewer than were due.
    assert!(step.held_back > 0 && step.unsent > 0, "{step:?}");
    assert!(step.in_flight_max <= 4);
}

#[test]
fn refused_client_sends_nothing_before_its_time() {
    let patient = |s: &mut Spec| (s.pacing, s.time_limit_s) = (open(2000.0, 0.4), Some(30.0));
    let refusing = Script { fail_every: Some(1), retry_ms: 3_600_000, ..Script::default() };
    let (report, fake) = check(refusing, patient);
    let step = &report.steps[0];
    assert!(step.turned_away > 0 && step.in_time == 0, "{step:?}");
    // Each of the four clients is refused, with what it sent until it was told.
    assert_eq!(step.sent, fake.seen.executes.load(Ordering::Relaxed));
    assert_eq!(step.errors, step.sent, "{step:?}");
    let (report, _fake) = check(Script { rows: 1, ..Script::default() }, patient);
    let step = &report.steps[0];
    assert!(step.turned_away == 0 && step.in_time > 0 && step.in_time <= step.answered, "{step:?}");
}

#[test]
fn client_that_gives_up_keeps_no_backlog() {
    let (report, _fake) = check(Script { silent_from: Some(1), ..Script::default() }, |s| {
        (s.pacing, s.max_in_flight, s.drain_s) = (open(2000.0, 0.3), 4, 0.1);
        s.time_limit_s = Some(0.1);
    });
    let step = &report.steps[0];
    assert_eq!((step.sent, step.unsent, step.held_back), (4, step.due - 4, 0), "{step:?}");
}

#[test]
fn errors_are_counted_by_code_and_overload_separately() {
    let (report, _fake) = check(Script { fail_every: Some(3), ..Script::default() }, |_| {});
    let step = &report.steps[0];
    assert!(step.overloaded > 0 && step.overloaded == step.errors, "{step:?}");
    let codes = &step.error_codes;
    assert_eq!((codes[0].code, codes[0].example.as_str(), codes[0].count), (0x1001, "too much", step.errors));
}

#[test]
fn broken_connection_is_counted_and_opened_again() {
    let fake = Fake::start(Script { drop_at: Some(20), ..Script::default() });
    let spec = Spec { pacing: Pacing::Closed { in_flight: 8, seconds: 60.0 }, ..spec(&fake) };
    let connections = || fake.seen.connections.load(Ordering::Relaxed);
    let stop = StopFlag::new();
    // One connection for the set-up, four at the start, and one opened again. Stop after that.
    let report = load::run(&spec, &stop, |_| {
        if connections() == 6 {
            stop.set();
        }
    });
    let report = report.expect("it runs");
    assert!(report.stopped, "the connection was not opened again within a minute");
    let step = &report.steps[0];
    check_balance(step);
    assert!(step.connections_broken == 1 && step.lost > 0, "{step:?}");
    assert_eq!(connections(), 6);
    assert!(report.warnings.iter().any(|warning| warning.contains("opened again")), "{:?}", report.warnings);
}

#[test]
fn unprepared_statement_is_prepared_again() {
    let (report, fake) = check(Script { forget_at: Some(10), ..Script::default() }, |_| {});
    assert_eq!(report.steps[0].error_codes[0].code, 0x2500);
    assert_eq!((report.steps[0].errors, report.steps[0].lost), (1, 0));
    assert_eq!(fake.seen.prepares.load(Ordering::Relaxed), 2);
}

#[test]
fn requests_reach_the_shard_that_owns_their_key() {
    let check = |route: bool, pacing: Pacing, threads: usize| {
        let (report, fake) = check(Script { shards: Some(3), rows: 1, ..Script::default() }, |s| {
            (s.route, s.pacing, s.connections, s.threads) = (route, pacing.clone(), 12, threads);
        });
        let [owned, foreign] =
            [&fake.seen.owned, &fake.seen.foreign].map(|count| count.load(Ordering::Relaxed));
        assert_eq!(owned + foreign, report.steps[0].sent);
        assert!(report.steps[0].in_flight_max <= 8 || matches!(pacing, Pacing::Open(_)));
        if route { assert_eq!(foreign, 0) } else { assert!(foreign > 0) }
    };
    let closed = Pacing::Closed { in_flight: 8, seconds: 0.2 };
    check(true, closed.clone(), 1);
    check(true, closed.clone(), 2);
    check(true, open(2000.0, 0.2), 2);
    check(false, closed, 2);
}

#[test]
fn prefill_writes_every_row_once_despite_errors() {
    for (per_partition, keys) in [(0, 500), (7, 60)] {
        let (report, fake) = check(Script { fail_every: Some(10), ..Script::default() }, |s| {
            (s.workload, s.keys.population, s.keys.slice) = (Workload::Prefill, keys, (2, 2));
            s.rows.per_partition = per_partition;
        });
        let written = fake.seen.written.lock().expect("no panic");
        let rows = keys / 2 * per_partition.max(1);
        let wanted: std::collections::BTreeSet<u64> = (keys / 2..keys).collect();
        let found =
            written.keys().map(|(key, _)| u64::from_be_bytes(key[..].try_into().expect("eight bytes")));
        assert_eq!(found.collect::<std::collections::BTreeSet<u64>>(), wanted);
        assert_eq!(written.values().sum::<u64>(), rows, "each row is written once");
        assert_eq!(report.steps[0].answered, rows);
        assert!(
            !report.warnings.iter().any(|warning| warning.contains("not written")),
            "{:?}",
            report.warnings
        );
    }
}

#[test]
fn prefill_gives_up_and_reports_missing_rows() {
    let (report, _fake) = check(Script { fail_every: Some(1), ..Script::default() }, |s| {
        s.workload = Workload::Prefill;
    });
    assert!(report.warnings.iter().any(|warning| warning.contains("not written")), "{:?}", report.warnings);
}

#[test]
fn mixed_and_slice_loads_send_their_requests() {
    let (report, _fake) = check(Script { rows: 1, ..Script::default() }, |s| {
        (s.workload, s.write_ratio, s.pacing) = (Workload::Mixed, 0.25, open(4000.0, 0.5));
    });
    let step = &report.steps[0];
    let writes = step.writes.as_ref().map_or(0, |writes| writes.count) as f64 / step.answered as f64;
    assert!((writes - 0.25).abs() < 0.06, "{writes}");
    let (report, _fake) = check(Script { rows: 100, ..Script::default() }, |s| {
        (s.workload, s.rows.per_partition) = (Workload::Slice, 1000);
    });
    let step = &report.steps[0];
    assert_eq!(step.reads.as_ref().map(|reads| reads.rows), Some(100 * step.answered));
}

#[test]
fn stopped_run_reports_its_results() {
    let fake = Fake::start(Script { rows: 1, ..Script::default() });
    let spec = Spec { pacing: Pacing::Closed { in_flight: 4, seconds: 3600.0 }, ..spec(&fake) };
    let stop = StopFlag::new();
    let mut seconds = 0;
    let report = load::run(&spec, &stop, |_| {
        seconds += 1;
        stop.set();
    });
    let report = report.expect("it runs");
    assert!(report.stopped && seconds >= 1 && report.steps[0].answered > 0);
    assert!(report.steps[0].seconds < 600.0, "the measured time, not the configured time");
    check_balance(&report.steps[0]);
}

#[test]
fn failed_start_returns_the_reason() {
    let fake = Fake::start(Script { password: Some("right"), ..Script::default() });
    let start_error = |user: Option<&str>, password: Option<&str>| {
        let owned = |text: Option<&str>| text.map(str::to_string);
        let spec = Spec { user: owned(user), password: owned(password), ..spec(&fake) };
        load::run(&spec, &StopFlag::new(), |_| {}).err()
    };
    assert!(start_error(Some("tester"), Some("right")).is_none());
    assert!(matches!(start_error(Some("tester"), Some("wrong")), Some(LoadError::Credentials { .. })));
    assert!(matches!(start_error(None, None), Some(LoadError::Credentials { .. })));

    let bare = Fake::start(Script { no_table: true, ..Script::default() });
    let missing = load::run(&Spec { create: false, ..spec(&bare) }, &StopFlag::new(), |_| {});
    assert!(
        matches!(&missing, Err(LoadError::NoTable(table)) if table == "keyspace1.standard1"),
        "{missing:?}"
    );

    let unused =
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port");
    let spec = Spec { hosts: vec![unused.to_string()], ..spec(&bare) };
    let error = load::run(&spec, &StopFlag::new(), |_| {}).expect_err("no listener").to_string();
    assert!(error.contains(&unused.to_string()) && error.contains("cannot connect"), "{error}");
}

#[test]
fn session_reads_all_pages() {
    let fake = Fake::start(Script { rows: 25, page_rows: 10, password: Some("right"), ..Script::default() });
    let wait = Duration::from_secs(10);
    let session = Session::connect(&fake.address.to_string(), Some("tester"), Some("right"), wait);
    let mut session = session.expect("the password is right");
    let rows = session.query("SELECT * FROM t").expect("rows");
    assert_eq!((rows.len(), &rows[24]), (25, &vec![Some(b"a key".to_vec()), None]));
    let statement = session.prepare("INSERT INTO t (a, b) VALUES (?, ?)").expect("prepared");
    assert_eq!(statement.markers, 2);
    assert!(session.execute(&statement, &[Some(b"k"), None]).expect("void").is_empty());
    assert!(session.supported().iter().any(|(name, _)| name == "CQL_VERSION"));
    let error =
        Session::connect(&fake.address.to_string(), Some("tester"), None, wait).expect_err("no password");
    assert!(error.to_string().contains("--password-file"), "{error}");
}

#[test]
fn concurrency_is_measured_and_connections_take_turns() {
    let (report, fake) =
        check(Script { rows: 1, delay: Duration::from_millis(1), ..Script::default() }, |s| {
            (s.pacing, s.connections, s.threads) = (Pacing::Closed { in_flight: 2, seconds: 0.5 }, 5, 1);
            s.in_turn = true;
        });
    let step = &report.steps[0];
    assert!(step.in_flight_mean > 1.0 && step.in_flight_mean < 2.0 + 1e-6, "{step:?}");
    assert_eq!(step.in_flight_max, 2);
    assert_eq!(fake.seen.used.lock().expect("no panic").len(), 5, "each connection is used");
}

#[test]
fn ladder_measures_each_concurrency_over_the_same_connections() {
    let fake = Fake::start(Script { rows: 1, delay: Duration::from_millis(1), ..Script::default() });
    let load = RepeatedLoad::Cql(Spec { threads: 1, ..spec(&fake) });
    let experiment = Experiment { load, seconds: 0.2, seed: 1, metrics: None };
    let plan = load::usl::LadderPlan { experiment, rungs: vec![1, 2, 4, 8], rounds: 1 };
    let found = load::ladder(&plan, &StopFlag::new(), |_| {}).expect("it runs");
    assert_eq!((found.concurrencies(), found.conditions.connections), (vec![1, 2, 4, 8], 4));
    for rung in &found.rungs {
        assert!(rung.n_reached > 0.0 && rung.n_reached < rung.n as f64 + 1e-6 && rung.sent > 0, "{rung:?}");
        assert!(rung.little > 0.0 && rung.server.service_us.is_none(), "{rung:?}");
    }
    // On a busy machine some rungs may be invalid, or a start may look superlinear.
    assert!(found.scaling.is_none() || found.rungs.iter().all(load::usl::Rung::is_valid), "{found:?}");
    let stop = StopFlag::new();
    stop.set();
    assert!(load::ladder(&plan, &stop, |_| {}).expect("it stops").rungs.is_empty());
}

fn sweep(fake: &Fake, bound: usize) -> load::sweep::SweepPlan {
    let load = RepeatedLoad::Cql(Spec { threads: 1, drain_s: 0.1, ..spec(fake) });
    load::sweep::SweepPlan {
        experiment: Experiment { load, seconds: 1.2, seed: 1, metrics: None },
        peak: load::sweep::PeakRate { per_s: 500.0, from: "a test".into() },
        runs: 2,
        bound,
        warnings: Vec::new(),
    }
}

#[test]
fn sweep_runs_open_loops_at_parts_of_the_peak() {
    let fake = Fake::start(Script { rows: 1, ..Script::default() });
    let mut begun = Vec::new();
    let found = load::run_sweep(&sweep(&fake, 512), &StopFlag::new(), |event| {
        if let load::sweep::SweepEvent::Begins { part, .. } = event {
            begun.push(part);
        }
    })
    .expect("it runs");
    assert_eq!(begun, [0.04, 0.4, 1.0, 1.0]);
    for (run, part) in found.runs.iter().zip(begun) {
        let due = 500.0 * part * 1.2;
        assert!((run.counts.sent as f64 - due).abs() < 5.0 * due.sqrt() + 2.0, "{run:?}");
        assert_eq!((run.seconds.len(), run.counts.failed), (2, 0), "{run:?}");
        // Answers after the last second are waited for, and are in none.
        let answered = run.seconds.iter().map(|second| second.answered).sum::<u64>();
        assert!((1..=run.counts.sent).contains(&answered), "{run:?}");
        assert!(
            run.in_flight.n_low <= run.in_flight.n_high
                && run.server.service_us.is_none()
                && run.seconds[0].at_s == 0.0,
            "{run:?}"
        );
    }
    assert!(found.verdict.response.is_some() && found.verdict.service.is_none(), "{:?}", found.verdict);
}

#[test]
fn sweep_of_a_silent_server_reaches_its_bound() {
    let fake = Fake::start(Script { silent_from: Some(1), ..Script::default() });
    let found = load::run_sweep(&sweep(&fake, 8), &StopFlag::new(), |_| {}).expect("it runs");
    assert_eq!((found.verdict.stable, found.planned), (0, 4));
    for run in &found.runs {
        assert!(
            run.in_flight.n_max <= 8 && run.unstable.iter().any(|why| why.contains("bound of 8")),
            "{run:?}"
        );
    }
}

#[test]
fn stopped_sweep_has_its_runs_until_then() {
    let fake = Fake::start(Script { rows: 1, ..Script::default() });
    let stop = StopFlag::new();
    let stopping = |event: load::sweep::SweepEvent<'_>| {
        if let load::sweep::SweepEvent::Begins { run: 2, .. } = event {
            stop.set();
        }
    };
    let found = load::run_sweep(&sweep(&fake, 512), &stop, stopping).expect("it runs");
    assert_eq!((found.runs.len(), found.is_complete()), (2, false));
    assert!(found.runs[0].is_valid() && found.runs[1].invalid.contains(&"it was stopped".to_string()));
    assert!(found.text().contains("stopped after 2 of 4 runs"), "{}", found.text());
}

#[test]
fn command_line_writes_and_merges_files() {
    let fake = Fake::start(Script { rows: 1, ..Script::default() });
    let folder = testkit::Folder::empty("load");
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let run = |line: &str| load::cli(&line.split_whitespace().map(str::to_string).collect::<Vec<_>>());
    for name in ["a", "b"] {
        let json = path(&format!("{name}.json"));
        let hdr = path(&format!("{name}.hdr"));
        let line = format!(
            "read --hosts {} --rate 500 --duration 200ms --quiet --json {json} --hdr {hdr}",
            fake.address
        );
        // 3 means that the machine was too busy for valid results. The files are still written.
        assert!([0, 3].contains(&run(&line)));
    }
    assert_eq!(run(&format!("merge {} {} --json {}", path("a.hdr"), path("b.hdr"), path("sum.json"))), 0);
    let read = |name: &str| -> serde_json::Value {
        let text = std::fs::read_to_string(path(name)).expect("it was written");
        serde_json::from_str(&text).expect("JSON")
    };
    let answered = |name: &str| read(name)["steps"][0]["answered"].as_u64().expect("a count");
    assert_eq!(read("sum.json")[0]["count"].as_u64(), Some(answered("a.json") + answered("b.json")));
    let line = format!(
        "usl read --hosts {} --ladder 1,2,4 --ladder-rounds 2 --duration 100ms --warmup 0s --quiet --json {}",
        fake.address,
        path("usl.json")
    );
    assert_eq!(run(&line), 3, "three concurrencies determine no law");
    assert_eq!(read("usl.json")["rungs"].as_array().map(Vec::len), Some(6));
    assert_eq!(run(&format!("usl read --hosts {} --ladder 1,20000", fake.address)), 2);
    assert_eq!(run("dance"), 2);
    assert_eq!(run("merge /nonexistent.hdr"), 1);
}
