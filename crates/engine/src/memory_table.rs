//! `system.memory`: memory of each core by purpose, in bytes. Query memory is listed by service
//! level in `system.level_usage`.

use ::schema::CqlType;
use bytes::Bytes;

use crate::virtual_table::VirtualTable;

/// Memory in use for one purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryUsage {
    /// Purpose.
    pub purpose: &'static str,
    /// Bytes.
    pub bytes: u64,
}

impl MemoryUsage {
    /// Creates the table for the registry of a core, which concatenates the rows of several
    /// listeners.
    pub fn table(core: usize, held: impl Fn() -> Vec<MemoryUsage> + 'static) -> VirtualTable {
        let columns = [("purpose", CqlType::Text), ("core", CqlType::Int), ("bytes", CqlType::BigInt)];
        let core = i32::try_from(core).unwrap_or(i32::MAX);
        let rows = move || held().iter().map(|held| held.row(core)).collect();
        VirtualTable::new("system", "memory", 1, 1, &columns, rows).of_every_core()
    }

    fn row(&self, core: i32) -> Vec<Option<Bytes>> {
        let bytes = i64::try_from(self.bytes).unwrap_or(i64::MAX).to_be_bytes();
        let cells = [self.purpose.as_bytes(), &core.to_be_bytes(), &bytes];
        cells.into_iter().map(|cell| Some(Bytes::copy_from_slice(cell))).collect()
    }
}
