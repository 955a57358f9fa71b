//! Tables of storage that the engine itself uses, which cannot collide with a user's table, whose
//! identity is random. And keyspaces of the server.

use storage::TableId;

/// Table of the schema (core 0 only).
pub(crate) const SCHEMA_TABLE: TableId = TableId(1);

/// Table of the batch log on every core.
pub(crate) const BATCH_TABLE: TableId = TableId(2);

/// Table of floors: one row for each core that wrote.
pub(crate) const FLOORS: TableId = TableId(3);

/// Table of indexes that are being built, and of the generation that they were built in (core 0
/// only).
pub(crate) const INDEX_BUILDS: TableId = TableId(4);

/// Names of these tables in logs and in `system_views.sstable_tasks`, all in keyspace `system`. No
/// statement can read them.
pub(crate) const OWN_TABLES: [(TableId, &str); 4] = [
    (SCHEMA_TABLE, "schema"),
    (BATCH_TABLE, "batch_log"),
    (FLOORS, "write_times"),
    (INDEX_BUILDS, "index_builds"),
];

/// Keyspaces of the server whose tables are stored like those of users, and which it creates when
/// it starts.
const SERVER_KEYSPACES: [&str; 2] = ["system_auth", "system_distributed"];

/// Returns true if the keyspace stores tables of the server.
pub(crate) fn is_server_keyspace(keyspace: &str) -> bool {
    SERVER_KEYSPACES.contains(&keyspace)
}
