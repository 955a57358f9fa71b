//! The rooms of a running server, put together on every core and taken apart again: engine, roles and levels, front doors.
//!
//! What a core owns stays on its fast lane, in a thread-local; from the main thread it is reached through `block_on`.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use access::{Access, Admin};
use embedded::{AutoSnapshot, Embedded};
use engine::Guardrails;
use lanes::{Group, Lanes};
use server::logging::Logger;
use server::{Listening, PerCore, Server, ServerConfig};
use storage::{Options, PaceOptions, Teller};
use workload::Levels;

use crate::folder::{self, Password};
use crate::machine;
use crate::settings::Settings;
use crate::sql_listener::{SqlConfig, SqlListener};

/// How long statements that run may take to finish when the server stops.
pub(crate) const DRAIN: Duration = Duration::from_secs(10);

/// Between two looks whether memory is not written to any more.
const IDLE_LOOK: Duration = Duration::from_secs(5);

thread_local! {
    /// This core's engine.
    static ENGINE: RefCell<Option<Rc<Embedded>>> = const { RefCell::new(None) };
    /// This core's view of roles and levels.
    static ACCESS: RefCell<Option<Rc<Access>>> = const { RefCell::new(None) };
}

pub(crate) fn engine() -> Rc<Embedded> {
    ENGINE.with_borrow(|engine| engine.clone().expect("engines are opened first"))
}

pub(crate) fn access() -> Rc<Access> {
    ACCESS.with_borrow(|access| access.clone().expect("roles are opened before the doors"))
}

/// Engines, roles and levels of all cores, open.
pub(crate) struct Rooms {
    lanes: Lanes,
    password_file: Option<PathBuf>,
}

impl Rooms {
    /// Opens every core's shard, core 0 first: it takes the folder's lock. Makes the first superuser if there is none.
    ///
    /// # Errors
    /// One sentence that says what to do. What was opened is closed again.
    pub(crate) fn open(
        lanes: &Lanes,
        settings: &Settings,
        memory_bytes: u64,
        given_password: Option<String>,
        teller: &Teller,
    ) -> Result<Rooms, String> {
        let mut rooms = Rooms { lanes: lanes.clone(), password_file: None };
        match rooms.open_all(settings, memory_bytes, given_password, teller) {
            Ok(()) => Ok(rooms),
            Err(reason) => {
                let _ = rooms.close(); // the first reason is the one to tell
                Err(reason)
            }
        }
    }

    fn open_all(
        &mut self,
        settings: &Settings,
        memory_bytes: u64,
        given_password: Option<String>,
        teller: &Teller,
    ) -> Result<(), String> {
        let cores = u32::try_from(self.lanes.cores()).expect("fewer cores than 2^32");
        let options = |core: u32| {
            let mut options = Options::in_dir(&settings.data_dir, core, cores);
            options.commit = settings.commit;
            options.teller = teller.clone();
            options.pace = PaceOptions {
                controllers: settings.background_controllers,
                compaction_shares: settings.compaction_shares,
                quota_ppm: settings.background_quota_percent * 10_000,
            };
            machine::size(&mut options, memory_bytes, settings.memtable_memory_bytes);
            options
        };
        let guardrails = Arc::new(Guardrails::default());
        guardrails.set_all(&settings.guardrails).map_err(|error| format!("guardrails: {error}."))?;
        let (first, shared) = (options(0), guardrails.clone());
        let engine_opened = self.lanes.block_on(0, Group::CONTROL, move || open_engine(first, shared));
        engine_opened.map_err(cannot_open)?;
        // Only now is the folder ours alone.
        let password = folder::password(&settings.data_dir, given_password)?;
        let admin = Admin { name: settings.admin_user.clone(), password: password.text().to_owned() };
        let levels = Levels::new(self.lanes.clone());
        let query_memory = settings.query_memory_bytes;
        levels.memory().set_total(query_memory.unwrap_or_else(|| machine::query_memory(memory_bytes)));
        for core in 1..cores {
            let (own, shared) = (options(core), guardrails.clone());
            self.lanes
                .block_on(core as usize, Group::CONTROL, move || open_engine(own, shared))
                .map_err(cannot_open)?;
        }
        let (before_drop, before_truncate) = settings.auto_snapshot;
        let auto = AutoSnapshot { before_drop, before_truncate, keep: settings.auto_snapshot_ttl };
        self.lanes.block_on(0, Group::CONTROL, move || async move { engine().set_auto_snapshot(auto) });
        let shared = self.lanes.block_on(0, Group::CONTROL, move || open_access(levels, admin));
        let shared = shared.map_err(cannot_open)?;
        for core in 0..self.lanes.cores() {
            self.lanes.block_on(core, Group::CONTROL, || async { flush_when_idle() });
        }
        for core in 1..self.lanes.cores() {
            let shared = shared.clone();
            self.lanes.block_on(core, Group::CONTROL, move || async move {
                ACCESS.set(Some(Access::attach(engine(), shared)));
            });
        }
        self.password_file = self.settle(&settings.data_dir, &settings.admin_user, &password)?;
        Ok(())
    }

