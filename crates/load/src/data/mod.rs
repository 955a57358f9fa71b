//! Generated tables for queries: rows computed from a scale or a seed, written through CQL or into
//! files.
//!
//! A [`TableSource`] computes any chunk of its tables, and equal arguments give equal rows. So
//! several threads can compute chunks at once, and a table can be checked against its expected
//! rows. A table written in part is completed by writing it again, since an `INSERT` of an equal
//! row changes nothing.
//!
//! ```text
//!   tpch  (crate tpchgen)  ┐                    ┌─► writer   a connection with retries of rejected requests ─► CQL
//!                          ├─► rows of Cells ───┤
//!   hits  (a seed)         ┘                    ├─► csv      a file for each table, and schema.sql for other databases
//!                                               └─► parquet  a file for each table
//! ```

mod cell;
mod cli;
mod csv;
mod fill;
mod filling;
pub(crate) mod flags;
mod hits;
mod hits_columns;
#[cfg_attr(not(feature = "parquet"), path = "parquet_absent.rs")]
mod parquet;
mod tpch;
mod writer;

pub(crate) use cli::{hits as write_hits, tpch as write_tpch};
pub use filling::{Filling, Tables, fill};

use std::ops::ControlFlow;

pub(crate) use cell::{Cell, CellType, Column, Decimals};

/// A table to generate.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// Name without keyspace.
    pub(crate) name: &'static str,
    /// Columns, in the order of the cells of a row.
    pub(crate) columns: &'static [Column],
    /// Contents of the brackets of PRIMARY KEY.
    pub(crate) key: &'static str,
    /// Number of rows. Approximate for `lineitem`.
    pub(crate) rows: u64,
    /// Number of leading columns that are the partition key. Consecutive rows with equal values
    /// there may be sent as one batch. Zero if that is rare.
    pub(crate) batch_columns: usize,
}

impl Table {
    /// Returns `CREATE TABLE` in CQL.
    pub(crate) fn definition(&self, keyspace: &str, decimals: Decimals) -> String {
        let columns: Vec<String> = self
            .columns
            .iter()
            .map(|column| format!("{} {}", column.name, column.kind.cql(decimals)))
            .collect();
        format!(
            "CREATE TABLE IF NOT EXISTS {keyspace}.{} ({}, PRIMARY KEY ({}))",
            self.name,
            columns.join(", "),
            self.key
        )
    }

    /// Returns the `INSERT` of a whole row.
    pub(crate) fn insert(&self, keyspace: &str) -> String {
        let names: Vec<&str> = self.columns.iter().map(|column| column.name).collect();
        let marks = vec!["?"; names.len()].join(", ");
        format!("INSERT INTO {keyspace}.{} ({}) VALUES ({marks})", self.name, names.join(", "))
    }
}

/// Consumer of each row. It may end the chunk early.
pub(crate) type Each<'a> = &'a mut dyn FnMut(&[Cell<'_>]) -> ControlFlow<()>;

/// Tables computed from a scale or a seed.
pub(crate) trait TableSource: Sync {
    /// Returns the tables, in the order they are written.
    fn tables(&self) -> &[Table];

    /// Computes chunk `chunk` (from 0) of `chunks` of a table, row after row. All chunks together
    /// are the table, for any number of chunks.
    fn make(&self, table: usize, chunk: u64, chunks: u64, each: Each<'_>);
}

/// Rows in a chunk. Starting a chunk is cheap relative to it, yet all threads end at about the same
/// time.
const CHUNK_ROWS: u64 = 20_000;

/// Returns the number of chunks of a table.
pub(crate) fn chunks(table: &Table) -> u64 {
    (table.rows / CHUNK_ROWS).max(1)
}

/// Returns the number of rows and a sum over them that does not depend on their order.
#[cfg(test)]
pub(crate) fn checksum(source: &dyn TableSource, table: usize, chunks: u64) -> (u64, u64) {
    let mut rows = 0;
    let mut sum = 0u64;
    let mut bytes = Vec::new();
    for chunk in 0..chunks {
        source.make(table, chunk, chunks, &mut |row| {
            bytes.clear();
            row.iter().for_each(|cell| cell.encode(Decimals::Decimal, &mut bytes));
            // FNV-1a, written out so that the expected sums never change.
            let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
            sum = sum.wrapping_add(bytes.iter().fold(0xCBF2_9CE4_8422_2325, hash));
            rows += 1;
            ControlFlow::Continue(())
        });
    }
    (rows, sum)
}
