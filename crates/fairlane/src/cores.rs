//! State of the cores of a running server: engine, roles and levels. It is opened on every core
//! before the listeners, and closed after them.
//!
//! The state is not `Send`, so that each core has its own in thread-locals of its fast lane. The
//! main thread reaches it through `Lanes::block_on`.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use access::{Access, Admin};
use cluster::{
    Account, Control, ControlOptions, FleetOptions, Front, FrontOptions, NodeTls, NodeTlsFiles, Notice,
    OwnCertificate,
};
use embedded::{AutoSnapshot, Embedded};
use engine::Guardrails;
use lanes::{Group, Lanes};
use server::logging::{FieldValue, Level, Logger};
use storage::{EventSink, PaceOptions, StorageOptions};
use workload::Levels;

use crate::folder::{self, Password, Prepared};
use crate::machine;
use crate::settings::{CLUSTER_PASSWORD_VARIABLE, PASSWORD_VARIABLE, Settings};

/// Interval of the checks for idle memtables. One with almost no writes in this time is flushed.
const IDLE_CHECK: Duration = Duration::from_secs(5);

/// Divisor of the memory for requests: at most this part of it holds large answers of nodes. The
/// parts and the joined body of one exist at the same time, and clients' answers need the rest.
const ANSWERS_PART: u64 = 4;

thread_local! {
    /// The engine of this core.
    static ENGINE: RefCell<Option<Rc<Embedded>>> = const { RefCell::new(None) };
    /// Roles and levels, as seen by this core.
    static ACCESS: RefCell<Option<Rc<Access>>> = const { RefCell::new(None) };
    /// Connections of this core to the nodes of a cluster.
    static FRONT: RefCell<Option<Rc<Front>>> = const { RefCell::new(None) };
}

/// Returns the connections of this core to the nodes of a cluster, for a server in front of one.
pub(crate) fn front() -> Option<Rc<Front>> {
    FRONT.with_borrow(Clone::clone)
}

/// Returns the engine of this core.
///
/// # Panics
/// It is not open.
pub(crate) fn engine() -> Rc<Embedded> {
    ENGINE.with_borrow(|engine| engine.clone().expect("engines are opened first"))
}

/// Returns the engine of this core for SQL: in front of a cluster, with the tables of the cluster.
#[cfg(feature = "sql")]
pub(crate) fn sql_engine() -> Rc<dyn engine::Engine> {
    match front() {
        Some(front) => cluster::ClusterEngine::new(engine(), front),
        None => engine(),
    }
}

/// Returns the roles and levels of this core.
///
/// # Panics
/// They are not open.
pub(crate) fn access() -> Rc<Access> {
    ACCESS.with_borrow(|access| access.clone().expect("roles are opened before the listeners"))
}

/// Open engines, roles and levels of all cores.
pub(crate) struct Cores {
    lanes: Lanes,
    password_file: Option<PathBuf>,
    asks_for_passwords: bool,
    /// Thread that finds the nodes of a cluster.
    control: Option<Control>,
    /// Encryption to the nodes of a cluster.
    node_tls: Option<Arc<NodeTls>>,
}

impl Cores {
    fn new(lanes: &Lanes, asks_for_passwords: bool) -> Cores {
        Cores { lanes: lanes.clone(), password_file: None, asks_for_passwords, control: None, node_tls: None }
    }

    /// Opens the shard of every core, core 0 first, because it locks the data folder. Creates the
    /// first superuser if there is none, with the given password or a generated one.
    ///
    /// # Errors
    /// One sentence with the remedy. Nothing is open then.
    pub(crate) fn open(
        lanes: &Lanes,
        settings: &Settings,
        memory_bytes: u64,
        given_password: Option<String>,
        prepared: Prepared,
        event_sink: &EventSink,
    ) -> Result<Cores, String> {
        let mut opened = Cores::new(lanes, settings.authenticate);
        let all = opened.open_all(settings, memory_bytes, given_password, prepared, event_sink);
        opened.or_close(all)
    }

