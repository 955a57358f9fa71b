//! A wall clock that steps back, over restarts and between cores: acknowledged writes stay, and of
//! two conditional writes one wins.

use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use embedded::{Embedded, WallClock};
use engine::{Engine, Execution, ParsedTree, Request, StatementOutcome};
use lanes::Group;
use testkit::{Folder, KEYSPACE, Setup, close_engines, run, texts};

const NOON_US: i64 = 1_800_000_000_000_000;
const HOUR_US: i64 = 3_600_000_000;

/// Data folder and the clock of its machine.
struct Machine {
    dir: Folder,
    now_us: Arc<AtomicI64>,
    events: Arc<Mutex<Vec<String>>>,
}

impl Machine {
    fn new(name: &str) -> Machine {
        let dir = Folder::new(&format!("clock-{name}"));
        Machine { dir, now_us: Arc::new(AtomicI64::new(NOON_US)), events: Arc::default() }
    }

    fn back(&self, hours: i64) {
        self.now_us.fetch_sub(hours * HOUR_US, SeqCst);
    }

    /// Runs statements on a server with `cores` cores, each on the core given with it. Returns
    /// their results. The server ends as in a crash: nothing is flushed.
    fn run(&self, cores: usize, statements: &[(usize, &str)]) -> Vec<String> {
        let now_us = self.now_us.clone();
        let events = self.events.clone();
        let event_sink = storage::EventSink::new(move |event| {
            if event.is_bad() {
                events.lock().unwrap().push(event.to_string());
            }
        });
        let setup = Setup::new(cores).dir(Some(&self.dir)).options(|options| options.event_sink = event_sink);
        let lanes = setup.clock(WallClock::new(move || now_us.load(SeqCst))).start();
        let mut answers = Vec::new();
        for (core, text) in statements {
            let text = (*text).to_owned();
            answers.push(lanes.block_on(*core, Group::DEFAULT, move || async move {
                answer(&testkit::engine(), &text).await
            }));
        }
        lanes.shutdown();
        answers
    }
}

async fn answer(engine: &Embedded, text: &str) -> String {
    match run(engine, text).await {
        Ok(StatementOutcome::Rows(rows)) => {
            texts(&rows).iter().map(|row| row.join(",")).collect::<Vec<_>>().join(" ")
        }
        Ok(_) => "done".into(),
        Err(error) => format!("! {error}"),
    }
}

#[test]
fn schema_changes_stay_after_a_step_back() {
    let machine = Machine::new("schema");
    let steps = [
        (0, KEYSPACE),
        (0, "CREATE TABLE old (k int PRIMARY KEY)"),
        (0, "CREATE TABLE t (k int PRIMARY KEY, a int)"),
    ];
    machine.run(1, &steps);
    machine.back(1);
    let changes = [
        (0, "CREATE TABLE new (k int PRIMARY KEY)"),
        (0, "DROP TABLE old"),
        (0, "ALTER TABLE t ADD b int"),
        (0, "DROP TABLE new"),
        (0, "CREATE TABLE new (k int PRIMARY KEY, again int)"),
    ];
    assert_eq!(machine.run(1, &changes), ["done"; 5]);
    let questions = [(0, "SELECT again FROM new"), (0, "SELECT b FROM t"), (0, "SELECT * FROM old")];
    assert_eq!(machine.run(1, &questions), ["", "", "! table old does not exist"]);
}

#[test]
fn writes_and_deletes_win_after_a_step_back() {
    let machine = Machine::new("writes");
    let steps = [
        (0, KEYSPACE),
        (0, "CREATE TABLE t (k int PRIMARY KEY, v int)"),
        (0, "CREATE TABLE l (k int PRIMARY KEY, l list<int>)"),
        (0, "INSERT INTO t (k, v) VALUES (1, 1)"),
        (0, "INSERT INTO t (k, v) VALUES (2, 2)"),
        (0, "UPDATE l SET l = [1, 2] WHERE k = 1"),
    ];
    machine.run(2, &steps);
    for round in 0..3 {
        machine.back(1);
        let update = format!("UPDATE t SET v = {} WHERE k = 1", 10 + round);
        let again = format!("INSERT INTO t (k, v) VALUES (2, {round})");
        let append = format!("UPDATE l SET l = l + [{}] WHERE k = 1", 3 + round);
        let steps = [(1, &*update), (0, "DELETE FROM t WHERE k = 2"), (1, &*again), (0, &*append)];
        assert_eq!(machine.run(2, &steps), ["done"; 4]);
    }
    let questions =
        [(0, "SELECT v FROM t WHERE k = 1"), (0, "SELECT v FROM t WHERE k = 2"), (0, "SELECT l FROM l")];
    // A start with another number of cores reads the floors of all of them.
    assert_eq!(machine.run(3, &questions), ["12", "2", "[1, 2, 3, 4, 5]"]);
}

