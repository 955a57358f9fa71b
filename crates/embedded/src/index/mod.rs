//! Secondary indexes: which tables of this core have them, and writes with their entries.
//!
//! An index is a table of storage that no statement can name. Its partitions are the indexed
//! values. The rows of a partition are *entries*, one for each row of the table that has had the
//! value (`entry`). `docs/decisions/0032-secondary-indexes.md` has the reasons.
//!
//! 1. A write and its entries are one record of the log on the core that owns the row. Many entries
//!    are records before it (`apply`). No write reads what it replaces, so entries become stale.
//! 2. A reader finds rows by entries, and checks every row as if it had scanned the table. So a
//!    stale entry is never seen. The reader has it removed (`stale`), or a sweep does (`sweep`).
//! 3. Entries have timestamps of their own. A removal has a timestamp below that of every entry
//!    that was written, or is being written, since the row was checked. So it never removes an
//!    entry that counts, whatever timestamps clients choose.
//!
//! ```text
//!  writer    timestamp 7 ──────────── row and entry applied
//!  remover        ── removal at 6 ── row read ── entry up to 6 removed
//! ```

pub(crate) mod apply;
pub(crate) mod cursor;
pub(crate) mod due;
pub(crate) mod entry;
pub(crate) mod graph;
mod graph_counts;
mod graph_file;
mod graph_limits;
mod graph_room;
mod graph_work;
pub(crate) mod list;
pub(crate) mod maintain;
pub(crate) mod metrics;
pub(crate) mod range;
pub(crate) mod size;
pub(crate) mod stale;
pub(crate) mod state;
pub(crate) mod sweep;
pub(crate) mod vectors;
pub(crate) mod view;
pub(crate) mod view_stale;