    /// A generated password is kept only if it became the administrator's.
    fn settle(&self, folder: &Path, user: &str, password: &Password) -> Result<Option<PathBuf>, String> {
        let Password::Generated(text) = password else { return Ok(None) };
        let (user, text) = (user.to_owned(), text.clone());
        let in_use = self.lanes.block_on(0, Group::CONTROL, move || async move {
            access().authenticate(&user, &text).await.is_ok()
        });
        folder::settle(folder, password, in_use)
    }

    /// Where a password generated by this start was written.
    pub(crate) fn password_file(&self) -> Option<&Path> {
        self.password_file.as_deref()
    }

    /// Joins every core to a server and opens its ports.
    ///
    /// # Errors
    /// One sentence that says what to do; nothing is open then.
    pub(crate) fn open_doors(
        &self,
        config: ServerConfig,
        sql: Option<SqlConfig>,
        logger: Logger,
    ) -> Result<Doors, String> {
        let server = Server::new(config, logger.clone(), self.lanes.cores());
        for core in 0..self.lanes.cores() {
            let server = server.clone();
            self.lanes.block_on(core, Group::CONTROL, move || async move {
                server.join(PerCore { engine: engine(), access: access() });
            });
        }
        let listening = server.open_on(&self.lanes);
        let doors = listening.map(|listening| Doors { server: server.clone(), listening, sql: None });
        let mut doors = doors.map_err(|error| {
            Doors::stop(&server, &self.lanes);
            format!(
                "{error} (--listen, --shard-aware-port, --http-listen, --tls-certificate, --allow-plaintext)."
            )
        })?;
        match sql.map(|config| SqlListener::open(&self.lanes, config, logger)).transpose() {
            Ok(sql) => doors.sql = sql,
            Err(reason) => {
                doors.close(&self.lanes);
                return Err(reason);
            }
        }
        Ok(doors)
    }

    /// Writes what is in memory and closes every core's files.
    ///
    /// # Errors
    /// The last writes failed.
    pub(crate) fn close(&self) -> Result<(), String> {
        let mut result = Ok(());
        for core in 0..self.lanes.cores() {
            let closed = self.lanes.block_on(core, Group::CONTROL, || async {
                drop(ACCESS.take());
                match ENGINE.take() {
                    Some(engine) => engine.shutdown().await.map_err(|error| error.to_string()),
                    None => Ok(()),
                }
            });
            result = result.and(closed);
        }
        result
            .map_err(|error| format!("The last writes failed, though nothing acknowledged is lost: {error}."))
    }
}

