//! The eight tables of TPC-H from crate `tpchgen`, equal to those of the official generator. Scale
//! 1 is about 1 GB.
//!
//! The partition key of a table is its primary key. For `lineitem` and `partsupp` it is the first
//! key column, so that the lines of an order share a partition. Surrogate keys are `bigint`, dates
//! are `date`. Money and percentages follow [`super::Decimals`].

use std::fmt::Display;
use std::ops::ControlFlow;

use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator, PartSuppGenerator,
    RegionGenerator, SupplierGenerator,
};

use super::{Cell, CellType, Column, Each, Table, TableSource};

const fn column(name: &'static str, kind: CellType) -> Column {
    Column { name, kind }
}

const REGION: &[Column] = &[
    column("r_regionkey", CellType::Big),
    column("r_name", CellType::Text),
    column("r_comment", CellType::Text),
];
const NATION: &[Column] = &[
    column("n_nationkey", CellType::Big),
    column("n_name", CellType::Text),
    column("n_regionkey", CellType::Big),
    column("n_comment", CellType::Text),
];
const SUPPLIER: &[Column] = &[
    column("s_suppkey", CellType::Big),
    column("s_name", CellType::Text),
    column("s_address", CellType::Text),
    column("s_nationkey", CellType::Big),
    column("s_phone", CellType::Text),
    column("s_acctbal", CellType::Hundredths),
    column("s_comment", CellType::Text),
];
const PART: &[Column] = &[
    column("p_partkey", CellType::Big),
    column("p_name", CellType::Text),
    column("p_mfgr", CellType::Text),
    column("p_brand", CellType::Text),
    column("p_type", CellType::Text),
    column("p_size", CellType::Int),
    column("p_container", CellType::Text),
    column("p_retailprice", CellType::Hundredths),
    column("p_comment", CellType::Text),
];
const PARTSUPP: &[Column] = &[
    column("ps_partkey", CellType::Big),
    column("ps_suppkey", CellType::Big),
    column("ps_availqty", CellType::Int),
    column("ps_supplycost", CellType::Hundredths),
    column("ps_comment", CellType::Text),
];
const CUSTOMER: &[Column] = &[
    column("c_custkey", CellType::Big),
    column("c_name", CellType::Text),
    column("c_address", CellType::Text),
    column("c_nationkey", CellType::Big),
    column("c_phone", CellType::Text),
    column("c_acctbal", CellType::Hundredths),
    column("c_mktsegment", CellType::Text),
    column("c_comment", CellType::Text),
];
const ORDERS: &[Column] = &[
    column("o_orderkey", CellType::Big),
    column("o_custkey", CellType::Big),
    column("o_orderstatus", CellType::Text),
    column("o_totalprice", CellType::Hundredths),
    column("o_orderdate", CellType::Date),
    column("o_orderpriority", CellType::Text),
    column("o_clerk", CellType::Text),
    column("o_shippriority", CellType::Int),
    column("o_comment", CellType::Text),
];
const LINEITEM: &[Column] = &[
    column("l_orderkey", CellType::Big),
    column("l_partkey", CellType::Big),
    column("l_suppkey", CellType::Big),
    column("l_linenumber", CellType::Int),
    column("l_quantity", CellType::Hundredths),
    column("l_extendedprice", CellType::Hundredths),
    column("l_discount", CellType::Hundredths),
    column("l_tax", CellType::Hundredths),
    column("l_returnflag", CellType::Text),
    column("l_linestatus", CellType::Text),
    column("l_shipdate", CellType::Date),
    column("l_commitdate", CellType::Date),
    column("l_receiptdate", CellType::Date),
    column("l_shipinstruct", CellType::Text),
    column("l_shipmode", CellType::Text),
    column("l_comment", CellType::Text),
];

/// Tables at scale 1.
const TABLES: [Table; 8] = [
    table("region", REGION, "r_regionkey", 5, 0),
    table("nation", NATION, "n_nationkey", 25, 0),
    table("supplier", SUPPLIER, "s_suppkey", 10_000, 0),
    table("part", PART, "p_partkey", 200_000, 0),
    table("partsupp", PARTSUPP, "(ps_partkey), ps_suppkey", 800_000, 1),
    table("customer", CUSTOMER, "c_custkey", 150_000, 0),
    table("orders", ORDERS, "o_orderkey", 1_500_000, 0),
    table("lineitem", LINEITEM, "(l_orderkey), l_linenumber", 6_000_000, 1),
];

