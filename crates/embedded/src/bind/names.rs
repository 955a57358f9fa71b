//! Columns of a table by name, for binding one statement. A statement may name thousands of columns
//! of a table that has thousands. The first few names are found by a linear search, the others by a
//! binary search in an order that is built once. The statements of a batch share it.

use std::cell::{Cell, OnceCell};
use std::sync::Arc;

use engine::Error;
use schema::{ColumnDef, TableDef};

/// Columns compared one by one before the order is built. Most statements need no more.
const WALKED_MAX: usize = 64;

/// Columns of a table by name.
pub(crate) struct TableNames {
    pub(crate) def: Arc<TableDef>,
    walked: Cell<usize>,
    /// Indexes in the table's `columns`, ordered by column name.
    places: OnceCell<Box<[usize]>>,
}

impl TableNames {
    /// Returns the columns of `def`.
    pub(crate) fn of(def: Arc<TableDef>) -> TableNames {
        TableNames { def, walked: Cell::new(0), places: OnceCell::new() }
    }

    /// Returns the column with that name, and its index in the table's `columns`.
    ///
    /// # Errors
    /// Returns an error if the table has no such column.
    pub(crate) fn find(&self, name: &str) -> Result<(usize, &ColumnDef), Error> {
        let def = &self.def;
        let found = match self.walked.get() {
            walked if walked < WALKED_MAX => {
                let found = def.column(name);
                let compared = found.map_or(def.columns.len(), |(at, _)| at + 1);
                self.walked.set(walked + compared);
                found
            }
            _ => {
                let places = self.places();
                let found = places.binary_search_by(|at| def.columns[*at].name.as_str().cmp(name));
                found.ok().map(|found| (places[found], &def.columns[places[found]]))
            }
        };
        found.ok_or_else(|| {
            Error::Invalid(format!("Undefined column name {name} in table {}.{}", def.keyspace, def.name))
        })
    }

    fn places(&self) -> &[usize] {
        self.places.get_or_init(|| {
            let mut places: Box<[usize]> = (0..self.def.columns.len()).collect();
            places.sort_unstable_by(|a, b| self.def.columns[*a].name.cmp(&self.def.columns[*b].name));
            places
        })
    }

    /// Returns the number of comparisons so far.
    #[cfg(test)]
    fn walked(&self) -> usize {
        self.walked.get()
    }
}

#[cfg(test)]
mod tests {
    use schema::{ColumnKind, CqlType, TableOptions};

    use super::*;

    #[test]
    fn thousands_of_names_are_found_by_binary_search() {
        let column = |id: u32| ColumnDef {
            id,
            name: format!("c{id}"),
            ty: CqlType::Int,
            kind: if id == 0 { ColumnKind::PartitionKey(0) } else { ColumnKind::Regular },
        };
        let def = Arc::new(TableDef {
            id: uuid::Uuid::nil(),
            keyspace: "ks".into(),
            name: "t".into(),
            columns: (0..2_000).map(column).collect(),
            next_column_id: 2_000,
            data: None,
            dropped: Default::default(),
            masks: Default::default(),
            indexes: Vec::new(),
            views: Vec::new(),
            options: TableOptions::default(),
        });
        let names = TableNames::of(def);
        for id in (0..2_000).rev() {
            let (at, found) = names.find(&format!("c{id}")).expect("the name exists");
            assert_eq!((at, found.id), (id, id as u32));
        }
        assert!(names.find("d").is_err());
        assert!(names.walked() <= WALKED_MAX + 2_000, "{} comparisons", names.walked());
    }
}
