//! A SQL listener on loopback over an engine in memory, and a Postgres client outside of the
//! lanes.
#![expect(clippy::disallowed_methods, reason = "the client stands outside of the lanes")]
#![allow(dead_code, unreachable_pub, reason = "every test file uses its own part of this")]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::{Engine, ParsedTree, Request};
use lanes::{Group, Lanes};
use sql::{LogEvent, Sql, SqlConfig};
pub use testkit::ADMIN;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// Startup message of the user `admin`, for protocol version 3.0.
pub const STARTUP: &[u8] = b"\0\0\0\x14\0\x03\0\0user\0admin\0\0";

/// Returns a message of this type.
pub fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).expect("short").to_be_bytes();
    [&[kind], &length[..], body].concat()
}

/// Timeout of a test's client. A test that takes longer has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A listener that stops with the test.
pub struct TestListener {
    pub lanes: Lanes,
    pub sql: Sql,
    levels: Arc<workload::Levels>,
    pub at: SocketAddr,
    /// The slow statements of the log: level, role and text.
    pub slow: Arc<Mutex<Vec<String>>>,
}

impl TestListener {
    pub fn start(cores: usize) -> TestListener {
        TestListener::start_with(cores, 1 << 30, SqlConfig::default())
    }

    /// Starts a listener on a free port, with `cores` cores and `memory` bytes of query memory.
    pub fn start_with(cores: usize, memory: u64, config: SqlConfig) -> TestListener {
        let lanes = testkit::Setup::new(cores).start();
        let levels = workload::Levels::new(lanes.clone());
        levels.memory().set_total(memory);
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let auth_failure_delay = Duration::from_millis(1);
        let slow: Arc<Mutex<Vec<String>>> = Arc::default();
        let logged = slow.clone();
        let log = move |event: LogEvent<'_>| {
            if let LogEvent::Slow(slow) = event {
                let line = format!("{} {} {}", slow.level, slow.role, slow.text);
                logged.lock().expect("no panic").push(line);
            }
        };
        let sql = Sql::new(SqlConfig { listen, auth_failure_delay, ..config }, log);
        let joined = sql.clone();
        testkit::open_roles(&lanes, &levels, move |engine, access| joined.join(engine, access, None));
        let opening = sql.clone();
        // Shorter than the time limits of statements, which are those that count.
        let limiting = workload::limit_levels(levels.clone(), Duration::from_millis(100));
        let at = lanes.block_on(0, Group::CONTROL, move || async move {
            lanes::spawn(Group::CONTROL, limiting).detach();
            opening.open().await
        });
        TestListener { at: at.expect("the port opens"), lanes, sql, levels, slow }
    }

    /// Sets the query memory, bytes.
    pub fn set_memory(&self, bytes: u64) {
        self.levels.memory().set_total(bytes);
    }

    /// Switches all guardrails off.
    pub fn without_guardrails(&self) {
        for core in 0..self.lanes.cores() {
            self.lanes.block_on(core, Group::CONTROL, || async {
                testkit::engine()
                    .registry()
                    .guardrails()
                    .set_all("sql_depth=0:0, sql_nodes=0:0")
                    .expect("their names");
            });
        }
    }

    /// Returns the use of a level.
    pub fn level_usage(&self, level: &str) -> workload::LevelUsage {
        self.levels.usage().into_iter().find(|usage| &*usage.name == level).expect("a level")
    }

    fn usage(&self, level: &str) -> lanes::Usage {
        self.level_usage(level).lanes
    }

    /// Returns the CPU that a level has used on heavy lanes, ns.
    pub fn heavy_ns(&self, level: &str) -> u64 {
        self.usage(level).cpu_heavy_ns
    }

    /// Returns the bytes that a level has written. With an engine in memory these are spilled
    /// data.
    pub fn written_bytes(&self, level: &str) -> u64 {
        self.usage(level).disk_write_bytes
    }

    /// Returns the sum of a metric over all cores.
    pub fn counted(&self, metric: &'static str) -> u64 {
        let of = |core| {
            self.lanes.block_on(core, Group::CONTROL, move || async move {
                let measures = testkit::engine().registry().measures();
                let found = measures.iter().find(|measure| measure.metric.name == metric);
                found.unwrap_or_else(|| panic!("{metric} is counted")).value as u64
            })
        };
        (0..self.lanes.cores()).map(of).sum()
    }

    /// Runs CQL statements on core 0. Each must succeed.
    pub fn cql(&self, statements: &[&str]) {
        for text in statements {
            let statement = ParsedTree::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            self.lanes.block_on(0, Group::DEFAULT, move || async move {
                let engine = testkit::engine();
                let plan = engine.prepare(Arc::new(statement), None).expect("prepared");
                engine.execute(&plan, &Request::EMPTY).outcome(&*engine).await.expect("done")
            });
        }
    }

    /// Runs the client's part of a test.
    pub fn client<F: Future<Output = ()>>(&self, run: F) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let within = async { tokio::time::timeout(PATIENCE, run).await.expect("within its time") };
        runtime.block_on(within);
    }

    /// Opens a session. Must be called within [`TestListener::client`].
    pub async fn connect(&self, (user, password): (&str, &str)) -> Result<Client, tokio_postgres::Error> {
        let mut config = tokio_postgres::Config::new();
        config.host("127.0.0.1").port(self.at.port()).user(user).password(password).dbname("fairlane");
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    pub async fn admin(&self) -> Client {
        self.connect(ADMIN).await.expect("a session")
    }

    /// Opens a session of the administrator in a level.
    pub async fn session_in(&self, level: &str) -> Client {
        let client = self.admin().await;
        rows(&client, &format!("SET service_level = {level}")).await;
        client
    }
}

impl Drop for TestListener {
    fn drop(&mut self) {
        let sql = self.sql.clone();
        self.lanes.block_on(0, Group::CONTROL, move || async move { sql.stop(Duration::ZERO).await });
        self.lanes.shutdown();
    }
}

/// Returns the rows of a statement as texts, with columns joined by `|` and null as `-`.
pub async fn rows(client: &Client, text: &str) -> Vec<String> {
    let answer = client.simple_query(text).await.unwrap_or_else(|error| panic!("{text}: {error:?}"));
    let row = |message: &SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => {
            let cells: Vec<&str> = (0..row.len()).map(|place| row.get(place).unwrap_or("-")).collect();
            Some(cells.join("|"))
        }
        _ => None,
    };
    answer.iter().filter_map(row).collect()
}

/// Returns the SQLSTATE and message of a statement that must fail.
pub async fn refused(client: &Client, text: &str) -> (String, String) {
    match client.simple_query(text).await {
        Ok(_) => panic!("{text} should fail"),
        Err(error) => {
            let db = error.as_db_error().unwrap_or_else(|| panic!("{text}: {error}"));
            (db.code().code().to_owned(), db.message().to_owned())
        }
    }
}
