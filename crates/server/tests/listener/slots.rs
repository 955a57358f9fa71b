//! `max_concurrency`, `max_queue_size` and `queue_timeout`, and the bounds of what requests in
//! flight hold, from a client's view.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use crate::common::{ADMIN, Answer, Client, TestServer, settings, values};
use embedded::Embedded;
use engine::{
    Acks, BatchKind, Engine, Error, Execution, ParsedTree, Plan, Registry, Request as EngineRequest, Schema,
    SchemaListener, StatementOutcome, Value,
};
use frontdoor::Accounts;
use server::ServerConfig;
use testkit::until;
use wire::*;

/// Counters of running statements: now, the maximum at one time, and in total.
#[derive(Default)]
struct Running {
    now: AtomicUsize,
    most: AtomicUsize,
    all: AtomicUsize,
    /// Number of the last statement with the key [`MARKED`].
    marked: AtomicUsize,
    /// True to keep the statements from ending.
    stuck: AtomicBool,
}

struct RunningOne(Arc<Running>);

impl RunningOne {
    fn begin(running: &Arc<Running>) -> RunningOne {
        let now = running.now.fetch_add(1, SeqCst) + 1;
        running.most.fetch_max(now, SeqCst);
        running.all.fetch_add(1, SeqCst);
        RunningOne(running.clone())
    }
}

impl Drop for RunningOne {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, SeqCst);
    }
}

/// An engine in memory. Its reads of the table `counted` take a few task polls and are counted
/// meanwhile. Those without a key are reads of several rows, which hold [`HELD_BYTES`].
struct Counting {
    engine: Rc<Embedded>,
    running: Arc<Running>,
}