const fn table(
    name: &'static str,
    columns: &'static [Column],
    key: &'static str,
    rows: u64,
    batch_columns: usize,
) -> Table {
    Table { name, columns, key, rows, batch_columns }
}

/// Number of tables with the same rows at every scale: `region` and `nation`.
const FIXED: usize = 2;

/// TPC-H at one scale.
#[derive(Debug)]
pub(crate) struct Tpch {
    scale: f64,
    tables: Vec<Table>,
}

impl Tpch {
    pub(crate) fn new(scale: f64) -> Tpch {
        let mut tables = TABLES.to_vec();
        tables[FIXED..].iter_mut().for_each(|table| table.rows = (table.rows as f64 * scale) as u64);
        Tpch { scale, tables }
    }
}

impl TableSource for Tpch {
    fn tables(&self) -> &[Table] {
        &self.tables
    }

    fn make(&self, table: usize, chunk: u64, chunks: u64, each: Each<'_>) {
        // A table of a few billion rows has fewer chunks than `i32::MAX`.
        let chunk = chunk as i32 + 1;
        let chunks = chunks as i32;
        let scale = self.scale;
        // Ignore the result: it only says whether the consumer ended the chunk early.
        let _ = match table {
            0 => region(each),
            1 => nation(each),
            2 => supplier(SupplierGenerator::new(scale, chunk, chunks), each),
            3 => part(PartGenerator::new(scale, chunk, chunks), each),
            4 => partsupp(PartSuppGenerator::new(scale, chunk, chunks), each),
            5 => customer(CustomerGenerator::new(scale, chunk, chunks), each),
            6 => orders(OrderGenerator::new(scale, chunk, chunks), each),
            _ => lineitem(LineItemGenerator::new(scale, chunk, chunks), each),
        };
    }
}

/// Formats a value that implements only `Display`.
fn text<'b>(buffer: &'b mut String, value: &impl Display) -> Cell<'b> {
    use std::fmt::Write as _;
    buffer.clear();
    // Writing to a String cannot fail.
    let _ = write!(buffer, "{value}");
    Cell::Text(buffer)
}

fn region(each: Each<'_>) -> ControlFlow<()> {
    for row in RegionGenerator::new(1.0, 1, 1).iter() {
        each(&[Cell::Big(row.r_regionkey), Cell::Text(row.r_name), Cell::Text(row.r_comment)])?;
    }
    ControlFlow::Continue(())
}

fn nation(each: Each<'_>) -> ControlFlow<()> {
    for row in NationGenerator::new(1.0, 1, 1).iter() {
        each(&[
            Cell::Big(row.n_nationkey),
            Cell::Text(row.n_name),
            Cell::Big(row.n_regionkey),
            Cell::Text(row.n_comment),
        ])?;
    }
    ControlFlow::Continue(())
}

fn supplier(rows: SupplierGenerator<'_>, each: Each<'_>) -> ControlFlow<()> {
    let mut name = String::new();
    let mut address = String::new();
    let mut phone = String::new();
    for row in rows.iter() {
        each(&[
            Cell::Big(row.s_suppkey),
            text(&mut name, &row.s_name),
            text(&mut address, &row.s_address),
            Cell::Big(row.s_nationkey),
            text(&mut phone, &row.s_phone),
            Cell::Hundredths(row.s_acctbal.into_inner()),
            Cell::Text(&row.s_comment),
        ])?;
    }
    ControlFlow::Continue(())
}

fn part(rows: PartGenerator<'_>, each: Each<'_>) -> ControlFlow<()> {
    let mut name = String::new();
    let mut maker = String::new();
    let mut brand = String::new();
    for row in rows.iter() {
        each(&[
            Cell::Big(row.p_partkey),
            text(&mut name, &row.p_name),
            text(&mut maker, &row.p_mfgr),
            text(&mut brand, &row.p_brand),
            Cell::Text(row.p_type),
            Cell::Int(row.p_size),
            Cell::Text(row.p_container),
            Cell::Hundredths(row.p_retailprice.into_inner()),
            Cell::Text(row.p_comment),
        ])?;
    }
    ControlFlow::Continue(())
}

fn partsupp(rows: PartSuppGenerator<'_>, each: Each<'_>) -> ControlFlow<()> {
    for row in rows.iter() {
        each(&[
            Cell::Big(row.ps_partkey),
            Cell::Big(row.ps_suppkey),
            Cell::Int(row.ps_availqty),
            Cell::Hundredths(row.ps_supplycost.into_inner()),
            Cell::Text(row.ps_comment),
        ])?;
    }
    ControlFlow::Continue(())
}