    /// Returns the open cores, or closes what is open after an error.
    fn or_close(self, opened: Result<(), String>) -> Result<Cores, String> {
        if let Err(reason) = opened {
            // The first error is the cause.
            let _ = self.close();
            return Err(reason);
        }
        Ok(self)
    }

    /// Creates the levels that every server has.
    fn levels(&self, settings: &Settings, memory_bytes: u64) -> Arc<Levels> {
        let levels = Levels::new(self.lanes.clone());
        levels.set_default_limit(settings.concurrency_limit);
        let query_memory = settings.query_memory_bytes;
        levels.memory().set_total(query_memory.unwrap_or_else(|| machine::query_memory(memory_bytes)));
        levels
    }

    /// Opens roles and levels on all cores.
    fn open_roles(&self, levels: Arc<Levels>, memory_bytes: u64, admin: Option<Admin>) -> Result<(), String> {
        let bytes_max = machine::roles_memory(memory_bytes);
        let shared = self.lanes.block_on(0, Group::CONTROL, move || open_access(levels, admin, bytes_max));
        let shared = shared.map_err(cannot_open)?;
        for core in 1..self.lanes.cores() {
            let shared = shared.clone();
            self.lanes.block_on(core, Group::CONTROL, move || async move {
                ACCESS.set(Some(Access::attach(engine(), shared)));
            });
        }
        Ok(())
    }

    fn open_all(
        &mut self,
        settings: &Settings,
        memory_bytes: u64,
        given_password: Option<String>,
        prepared: Prepared,
        event_sink: &EventSink,
    ) -> Result<(), String> {
        let cores = u32::try_from(self.lanes.cores()).expect("fewer cores than 2^32");
        let options = |core: u32| {
            let mut options = StorageOptions::in_dir(&settings.data_dir, core, cores);
            options.commit = settings.commit;
            options.event_sink = event_sink.clone();
            options.pace = PaceOptions {
                controllers: settings.background_controllers,
                compaction_shares: settings.compaction_shares,
                quota_ppm: settings.background_quota_percent * 10_000,
            };
            machine::size(&mut options, memory_bytes, settings.memtable_memory_bytes);
            options
        };
        let guardrails = guardrails(settings)?;
        let (first, shared) = (options(0), guardrails.clone());
        let engine_opened = self.lanes.block_on(0, Group::CONTROL, move || open_engine(first, shared));
        engine_opened.map_err(cannot_open)?;
        // The engine of core 0 holds the lock of the folder, so that no other server writes the
        // password.
        let password = folder::password(&settings.data_dir, given_password, prepared)?;
        let name = &settings.admin_user;
        let admin =
            password.text().map(|password| Admin { name: name.clone(), password: password.to_owned() });
        for core in 1..cores {
            let (own, shared) = (options(core), guardrails.clone());
            self.lanes
                .block_on(core as usize, Group::CONTROL, move || open_engine(own, shared))
                .map_err(cannot_open)?;
        }
        let (before_drop, before_truncate) = settings.auto_snapshot;
        let auto = AutoSnapshot { before_drop, before_truncate, keep: settings.auto_snapshot_ttl };
        self.lanes.block_on(0, Group::CONTROL, move || async move { engine().set_auto_snapshot(auto) });
        let schema_bytes = machine::schema_memory(memory_bytes);
        self.lanes.block_on(0, Group::CONTROL, move || async move {
            engine().set_schema_bytes_max(schema_bytes);
        });
        self.open_roles(self.levels(settings, memory_bytes), memory_bytes, admin)?;
        for core in 0..self.lanes.cores() {
            self.lanes.block_on(core, Group::CONTROL, || async { flush_when_idle() });
        }
        self.password_file = self.keep_password(&settings.data_dir, &settings.admin_user, &password)?;
        Ok(())
    }