impl Engine for Counting {
    fn prepare(&self, statement: Arc<ParsedTree>, keyspace: Option<&str>) -> Result<Rc<dyn Plan>, Error> {
        self.engine.prepare(statement, keyspace)
    }
    fn execute(&self, plan: &Rc<dyn Plan>, request: &EngineRequest<'_>) -> Execution {
        if plan.result().is_none() || plan.targets().iter().all(|t| t.table.as_deref() != Some("counted")) {
            return self.engine.execute(plan, request);
        }
        let running = self.running.clone();
        let is_marked = matches!(request.values, [Value::Bytes(key)] if *key == MARKED.to_be_bytes());
        let later = Box::pin(async move {
            let one = RunningOne::begin(&running);
            if is_marked {
                running.marked.store(running.all.load(SeqCst), SeqCst);
            }
            for _ in 0..3 {
                lanes::yield_now().await;
            }
            while one.0.stuck.load(SeqCst) {
                lanes::time::sleep(std::time::Duration::from_millis(1)).await;
            }
            Ok(StatementOutcome::Void)
        });
        match request.values {
            [] => Execution::Pending(later),
            _ => Execution::Reading { later, bytes: HELD_BYTES, reads: Arc::default() },
        }
    }
    fn execute_batch(
        &self,
        kind: BatchKind,
        parts: &[(Rc<dyn Plan>, &[Value<'_>])],
        request: &EngineRequest<'_>,
    ) -> Execution {
        self.engine.execute_batch(kind, parts, request)
    }
    fn acks(&self) -> Box<dyn Acks> {
        self.engine.acks()
    }
    fn schema(&self) -> Arc<Schema> {
        self.engine.schema()
    }
    fn on_schema_change(&self, listener: SchemaListener) {
        self.engine.on_schema_change(listener);
    }
    fn registry(&self) -> &Registry {
        self.engine.registry()
    }
}

const READ: &str = "SELECT v FROM ks.counted WHERE k = 1";
/// Key of a read whose place among all is noted.
const MARKED: i32 = 7;
/// Bytes that a read with a value holds.
const HELD_BYTES: usize = 1 << 20;

/// Starts a server that counts reads of its table `counted`. Returns it with its administrator.
fn counting(cores: usize, config: ServerConfig) -> (TestServer, Client, Arc<Running>) {
    let running = Arc::new(Running::default());
    let engine_running = running.clone();
    let wrap = move |engine| Rc::new(Counting { engine, running: engine_running.clone() }) as Rc<dyn Engine>;
    let server = TestServer::start_with(cores, config, Arc::new(wrap));
    let mut admin = server.client(Version::V4, ADMIN);
    admin.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    admin.run("CREATE TABLE ks.counted (k int PRIMARY KEY, v text)");
    (server, admin, running)
}

/// Starts a server of two cores with a level `few` of these options. Returns it with its
/// administrator.
fn start(options: &str) -> (TestServer, Client, Arc<Running>) {
    let (server, mut admin, running) = counting(2, settings());
    for text in [
        &*format!("CREATE SERVICE LEVEL few WITH {options}"),
        "CREATE ROLE few WITH PASSWORD = 'pw' AND LOGIN = true AND SUPERUSER = true",
        "ATTACH SERVICE LEVEL few TO few",
    ] {
        admin.run(text);
    }
    (server, admin, running)
}

/// Starts a server with a limiter and more options, whose statements do not end.
fn start_stuck(more: &str) -> (TestServer, Client, Arc<Running>) {
    let (server, admin, running) = start(&format!("max_concurrency = 'auto'{more}"));
    until("a limit is exported", || {
        server.get("/metrics").1.contains("fairlane_limit{level=\"few\",core=\"0\"}")
    });
    running.stuck.store(true, SeqCst);
    (server, admin, running)
}

fn few(server: &TestServer) -> Client {
    server.client(Version::V4, ("few", "pw"))
}

fn queue(client: &mut Client, text: &str) {
    client.queue(&Request::Query(Query { text, params: QueryParams::default() }));
}

/// The limits of a level are for its users' statements, not for what drivers read to connect.
#[test]
fn driver_connects_to_a_level_with_short_limits() {
    let options = "timeout = 1ms AND query_limit = {'elapsed': '1ms', 'rows': 1, 'bytes': '1B'}";
    let (server, mut admin, _) = start(options);
    let columns: Vec<String> = (0..100).map(|n| format!("c{n} int")).collect();
    for n in 0..30 {
        admin.run(&format!("CREATE TABLE ks.t{n} (k int PRIMARY KEY, {})", columns.join(", ")));
    }
    for version in [Version::V4, Version::V5] {
        let mut client = server.client(version, ("few", "pw"));
        for text in [
            "SELECT * FROM system.local WHERE key='local'",
            "SELECT * FROM system.peers_v2",
            "SELECT * FROM system_schema.keyspaces",
            "SELECT * FROM system_schema.tables",
            "SELECT * FROM system_schema.columns",
            "SELECT * FROM system_virtual_schema.columns",
        ] {
            let answer = client.query(text);
            assert!(matches!(answer, Answer::Rows { .. }), "{text}: {answer:?}");
        }
        assert_eq!(client.query("USE ks"), Answer::SetKeyspace("ks".to_owned()));
    }
}

/// The settings of a role may be merged from several levels. A statement that specifies one of them
/// has the settings of that level alone.
#[test]
fn statement_with_a_level_has_no_settings_of_others() {
    let (server, mut admin, running) = start("shares = 100");
    for text in [
        "CREATE SERVICE LEVEL hasty WITH timeout = 50ms",
        "CREATE ROLE team",
        "ATTACH SERVICE LEVEL hasty TO team",
        "GRANT team TO few",
    ] {
        admin.run(text);
    }
    running.stuck.store(true, SeqCst);
    let mut client = few(&server);
    let text = format!("{READ} USING SERVICE LEVEL few");
    let [with_level, without] = [&*text, READ]
        .map(|text| client.queue(&Request::Query(Query { text, params: QueryParams::default() })));
    client.flush();
    // An equal limit of the other one would have ended before.
    let (stream, answer) = client.receive().expect("an answer");
    assert_eq!((stream, answer.code()), (without, 0x1200), "{answer:?}");
    running.stuck.store(false, SeqCst);
    assert_eq!(client.receive(), Some((with_level, Answer::Void)));
}

/// Reads of several rows run while what they hold fits. Turn goes round the connections, and a
/// client that reads no answers keeps no permit.
#[test]
fn reads_of_several_rows_wait_for_memory_in_turn() {
    const MANY: usize = 500;
    let config = ServerConfig { read_bytes_max: 3 * HELD_BYTES + 1, ..settings() };
    let (server, mut admin, running) = counting(1, config);
    running.stuck.store(true, SeqCst);
    let keys = [1, MARKED].map(|key| values(&[&key.to_be_bytes()]));
    let read = |at: usize| {
        let params = QueryParams { values: keys[at].values(), ..QueryParams::default() };
        Request::Query(Query { text: "SELECT v FROM ks.counted WHERE k = ?", params })
    };
    let (mut many, mut one) = (server.client(Version::V4, ADMIN), server.client(Version::V4, ADMIN));
    for _ in 0..MANY {
        many.queue(&read(0));
    }
    many.flush();
    until("three run", || running.now.load(SeqCst) == 3);
    one.queue(&read(1));
    one.flush();
    until("it waits", || {
        let running = "SELECT id FROM system.running_statements WHERE service_level = 'default'";
        admin.query(running).texts().len() > MANY
    });
    assert_eq!(running.all.load(SeqCst), 3);
    // A read by key needs no permit.
    queue(&mut admin, READ);
    admin.flush();
    until("four run", || running.now.load(SeqCst) == 4);
    running.stuck.store(false, SeqCst);
    assert_eq!(one.receive().expect("an answer").1, Answer::Void);
    let place = running.marked.load(SeqCst);
    assert!(place < MANY / 5, "it was the read number {place}");
    (0..MANY).for_each(|_| assert_eq!(many.receive().expect("an answer").1, Answer::Void));
    assert_eq!(admin.receive().expect("an answer").1, Answer::Void);
    assert_eq!((running.most.load(SeqCst), running.all.load(SeqCst)), (4, MANY + 2));
}

/// Requests in flight are charged, and a connection without free memory reads no more of them.
#[test]
fn requests_in_flight_are_charged_and_wait_in_the_socket() {
    const SENT: usize = 2_000;
    let accounts = Accounts::new(4 << 20, 1 << 20);
    let config = ServerConfig { accounts: accounts.clone(), ..settings() };
    let (server, mut admin, running) = counting(1, config);
    running.stuck.store(true, SeqCst);
    let mut client = server.client(Version::V4, ADMIN);
    (0..SENT).for_each(|_| queue(&mut client, READ));
    client.flush();
    until("the account is full", || accounts.all().used_bytes() > 700_000);
    admin.run("SELECT * FROM system.local");
    let begun = running.all.load(SeqCst);
    assert!((200..600).contains(&begun), "{begun} requests of 2 KiB in 1 MiB");
    assert!(accounts.all().used_bytes() <= 1 << 20);
    running.stuck.store(false, SeqCst);
    (0..SENT).for_each(|_| assert_eq!(client.receive().expect("an answer").1, Answer::Void));
    until("all is released", || accounts.all().used_bytes() == 0);
}

#[test]
fn level_runs_at_most_max_concurrency_statements() {
    const CLIENTS: usize = 10;
    const EACH: usize = 1000;
    let (server, mut admin, running) = start("max_concurrency = 4 AND max_queue_size = 10000");
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| few(&server)).collect();
    for client in &mut clients {
        (0..EACH).for_each(|_| queue(client, READ));
        client.flush();
    }
    for client in &mut clients {
        for _ in 0..EACH {
            assert_eq!(client.receive().expect("an answer").1, Answer::Void);
        }
    }
    assert_eq!(running.most.load(SeqCst), 4);
    assert_eq!(running.all.load(SeqCst), CLIENTS * EACH);
    // A short queue refuses some statements, but every statement is answered.
    admin.run("ALTER SERVICE LEVEL few WITH max_queue_size = 50");
    for client in &mut clients {
        (0..EACH / 10).for_each(|_| queue(client, READ));
        client.flush();
    }
    let answers =
        clients.iter_mut().flat_map(|client| (0..EACH / 10).map(|_| client.receive()).collect::<Vec<_>>());
    let refused = answers.filter(|answer| answer.as_ref().expect("an answer").1 != Answer::Void).count();
    assert_eq!(running.most.load(SeqCst), 4);
    assert_eq!(running.all.load(SeqCst) + refused, CLIENTS * (EACH + EACH / 10));
    let (_, metrics) = server.get("/metrics");
    for line in [
        "fairlane_slots_running{level=\"few\"} 0".to_owned(),
        "fairlane_slots_waiting{level=\"few\"} 0".to_owned(),
        format!("fairlane_slots_refused_total{{level=\"few\",why=\"full\"}} {refused}"),
    ] {
        assert!(metrics.contains(&line), "{line}");
    }
}

/// Returns a number of `system.level_usage` for the level `few`.
fn usage(admin: &mut Client, column: &str) -> i64 {
    let text = format!("SELECT {column} FROM system.level_usage WHERE service_level = 'few'");
    let cell = admin.query(&text).texts()[0][0].clone();
    i64::from_be_bytes(cell.as_bytes().try_into().expect("eight bytes below 128"))
}

#[test]
fn limiter_holds_statements_but_not_those_on_the_server() {
    const SENT: usize = 400;
    let (server, mut admin, running) = start_stuck("");
    // Nothing ends, so that each core admits what it assumes at the start, at most
    // 1 + 1 ms ÷ 20 µs.
    let mut client = few(&server);
    (0..SENT).for_each(|_| queue(&mut client, READ));
    client.flush();
    until("10 statements run", || running.now.load(SeqCst) >= 10);
    let mut other = few(&server);
    let answer = other.query("SELECT key FROM system.local");
    assert!(matches!(answer, Answer::Rows { .. }), "{answer:?}");
    queue(&mut other, READ);
    other.flush();
    assert!(running.now.load(SeqCst) <= 2 * 51, "{}", running.now.load(SeqCst));
    assert_eq!(usage(&mut admin, "shed"), 0, "a level without a type is not refused");
    running.stuck.store(false, SeqCst);
    for _ in 0..SENT {
        assert_eq!(client.receive().expect("an answer").1, Answer::Void);
    }
    assert_eq!(other.receive().expect("an answer").1, Answer::Void);
    admin.run("ALTER SERVICE LEVEL few WITH max_concurrency = null");
    assert_eq!(usage(&mut admin, "concurrency_limit"), 0);
}

/// A connection at its limit is not read. Statements that it sends meanwhile wait in the socket.
#[test]
fn statements_that_waited_in_the_socket_are_refused_by_age() {
    const SENT: usize = 60;
    const SENT_LATER: usize = 300;
    let (server, _admin, running) = start_stuck(" AND workload_type = 'batch' AND timeout = 500ms");
    let mut client = few(&server);
    (0..SENT).for_each(|_| queue(&mut client, READ));
    client.flush();
    until("one is held", || running.now.load(SeqCst) == 51);
    (0..SENT_LATER).for_each(|_| queue(&mut client, READ));
    client.flush();
    // The first ones time out after 500 ms. Then the connection is read.
    until("they have ended", || running.now.load(SeqCst) == 0);
    running.stuck.store(false, SeqCst);
    let answers = (0..SENT + SENT_LATER).map(|_| client.receive().expect("an answer").1);
    let refused = answers.filter(|answer| matches!(answer, Answer::Error(e) if e.kind.code() == 0x1001));
    let refused = refused.count();
    assert!((SENT - 51 + 30..SENT + SENT_LATER - 51).contains(&refused), "{refused} were refused");
}

/// A statement whose own time limit passed while it was held is not run. The level has no limiter:
/// the bound of a connection holds the statement.
#[test]
fn statement_whose_time_limit_passed_before_its_work_times_out() {
    const SENT: usize = 10;
    let config = ServerConfig { in_flight_max: 1, ..settings() };
    let (server, _admin, running) = counting(1, config);
    running.stuck.store(true, SeqCst);
    let mut client = server.client(Version::V4, ADMIN);
    queue(&mut client, READ);
    client.flush();
    until("one statement runs", || running.now.load(SeqCst) == 1);
    (0..SENT).for_each(|_| queue(&mut client, &format!("{READ} USING TIMEOUT 100ms")));
    queue(&mut client, READ);
    client.flush();
    #[expect(clippy::disallowed_methods, reason = "the client runs outside the lanes")]
    std::thread::sleep(std::time::Duration::from_secs(1));
    running.stuck.store(false, SeqCst);
    assert_eq!(client.receive().expect("an answer").1, Answer::Void);
    let mut expired = 0;
    for _ in 0..SENT {
        if let (_, Answer::Error(error)) = client.receive().expect("an answer") {
            assert_eq!((error.kind.code(), &*error.message), (0x1200, "Operation timed out after 100 ms"));
            expired += 1;
        }
    }
    assert_eq!(client.receive().expect("an answer").1, Answer::Void, "it has more time");
    // The server knows only that the bytes in the socket arrived within this second.
    assert!(expired >= SENT / 2, "{expired} of {SENT} timed out");
    assert_eq!(running.all.load(SeqCst), 2 + SENT - expired, "expired statements do no work");
}

#[test]
fn role_cancels_its_statements_and_superuser_cancels_any() {
    let (server, mut admin, running) = start("max_concurrency = 1 AND max_queue_size = 1");
    running.stuck.store(true, SeqCst);
    let (mut first, mut second, mut third) = (few(&server), few(&server), few(&server));
    queue(&mut first, READ);
    first.flush();
    until("one statement runs", || running.now.load(SeqCst) == 1);
    queue(&mut second, READ);
    second.flush();
    until("a statement waits", || {
        server.get("/metrics").1.contains("fairlane_slots_waiting{level=\"few\"} 1")
    });
    let shown = admin
        .query("SELECT id, state, statement FROM system.running_statements WHERE service_level = 'few'")
        .texts();
    let id = |state: &str| shown.iter().find(|row| row[1] == state).expect(state)[0].clone();
    assert_eq!(admin.query(&format!("CANCEL STATEMENT '{}'", id("queued"))), Answer::Void);
    let Some((_, Answer::Error(error))) = second.receive() else { panic!("it was cancelled") };
    assert_eq!(
        (error.kind.code(), &*error.message),
        (0x2200, "The statement was cancelled (CANCEL STATEMENT)")
    );
    admin.run("CREATE ROLE other WITH PASSWORD = 'x' AND LOGIN = true");
    let mut other = server.client(Version::V4, ("other", "x"));
    let Answer::Error(denied) = other.query(&format!("CANCEL STATEMENT '{}'", id("running"))) else {
        panic!()
    };
    assert_eq!(denied.kind.code(), 0x2100, "{denied:?}");
    assert_eq!(third.query(&format!("CANCEL STATEMENT '{}'", id("running"))), Answer::Void);
    let Some((_, Answer::Error(error))) = first.receive() else { panic!("it was cancelled") };
    assert_eq!(error.kind.code(), 0x2200);
    until("no statement runs", || running.now.load(SeqCst) == 0);
    // The connection's next statement reuses the entry of the cancelled one, but not its id.
    queue(&mut first, READ);
    first.flush();
    until("one statement runs", || running.now.load(SeqCst) == 1);
    let unknown = admin.query(&format!("CANCEL STATEMENT '{}'", id("running")));
    assert_eq!(unknown.code(), 0x2200, "{unknown:?}");
    running.stuck.store(false, SeqCst);
    assert_eq!(first.receive().expect("an answer").1, Answer::Void, "it was not cancelled");
    assert_eq!(first.query(READ), Answer::Void);
}

/// Starts a read of `ann`, who has the rights that `grants` give, and waits until it runs.
fn running_read(server: &TestServer, admin: &mut Client, running: &Running, grants: &[&str]) -> Client {
    admin.run("CREATE ROLE ann WITH PASSWORD = 'pw' AND LOGIN = true");
    grants.iter().for_each(|text| drop(admin.run(text)));
    let mut ann = server.client(Version::V5, ("ann", "pw"));
    queue(&mut ann, READ);
    ann.flush();
    until("one statement runs", || running.now.load(SeqCst) == 1);
    ann
}

#[test]
fn read_ends_when_its_role_loses_the_right() {
    let (server, mut admin, running) = start("max_concurrency = 8");
    running.stuck.store(true, SeqCst);
    admin.run("CREATE ROLE readers");
    admin.run("GRANT SELECT ON ks.counted TO readers");
    for (grant, revoke) in [
        ("GRANT SELECT ON ks.counted TO ann", "REVOKE SELECT ON ks.counted FROM ann"),
        ("GRANT SELECT ON KEYSPACE ks TO ann", "REVOKE ALL PERMISSIONS ON KEYSPACE ks FROM ann"),
        ("GRANT readers TO ann", "REVOKE readers FROM ann"),
        ("ALTER ROLE ann WITH SUPERUSER = true", "ALTER ROLE ann WITH SUPERUSER = false"),
    ] {
        let mut ann = running_read(&server, &mut admin, &running, &[grant]);
        admin.run(revoke);
        let Some((_, Answer::Error(error))) = ann.receive() else { panic!("{revoke}: it goes on") };
        assert_eq!(error.kind.code(), 0x2100, "{revoke}: {error:?}");
        until("no statement runs", || running.now.load(SeqCst) == 0);
        // The session goes on. A right that the read did not need takes nothing away.
        ann.run("SELECT key FROM system.local");
        admin.run("DROP ROLE ann");
    }
    let needless = ["GRANT SELECT, MODIFY ON ks.counted TO ann"];
    let mut ann = running_read(&server, &mut admin, &running, &needless);
    admin.run("REVOKE MODIFY ON ks.counted FROM ann");
    running.stuck.store(false, SeqCst);
    assert_eq!(ann.receive().expect("an answer").1, Answer::Void);
}

#[test]
fn read_ends_with_its_role_though_the_role_is_made_again() {
    let (server, mut admin, running) = start("max_concurrency = 8");
    running.stuck.store(true, SeqCst);
    let made = "CREATE ROLE ann WITH PASSWORD = 'pw' AND LOGIN = true AND SUPERUSER = true";
    for changes in [
        &["DROP ROLE ann", made][..],
        &["ALTER ROLE ann WITH LOGIN = false", "ALTER ROLE ann WITH LOGIN = true"],
        &["ALTER ROLE ann WITH PASSWORD = 'other'", "ALTER ROLE ann WITH PASSWORD = 'pw'"],
    ] {
        let grants = ["ALTER ROLE ann WITH SUPERUSER = true"];
        let mut ann = running_read(&server, &mut admin, &running, &grants);
        changes.iter().for_each(|text| drop(admin.run(text)));
        let Some((_, Answer::Error(error))) = ann.receive() else { panic!("{changes:?}: it is answered") };
        assert_eq!(error.kind.code(), 0x2100, "{error:?}");
        assert_eq!(ann.receive(), None, "{changes:?}: the session ends");
        until("no statement runs", || running.now.load(SeqCst) == 0);
        admin.run("DROP ROLE ann");
    }
}

#[test]
fn scrub_ends_when_cancelled_or_its_client_disconnects() {
    let (server, mut admin, running) = start("shares = 100 AND timeout = 1h");
    running.stuck.store(true, SeqCst);
    let mut first = few(&server);
    queue(&mut first, "SCRUB ks.counted");
    first.flush();
    until("one statement runs", || running.now.load(SeqCst) == 1);
    let shown = admin.query("SELECT id, statement FROM system.running_statements").texts();
    let row = shown
        .iter()
        .find(|row| row[1].starts_with("SCRUB") && row[1].ends_with("ks.counted"))
        .expect("it runs");
    assert_eq!(admin.query(&format!("CANCEL STATEMENT '{}'", row[0])), Answer::Void);
    let Some((_, Answer::Error(error))) = first.receive() else { panic!("it was cancelled") };
    assert_eq!(error.kind.code(), 0x2200);
    until("no statement runs", || running.now.load(SeqCst) == 0);
    queue(&mut first, "SCRUB ks.counted");
    first.flush();
    until("one statement runs", || running.now.load(SeqCst) == 1);
    drop(first);
    until("no statement runs", || running.now.load(SeqCst) == 0);
}

#[test]
fn full_queue_and_queue_timeout_reject_the_statement() {
    let (server, mut admin, running) = start("max_concurrency = 1 AND max_queue_size = 1");
    running.stuck.store(true, SeqCst);
    let (mut first, mut second, mut third) = (few(&server), few(&server), few(&server));
    queue(&mut first, READ);
    first.flush();
    until("one statement runs", || running.now.load(SeqCst) == 1);
    queue(&mut second, READ);
    second.flush();
    let waiting = || server.get("/metrics").1.contains("fairlane_slots_waiting{level=\"few\"} 1");
    until("a statement waits", waiting);
    let Answer::Error(full) = third.query(READ) else { panic!("the queue is full") };
    assert_eq!(full.kind.code(), 0x1001);
    let text = "The service level 'few' is overloaded: its queue is full (1 statements waiting, max_queue_size 1); \
                1 statements running, max_concurrency 1. Try again in ";
    assert!(full.message.starts_with(text) && full.message.ends_with(" ms."), "{}", full.message);
    let usage = third.query(
        "SELECT service_level, running, queued, queue_full FROM system.level_usage WHERE service_level = 'few'",
    );
    let number = |number: i64| String::from_utf8_lossy(&number.to_be_bytes()).into_owned();
    assert_eq!(
        usage.texts(),
        [["few".to_owned(), number(2), number(1), number(1)]],
        "this one runs too, without a slot"
    );
    let listed = third
        .query("SELECT state, role, statement FROM system.running_statements WHERE service_level = 'few'");
    let mut listed = listed.texts();
    listed.sort();
    let row = |state, what| [state, "few", what];
    let own = "SELECT state, role, statement FROM system.running_statements WHERE service_level = ?";
    let read = "SELECT v FROM ks.counted WHERE k = ?";
    assert_eq!(listed, [row("queued", read), row("running", own), row("running", read)], "no value is shown");
    // Statements about levels take no slot. A changed level applies to waiting statements.
    let altered = third.query("ALTER SERVICE LEVEL few WITH queue_timeout = 1ms");
    assert_eq!(altered, Answer::Void);
    let Some((_, Answer::Error(late))) = second.receive() else { panic!("it waited too long") };
    assert_eq!(late.kind.code(), 0x1001);
    assert!(
        late.message.contains("a statement waited in its queue for 1 ms, which is its queue_timeout"),
        "{late:?}"
    );
    admin.run("ALTER SERVICE LEVEL few WITH queue_timeout = null AND max_queue_size = 10");
    // A statement's own time limit also bounds its wait in the queue.
    let late = second.query(&format!("{READ} USING TIMEOUT 20ms"));
    assert_eq!(late.code(), 0x1001, "{late:?}");
    // RunningOne more slot admits a waiting statement.
    queue(&mut second, READ);
    second.flush();
    until("a statement waits", waiting);
    admin.run("ALTER SERVICE LEVEL few WITH max_concurrency = 2");
    until("2 statements run", || running.now.load(SeqCst) == 2);
    // A client that disconnects leaves the queue and releases its slot.
    queue(&mut third, READ);
    third.flush();
    until("a statement waits", waiting);
    drop(third);
    until("no statement waits", || !waiting());
    drop(second);
    until("one statement runs", || running.now.load(SeqCst) == 1);
    running.stuck.store(false, SeqCst);
    assert_eq!(first.receive().expect("an answer").1, Answer::Void);
    assert_eq!(first.query(READ), Answer::Void);
    let batch = "BEGIN BATCH INSERT INTO ks.counted (k, v) VALUES (1, 'a'); APPLY BATCH";
    assert_eq!(first.query(batch), Answer::Void);
    assert!(running.most.load(SeqCst) <= 2);
}

/// A statement reads more than it answers, and its pages are one statement.
#[test]
fn query_limit_counts_what_a_statement_reads_over_all_pages() {
    let (server, mut admin, _) = start("query_limit = {'rows': 1000}");
    admin.run("CREATE TABLE ks.wide (k int, c int, v blob, PRIMARY KEY (k, c))");
    for k in 0..3 {
        for c in 0..500 {
            admin.run(&format!("INSERT INTO ks.wide (k, c, v) VALUES ({k}, {c}, 0x{})", "ab".repeat(100)));
        }
    }
    let mut client = server.client(Version::V4, ("few", "pw"));
    let refused = |answer: Answer, what: &str| {
        let Answer::Error(error) = answer else { panic!("{what}: {answer:?}") };
        let expected = format!("The statement went beyond the query_limit of service level 'few': {what}.");
        assert_eq!(&*error.message, format!("{expected} It was cancelled."));
    };
    let is_read = |answer: Answer| assert!(matches!(answer, Answer::Rows { .. }), "{answer:?}");
    let filtered = "SELECT c FROM ks.wide WHERE v = 0x00 ALLOW FILTERING";
    for text in ["SELECT count(*) FROM ks.wide", filtered, "SELECT c FROM ks.wide WHERE k IN (0, 1, 2)"] {
        refused(client.query(text), "rows 1000");
    }
    is_read(client.query("SELECT count(*) FROM ks.wide WHERE k = 1"));
    is_read(client.query("SELECT c FROM ks.wide LIMIT 100"));
    let mut page = |paging_state: Option<&[u8]>| {
        let params = QueryParams { page_size: Some(300), paging_state, ..QueryParams::default() };
        client.ask(&Request::Query(Query { text: "SELECT c FROM ks.wide", params }))
    };
    let mut state = None;
    for _ in 0..2 {
        let Answer::Rows { rows, paging, .. } = page(state.as_deref()) else { panic!("a page") };
        assert_eq!(rows.len(), 300);
        state = paging;
    }
    let last = (0..2).map(|_| match page(state.as_deref()) {
        Answer::Rows { paging, .. } => {
            state = paging;
            None
        }
        answer => Some(answer),
    });
    refused(last.flatten().next().expect("the third or fourth page is refused"), "rows 1000");
    admin.run("ALTER SERVICE LEVEL few WITH query_limit = {'bytes': '50KB'}");
    refused(client.query("SELECT count(*) FROM ks.wide"), "bytes 50000");
}

#[test]
fn read_over_its_query_limit_is_cancelled_or_demoted() {
    let (server, mut admin, running) = start("query_limit = {'elapsed': '20ms', 'action': 'cancel'}");
    running.stuck.store(true, SeqCst);
    let mut client = few(&server);
    let Answer::Error(failure) = client.query(READ) else { panic!("the read exceeds its limit") };
    let text =
        "The statement went beyond the query_limit of service level 'few': elapsed 20 ms. It was cancelled.";
    assert_eq!((failure.kind.code(), failure.message.as_str()), (0x2200, text));
    until("no statement runs", || running.now.load(SeqCst) == 0);
    admin.run("CREATE SERVICE LEVEL slow WITH shares = 1 AND max_concurrency = 9");
    let few_too = "max_concurrency = 2 AND query_limit = {'elapsed': '20ms', 'action': 'demote:slow'}";
    admin.run(&format!("ALTER SERVICE LEVEL few WITH {few_too}"));
    queue(&mut client, READ);
    client.flush();
    // Its sleep of 1 ms wakes it again and again, so that it uses CPU in its new level.
    let used = || {
        let metrics = server.get("/metrics").1;
        let dispatches =
            |line: &str| line.starts_with("fairlane_dispatches_total{level=\"slow\",lane=\"fast\"}");
        metrics.lines().find(|line| dispatches(line)).is_some_and(|line| !line.ends_with(" 0"))
    };
    until("work of the level is dispatched", used);
    let mut held = |level: &str| {
        let text = format!(
            "SELECT running FROM system.level_usage WHERE service_level = '{level}' AND running = 1 \
             ALLOW FILTERING"
        );
        admin.query(&text).texts().len()
    };
    assert_eq!((held("few"), held("slow")), (0, 1), "its permit moved with it");
    let shown = "SELECT service_level FROM system.running_statements WHERE role = 'few' ALLOW FILTERING";
    assert_eq!(admin.query(shown).texts(), [["slow"]]);
    let slots = |level: &str| {
        server.get("/metrics").1.contains(&format!("fairlane_slots_running{{level=\"{level}\"}} 1"))
    };
    assert_eq!((slots("few"), slots("slow")), (false, true), "and so did its slot");
    running.stuck.store(false, SeqCst);
    assert_eq!(client.receive().expect("an answer").1, Answer::Void);
    let refused =
        admin.query("ALTER SERVICE LEVEL few WITH query_limit = {'rows': 1, 'action': 'demote:nobody'}");
    let Answer::Error(failure) = refused else { panic!("{refused:?}") };
    assert_eq!(failure.message, "The service level 'nobody' doesn't exist.");
}

#[test]
fn ended_session_answers_cancelled_statements_and_closes() {
    let (server, mut admin, running) = start("max_concurrency = 1 AND max_queue_size = 1");
    running.stuck.store(true, SeqCst);
    let mut first = few(&server);
    let streams =
        [(); 2].map(|()| first.queue(&Request::Query(Query { text: READ, params: QueryParams::default() })));
    first.flush();
    until("one statement runs", || running.now.load(SeqCst) == 1);
    until("a statement waits", || {
        server.get("/metrics").1.contains("fairlane_slots_waiting{level=\"few\"} 1")
    });
    let shown = admin
        .query("SELECT id, service_level, stage FROM system.connections WHERE role = 'few' ALLOW FILTERING");
    let shown = shown.texts();
    assert_eq!(shown.len(), 1);
    assert_eq!(shown[0][1..], ["few", "ready"]);
    let statements =
        admin.query("SELECT id FROM system.running_statements WHERE service_level = 'few'").texts();
    assert!(statements.iter().all(|row| row[0].starts_with(&format!("{}-", shown[0][0]))), "{statements:?}");
    assert_eq!(admin.query(&format!("CANCEL SESSION '{}'", shown[0][0])), Answer::Void);
    let mut ended = Vec::new();
    while let Some((stream, answer)) = first.receive() {
        let Answer::Error(failure) = answer else { panic!("{answer:?}") };
        assert_eq!(
            (failure.kind.code(), &*failure.message),
            (0x2200, "The session was ended (CANCEL SESSION)")
        );
        ended.push(stream);
    }
    ended.sort_unstable();
    assert_eq!(
        ended, streams,
        "the running and the waiting statement are answered, then the socket is closed"
    );
    until("no statement runs", || running.now.load(SeqCst) == 0);
}
