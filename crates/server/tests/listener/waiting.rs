//! Pending answers: their time limits, their order, clients that disconnect, and writes
//! acknowledged only once they are durable.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::common::{ADMIN, Answer, Client, TestServer, settings};
use embedded::Embedded;
use engine::{
    Acks, BatchKind, Engine, Error, Execution, ParsedTree, Plan, Registry, Request as EngineRequest, Schema,
    SchemaListener, Value,
};
use wire::*;

/// States of the disk: it acknowledges writes, never answers, or has failed.
const FINE: u8 = 0;
const STUCK: u8 = 1;
const FAILED: u8 = 2;

/// An engine in memory whose writes are acknowledged when the test permits it.
struct Slow {
    engine: Rc<Embedded>,
    disk: Arc<AtomicU8>,
    /// Reads of the table `hang` in flight.
    hanging: Arc<AtomicU8>,
}

/// A read without end.
struct Hanging(Arc<AtomicU8>);

impl Hanging {
    fn begin(count: &Arc<AtomicU8>) -> Hanging {
        count.fetch_add(1, SeqCst);
        Hanging(count.clone())
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Engine for Slow {
    fn prepare(&self, statement: Arc<ParsedTree>, keyspace: Option<&str>) -> Result<Rc<dyn Plan>, Error> {
        self.engine.prepare(statement, keyspace)
    }
    fn execute(&self, plan: &Rc<dyn Plan>, request: &EngineRequest<'_>) -> Execution {
        if plan.result().is_some() && plan.targets().iter().any(|t| t.table.as_deref() == Some("hang")) {
            let hanging = Hanging::begin(&self.hanging);
            return Execution::Pending(Box::pin(async move {
                std::future::pending::<()>().await;
                drop(hanging);
                Err(Error::Server("never".to_owned()))
            }));
        }
        let is_about = |name: &str| plan.targets().iter().any(|t| t.table.as_deref() == Some(name));
        if is_about("panic_at_once") {
            panic!("this panic is part of the test");
        }
        if is_about("panic_later") {
            return Execution::Pending(Box::pin(async {
                lanes::yield_now().await;
                panic!("this panic is part of the test")
            }));
        }
        self.engine.execute(plan, request)
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
        Box::new(SlowAcks { acks: self.engine.acks(), disk: self.disk.clone(), retry: None })
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
    fn refuses_writes(&self) -> bool {
        self.disk.load(SeqCst) == FAILED
    }
}

struct SlowAcks {
    acks: Box<dyn Acks>,
    disk: Arc<AtomicU8>,
    retry: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

impl Acks for SlowAcks {
    fn poll_acked(&mut self, write: u64, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        while self.disk.load(SeqCst) == STUCK {
            let sleep = || -> Pin<Box<dyn Future<Output = ()>>> {
                Box::pin(lanes::time::sleep(Duration::from_millis(1)))
            };
            let retry = self.retry.get_or_insert_with(sleep);
            std::task::ready!(retry.as_mut().poll(cx));
            self.retry = None;
        }
        match self.disk.load(SeqCst) {
            FINE => self.acks.poll_acked(write, cx),
            _ => Poll::Ready(Err(Error::Server("the disk has failed".to_owned()))),
        }
    }
}

fn start() -> (TestServer, Client, Arc<AtomicU8>) {
    let (server, client, disk, _) = start_hanging();
    (server, client, disk)
}

fn start_hanging() -> (TestServer, Client, Arc<AtomicU8>, Arc<AtomicU8>) {
    let (disk, hanging) = (Arc::new(AtomicU8::new(FINE)), Arc::new(AtomicU8::new(0)));
    let of_engine = (disk.clone(), hanging.clone());
    let wrap = move |engine| {
        let (disk, hanging) = of_engine.clone();
        Rc::new(Slow { engine, disk, hanging }) as Rc<dyn Engine>
    };
    let server = TestServer::start_with(1, settings(), Arc::new(wrap));
    let mut client = server.client(Version::V4, ADMIN);
    client.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    client.run("CREATE TABLE ks.t (k int PRIMARY KEY, v text)");
    client.run("CREATE TABLE ks.hang (k int PRIMARY KEY, v text)");
    (server, client, disk, hanging)
}

fn queue(client: &mut Client, text: &str) -> i16 {
    client.queue(&Request::Query(Query { text, params: QueryParams::default() }))
}

#[test]
fn waiting_write_times_out_alone() {
    let (_server, mut client, disk) = start();
    disk.store(STUCK, SeqCst);
    let patient = queue(&mut client, "INSERT INTO ks.t (k, v) VALUES (1, 'a')");
    let hasty = queue(&mut client, "INSERT INTO ks.t (k, v) VALUES (2, 'b') USING TIMEOUT 20ms");
    let batch = queue(
        &mut client,
        "BEGIN BATCH INSERT INTO ks.t (k, v) VALUES (3, 'c'); INSERT INTO ks.t (k, v) VALUES (4, 'd'); APPLY BATCH",
    );
    let read = queue(&mut client, "SELECT v FROM ks.t WHERE k = 1");
    client.flush();
    let (stream, answer) = client.receive().expect("an answer");
    assert_eq!((stream, answer.texts()), (read, vec![vec!["a".to_owned()]]), "a read overtakes writes");
    let (stream, answer) = client.receive().expect("an answer");
    assert_eq!((stream, answer.code()), (hasty, 0x1100), "{answer:?}");
    disk.store(FINE, SeqCst);
    assert_eq!(client.receive(), Some((patient, Answer::Void)));
    assert_eq!(client.receive(), Some((batch, Answer::Void)));
    assert_eq!(client.run("INSERT INTO ks.t (k, v) VALUES (5, 'e')"), Answer::Void);
}

#[test]
fn writes_succeed_after_a_failed_write() {
    let (_server, mut client, disk) = start();
    disk.store(FAILED, SeqCst);
    let failed: Vec<i16> =
        (0..3).map(|k| queue(&mut client, &format!("INSERT INTO ks.t (k, v) VALUES ({k}, 'x')"))).collect();
    client.flush();
    for sent in failed {
        let (stream, answer) = client.receive().expect("an answer");
        assert_eq!((stream, answer.code()), (sent, 0x0000), "{answer:?}");
    }
    disk.store(FINE, SeqCst);
    assert_eq!(client.run("INSERT INTO ks.t (k, v) VALUES (9, 'y')"), Answer::Void);
}

#[test]
fn writes_beyond_one_round_are_answered_in_order() {
    let (_server, mut client, disk) = start();
    disk.store(STUCK, SeqCst);
    let sent: Vec<i16> =
        (0..500).map(|k| queue(&mut client, &format!("INSERT INTO ks.t (k, v) VALUES ({k}, 'x')"))).collect();
    client.flush();
    let read = queue(&mut client, "SELECT v FROM ks.t WHERE k = 499");
    client.flush();
    assert_eq!(client.receive().expect("an answer").0, read);
    disk.store(FINE, SeqCst);
    for stream in sent {
        assert_eq!(client.receive(), Some((stream, Answer::Void)));
    }
}

#[test]
fn waiting_read_ends_with_its_time_limit_or_client() {
    let (server, mut client, _, hanging) = start_hanging();
    let late = client.query("SELECT v FROM ks.hang WHERE k = 1 USING TIMEOUT 20ms");
    assert_eq!(late.code(), 0x1200, "{late:?}");
    client.run("CREATE SERVICE LEVEL hasty WITH timeout = 20ms");
    client.run("CREATE ROLE hasty WITH PASSWORD = 'pw' AND LOGIN = true AND SUPERUSER = true");
    client.run("ATTACH SERVICE LEVEL hasty TO hasty");
    let late = server.client(Version::V5, ("hasty", "pw")).query("SELECT v FROM ks.hang WHERE k = 1");
    assert_eq!(late.code(), 0x1200, "{late:?}");
    assert_eq!(hanging.load(SeqCst), 0);

    let mut gone = server.client(Version::V4, ADMIN);
    for _ in 0..3 {
        queue(&mut gone, "SELECT v FROM ks.hang WHERE k = 1");
    }
    gone.flush();
    while hanging.load(SeqCst) < 3 {
        std::thread::yield_now();
    }
    drop(gone);
    while hanging.load(SeqCst) > 0 {
        std::thread::yield_now();
    }
    assert_eq!(client.run("INSERT INTO ks.t (k, v) VALUES (1, 'x')"), Answer::Void);
}

#[test]
fn panic_fails_one_statement() {
    let (server, mut client, _) = start();
    for table in ["panic_at_once", "panic_later"] {
        client.run(&format!("CREATE TABLE ks.{table} (k int PRIMARY KEY)"));
        for text in [format!("SELECT * FROM ks.{table}"), format!("INSERT INTO ks.{table} (k) VALUES (1)")] {
            let Answer::Error(failure) = client.query(&text) else { panic!("{text} fails") };
            assert_eq!(failure.kind.code(), 0x0000, "{failure:?}");
            assert!(failure.message.starts_with("The statement failed inside the server"), "{failure:?}");
        }
    }
    client.run("INSERT INTO ks.t (k, v) VALUES (1, 'a')");
    assert_eq!(client.run("SELECT v FROM ks.t WHERE k = 1").texts(), [["a"]], "the connection goes on");
    drop(server);
}

#[test]
fn server_is_ready_while_all_cores_accept_writes() {
    let (server, _client, disk) = start();
    assert_eq!(server.get("/health/ready").0, "HTTP/1.1 200 OK");
    disk.store(FAILED, SeqCst);
    let (status, text) = server.get("/health/ready");
    assert_eq!(status, "HTTP/1.1 503 Service Unavailable");
    assert!(text.contains("core 0 refuses writes"), "{text}");
    assert_eq!(server.get("/health/live").0, "HTTP/1.1 200 OK");
    disk.store(FINE, SeqCst);
    assert_eq!(server.get("/health/ready").0, "HTTP/1.1 200 OK");
}
