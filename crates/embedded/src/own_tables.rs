//! Tables of storage that the engine itself uses. They cannot collide with a user's table, whose
//! identity is random.

use storage::TableId;

/// Table of the schema (core 0 only).
pub(crate) const SCHEMA_TABLE: TableId = TableId(1);

/// Table of the batch log on every core.
pub(crate) const BATCH_TABLE: TableId = TableId(2);

/// Table of floors: one row for each core that wrote.
pub(crate) const FLOORS: TableId = TableId(3);

/// Names of these tables in logs and in `system_views.sstable_tasks`, all in keyspace `system`. No
/// statement can read them.
pub(crate) const OWN_TABLES: [(TableId, &str); 3] =
    [(SCHEMA_TABLE, "schema"), (BATCH_TABLE, "batch_log"), (FLOORS, "write_times")];
