//! Running CQL statements for `system.running_statements` (see `engine::RunningStatement`), and
//! their cancellation.

use std::rc::{Rc, Weak};

use access::{CancelTarget, Cancelled};
use cql::ast::Statement as Tree;
use engine::{RunningStatement, StatementState, VirtualTable};
use wire::{Failure, FailureKind};

use crate::clients;
use crate::session::Session;
use crate::sessions::Sessions;
use crate::statement::{Kind, Work};
use crate::tasks::Running;

/// Returns a description such as `read ks.t`, as far as it is known.
fn description(running: &Running) -> String {
    let Some(statement) = &running.statement else { return "batch".to_owned() };
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

/// Cancels a statement of the core, for `CANCEL STATEMENT`, and answers its client with an error.
fn cancel(sessions: &Sessions, id: &str, role: Option<&str>) -> Cancelled {
    let mut parts = id.split('-').map(|part| part.parse::<u64>().ok());
    let (Some(Some(index)), Some(Some(session)), Some(Some(number)), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Cancelled::Unknown;
    };
    let is_here = index == sessions.core.index as u64;
    let session = sessions.by_id.borrow().get(&session).filter(|_| is_here).cloned();
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
pub(crate) fn register(sessions: &Rc<Sessions>) {
    let (core, weak) = (&sessions.core, Rc::downgrade(sessions));
    core.access.on_cancel(move |target, id, role| match (weak.upgrade(), target) {
        (Some(sessions), CancelTarget::Statement) => cancel(&sessions, id, role),
        (Some(sessions), CancelTarget::Session) => clients::cancel(&sessions, id, role),
        (None, _) => Cancelled::Unknown,
    });
    core.engine.registry().add_rows(table(Rc::downgrade(sessions)));
}

fn table(sessions: Weak<Sessions>) -> VirtualTable {
    RunningStatement::table(move || {
        let Some(sessions) = sessions.upgrade() else { return Vec::new() };
        let (now_ns, core) = (lanes::time::monotonic_ns(), sessions.core.index);
        let of_session = |session: &Rc<Session>| {
            let role = session.login().map_or_else(String::new, |login| login.role().to_string());
            let one = |(number, running): (u64, &Running)| RunningStatement {
                service_level: running.effective.level.name().to_string(),
                id: format!("{core}-{}-{number}", session.id),
                core: core as u32,
                role: role.clone(),
                client: session.peer.to_string(),
                state: if running.waits { StatementState::Queued } else { StatementState::Running },
                elapsed_us: now_ns.saturating_sub(running.since_ns) / 1000,
                statement: description(running),
                progress: None,
            };
            session.cancellable_tasks.borrow().running().map(one).collect::<Vec<_>>()
        };
        sessions.by_id.borrow().values().flat_map(of_session).collect()
    })
}
