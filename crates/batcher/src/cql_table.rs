//! Checks of tables and consistency levels, and the statements of a [`crate::CqlStore`]. Pure.

use std::collections::BTreeSet;

use scylla::cluster::metadata::{ColumnKind, ColumnType, Strategy};
use scylla::statement::Consistency;

/// Checks that each row can be replaced as a whole, and that `values` names all columns beside the
/// primary key.
///
/// # Errors
/// The reason, for a developer.
pub(crate) fn check<'a>(
    columns: impl Iterator<Item = (&'a str, &'a ColumnKind, &'a ColumnType<'static>)>,
    values: &[&str],
) -> Result<(), String> {
    let mut expected = BTreeSet::new();
    for (name, kind, typ) in columns {
        match kind {
            ColumnKind::PartitionKey | ColumnKind::Clustering => continue,
            ColumnKind::Regular => drop(expected.insert(name)),
            _ => return Err(format!("expected a table without static columns, got `{name}`")),
        }
        // Writing a list twice would append to it, and parts of the others have times of their own.
        if let ColumnType::Collection { frozen: false, .. }
        | ColumnType::UserDefinedType { frozen: false, .. } = typ
        {
            return Err(format!(
                "expected frozen collections and types, got `{name}`: declare it as frozen<…>"
            ));
        }
        if *typ == ColumnType::Native(scylla::cluster::metadata::NativeType::Counter) {
            return Err(format!("expected a table without counters, got `{name}`: use bigint"));
        }
    }
    let got: BTreeSet<&str> = values.iter().copied().collect();
    if got != expected || got.len() != values.len() || got.is_empty() {
        let expected: Vec<&str> = expected.into_iter().collect();
        return Err(format!("expected the columns {}, got {}", expected.join(", "), values.join(", ")));
    }
    Ok(())
}

/// Returns the texts that read, replace and delete a row.
pub(crate) fn statements(keyspace: &str, table: &str, keys: &[&str], values: &[&str]) -> [String; 3] {
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let table = format!("{}.{}", quoted(keyspace), quoted(table));
    let keys: Vec<String> = keys.iter().map(|name| quoted(name)).collect();
    let values: Vec<String> = values.iter().map(|name| quoted(name)).collect();
    let times: Vec<String> = values.iter().map(|name| format!("writetime({name})")).collect();
    let row = format!("WHERE {} = ?", keys.join(" = ? AND "));
    let marks = vec!["?"; keys.len() + values.len()].join(", ");
    let columns = [keys, values.clone()].concat().join(", ");
    let selected = [times, values].concat().join(", ");
    [
        format!("SELECT {selected} FROM {table} {row}"),
        format!("INSERT INTO {table} ({columns}) VALUES ({marks})"),
        format!("DELETE FROM {table} {row}"),
    ]
}

/// Numbers of copies of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Copies {
    all: usize,
    /// Copies in the datacenter with the fewest.
    least: usize,
}

impl Copies {
    pub(crate) fn new(strategy: &Strategy) -> Copies {
        match strategy {
            Strategy::SimpleStrategy { replication_factor } => {
                Copies { all: *replication_factor, least: *replication_factor }
            }
            Strategy::NetworkTopologyStrategy { datacenter_repfactors } => {
                let copies = || datacenter_repfactors.values().copied().filter(|copies| *copies > 0);
                Copies { all: copies().sum(), least: copies().min().unwrap_or(0) }
            }
            Strategy::LocalStrategy => Copies { all: 1, least: 1 },
            // As if there were many: only majorities overlap.
            _ => Copies { all: 1000, least: 1000 },
        }
    }

