//! `system_traces.sessions` and `system_traces.events`: the traces of all cores, as cqlsh and
//! drivers read them.

use std::rc::{Rc, Weak};

use engine::{About, Subject, VirtualRow, VirtualTable};
use schema::{CqlType, value};

use crate::cells::{inet, int, text, uuid};
use crate::core::Core;
use crate::trace::Traced;

fn count(us: u64) -> Option<bytes::Bytes> {
    int(i32::try_from(us).unwrap_or(i32::MAX))
}

/// Creates both tables for a core's registry.
pub(crate) fn tables(core: &Rc<Core>) -> [VirtualTable; 2] {
    use CqlType::{Inet, Int, Text, TimeUuid, Timestamp, Uuid};
    let sessions = [
        ("session_id", Uuid),
        ("client", Inet),
        ("command", Text),
        ("coordinator", Inet),
        ("coordinator_port", Int),
        ("duration", Int),
        ("parameters", CqlType::Map(Box::new(Text), Box::new(Text))),
        ("request", Text),
        ("started_at", Timestamp),
    ];
    let events = [
        ("session_id", Uuid),
        ("event_id", TimeUuid),
        ("activity", Text),
        ("source", Inet),
        ("source_elapsed", Int),
        ("source_port", Int),
        ("thread", Text),
    ];
    [
        table(core, "sessions", 0, &sessions, |core, traced, rows| rows.push(session_row(core, traced))),
        table(core, "events", 1, &events, event_rows),
    ]
}

fn table(
    core: &Rc<Core>,
    name: &str,
    clustering: usize,
    columns: &[(&str, CqlType)],
    make: fn(&Core, &Traced, &mut Vec<VirtualRow>),
) -> VirtualTable {
    let weak: Weak<Core> = Rc::downgrade(core);
    VirtualTable::new("system_traces", name, 1, clustering, columns, Vec::new)
        .in_chunks(move |viewer| {
            let rows = weak.upgrade().map(|core| {
                let sees = |role: &str| viewer.as_ref().is_none_or(|viewer| viewer.sees(About::Role(role)));
                core.traces.each(&sees, |traced, rows| make(&core, traced, rows))
            });
            Box::pin(std::future::ready(rows.unwrap_or_default()))
        })
        .of_every_core()
        .about(Subject::OwnRole)
}

fn session_row(core: &Core, traced: &Traced) -> VirtualRow {
    let here = core.shared.advertised();
    let parameters = traced.parameters.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    vec![
        uuid(uuid::Uuid::from_bytes(traced.id)),
        inet(traced.client.address.ip()),
        text("QUERY"),
        inet(here.ip()),
        int(i32::from(here.port())),
        count(traced.duration_us),
        Some(value::encode_map(parameters).into()),
        text(traced.request),
        Some(bytes::Bytes::copy_from_slice(&(traced.began_us / 1000).to_be_bytes())),
    ]
}

fn event_rows(core: &Core, traced: &Traced, rows: &mut Vec<VirtualRow>) {
    let here = core.shared.advertised();
    let thread = format!("core-{}", core.index);
    let mut last = 0;
    for (number, event) in traced.events.iter().enumerate() {
        let elapsed_ns = event.at_ns.saturating_sub(traced.began_ns);
        // Each event has a tick of its own, so that they are sorted in their order.
        let ticks = (traced.began_us * 10).saturating_add_unsigned(elapsed_ns / 100).max(last + 1);
        last = ticks;
        let id = value::timeuuid(ticks, number as u64);
        rows.push(vec![
            uuid(uuid::Uuid::from_bytes(traced.id)),
            uuid(uuid::Uuid::from_bytes(id)),
            text(&event.text),
            inet(here.ip()),
            count(elapsed_ns / 1000),
            int(i32::from(here.port())),
            text(&thread),
        ]);
    }
}