    /// Opens a server in front of a cluster: an engine in memory on every core, for the tables that
    /// drivers read, and connections to the nodes.
    ///
    /// # Errors
    /// One sentence with the remedy. Nothing is open then.
    pub(crate) fn open_front(
        lanes: &Lanes,
        settings: &Settings,
        host_id: uuid::Uuid,
        memory_bytes: u64,
        request_bytes: u64,
        event_sink: &EventSink,
        logger: &Logger,
    ) -> Result<Cores, String> {
        let mut opened = Cores::new(lanes, true);
        let all = opened.open_front_all(settings, host_id, memory_bytes, request_bytes, event_sink, logger);
        opened.or_close(all)
    }

    fn open_front_all(
        &mut self,
        settings: &Settings,
        host_id: uuid::Uuid,
        memory_bytes: u64,
        request_bytes: u64,
        event_sink: &EventSink,
        logger: &Logger,
    ) -> Result<(), String> {
        let account = account(settings.cluster_user.clone(), std::env::var(CLUSTER_PASSWORD_VARIABLE).ok())?;
        self.node_tls = node_tls(settings)?;
        let levels = self.levels(settings, memory_bytes);
        let fleet = FleetOptions {
            keyspace: settings.fleet_keyspace.clone(),
            host_id,
            rack: settings.rack.clone(),
            levels: levels.clone(),
        };
        let control = control(settings, account.clone(), fleet, self.node_tls.clone(), logger)?;
        let options = FrontOptions {
            node_window: settings.node_window,
            account,
            refresh: Some(control.refresh().clone()),
            fleet: control.fleet().cloned(),
            tls: self.node_tls.clone(),
        };
        let fleet = control.fleet().cloned();
        let (of_front, topology) = (levels.clone(), control.topology().clone());
        let known = topology.clone();
        self.control = Some(control);
        let open = move || cluster::Shared::open(options, of_front, topology);
        let shared = self.lanes.block_on(0, Group::CONTROL, open);
        let shared =
            shared.map_err(|reason| format!("the cluster cannot be reached: {reason} (--contact)."))?;
        self.asks_for_passwords = shared.authenticator().is_some();
        shared.set_answer_bytes_max(request_bytes / ANSWERS_PART);
        let cores = u32::try_from(self.lanes.cores()).expect("fewer cores than 2^32");
        let guardrails = guardrails(settings)?;
        for core in 0..cores {
            let options = StorageOptions {
                shard: core,
                shards: cores,
                event_sink: event_sink.clone(),
                ..StorageOptions::in_memory()
            };
            let (guardrails, shared) = (guardrails.clone(), shared.clone());
            let opened = self.lanes.block_on(core as usize, Group::CONTROL, move || async move {
                open_engine(options, guardrails).await?;
                FRONT.set(Some(Front::new(shared)));
                Ok(())
            });
            opened.map_err(cannot_open)?;
        }
        self.open_roles(levels, memory_bytes, None)?;
        let follow = || async move { access().follow_cluster(known, fleet).await };
        self.lanes.block_on(0, Group::CONTROL, follow).map_err(|error| format!("{error}."))
    }

    /// Keeps a generated password if it is the administrator's, and removes it otherwise: the
    /// superuser existed before. Returns its file.
    ///
    /// # Errors
    /// One sentence: the file cannot be moved, or the password that the operator gave is not the
    /// administrator's. An operator would not know which one holds.
    fn keep_password(
        &self,
        folder: &Path,
        user: &str,
        password: &Password,
    ) -> Result<Option<PathBuf>, String> {
        let Some(text) = password.text() else { return Ok(None) };
        let (name, text) = (user.to_owned(), text.to_owned());
        let in_use = self.lanes.block_on(0, Group::CONTROL, move || async move {
            access().authenticate(&name, &text).await.is_ok()
        });
        if matches!(password, Password::Given(_)) && !in_use {
            return Err(format!(
                "{PASSWORD_VARIABLE} is not the password of the role {user}, and sets one only at the first start: \
                 leave it out, and change the password with ALTER ROLE {user} WITH PASSWORD."
            ));
        }
        folder::keep_password(folder, password, in_use)
    }

