//! Definitions of materialized views.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{ClusteringOrder, ColumnDef, ColumnKind, TableDef, TableOptions};
use crate::{CqlType, value};

/// Comparison of a [`KeyCondition`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the variants are the operators")]
pub enum KeyTest {
    In,
    Less,
    LessEq,
    Greater,
    GreaterEq,
    Contains,
    ContainsKey,
}

/// Condition of a view on columns of the table's primary key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeyCondition {
    /// The columns.
    pub columns: Vec<u32>,
    /// The comparison. `=` is an IN of one value.
    pub test: KeyTest,
    /// Serialized values of the columns, or of an element: one, or those of an IN.
    pub values: Vec<Vec<Vec<u8>>>,
}

impl KeyCondition {
    /// Returns true if values of the columns pass. Several columns compare as a tuple does.
    #[must_use]
    pub fn passes(&self, columns: &[(&CqlType, &[u8])]) -> bool {
        let order = |wanted: &[Vec<u8>]| {
            let each =
                columns.iter().zip(wanted).map(|((ty, found), wanted)| value::compare(ty, found, wanted));
            each.fold(Ordering::Equal, Ordering::then)
        };
        let Some(first) = self.values.first() else { return false };
        match self.test {
            KeyTest::In => self.values.iter().any(|wanted| order(wanted).is_eq()),
            KeyTest::Less => order(first).is_lt(),
            KeyTest::LessEq => order(first).is_le(),
            KeyTest::Greater => order(first).is_gt(),
            KeyTest::GreaterEq => order(first).is_ge(),
            KeyTest::Contains | KeyTest::ContainsKey => {
                let ([wanted], [(ty, found)]) = (&first[..], columns) else { return false };
                has_element(ty, found, wanted, self.test == KeyTest::ContainsKey)
            }
        }
    }
}

/// Returns true if a collection has an element, or a key of a map.
fn has_element(ty: &CqlType, found: &[u8], wanted: &[u8], as_key: bool) -> bool {
    let same = |ty: &CqlType, element: &[u8]| value::compare(ty, element, wanted).is_eq();
    match ty.thawed() {
        CqlType::Map(keys, values) => value::pairs(found).flatten().any(|(key, value)| match as_key {
            true => same(keys, key),
            false => same(values, value),
        }),
        CqlType::List(of) | CqlType::Set(of) => {
            value::elements(found).flatten().any(|element| same(of, element))
        }
        _ => false,
    }
}

/// A materialized view of a table. It names columns by their numbers, which a RENAME keeps.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ViewDef {
    /// Identity.
    pub id: Uuid,
    /// Its name. No other view or table of the keyspace has it.
    pub name: String,
    /// Columns of the partition key.
    pub partition_key: Vec<u32>,
    /// Clustering columns with their orders.
    pub clustering: Vec<(u32, ClusteringOrder)>,
    /// Selected columns outside the key. `None`: all columns of the table that are not static, also
    /// those that are added later.
    pub others: Option<Vec<u32>>,
    /// The relations of its WHERE, as CQL text.
    pub where_clause: String,
    /// The relations other than `IS NOT NULL`, with their values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<KeyCondition>,
    /// Its options, which are stored and shown.
    pub options: TableOptions,
    /// Identity of the data. It is replaced with that of the table.
    pub data: Uuid,
    /// True if the data has an entry for every row. Queries read the view from then on.
    pub is_built: bool,
}

impl ViewDef {
    /// Returns the place of a column of the table in the key of the view.
    #[must_use]
    pub fn key_kind(&self, id: u32) -> Option<ColumnKind> {
        let partition = self.partition_key.iter().position(|key| *key == id).map(ColumnKind::PartitionKey);
        let clustering = || self.clustering.iter().position(|(key, _)| *key == id);
        partition.or_else(|| clustering().map(|at| ColumnKind::Clustering(at, self.clustering[at].1)))
    }

    /// Returns the view as the table that queries read. Its columns keep their numbers.
    #[must_use]
    pub fn table(&self, base: &TableDef) -> TableDef {
        let kind = |column: &ColumnDef| {
            let is_selected = column.kind != ColumnKind::Static
                && self.others.as_ref().is_none_or(|others| others.contains(&column.id));
            self.key_kind(column.id).or(is_selected.then_some(ColumnKind::Regular))
        };
        let columns = base.columns.iter().filter_map(|c| Some(ColumnDef { kind: kind(c)?, ..c.clone() }));
        let columns: Vec<ColumnDef> = columns.collect();
        let is_shown = |id: &u32| columns.iter().any(|column| column.id == *id);
        let masks = base.masks.iter().filter(|(id, _)| is_shown(id));
        let mut table = TableDef {
            id: self.id,
            keyspace: base.keyspace.clone(),
            name: self.name.clone(),
            next_column_id: base.next_column_id,
            data: Some(self.data),
            dropped: Default::default(),
            masks: masks.map(|(id, mask)| (*id, mask.clone())).collect(),
            indexes: Vec::new(),
            views: Vec::new(),
            options: self.options.clone(),
            columns,
        };
        table.sort_columns();
        table
    }
}