/// Makes a snapshot of every core's data in a folder, which is nothing before this succeeds.
///
/// # Errors
/// One sentence.
pub(crate) fn snapshot(lanes: &Lanes, to: &Path) -> Result<(), String> {
    let to = to.to_owned();
    lanes.block_on(0, Group::CONTROL, move || async move {
        if ENGINE.with_borrow(Option::is_none) {
            return Err("the server is stopping".to_owned());
        }
        Embedded::snapshot(&to).await.map_err(|error| error.to_string())
    })
}

/// Restores a table, as `KEYSPACE.TABLE`, from the snapshot in a folder.
///
/// # Errors
/// One sentence.
pub(crate) fn restore_table(lanes: &Lanes, from: &Path, table: &str) -> Result<(), String> {
    let Some((keyspace, table)) = table.trim_end().split_once('.') else {
        return Err(format!("expected KEYSPACE.TABLE, got `{table}`"));
    };
    let (from, keyspace, table) = (from.to_owned(), keyspace.to_owned(), table.to_owned());
    lanes.block_on(0, Group::CONTROL, move || async move {
        if ENGINE.with_borrow(Option::is_none) {
            return Err("the server is stopping".to_owned());
        }
        Embedded::restore_table(&from, &keyspace, &table).await.map_err(|error| error.to_string())
    })
}

/// On a core's fast lane.
async fn open_engine(options: Options, guardrails: Arc<Guardrails>) -> Result<(), engine::Error> {
    let engine = Embedded::open(options).await?;
    engine::Engine::registry(&*engine).set_guardrails(guardrails);
    ENGINE.set(Some(engine));
    Ok(())
}

/// Starts the task that flushes the memtables of an idle core, until the engine is closed. Called on the
/// core's fast lane.
fn flush_when_idle() {
    let engine = Rc::downgrade(&engine());
    let flush = async move {
        while let Some(engine) = engine.upgrade() {
            engine.flush_if_idle();
            drop(engine);
            lanes::time::sleep(IDLE_LOOK).await;
        }
    };
    lanes::spawn(Group::CONTROL, flush).detach();
}

/// On core 0's fast lane; gives what the other cores attach to.
async fn open_access(levels: Arc<Levels>, admin: Admin) -> Result<Arc<access::Shared>, engine::Error> {
    let access = Access::open(engine(), levels, Some(admin)).await?;
    let shared = access.shared();
    ACCESS.set(Some(access));
    Ok(shared)
}

/// Errors of opening are the storage's sentences, which say what to do.
fn cannot_open(error: engine::Error) -> String {
    format!("The server cannot open its data: {error}.")
}

/// Open front doors.
pub(crate) struct Doors {
    server: Server,
    listening: Listening,
    sql: Option<SqlListener>,
}

impl Doors {
    /// Where they are: `CQL 127.0.0.1:9042, HTTP 127.0.0.1:9180`.
    pub(crate) fn describe(&self) -> String {
        let mut text = format!("CQL {}", self.listening.cql);
        if let Some(http) = self.listening.http {
            text.push_str(&format!(", HTTP {http}"));
        }
        if let Some(shard_aware) = self.listening.shard_aware {
            text.push_str(&format!(", shard-aware CQL {shard_aware}"));
        }
        if let Some(sql) = &self.sql {
            text.push_str(&format!(", SQL {}", sql.address));
        }
        text
    }

    /// Stops all listeners at the same time: they accept no connection, let running statements finish within one deadline, and close
    /// the rest. Returns whether all finished.
    pub(crate) fn close(self, lanes: &Lanes) -> bool {
        let (server, sql) = (self.server, self.sql);
        lanes.block_on(0, Group::CONTROL, move || async move {
            let sql = sql.map(|sql| lanes::spawn(Group::CONTROL, sql.stop()));
            let stopped = server.stop(DRAIN).await;
            match sql {
                Some(sql) => sql.await & stopped,
                None => stopped,
            }
        })
    }

    fn stop(server: &Server, lanes: &Lanes) -> bool {
        let server = server.clone();
        lanes.block_on(0, Group::CONTROL, move || async move { server.stop(DRAIN).await })
    }
}