    /// Checks that each read reaches a copy that each acknowledged write has reached.
    ///
    /// # Errors
    /// The reason, for a developer.
    pub(crate) fn check(&self, read: Consistency, write: Consistency) -> Result<(), String> {
        // The least number of copies, and true if they are most of those of each datacenter used.
        let reached = |level| match level {
            Consistency::One | Consistency::LocalOne => (1, false),
            Consistency::Two => (2, false),
            Consistency::Three => (3, false),
            Consistency::Quorum => (self.all / 2 + 1, false),
            Consistency::LocalQuorum | Consistency::EachQuorum => (self.least / 2 + 1, true),
            Consistency::All => (self.all, true),
            _ => (0, false),
        };
        let ((reads, is_local_read), (writes, is_local_write)) = (reached(read), reached(write));
        if reads > 0 && writes > 0 && (reads + writes > self.all || is_local_read && is_local_write) {
            return Ok(());
        }
        Err(format!(
            "expected consistency levels that overlap, such as QUORUM for both, got {read} for reads and {write} \
             for writes with {} copies",
            self.all
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use scylla::cluster::metadata::{CollectionType, NativeType};

    use super::*;

    const INT: ColumnType<'static> = ColumnType::Native(NativeType::Int);

    fn checked(kind: ColumnKind, typ: ColumnType<'static>, values: &[&str]) -> Result<(), String> {
        let columns = [("id", &ColumnKind::PartitionKey, &INT), ("v", &kind, &typ)];
        check(columns.into_iter(), values)
    }

    #[test]
    fn values_are_all_columns_beside_the_key() {
        assert_eq!(checked(ColumnKind::Regular, INT, &["v"]), Ok(()));
        for values in [&[][..], &["w"], &["v", "w"], &["v", "v"], &["id", "v"]] {
            let error = checked(ColumnKind::Regular, INT, values).unwrap_err();
            assert!(error.starts_with("expected the columns v, got"), "{error}");
        }
    }

    #[test]
    fn columns_that_cannot_be_replaced_are_refused() {
        let list = |frozen| ColumnType::Collection { frozen, typ: CollectionType::List(Box::new(INT)) };
        assert_eq!(checked(ColumnKind::Regular, list(true), &["v"]), Ok(()));
        assert!(checked(ColumnKind::Regular, list(false), &["v"]).unwrap_err().contains("frozen"));
        let counter = ColumnType::Native(NativeType::Counter);
        assert!(checked(ColumnKind::Regular, counter, &["v"]).unwrap_err().contains("counters"));
        assert!(checked(ColumnKind::Static, INT, &["v"]).unwrap_err().contains("static"));
    }

    #[test]
    fn statements_name_each_column() {
        let [select, insert, delete] = statements("k", "T", &["a", "b"], &["c\"", "d"]);
        let columns = "writetime(\"c\"\"\"), writetime(\"d\"), \"c\"\"\", \"d\"";
        assert_eq!(select, format!("SELECT {columns} FROM \"k\".\"T\" WHERE \"a\" = ? AND \"b\" = ?"));
        assert_eq!(insert, "INSERT INTO \"k\".\"T\" (\"a\", \"b\", \"c\"\"\", \"d\") VALUES (?, ?, ?, ?)");
        assert_eq!(delete, "DELETE FROM \"k\".\"T\" WHERE \"a\" = ? AND \"b\" = ?");
    }

    #[test]
    fn consistency_levels_overlap() {
        use Consistency::{All, Any, EachQuorum, LocalQuorum, One, Quorum, Two};
        let simple = |copies| Copies::new(&Strategy::SimpleStrategy { replication_factor: copies });
        let factors = HashMap::from([("a".to_owned(), 3), ("b".to_owned(), 3)]);
        let network = Copies::new(&Strategy::NetworkTopologyStrategy { datacenter_repfactors: factors });
        let is_accepted = |copies: &Copies, read, write| copies.check(read, write).is_ok();
        assert!(is_accepted(&simple(1), One, One) && !is_accepted(&simple(1), One, Any));
        assert!(is_accepted(&simple(2), Quorum, Quorum) && !is_accepted(&simple(2), One, One));
        assert!(is_accepted(&simple(3), Two, Two) && is_accepted(&simple(3), One, All));
        assert!(!is_accepted(&simple(3), One, Two) && !is_accepted(&simple(3), Quorum, One));
        assert!(is_accepted(&network, LocalQuorum, LocalQuorum) && is_accepted(&network, Quorum, Quorum));
        assert!(
            is_accepted(&network, LocalQuorum, EachQuorum) && !is_accepted(&network, LocalQuorum, Quorum)
        );
        assert!(!is_accepted(&network, Two, LocalQuorum));
    }
}
