//! Running CQL statements for `system.running_statements` (see `engine::RunningStatement`), and
//! their cancellation.

use std::rc::{Rc, Weak};

use access::{CancelTarget, Cancelled};
use engine::{Error, RunningStatement, StatementState, VirtualTable};
use lanes::Group;
use wire::{Failure, FailureKind};

use crate::authorize::authorize;
use crate::clients;
use crate::failure;
use crate::session::Session;
use crate::sessions::Sessions;
use crate::statement::Statement;
use crate::tasks::{RelayedText, Running};

/// Longest text of a statement that is shown, bytes.
pub(crate) const TEXT_BYTES_MAX: usize = 1000;

/// Returns the beginning of the statement's text, with `?` for its values. It is made from the
/// syntax tree when the table is read, so that statements do not pay for it. `batch`: it is one, or
/// it is not decoded yet.
fn description(running: &Running) -> String {
    match &running.relayed {
        Some(RelayedText::Prepared(plan)) => return masked(&plan.text),
        Some(RelayedText::Sent(text)) => return masked(text),
        None => {}
    }
    let text = |statement: &Rc<Statement>| access::beginning(&cql::Masked(&statement.tree), TEXT_BYTES_MAX);
    running.statement.as_ref().map_or_else(|| "batch".to_owned(), text)
}

/// Returns the beginning of a text for a node, with `?` for its values. A text that this server
/// cannot parse, because it is long or of another product, ends before its first value.
fn masked(text: &str) -> String {
    let begin = &text[..text.floor_char_boundary(TEXT_BYTES_MAX)];
    if let Ok(tree) = cql::parse(begin) {
        return access::beginning(&cql::Masked(&tree), TEXT_BYTES_MAX);
    }
    let mut before = ' ';
    let value = begin.find(|c: char| {
        let begins_word = !(before.is_alphanumeric() || before == '_');
        before = c;
        matches!(c, '=' | '<' | '>' | '(' | '[' | '{' | '\'' | '$') || c.is_ascii_digit() && begins_word
    });
    format!("{}...", begin[..value.unwrap_or(begin.len())].trim_end())
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
    let text = "The statement was cancelled (CANCEL STATEMENT)";
    match session.cancel_task(number, &Failure::new(FailureKind::Invalid, text)) {
        true => Cancelled::Done,
        false => Cancelled::Unknown,
    }
}

/// Cancels the reads and the work on files that their roles may not do any more. Yields between
/// sessions: there may be thousands.
async fn cancel_forbidden(sessions: Weak<Sessions>) {
    let ids = |sessions: Rc<Sessions>| sessions.by_id.borrow().keys().copied().collect();
    let ids: Vec<u64> = sessions.upgrade().map(ids).unwrap_or_default();
    for id in ids {
        let Some(sessions) = sessions.upgrade() else { return };
        let session = sessions.by_id.borrow().get(&id).cloned();
        let Some(session) = session else { continue };
        let forbidden: Vec<(u64, Error)> = {
            let tasks = session.requests.tasks.borrow();
            let denied = |running: &Running| authorize(&session, running.statement.as_ref()?).err();
            tasks.running().filter_map(|(number, running)| Some((number, denied(running)?))).collect()
        };
        for (number, error) in forbidden {
            session.cancel_task(number, &failure::unbound(error));
        }
        if lanes::spend(1 + session.requests.in_flight.get() as u32) {
            lanes::yield_now().await;
        }
    }
}

/// Registers a core's statements for the table, for cancellation by id, and for checks of their
/// rights.
pub(crate) fn register(sessions: &Rc<Sessions>) {
    let (core, weak) = (&sessions.core, Rc::downgrade(sessions));
    core.access.on_cancel(move |target, id, role| match (weak.upgrade(), target) {
        (Some(sessions), CancelTarget::Statement) => cancel(&sessions, id, role),
        (Some(sessions), CancelTarget::Session) => clients::cancel(&sessions, id, role),
        (None, _) => Cancelled::Unknown,
    });
    let weak = Rc::downgrade(sessions);
    core.access
        .on_rights_taken(move || lanes::spawn(Group::CONTROL, cancel_forbidden(weak.clone())).detach());
    core.engine.registry().add_rows(table(Rc::downgrade(sessions)));
}

fn table(sessions: Weak<Sessions>) -> VirtualTable {
    RunningStatement::table(move || {
        sessions.upgrade().map(|sessions| statements(&sessions)).unwrap_or_default()
    })
}

/// Returns the running and waiting statements of a core.
pub(crate) fn statements(sessions: &Sessions) -> Vec<RunningStatement> {
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
            rows_read: running.reads.as_ref().map(|reads| reads.rows()),
            progress: None,
        };
        session.requests.tasks.borrow().running().map(one).collect::<Vec<_>>()
    };
    sessions.by_id.borrow().values().flat_map(of_session).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_for_a_node_shows_no_values() {
        let check = |text: &str, expected: &str| assert_eq!(masked(text), expected, "{text}");
        check("select a from ks.t where k = 'secret' limit 5", "SELECT a FROM ks.t WHERE k = ? LIMIT ?");
        check("SELECT a FROM t2 WHERE k ! 'secret'", "SELECT a FROM t2 WHERE k !...");
        check("SELECT a FROM t ORDER BY v ANN OF [0.1]", "SELECT a FROM t ORDER BY v ANN OF [?] ASC");
        check("FETCH 5 FROM t", "FETCH...");
        let long = format!("SELECT a FROM t WHERE k = 'secret' AND v = '{}'", "x".repeat(2 * TEXT_BYTES_MAX));
        check(&long, "SELECT a FROM t WHERE k...");
        assert_eq!(masked(&"é".repeat(TEXT_BYTES_MAX)).len(), TEXT_BYTES_MAX + "...".len());
    }
}
