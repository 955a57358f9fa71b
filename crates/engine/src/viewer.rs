//! Visibility of rows in virtual tables. A table declares the objects that its rows are about. The
//! caller of the engine knows the permissions of a role on them.

use std::any::Any;
use std::fmt;

use crate::{VirtualRow, VirtualTable};

/// Object that a row is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum About<'a> {
    /// A keyspace, or something in it.
    Keyspace(&'a str),
    /// All keyspaces.
    AllKeyspaces,
    /// A table (keyspace, name, identity): its size and the statements on it. Permissions refer to
    /// the identity.
    Table(&'a str, &'a str, u128),
    /// Contents of a table (keyspace, name, identity), such as keys.
    Data(&'a str, &'a str, u128),
    /// Rows of a table (keyspace, name, identity) as SELECT returns them. Every role may read some
    /// tables of the server, each its own rows.
    Rows(&'a str, &'a str, u128),
    /// Values of the masked columns of a table (keyspace, name, identity).
    Unmasked(&'a str, &'a str, u128),
    /// Conditions on the masked columns of a table (keyspace, name, identity), which reveal values.
    MaskedConditions(&'a str, &'a str, u128),
    /// Contents of all tables.
    AllData,
    /// A role: its sessions and statements.
    Role(&'a str),
    /// All roles.
    AllRoles,
    /// A service level: its settings and its consumption.
    Level(&'a str),
    /// All service levels, side by side.
    AllLevels,
}

/// Rights of a role to see rows.
pub trait Viewer: fmt::Debug + Send + Sync {
    /// Returns true if the role may see rows about this object.
    fn sees(&self, about: About<'_>) -> bool;

    /// Returns the name of the role, for errors.
    fn role(&self) -> &str {
        ""
    }

    /// Returns the session's way of reading tables elsewhere, in a type of the engine that reads
    /// them: in front of a cluster, `cluster::Reader`.
    fn reader(&self) -> Option<&(dyn Any + Send + Sync)> {
        None
    }
}

/// Objects that the rows of a virtual table are about. Columns are given by their index in a row,
/// and contain text.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Subject {
    /// The server: every role sees every row.
    #[default]
    Server,
    /// The keyspace in this column.
    Keyspace(usize),
    /// Contents of tables of the keyspace in this column. The table creates its rows for a viewer,
    /// and omits tables that are invisible to it.
    Data(usize),
    /// The role in this column.
    Role(usize),
    /// A role that no column has. The table creates its rows for a viewer, and omits those about
    /// roles that are invisible to it.
    OwnRole,
    /// The service level in column `name`.
    Level {
        /// Column of the level's name.
        name: usize,
        /// Column with the names of other levels. Null for roles that may not see all levels.
        others: usize,
    },
}

impl VirtualTable {
    /// Returns true if the viewer sees all rows of any content.
    #[must_use]
    pub fn shows_all(&self, viewer: &dyn Viewer) -> bool {
        match self.subject {
            Subject::Server => true,
            Subject::Keyspace(_) => viewer.sees(About::AllKeyspaces),
            Subject::Data(_) => viewer.sees(About::AllData),
            Subject::Role(_) | Subject::OwnRole => viewer.sees(About::AllRoles),
            Subject::Level { .. } => viewer.sees(About::AllLevels),
        }
    }

    /// Restricts the visible rows to those about objects on which the role has rights.
    #[must_use]
    pub fn about(self, subject: Subject) -> VirtualTable {
        VirtualTable { subject, ..self }
    }

    /// Removes invisible rows, as [`Subject::show`] does.
    pub fn show(&self, viewer: Option<&dyn Viewer>, rows: &mut Vec<VirtualRow>) {
        self.subject.show(viewer, rows);
    }
}

impl Subject {
    /// Removes rows and cells that the viewer may not see. `None` is for the server itself, which
    /// sees all.
    pub fn show(self, viewer: Option<&dyn Viewer>, rows: &mut Vec<VirtualRow>) {
        let Some(viewer) = viewer else { return };
        let text = |row: &VirtualRow, column: usize| {
            let cell = row[column].as_deref().unwrap_or_default();
            String::from_utf8_lossy(cell).into_owned()
        };
        match self {
            Subject::Server | Subject::OwnRole => {}
            Subject::Keyspace(column) | Subject::Data(column) => {
                rows.retain(|row| viewer.sees(About::Keyspace(&text(row, column))))
            }
            Subject::Role(column) => rows.retain(|row| viewer.sees(About::Role(&text(row, column)))),
            Subject::Level { name, others } => {
                rows.retain(|row| viewer.sees(About::Level(&text(row, name))));
                if !viewer.sees(About::AllLevels) {
                    rows.iter_mut().for_each(|row| row[others] = None);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use schema::CqlType;

    use super::*;

    /// Viewer that sees objects named `own`.
    #[derive(Debug)]
    struct Own;

    impl Viewer for Own {
        fn sees(&self, about: About<'_>) -> bool {
            matches!(about, About::Keyspace("own") | About::Role("own") | About::Level("own"))
        }
    }

    #[test]
    fn viewer_sees_rows_about_its_own_objects() {
        let columns = [("a", CqlType::Text), ("b", CqlType::Text)];
        let cell = |text: &str| (!text.is_empty()).then(|| Bytes::copy_from_slice(text.as_bytes()));
        let all: Vec<VirtualRow> =
            [["own", "x"], ["other", "own"], ["", ""]].iter().map(|row| row.map(cell).into()).collect();
        let check = |subject, viewer: Option<&dyn Viewer>, expected: &[[&str; 2]]| {
            let mut rows = all.clone();
            VirtualTable::new("ks", "t", 1, 0, &columns, Vec::new).about(subject).show(viewer, &mut rows);
            let expected: Vec<VirtualRow> = expected.iter().map(|row| row.map(cell).into()).collect();
            assert_eq!(rows, expected, "{subject:?}");
        };
        let everything = [["own", "x"], ["other", "own"], ["", ""]];
        check(Subject::Server, Some(&Own), &everything);
        check(Subject::Role(0), None, &everything);
        check(Subject::Role(0), Some(&Own), &[["own", "x"]]);
        check(Subject::Keyspace(1), Some(&Own), &[["other", "own"]]);
        check(Subject::Level { name: 0, others: 1 }, Some(&Own), &[["own", ""]]);
    }
}