    /// Returns true if clients have to log in with a password.
    pub(crate) fn asks_for_passwords(&self) -> bool {
        self.asks_for_passwords
    }

    /// Returns the encryption to the nodes of a cluster.
    pub(crate) fn node_tls(&self) -> Option<&Arc<NodeTls>> {
        self.node_tls.as_ref()
    }

    /// Returns the file of the password that this start generated.
    pub(crate) fn password_file(&self) -> Option<&Path> {
        self.password_file.as_deref()
    }

    /// Flushes the memtables and closes the files of every core.
    ///
    /// # Errors
    /// A flush failed. Acknowledged writes are in the log.
    pub(crate) fn close(&self) -> Result<(), String> {
        let mut result = Ok(());
        for core in 0..self.lanes.cores() {
            let closed = self.lanes.block_on(core, Group::CONTROL, || async {
                drop(ACCESS.take());
                drop(FRONT.take());
                match ENGINE.take() {
                    Some(engine) => engine.shutdown().await.map_err(|error| error.to_string()),
                    None => Ok(()),
                }
            });
            result = result.and(closed);
        }
        result.map_err(|error| format!("the last writes failed, no acknowledged write is lost: {error}."))
    }
}

/// Makes a snapshot of the data of all cores in the folder `to`. The folder is usable only if this
/// succeeds.
///
/// # Errors
/// The reason, without a full stop.
pub(crate) fn snapshot(lanes: &Lanes, to: &Path) -> Result<(), String> {
    let to = to.to_owned();
    lanes.block_on(0, Group::CONTROL, move || async move {
        if ENGINE.with_borrow(Option::is_none) {
            return Err("the server is stopping".to_owned());
        }
        Embedded::snapshot(&to).await.map_err(|error| error.to_string())
    })
}

/// Restores a table, given as `KEYSPACE.TABLE`, from the snapshot in the folder `from`.
///
/// # Errors
/// The reason, without a full stop.
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

/// Returns the front's own role at the cluster.
///
/// # Errors
/// The role has no password, or the password has no role.
fn account(user: Option<String>, password: Option<String>) -> Result<Option<Account>, String> {
    match (user, password.filter(|password| !password.is_empty())) {
        (Some(user), Some(password)) => Ok(Some(Account { user, password })),
        (Some(user), None) => {
            Err(format!("--cluster-user {user} has no password: give it in {CLUSTER_PASSWORD_VARIABLE}."))
        }
        (None, Some(_)) => Err(format!(
            "{CLUSTER_PASSWORD_VARIABLE} has no effect without --cluster-user: give the role, or leave it out."
        )),
        (None, None) => Ok(None),
    }
}

/// Reads the files of the encryption to nodes. `None`: plain text.
///
/// # Errors
/// One sentence with the remedy.
fn node_tls(settings: &Settings) -> Result<Option<Arc<NodeTls>>, String> {
    let own = match (&settings.cluster_cert, &settings.cluster_key) {
        (None, None) => None,
        (Some(certificate), Some(key)) => {
            Some(OwnCertificate { certificate: certificate.clone(), key: key.clone() })
        }
        _ => {
            return Err("a certificate needs its key: give both --cluster-cert and --cluster-key, or \
                        neither."
                .to_owned());
        }
    };
    let name = settings.cluster_tls_name.clone();
    let Some(authority) = settings.cluster_ca.clone() else {
        if name.is_some() {
            return Err("a name in certificates needs an encrypted connection: give --cluster-ca beside \
                        --cluster-tls-name."
                .to_owned());
        }
        return match own {
            Some(_) => Err("a client certificate needs an encrypted connection: give --cluster-ca beside \
                            --cluster-cert."
                .to_owned()),
            None => Ok(None),
        };
    };
    let tls = NodeTls::from_files(NodeTlsFiles { authority, own, name });
    tls.map(Some).map_err(|reason| {
        format!("{reason} (--cluster-ca, --cluster-cert, --cluster-key, --cluster-tls-name).")
    })
}

