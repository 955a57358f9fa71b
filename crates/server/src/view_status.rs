//! `system_distributed.view_build_status`: the state of each materialized view on this server.

use std::rc::{Rc, Weak};
use std::sync::Arc;

use bytes::Bytes;
use engine::{Engine, Subject, VirtualRow, VirtualTable};
use schema::CqlType;

use crate::core::{Core, ServerShared};

/// Returns the table.
pub(crate) fn table(core: &Core) -> VirtualTable {
    let (engine, shared) = (Rc::downgrade(&core.engine), core.shared.clone());
    let columns = [
        ("keyspace_name", CqlType::Text),
        ("view_name", CqlType::Text),
        ("host_id", CqlType::Uuid),
        ("status", CqlType::Text),
    ];
    let name = "view_build_status";
    VirtualTable::new("system_distributed", name, 2, 1, &columns, move || rows(&engine, &shared))
        .about(Subject::Keyspace(0))
}

fn rows(engine: &Weak<dyn Engine>, shared: &Arc<ServerShared>) -> Vec<VirtualRow> {
    let Some(engine) = engine.upgrade() else { return Vec::new() };
    let schema = engine.schema();
    let text = |text: &str| Some(Bytes::copy_from_slice(text.as_bytes()));
    let views = schema.keyspaces.values().flat_map(|keyspace| keyspace.views());
    let row = |(base, view): (&Arc<schema::TableDef>, &schema::ViewDef)| {
        vec![
            text(&base.keyspace),
            text(&view.name),
            Some(Bytes::copy_from_slice(shared.config.host_id.as_bytes())),
            text(if view.is_built { "SUCCESS" } else { "STARTED" }),
        ]
    };
    views.map(row).collect()
}
