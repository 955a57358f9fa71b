//! Tables to run queries over: made here, row by row, from a scale or a seed, and written through the front door or into files.
//!
//! A [`Source`] knows its tables and makes any piece of one, the same piece from the same arguments, always. So pieces can be made by
//! several threads at once, a table can be checked against what it should hold, and what was written in part is made whole by writing
//! it again: an `INSERT` of the same row changes nothing.
//!
//! ```text
//!   tpch  (crate tpchgen)  ┐                    ┌─► writer   a connection, requests in flight, what is refused again ─► CQL
//!                          ├─► rows of Cells ───┤
//!   hits  (a seed)         ┘                    ├─► csv      a file for each table, and schema.sql for other databases
//!                                               └─► parquet  a file for each table
//! ```

mod cell;
mod cli;
mod csv;
mod fill;
mod filling;
mod flags;
mod hits;
mod hits_columns;
#[cfg_attr(not(feature = "parquet"), path = "parquet_absent.rs")]
mod parquet;
mod tpch;
mod writer;

pub(crate) use cli::run as cli;
pub use filling::{Filling, Tables, fill};

use std::ops::ControlFlow;

pub(crate) use cell::{Cell, Column, Decimals, Kind};

/// A table that can be made.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// Its name, without keyspace.
    pub(crate) name: &'static str,
    /// Its columns, in the order rows have them.
    pub(crate) columns: &'static [Column],
    /// What stands in the brackets of PRIMARY KEY.
    pub(crate) key: &'static str,
    /// How many rows it has; of `lineitem` about so many.
    pub(crate) rows: u64,
    /// Rows that follow one another and have this many first columns alike are of one partition, and may be sent as one batch; zero
    /// where that hardly happens.
    pub(crate) together: usize,
}

impl Table {
    /// `CREATE TABLE` in CQL.
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

    /// The `INSERT` of a whole row.
    pub(crate) fn insert(&self, keyspace: &str) -> String {
        let names: Vec<&str> = self.columns.iter().map(|column| column.name).collect();
        let marks = vec!["?"; names.len()].join(", ");
        format!("INSERT INTO {keyspace}.{} ({}) VALUES ({marks})", self.name, names.join(", "))
    }
}

/// What is called with each row; it may end the piece early.
pub(crate) type Each<'a> = &'a mut dyn FnMut(&[Cell<'_>]) -> ControlFlow<()>;

/// Tables that are made from a scale or a seed.
pub(crate) trait Source: Sync {
    /// The tables, in the order they are written.
    fn tables(&self) -> &[Table];

    /// Makes piece `piece` (from 0) of `pieces` of a table, row after row. All pieces together are the table, whatever their number.
    fn make(&self, table: usize, piece: u64, pieces: u64, each: Each<'_>);
}

/// Rows in a piece: enough that beginning one costs nothing, few enough that all threads end at about the same time.
const PIECE_ROWS: u64 = 20_000;

/// Into how many pieces a table is cut.
pub(crate) fn pieces(table: &Table) -> u64 {
    (table.rows / PIECE_ROWS).max(1)
}

/// Rows and a sum over them that does not depend on their order, so that a table is told by two numbers.
#[cfg(test)]
pub(crate) fn checksum(source: &dyn Source, table: usize, pieces: u64) -> (u64, u64) {
    let (mut rows, mut sum) = (0, 0u64);
    let mut bytes = Vec::new();
    for piece in 0..pieces {
        source.make(table, piece, pieces, &mut |row| {
            bytes.clear();
            row.iter().for_each(|cell| cell.encode(Decimals::Decimal, &mut bytes));
            // FNV-1a: a few lines that will say the same in ten years.
            let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3);
            sum = sum.wrapping_add(bytes.iter().fold(0xCBF2_9CE4_8422_2325, hash));
            rows += 1;
            ControlFlow::Continue(())
        });
    }
    (rows, sum)
}