/// Starts the thread that finds the nodes of the cluster.
///
/// # Errors
/// One sentence with the remedy.
fn control(
    settings: &Settings,
    account: Option<Account>,
    fleet: FleetOptions,
    tls: Option<Arc<NodeTls>>,
    logger: &Logger,
) -> Result<Control, String> {
    let options = ControlOptions {
        contacts: settings.contact.clone(),
        account,
        datacenter: settings.datacenter.clone(),
        tls,
    };
    let logger = logger.clone();
    let report = move |notice| match notice {
        Notice::Away(reason) => {
            let text = "the nodes of the cluster cannot be asked; those that were known are used";
            logger.log(Level::Warn, text, &[("reason", FieldValue::text(reason))]);
        }
        Notice::Back => logger.log(Level::Info, "the nodes of the cluster answer again", &[]),
        Notice::FleetAway(reason) => {
            let text = "the tables of the fleet cannot be used: service levels stay as they are, and cannot be changed";
            logger.log(Level::Warn, text, &[("reason", FieldValue::text(reason))]);
        }
        Notice::FleetBack => logger.log(Level::Info, "the tables of the fleet can be used again", &[]),
        Notice::RolesInOneCopy => {
            let text = "the cluster keeps its roles on one node, without which nobody can log in: \
                        raise the replication of system_auth";
            logger.log(Level::Warn, text, &[]);
        }
    };
    Control::start(options, Some(fleet), report).map_err(|reason| format!("{reason}."))
}

fn guardrails(settings: &Settings) -> Result<Arc<Guardrails>, String> {
    let guardrails = Arc::new(Guardrails::default());
    guardrails.set_all(&settings.guardrails).map_err(|error| format!("guardrails: {error}."))?;
    Ok(guardrails)
}

/// Opens the engine of this core.
async fn open_engine(options: StorageOptions, guardrails: Arc<Guardrails>) -> Result<(), engine::Error> {
    let engine = Embedded::open(options).await?;
    engine::Engine::registry(&*engine).set_guardrails(guardrails);
    ENGINE.set(Some(engine));
    Ok(())
}

/// Starts the task that flushes the memtables of an idle core, until the engine is closed. Called
/// on the core's fast lane.
fn flush_when_idle() {
    let engine = Rc::downgrade(&engine());
    let flush = async move {
        while let Some(engine) = engine.upgrade() {
            engine.flush_if_idle();
            drop(engine);
            lanes::time::sleep(IDLE_CHECK).await;
        }
    };
    lanes::spawn(Group::CONTROL, flush).detach();
}

/// Opens roles and levels on core 0. Returns the part that the other cores attach to.
async fn open_access(
    levels: Arc<Levels>,
    admin: Option<Admin>,
    bytes_max: u64,
) -> Result<Arc<access::SharedAccess>, engine::Error> {
    let access = Access::open(engine(), levels, admin).await?;
    access.set_bytes_max(bytes_max);
    let shared = access.shared();
    ACCESS.set(Some(access));
    Ok(shared)
}

/// Returns the message for an error of `storage`, which contains the remedy.
fn cannot_open(error: engine::Error) -> String {
    format!("the server cannot open its data: {error}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn role_at_the_cluster_and_its_password_come_together() {
        let of = |user: Option<&str>, password: Option<&str>| {
            account(user.map(str::to_owned), password.map(str::to_owned))
        };
        assert_eq!(of(None, None), Ok(None));
        assert_eq!(of(None, Some("")), Ok(None), "an empty variable is none");
        let both = of(Some("fairlane"), Some("secret")).expect("both").expect("a role");
        assert_eq!((&*both.user, &*both.password), ("fairlane", "secret"));
        for (user, password, expected) in [
            (Some("fairlane"), None, "has no password"),
            (Some("fairlane"), Some(""), "has no password"),
            (None, Some("secret"), "without --cluster-user"),
        ] {
            let refused = of(user, password).expect_err("one is missing");
            assert!(refused.contains(expected) && !refused.contains("secret"), "{refused}");
        }
    }
}