#[test]
fn one_conditional_write_wins_after_a_step_back() {
    let machine = Machine::new("if");
    let steps = [
        (0, KEYSPACE),
        (0, "CREATE TABLE t (k int PRIMARY KEY, owner text)"),
        (0, "INSERT INTO t (k, owner) VALUES (1, 'a')"),
    ];
    machine.run(1, &steps);
    machine.back(1);
    let steps = [
        (0, "UPDATE t SET owner = 'b' WHERE k = 1 IF owner = 'a'"),
        (0, "UPDATE t SET owner = 'c' WHERE k = 1 IF owner = 'a'"),
        (0, "SELECT owner FROM t WHERE k = 1"),
    ];
    assert_eq!(machine.run(1, &steps), ["true", "false,'b'", "'b'"]);
}

/// Covers live and dead cells whose client timestamps are in the future.
#[test]
fn conditional_write_exceeds_future_client_timestamps() {
    let machine = Machine::new("ahead");
    let steps = [
        (0, KEYSPACE),
        (0, "CREATE TABLE t (k int, c int, s int static, v int, PRIMARY KEY (k, c))"),
        (0, "INSERT INTO t (k, c, v) VALUES (1, 1, 1) USING TIMESTAMP 4000000000000000"),
        (0, "UPDATE t SET v = 2 WHERE k = 1 AND c = 1 IF v = 1"),
        (0, "DELETE FROM t USING TIMESTAMP 4000000000000002 WHERE k = 1 AND c = 2"),
        (0, "INSERT INTO t (k, c, v) VALUES (1, 2, 2) IF NOT EXISTS"),
        (0, "DELETE FROM t USING TIMESTAMP 4000000000000003 WHERE k = 2 AND c > 0"),
        (0, "INSERT INTO t (k, c, v) VALUES (2, 3, 3) IF NOT EXISTS"),
        (0, "UPDATE t USING TIMESTAMP 4000000000000004 SET s = 1 WHERE k = 3"),
        (0, "UPDATE t SET s = 2 WHERE k = 3 IF s = 1"),
        (0, "SELECT k, c, s, v FROM t WHERE k IN (1, 2, 3)"),
        (0, "DELETE FROM t WHERE k = 1 AND c = 1 IF EXISTS"),
        (0, "SELECT c FROM t WHERE k = 1"),
        (0, "INSERT INTO t (k, c, v) VALUES (4, 4, 4) USING TIMESTAMP 9223372036854775807"),
        (0, "UPDATE t SET v = 5 WHERE k = 4 AND c = 4 IF v = 4"),
        // A client's timestamp does not raise the server's clock.
        (0, "INSERT INTO t (k, c, v) VALUES (5, 5, 5)"),
        (0, "SELECT writetime(v) FROM t WHERE k = 5"),
    ];
    let answers = machine.run(1, &steps);
    let expected = [
        "done",
        "done",
        "done",
        "true",
        "done",
        "true",
        "done",
        "true",
        "done",
        "true",
        "1,1,null,2 1,2,null,2 2,3,null,3 3,null,2,null",
        "true",
        "2",
        "done",
        "! expected stored timestamps below 2^63 - 1, got one that no conditional write can exceed",
        "done",
    ];
    assert_eq!(answers[..expected.len()], expected);
    let written: i64 = answers[expected.len()].parse().expect("a time");
    assert!((NOON_US..NOON_US + HOUR_US).contains(&written), "{written}");
}

/// Statements of a conditional batch without a condition of their own must exceed stored data too.
#[test]
fn conditional_batches_exceed_each_other() {
    let machine = Machine::new("batches");
    let batch = |v: u32| {
        format!(
            "BEGIN BATCH UPDATE t SET v = 1 WHERE k = 1 AND c = 1 IF s = 1; \
             UPDATE t SET v = {v} WHERE k = 1 AND c = 2 APPLY BATCH"
        )
    };
    let (nine, eight) = (batch(9), batch(8));
    let steps = [
        (0, KEYSPACE),
        (0, "CREATE TABLE t (k int, c int, s int static, v int, PRIMARY KEY (k, c))"),
        (0, "UPDATE t USING TIMESTAMP 4000000000000000 SET s = 1 WHERE k = 1"),
        (0, &*nine),
        (0, &*eight),
        (0, "SELECT v FROM t WHERE k = 1 AND c = 2"),
    ];
    assert_eq!(machine.run(1, &steps)[3..], ["true", "true", "8"]);
}