fn customer(rows: CustomerGenerator<'_>, each: Each<'_>) -> ControlFlow<()> {
    let mut name = String::new();
    let mut address = String::new();
    let mut phone = String::new();
    for row in rows.iter() {
        each(&[
            Cell::Big(row.c_custkey),
            text(&mut name, &row.c_name),
            text(&mut address, &row.c_address),
            Cell::Big(row.c_nationkey),
            text(&mut phone, &row.c_phone),
            Cell::Hundredths(row.c_acctbal.into_inner()),
            Cell::Text(row.c_mktsegment),
            Cell::Text(row.c_comment),
        ])?;
    }
    ControlFlow::Continue(())
}

fn orders(rows: OrderGenerator<'_>, each: Each<'_>) -> ControlFlow<()> {
    let mut clerk = String::new();
    for row in rows.iter() {
        each(&[
            Cell::Big(row.o_orderkey),
            Cell::Big(row.o_custkey),
            Cell::Text(row.o_orderstatus.as_str()),
            Cell::Hundredths(row.o_totalprice.into_inner()),
            Cell::Date(row.o_orderdate.to_unix_epoch()),
            Cell::Text(row.o_orderpriority),
            text(&mut clerk, &row.o_clerk),
            Cell::Int(row.o_shippriority),
            Cell::Text(row.o_comment),
        ])?;
    }
    ControlFlow::Continue(())
}

fn lineitem(rows: LineItemGenerator<'_>, each: Each<'_>) -> ControlFlow<()> {
    for row in rows.iter() {
        each(&[
            Cell::Big(row.l_orderkey),
            Cell::Big(row.l_partkey),
            Cell::Big(row.l_suppkey),
            Cell::Int(row.l_linenumber),
            Cell::Hundredths(row.l_quantity * 100),
            Cell::Hundredths(row.l_extendedprice.into_inner()),
            Cell::Hundredths(row.l_discount.into_inner()),
            Cell::Hundredths(row.l_tax.into_inner()),
            Cell::Text(row.l_returnflag),
            Cell::Text(row.l_linestatus),
            Cell::Date(row.l_shipdate.to_unix_epoch()),
            Cell::Date(row.l_commitdate.to_unix_epoch()),
            Cell::Date(row.l_receiptdate.to_unix_epoch()),
            Cell::Text(row.l_shipinstruct),
            Cell::Text(row.l_shipmode),
            Cell::Text(row.l_comment),
        ])?;
    }
    ControlFlow::Continue(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::checksum;

    #[test]
    fn row_counts_follow_the_scale() {
        for (scale, expected) in [
            (0.001, [5, 25, 10, 200, 800, 150, 1500, 6005]),
            (0.01, [5, 25, 100, 2000, 8000, 1500, 15_000, 60_175]),
        ] {
            let source = Tpch::new(scale);
            let rows: Vec<u64> = (0..8).map(|table| checksum(&source, table, 1).0).collect();
            assert_eq!(rows, expected, "scale {scale}");
            for (table, rows) in source.tables().iter().zip(rows).take(7) {
                assert_eq!(table.rows, rows, "{}", table.name);
            }
        }
    }

    #[test]
    fn chunks_add_up_to_the_table() {
        let source = Tpch::new(0.01);
        for table in 2..8 {
            let whole = checksum(&source, table, 1);
            assert_eq!(checksum(&source, table, 7), whole, "{}", source.tables()[table].name);
        }
    }

    /// At scale 0.001, ten suppliers are too few for four different ones per part.
    #[test]
    fn primary_keys_are_unique_from_scale_one_hundredth() {
        let source = Tpch::new(0.01);
        for (table, key_columns) in [(2, [0, 0]), (4, [0, 1])] {
            let mut keys = std::collections::HashSet::new();
            let mut rows = 0;
            source.make(table, 0, 1, &mut |row| {
                keys.insert(key_columns.map(|column| format!("{:?}", row[column])));
                rows += 1;
                ControlFlow::Continue(())
            });
            assert_eq!(keys.len(), rows, "{}", source.tables()[table].name);
        }
    }

    #[test]
    fn rows_match_the_columns_of_their_table() {
        let source = Tpch::new(0.001);
        for (index, table) in source.tables().iter().enumerate() {
            source.make(index, 0, 1, &mut |row| {
                assert_eq!(row.len(), table.columns.len());
                for (cell, column) in row.iter().zip(table.columns) {
                    assert!(cell.is(column.kind), "{}.{}: {cell:?}", table.name, column.name);
                }
                ControlFlow::Continue(())
            });
        }
    }
}
