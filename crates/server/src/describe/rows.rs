//! Rows of the answer to DESCRIBE: made one at a time, divided into pages, charged as they grow.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use engine::{ANSWER_BYTES_MAX, AnswerGrant, Error, Keyspace, ROW_BYTES_MAX, ResultRows, VIRTUAL_KEYSPACES};
use schema::{KeyspaceDef, TableDef, UdtType};
use uuid::Uuid;

/// Page of the answer that the client requests, and its memory.
pub(crate) struct Page {
    /// Rows per page. `None`: all rows, without pages.
    pub(crate) page_rows: Option<u32>,
    /// Bytes at which a page ends.
    pub(crate) page_bytes: usize,
    /// End of the last page.
    pub(crate) paging_state: Option<Vec<u8>>,
    pub(crate) grant: Arc<dyn AnswerGrant>,
}

/// A row of the answer. The statement that creates the object is made when it is needed.
pub(super) struct Element<'a> {
    pub(super) keyspace: &'a str,
    pub(super) kind: &'static str,
    pub(super) name: Cow<'a, str>,
    pub(super) text: Text<'a>,
}

/// Statement that creates an object, if requested.
pub(super) enum Text<'a> {
    None,
    Keyspace(&'a Keyspace),
    Table {
        def: &'a TableDef,
        with_internals: bool,
    },
    OwnKeyspace(&'a str),
    OwnTable(&'a TableDef),
    Type(&'a UdtType),
    /// An index of a table, by its number.
    Index(&'a TableDef, usize),
    /// A view of a table, by its number.
    View {
        base: &'a TableDef,
        at: usize,
        with_internals: bool,
    },
    /// The statement itself.
    Statement(String),
}

impl Text<'_> {
    fn make(&self) -> Option<String> {
        Some(match self {
            Text::None => return None,
            Text::Keyspace(keyspace) => cql::create_keyspace(&keyspace.def),
            Text::Table { def, with_internals: true } => cql::create_table_with_internals(def),
            Text::Table { def, .. } => cql::create_table(def),
            Text::OwnKeyspace(name) => own_keyspace_text(name),
            Text::OwnTable(def) if is_virtual(&def.keyspace) => cql::virtual_table(def),
            Text::OwnTable(def) => cql::create_table(def),
            Text::Type(udt) => cql::create_type(udt),
            Text::Index(def, at) => cql::create_index(def, &def.indexes[*at]),
            Text::View { base, at, with_internals } => {
                cql::create_view(base, &base.views[*at], *with_internals)
            }
            Text::Statement(text) => text.clone(),
        })
    }
}

/// Rows of one answer.
pub(super) struct PagedRows {
    rows: ResultRows,
    part: Page,
    /// Version of the schema.
    version: Uuid,
    /// Rows before this page that are still to be skipped.
    skips: u64,
    /// Number of the next row.
    next: u64,
    has_more: bool,
}

impl PagedRows {
    /// Begins a page. Pages of one answer show one version of the schema.
    pub(super) fn new(rows: ResultRows, part: Page, version: Uuid) -> Result<PagedRows, Error> {
        let skips = match &part.paging_state {
            None => 0,
            Some(state) => skips(state, version)?,
        };
        Ok(PagedRows { rows, part, version, skips, next: 0, has_more: false })
    }

    /// Adds a row. Returns false if the page ends before it.
    pub(super) fn push(&mut self, element: &Element<'_>) -> Result<bool, Error> {
        if self.skips > self.next {
            self.next += 1;
            return Ok(true);
        }
        let page_rows = self.part.page_rows;
        let is_full = self.rows.count > 0 && self.rows.cells.len() >= self.part.page_bytes;
        if page_rows.is_some_and(|rows| self.rows.count >= rows || is_full) {
            self.has_more = true;
            return Ok(false);
        }
        let text = element.text.make();
        // As in Cassandra, names are in quotes where statements need them.
        let keyspace = match element.keyspace {
            "" => String::new(),
            keyspace => cql::identifier(keyspace),
        };
        let name = cql::identifier(&element.name);
        let cells = [&*keyspace, element.kind, &*name].into_iter().chain(text.as_deref());
        let bytes = cells.clone().map(|cell| 4 + cell.len()).sum::<usize>();
        let after = self.rows.cells.len() + bytes;
        if bytes > ROW_BYTES_MAX || after > ANSWER_BYTES_MAX {
            return Err(Error::Invalid(format!(
                "expected at most {ROW_BYTES_MAX} bytes in a row and {ANSWER_BYTES_MAX} in an answer of DESCRIBE, \
                 got {bytes} and {after}: describe one object, or read the answer in pages"
            )));
        }
        self.part.grant.grow(after as u64)?;
        cells.for_each(|cell| self.rows.push(Some(cell.as_bytes())));
        self.rows.count += 1;
        self.next += 1;
        Ok(true)
    }

    pub(super) fn finish(mut self) -> ResultRows {
        if self.has_more {
            self.rows.paging_state = Some([&self.next.to_be_bytes(), &self.version.as_bytes()[..]].concat());
        }
        self.rows
    }
}

/// Returns the number of rows on earlier pages.
fn skips(state: &[u8], version: Uuid) -> Result<u64, Error> {
    let invalid = || Error::Invalid("Invalid value for the paging state".to_owned());
    let (next, of) = state.split_at_checked(8).ok_or_else(invalid)?;
    if of != version.as_bytes() {
        return Err(Error::Invalid(
            "The schema has changed since the previous page of the DESCRIBE statement result. Please retry the \
             DESCRIBE statement."
                .to_owned(),
        ));
    }
    <[u8; 8]>::try_from(next).map(u64::from_be_bytes).map_err(|_| invalid())
}

fn is_virtual(keyspace: &str) -> bool {
    VIRTUAL_KEYSPACES.contains(&keyspace)
}

/// Returns the statement of a keyspace of the server. That of a virtual one is a comment, as in
/// Cassandra: it cannot be created.
fn own_keyspace_text(name: &str) -> String {
    if is_virtual(name) {
        let name = cql::identifier(name);
        return format!(
            "/*\nWarning: Keyspace {name} is a virtual keyspace and cannot be recreated with CQL.\n\
             Structure, for reference:\nVIRTUAL KEYSPACE {name};\n*/"
        );
    }
    let class = ("class".to_owned(), "org.apache.cassandra.locator.LocalStrategy".to_owned());
    let replication = BTreeMap::from([class]);
    cql::create_keyspace(&KeyspaceDef { name: name.to_owned(), replication, durable_writes: true })
}