#[test]
fn cores_share_one_clock() {
    let machine = Machine::new("cores");
    let steps = [(0, KEYSPACE), (0, "CREATE TABLE t (k int PRIMARY KEY, v int)")];
    machine.run(3, &steps);
    // Each core dates its first write of this run by a clock that goes back one minute per read.
    let now_us = machine.now_us.clone();
    let statements: Vec<(usize, String)> =
        (0..9).map(|n| (n % 3, format!("UPDATE t SET v = {n} WHERE k = 1"))).collect();
    let clock = WallClock::new(move || now_us.fetch_sub(60_000_000, SeqCst));
    let lanes = Setup::new(3).dir(Some(&machine.dir)).clock(clock).start();
    for (n, (core, text)) in statements.into_iter().enumerate() {
        let seen = lanes.block_on(core, Group::DEFAULT, move || async move {
            let engine = testkit::engine();
            answer(&engine, &text).await;
            answer(&engine, "SELECT v FROM t WHERE k = 1").await
        });
        assert_eq!(seen, n.to_string());
    }
    lanes.shutdown();
}

#[test]
fn wall_clock_that_went_back_is_reported_once() {
    let machine = Machine::new("report");
    let steps =
        [(0, KEYSPACE), (0, "CREATE TABLE t (k int PRIMARY KEY)"), (1, "INSERT INTO t (k) VALUES (1)")];
    machine.run(2, &steps);
    machine.run(2, &[]);
    assert_eq!(*machine.events.lock().unwrap(), [""; 0], "a quick restart is not reported");
    machine.back(1);
    machine.run(2, &[]);
    let events = machine.events.lock().unwrap();
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(events[0].starts_with("the clock is 3601"), "{events:?}");
}

#[test]
fn expiry_beyond_the_last_second_is_refused() {
    let machine = Machine::new("expiry");
    // Ten seconds before 2^32 seconds after the epoch.
    machine.now_us.store(((1 << 32) - 10) * 1_000_000, SeqCst);
    let refused = |ttl: u32| {
        format!(
            "! Request on table ks.t with ttl of {ttl} seconds exceeds maximum supported expiration date of \
             2106-02-07T06:28:15+00:00. Use a lower TTL"
        )
    };
    let steps = [
        (0, KEYSPACE),
        (0, "CREATE TABLE t (k int PRIMARY KEY, v int) WITH default_time_to_live = 3600"),
        (0, "INSERT INTO t (k, v) VALUES (1, 1) USING TTL 10"),
        (0, "UPDATE t USING TTL 630720000 SET v = 2 WHERE k = 1"),
        (0, "INSERT INTO t (k, v) VALUES (1, 3)"),
        (0, "INSERT INTO t (k, v) VALUES (1, 4) USING TTL 0"),
        (0, "SELECT v FROM t"),
        (0, "INSERT INTO t (k, v) VALUES (1, 5) USING TTL 9"),
        (0, "SELECT v FROM t"),
    ];
    let expected = [refused(10), refused(630_720_000), refused(3600)];
    let answers = machine.run(1, &steps);
    assert_eq!(answers[2..5], expected);
    assert_eq!(answers[5..], ["done", "4", "done", "5"]);
}

#[test]
fn rejections_and_serial_reads_show_durable_data() {
    let machine = Machine::new("serial");
    machine.run(1, &[(0, KEYSPACE), (0, "CREATE TABLE t (k int PRIMARY KEY, v int)")]);
    let lanes = Setup::new(1).dir(Some(&machine.dir)).start();
    lanes.block_on(0, Group::DEFAULT, || async {
        let engine = testkit::engine();
        let reads = [
            "INSERT INTO t (k, v) VALUES (1, 0) IF NOT EXISTS",
            "UPDATE t SET v = 0 WHERE k = 1 IF v = -1",
            "SELECT v FROM t WHERE k = 1",
            "SELECT v FROM t WHERE k IN (1, 2)",
            "SELECT v FROM t",
        ];
        for (v, text) in reads.into_iter().enumerate() {
            let prepare = |text: &str| {
                engine.prepare(Arc::new(ParsedTree::parse(text).expect(text)), Some("ks")).expect(text)
            };
            let write = prepare(&format!("INSERT INTO t (k, v) VALUES (1, {})", v + 1));
            let read = prepare(text);
            let Execution::Written(number) = engine.execute(&write, &Request::EMPTY) else {
                panic!("this core owns the row");
            };
            let request = Request { serial: true, ..Request::EMPTY };
            let outcome = engine.execute(&read, &request).outcome(&*engine).await.expect(text);
            let StatementOutcome::Rows(rows) = outcome else { panic!("no rows") };
            let last = rows.decoded()[0].last().copied().flatten().map(<[u8]>::to_vec);
            assert_eq!(last, Some((v as i32 + 1).to_be_bytes().to_vec()), "{text} shows the write");
            let mut acks = engine.acks();
            let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(
                acks.poll_acked(number, &mut cx).is_ready(),
                "{text} returned before the write was durable"
            );
        }
    });
    close_engines(&lanes);
    lanes.shutdown();
}
