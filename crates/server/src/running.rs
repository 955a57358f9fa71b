//! What is known of statements of CQL while they run, for `system.running_statements` (see `engine::RunningStatement`).

use std::rc::Rc;

use engine::{RunningStatement, VirtualTable};
use workload::Effective;

use crate::core::Core;
use crate::session::Session;
use crate::statement::{Kind, Statement, Work};

/// What is known of a statement that runs or waits.
pub(crate) struct Running {
    pub(crate) statement: Option<Rc<Statement>>,
    pub(crate) effective: Rc<Effective>,
    pub(crate) since_ns: u64,
    /// For a slot.
    pub(crate) waits: bool,
}

impl Running {
    /// `read ks.t`, as far as it is known.
    fn what(&self) -> String {
        let Some(statement) = &self.statement else { return "batch".to_owned() };
        let kind = match statement.kind {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Batch => "batch",
            Kind::Other => "other",
        };
        let Work::Engine(plan) = &statement.work else { return kind.to_owned() };
        let name = |target: &engine::Target| match &target.table {
            Some(table) => format!(" {}.{table}", target.keyspace),
            None => format!(" {}", target.keyspace),
        };
        plan.targets().iter().map(name).fold(kind.to_owned(), |all, one| all + &one)
    }
}

/// The table, for a core's registry.
pub(crate) fn table(core: &Rc<Core>) -> VirtualTable {
    let core = Rc::downgrade(core);
    RunningStatement::table(move || {
        let Some(core) = core.upgrade() else { return Vec::new() };
        let (now_ns, sessions) = (lanes::time::monotonic_ns(), core.sessions.borrow());
        let of_session = |session: &Rc<Session>| {
            let role = session.login().map_or_else(String::new, |login| login.role().to_string());
            let one = |(key, running): (usize, &Running)| RunningStatement {
                service_level: running.effective.level.name().to_string(),
                id: format!("{}-{}-{key}", core.index, session.id),
                core: core.index as u32,
                role: role.clone(),
                client: session.peer.to_string(),
                waits: running.waits,
                elapsed_us: now_ns.saturating_sub(running.since_ns) / 1000,
                statement: running.what(),
                progress: None,
            };
            session.reads.borrow().running().map(one).collect::<Vec<_>>()
        };
        sessions.values().flat_map(of_session).collect()
    })
}
