//! `system.running_statements`: the statements of CQL that wait for a slot, or take longer than a piece of work. What is answered at
//! once is never here, nor is a write that only waits for the log. Everybody may read the table, so it names what a statement
//! touches and does, and not its text, which may hold values.

use std::rc::Rc;

use bytes::Bytes;
use engine::VirtualTable;
use schema::CqlType;
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

/// Text of a cell.
fn text(text: &str) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(text.as_bytes()))
}

fn number(number: u64) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(&i64::try_from(number).unwrap_or(i64::MAX).to_be_bytes()))
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
    use CqlType::{BigInt, Int, Text};
    let columns = [
        ("service_level", Text),
        ("id", Text),
        ("core", Int),
        ("role", Text),
        ("client", Text),
        ("state", Text),
        ("elapsed_us", BigInt),
        ("statement", Text),
    ];
    let core = Rc::downgrade(core);
    let rows = move || {
        let Some(core) = core.upgrade() else { return Vec::new() };
        let (now_ns, sessions) = (lanes::time::monotonic_ns(), core.sessions.borrow());
        let of_session = |session: &Rc<Session>| {
            let role = session.login().map_or_else(String::new, |login| login.role().to_string());
            let row = |(key, running): (usize, &Running)| {
                vec![
                    text(running.effective.level.name()),
                    text(&format!("{}-{}-{key}", core.index, session.id)),
                    Some(Bytes::copy_from_slice(&(core.index as u32).to_be_bytes())),
                    text(&role),
                    text(&session.peer.to_string()),
                    text(if running.waits { "queued" } else { "running" }),
                    number(now_ns.saturating_sub(running.since_ns) / 1000),
                    text(&running.what()),
                ]
            };
            session.reads.borrow().running().map(row).collect::<Vec<_>>()
        };
        sessions.values().flat_map(of_session).collect()
    };
    VirtualTable::new("system", "running_statements", 1, 1, &columns, rows).of_every_core()
}
