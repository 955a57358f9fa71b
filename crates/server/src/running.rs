//! Running CQL statements for `system.running_statements` (see `engine::RunningStatement`), and
//! their cancellation.

use std::rc::{Rc, Weak};

use access::{CancelTarget, Cancelled};
use cql::ast::Statement as Tree;
use engine::{RunningStatement, StatementState, VirtualTable};
use wire::{Failure, FailureKind};
use workload::Effective;

use crate::core::Core;
use crate::session::Session;
use crate::sessions;
use crate::statement::{Kind, Statement, Work};

/// A statement that runs or waits, as far as it is known.
pub(crate) struct Running {
    pub(crate) stream: i16,
    pub(crate) statement: Option<Rc<Statement>>,
    pub(crate) effective: Rc<Effective>,
    pub(crate) since_ns: u64,
    /// True if the statement waits for a slot.
    pub(crate) waits: bool,
}

impl Running {
    /// Returns true for a long request whose kind is not known yet.
    pub(crate) fn is_being_opened(&self) -> bool {
        self.statement.is_none() && !self.waits
    }

    /// Returns a description such as `read ks.t`, as far as it is known.
    fn description(&self) -> String {
        let Some(statement) = &self.statement else { return "batch".to_owned() };
        let kind = match statement.kind {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Batch => "batch",
            Kind::Maintenance => match &*statement.tree {
                Tree::Compact(_) => "compact",
                Tree::Flush(_) => "flush",
                _ => "scrub",
            },
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

/// Cancels a statement of the core, for `CANCEL STATEMENT`, and answers its client with an error.
fn cancel(core: &Core, id: &str, role: Option<&str>) -> Cancelled {
    let mut parts = id.split('-').map(|part| part.parse::<u64>().ok());
    let (Some(Some(index)), Some(Some(session)), Some(Some(number)), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Cancelled::Unknown;
    };
    let session = core.sessions.borrow().get(&session).filter(|_| index == core.index as u64).cloned();
    let Some(session) = session else { return Cancelled::Unknown };
    if !role.is_none_or(|role| session.is_of(role)) {
        return Cancelled::OfOther;
    }
    let taken = session.cancellable_tasks.borrow_mut().take(number);
    let Some((task, running)) = taken else { return Cancelled::Unknown };
    drop(task);
    let text = "The statement was cancelled (CANCEL STATEMENT)";
    session.refuse(running.stream, &Failure::new(FailureKind::Invalid, text.to_owned()));
    session.end();
    Cancelled::Done
}

/// Registers a core's statements for the table and for cancellation by id.
pub(crate) fn register(core: &Rc<Core>) {
    let weak = Rc::downgrade(core);
    core.access.on_cancel(move |target, id, role| match (weak.upgrade(), target) {
        (Some(core), CancelTarget::Statement) => cancel(&core, id, role),
        (Some(core), CancelTarget::Session) => sessions::cancel(&core, id, role),
        (None, _) => Cancelled::Unknown,
    });
    core.engine.registry().add_rows(table(Rc::downgrade(core)));
}

fn table(core: Weak<Core>) -> VirtualTable {
    RunningStatement::table(move || {
        let Some(core) = core.upgrade() else { return Vec::new() };
        let (now_ns, sessions) = (lanes::time::monotonic_ns(), core.sessions.borrow());
        let of_session = |session: &Rc<Session>| {
            let role = session.login().map_or_else(String::new, |login| login.role().to_string());
            let one = |(number, running): (u64, &Running)| RunningStatement {
                service_level: running.effective.level.name().to_string(),
                id: format!("{}-{}-{number}", core.index, session.id),
                core: core.index as u32,
                role: role.clone(),
                client: session.peer.to_string(),
                state: if running.waits { StatementState::Queued } else { StatementState::Running },
                elapsed_us: now_ns.saturating_sub(running.since_ns) / 1000,
                statement: running.description(),
                progress: None,
            };
            session.cancellable_tasks.borrow().running().map(one).collect::<Vec<_>>()
        };
        sessions.values().flat_map(of_session).collect()
    })
}
