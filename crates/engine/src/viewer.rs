//! Which rows of virtual tables a role is shown. A table declares what its rows are about; the
//! caller of the engine knows what a role has rights on.

use std::fmt;

use crate::{VirtualRow, VirtualTable};

/// What a fact is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum About<'a> {
    /// A keyspace, or something in it.
    Keyspace(&'a str),
    /// All keyspaces.
    AllKeyspaces,
    /// A table: its size, and what is done with it. With its identity, by which grants know it.
    Table(&'a str, &'a str, u128),
    /// What is in a table, such as keys.
    Data(&'a str, &'a str, u128),
    /// What is in all tables.
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

/// The rights of a role, as far as they decide what it is shown.
pub trait Viewer: fmt::Debug + Send + Sync {
    /// Whether the role is shown facts about that.
    fn sees(&self, about: About<'_>) -> bool;
}

/// What the rows of a virtual table are about. Columns are given by their place in a row, and hold
/// text.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Subject {
    /// The server itself: every role is shown every row.
    #[default]
    Server,
    /// The keyspace that the column names.
    Keyspace(usize),
    /// What is in tables of the keyspace that the column names. Makes its rows for a viewer, and leaves out tables that are
    /// hidden from it.
    Data(usize),
    /// The role that the column names.
    Role(usize),
    /// The service level that the column names.
    Level {
        /// The column with the name.
        name: usize,
        /// A column that names other levels, and is null for roles that are not shown all levels.
        others: usize,
    },
}

impl VirtualTable {
    /// Whether the viewer is shown every row, whatever they are.
    #[must_use]
    pub fn shows_all(&self, viewer: &dyn Viewer) -> bool {
        match self.subject {
            Subject::Server => true,
            Subject::Keyspace(_) => viewer.sees(About::AllKeyspaces),
            Subject::Data(_) => viewer.sees(About::AllData),
            Subject::Role(_) => viewer.sees(About::AllRoles),
            Subject::Level { .. } => viewer.sees(About::AllLevels),
        }
    }

    /// The same, where a role is shown only rows about what it has rights on.
    #[must_use]
    pub fn about(self, subject: Subject) -> VirtualTable {
        VirtualTable { subject, ..self }
    }

    /// As [`Subject::show`].
    pub fn show(&self, viewer: Option<&dyn Viewer>, rows: &mut Vec<VirtualRow>) {
        self.subject.show(viewer, rows);
    }
}

impl Subject {
    /// Removes the rows, and cells, that the viewer is not shown. Without a viewer, for the server itself, all stay.
    pub fn show(self, viewer: Option<&dyn Viewer>, rows: &mut Vec<VirtualRow>) {
        let Some(viewer) = viewer else { return };
        let text = |row: &VirtualRow, column: usize| {
            let cell = row[column].as_deref().unwrap_or_default();
            String::from_utf8_lossy(cell).into_owned()
        };
        match self {
            Subject::Server => {}
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

    /// Sees what is called `own`.
    #[derive(Debug)]
    struct Own;

    impl Viewer for Own {
        fn sees(&self, about: About<'_>) -> bool {
            matches!(about, About::Keyspace("own") | About::Role("own") | About::Level("own"))
        }
    }

    #[test]
    fn viewer_is_shown_rows_about_its_own_things() {
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
