//! A statement that is ready to run: parsed, bound to the schema, with encoded columns, timeout and
//! level. Running it again repeats none of that work.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use access::Access;
use cql::ast::{Literal, Statement as Tree, Term, Using};
use engine::{Columns, Engine, Error, Latencies, ParsedTree, Plan};
use sha2::{Digest, Sha256};
use wire::Version;

/// Maximum length of a text parsed and bound on the fast lane, bytes. The worst text, an `IN` of
/// empty strings, takes 0.3 µs a byte: 0.6 ms. A usual one takes 10 µs.
pub(crate) const INLINE_TEXT_BYTES: usize = 2 << 10;

/// Maximum length of a text that can be prepared, bytes. Its id is a hash of the whole text.
pub(crate) const PREPARED_TEXT_BYTES_MAX: usize = 256 << 10;

/// Id of a prepared statement: the first half of the SHA-256 of keyspace and text. It is the same
/// on every core and every server, and after a restart.
pub(crate) type Id = [u8; 16];

/// The component that runs a statement.
pub(crate) enum Work {
    /// The engine.
    Engine(Rc<dyn Plan>),
    /// The `access` crate, for statements about roles, grants and levels.
    Access,
    /// This crate: DESCRIBE.
    Describe,
    /// This crate: USE, with the keyspace.
    Use(String),
}

/// Kind of a statement, for counters and for the error code of its timeout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StatementKind {
    Read,
    Write,
    Batch,
    /// Work on the files of a table: COMPACT, FLUSH, SCRUB. It is cancelled when its client
    /// disconnects.
    Maintenance,
    Other,
}

impl StatementKind {
    /// Returns true if cancellation, a timeout or the loss of the client ends the statement at
    /// once. Other statements run to their end, so that none is half done.
    pub(crate) fn is_cancellable(self) -> bool {
        matches!(self, StatementKind::Read | StatementKind::Maintenance)
    }
}

/// Timeout specified with `USING TIMEOUT`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Timeout {
    Unspecified,
    Fixed(Duration),
    /// Value of the bind marker with this index.
    Bound(u16),
}

/// Level in which a statement runs.
#[derive(Debug)]
pub(crate) enum RunsIn {
    /// Level of its session.
    Session,
    /// The level `driver`: drivers read these tables whenever they connect. A user whose level has
    /// a time limit of a millisecond could not connect otherwise.
    Driver,
    /// The level specified with `USING SERVICE LEVEL`.
    Named(String),
}

impl RunsIn {
    fn of(kind: StatementKind, work: &Work, specified: Option<&String>) -> RunsIn {
        let of_driver = |target: &engine::StatementTarget| match &*target.keyspace {
            "system_schema" | "system_virtual_schema" => true,
            "system" => matches!(target.table.as_deref(), Some("local" | "peers" | "peers_v2")),
            _ => false,
        };
        match (specified, work) {
            (Some(level), _) => RunsIn::Named(level.clone()),
            (None, Work::Engine(plan))
                if kind == StatementKind::Read && plan.targets().iter().all(of_driver) =>
            {
                RunsIn::Driver
            }
            _ => RunsIn::Session,
        }
    }
}

/// A statement that is ready to run.
pub(crate) struct Statement {
    pub(crate) id: Id,
    pub(crate) text: Rc<str>,
    pub(crate) keyspace: Option<Rc<str>>,
    pub(crate) tree: Arc<ParsedTree>,
    pub(crate) work: Work,
    pub(crate) kind: StatementKind,
    pub(crate) timeout: Timeout,
    pub(crate) level: RunsIn,
    /// Bytes of names and types of bind markers and result columns.
    metadata_bytes: usize,
    /// Encoded columns, by protocol version.
    encoded: [OnceCell<Encoded>; 2],
    /// True if the result columns have changed since the statement was first prepared on this core.
    /// Protocol v4 cannot announce that to a client, so every v4 result then includes the columns.
    pub(crate) result_changed: bool,
    /// True if the statement was used since the cache last checked.
    pub(crate) used: Cell<bool>,
    /// The role that was last allowed to run this statement, and its rights number at that time.
    pub(crate) allowed: Cell<(u32, u64)>,
}

/// Result of parsing a text, on either lane.
pub(crate) type Parsed = Result<ParsedTree, cql::SyntaxError>;

/// A parsed statement with the component that runs it.
pub(crate) struct Bound {
    tree: Arc<ParsedTree>,
    work: Work,
    /// Id of the text, if the heavy lane has computed it.
    pub(crate) id: Option<Id>,
}

impl Bound {
    /// Binds a statement to the schema.
    ///
    /// # Errors
    /// The reason why it cannot be bound, such as [`Error::Invalid`] with the engine's text.
    pub(crate) fn of(
        parsed: ParsedTree,
        keyspace: Option<&Rc<str>>,
        engine: &dyn Engine,
    ) -> Result<Bound, Error> {
        Bound::of_tree(Arc::new(parsed), keyspace, engine)
    }

    fn of_tree(
        tree: Arc<ParsedTree>,
        keyspace: Option<&Rc<str>>,
        engine: &dyn Engine,
    ) -> Result<Bound, Error> {
        let work = match server_work(&tree) {
            Some(work) => work,
            None => Work::Engine(engine.prepare(tree.clone(), keyspace.map(|keyspace| &**keyspace))?),
        };
        Ok(Bound { tree, work, id: None })
    }

    /// Binds a long statement on the heavy lane.
    ///
    /// # Errors
    /// Same as [`Bound::of`].
    pub(crate) async fn of_long(
        parsed: ParsedTree,
        keyspace: Option<&Rc<str>>,
        engine: &dyn Engine,
    ) -> Result<Bound, Error> {
        if server_work(&parsed).is_some() {
            return Bound::of(parsed, keyspace, engine);
        }
        let tree = Arc::new(parsed);
        let plan = engine.prepare_long(tree.clone(), keyspace.map(|keyspace| &**keyspace)).await?;
        Ok(Bound { tree, work: Work::Engine(plan), id: None })
    }
}

/// Returns the component of this server that runs a statement, or `None` for the engine.
fn server_work(tree: &Tree) -> Option<Work> {
    match tree {
        Tree::Describe(_) => Some(Work::Describe),
        Tree::Use(name) => Some(Work::Use(name.clone())),
        other if Access::handles(other) => Some(Work::Access),
        _ => None,
    }
}

/// Maximum bytes of names and types of columns that are encoded on the fast lane. 16 KiB take about
/// 10 µs.
pub(crate) const INLINE_METADATA_BYTES: usize = 16 << 10;

/// Estimated memory of a cached statement without its text and tokens, bytes: plan, columns and map
/// entries.
const STATEMENT_BYTES: usize = 2 << 10;
/// Memory of a token in tree and plan, bytes. A term of an IN list took 190 in a release build.
const TOKEN_BYTES: usize = 200;

/// Returns the estimated memory of a tree, bytes.
pub(crate) fn tree_bytes(text_bytes: usize, tokens: u32) -> usize {
    text_bytes + tokens as usize * TOKEN_BYTES
}

/// Columns of a statement, encoded for the protocol.
pub(crate) struct Encoded {
    pub(crate) bind: wire::Columns,
    pub(crate) result: wire::Columns,
    /// Id of the result columns: it changes when they do.
    pub(crate) result_id: Id,
}

impl Encoded {
    /// Encodes columns for one protocol version.
    ///
    /// # Errors
    /// A name is too long for the protocol.
    fn of(
        version: Version,
        binds: &[engine::ColumnSpec],
        result: &[engine::ColumnSpec],
    ) -> Result<Encoded, wire::Error> {
        let bind = encode(version, binds)?;
        let encoded = encode(version, result)?;
        let mut hash = Sha256::new();
        for column in result {
            for part in [&*column.keyspace, &column.table, &column.name, &column.ty.to_string()] {
                hash.update((part.len() as u64).to_be_bytes());
                hash.update(part);
            }
        }
        Ok(Encoded { bind, result: encoded, result_id: first_half(hash) })
    }
}

/// Id of statements that were not prepared.
pub(crate) const UNPREPARED: Id = [0; 16];

/// Returns the id of a text in a keyspace. Linear in the text: 64 KiB take about 0.15 ms.
pub(crate) fn id(keyspace: Option<&str>, text: &str) -> Id {
    let mut hash = Sha256::new();
    let keyspace = keyspace.unwrap_or("");
    hash.update((keyspace.len() as u64).to_be_bytes());
    hash.update(keyspace);
    hash.update(text);
    first_half(hash)
}

fn first_half(hash: Sha256) -> Id {
    hash.finalize()[..16].try_into().expect("a SHA-256 has 32 bytes")
}

/// Encodes columns for one protocol version.
pub(crate) fn encode(version: Version, columns: &[engine::ColumnSpec]) -> Result<wire::Columns, wire::Error> {
    let specs: Vec<_> =
        columns.iter().map(|c| wire::ColumnSpec::new(&c.keyspace, &c.table, &c.name, &c.ty)).collect();
    wire::Columns::encode(version, &specs)
}

impl Statement {
    /// Creates the statement of a bound text. `id` is [`UNPREPARED`] unless the text was prepared.
    ///
    /// # Errors
    /// An invalid `USING TIMEOUT`.
    pub(crate) fn of(
        id: Id,
        text: &str,
        keyspace: Option<&Rc<str>>,
        bound: Bound,
    ) -> Result<Statement, Error> {
        Statement::build(id, text.into(), keyspace.cloned(), bound)
    }

    fn build(id: Id, text: Rc<str>, keyspace: Option<Rc<str>>, bound: Bound) -> Result<Statement, Error> {
        let Bound { tree, work, .. } = bound;
        let (kind, using) = kind_of(&tree);
        let timeout = using.map_or(Ok(Timeout::Unspecified), timeout)?;
        let level = RunsIn::of(kind, &work, using.and_then(|using| using.service_level.as_ref()));
        let metadata_bytes = match &work {
            Work::Engine(plan) => plan.metadata_bytes(),
            _ => 0,
        };
        Ok(Statement {
            id,
            text,
            keyspace,
            work,
            kind,
            timeout,
            level,
            tree,
            metadata_bytes,
            encoded: Default::default(),
            result_changed: false,
            used: Cell::new(true),
            allowed: Cell::new((0, 0)),
        })
    }

    /// Returns true if the plan still fits the schema.
    pub(crate) fn is_current(&self) -> bool {
        match &self.work {
            Work::Engine(plan) => plan.is_current(),
            _ => true,
        }
    }

    /// Binds the statement to the current schema.
    ///
    /// # Errors
    /// The statement no longer fits the schema, or [`Error::Stale`] if its bind markers have
    /// changed. The client must then prepare it again.
    pub(crate) fn rebound(&self, engine: &dyn Engine) -> Result<Statement, Error> {
        self.renewed(Bound::of_tree(self.tree.clone(), self.keyspace.as_ref(), engine)?)
    }

    /// Returns true if the plan no longer fits the schema and must be bound again on the heavy
    /// lane.
    pub(crate) fn is_stale_long(&self) -> bool {
        self.text.len() > INLINE_TEXT_BYTES && !self.is_current()
    }

    /// Returns the same statement with a new plan.
    ///
    /// # Errors
    /// [`Error::Stale`], as for [`Statement::rebound`].
    pub(crate) fn renewed(&self, bound: Bound) -> Result<Statement, Error> {
        let (text, keyspace) = (self.text.clone(), self.keyspace.clone());
        let mut rebound = Statement::build(self.id, text, keyspace, bound)?;
        if rebound.binds() != self.binds() {
            return Err(Error::Stale);
        }
        rebound.result_changed = self.result_changed || rebound.result() != self.result();
        Ok(rebound)
    }

    /// Returns an upper estimate of the statement's memory, bytes. Columns are in the plan, and
    /// encoded in two versions.
    pub(crate) fn bytes(&self) -> usize {
        let metadata_bytes = 3 * self.metadata_bytes();
        STATEMENT_BYTES + self.text.len() + metadata_bytes + tree_bytes(self.text.len(), self.tree.tokens())
    }

    /// Creates a statement that takes about `bytes`.
    #[cfg(test)]
    pub(crate) fn for_tests(id: Id, bytes: usize) -> Statement {
        let tree = Arc::new(ParsedTree::parse("USE ks").expect("it is a statement"));
        let text = "-".repeat(bytes.saturating_sub(STATEMENT_BYTES) / 2);
        Statement {
            id,
            text: text.into(),
            keyspace: None,
            work: Work::Use("ks".to_owned()),
            kind: StatementKind::Other,
            timeout: Timeout::Unspecified,
            level: RunsIn::Session,
            tree,
            metadata_bytes: 0,
            encoded: Default::default(),
            result_changed: false,
            used: Cell::new(true),
            allowed: Cell::new((0, 0)),
        }
    }

    /// Returns the bind markers.
    pub(crate) fn binds(&self) -> &[engine::ColumnSpec] {
        match &self.work {
            Work::Engine(plan) => plan.binds(),
            _ => &[],
        }
    }

    /// Returns the latencies of its table on this core, or `None` if it is not about one table.
    pub(crate) fn latencies(&self) -> Option<Rc<Latencies>> {
        match &self.work {
            Work::Engine(plan) => plan.latencies().cloned(),
            _ => None,
        }
    }

    /// Returns the result's columns, if they are known.
    pub(crate) fn result(&self) -> Option<&Columns> {
        match &self.work {
            Work::Engine(plan) => plan.result(),
            _ => None,
        }
    }

    /// Returns the encoded columns for a protocol version.
    ///
    /// # Errors
    /// A name is too long for the protocol.
    pub(crate) fn encoded(&self, version: Version) -> Result<&Encoded, wire::Error> {
        let cell = &self.encoded[usize::from(version == Version::V5)];
        if let Some(encoded) = cell.get() {
            return Ok(encoded);
        }
        let encoded = Encoded::of(version, self.binds(), self.result().map_or(&[], |columns| columns))?;
        Ok(cell.get_or_init(|| encoded))
    }

    /// Returns the bytes of names and types of bind markers and result columns.
    pub(crate) fn metadata_bytes(&self) -> usize {
        self.metadata_bytes
    }

    /// Returns true if encoding or copying the columns takes too long for the fast lane.
    #[inline]
    pub(crate) fn is_wide(&self) -> bool {
        self.metadata_bytes() > INLINE_METADATA_BYTES
    }

    /// Encodes the columns of a wide statement on the heavy lane, unless they are encoded already.
    ///
    /// # Errors
    /// A name is too long for the protocol.
    pub(crate) async fn encode_columns(&self, version: Version) -> Result<(), wire::Error> {
        let Work::Engine(plan) = &self.work else { return Ok(()) };
        if !self.is_wide() || self.encoded[usize::from(version == Version::V5)].get().is_some() {
            return Ok(());
        }
        let (binds, result) = (plan.binds().clone(), plan.result().cloned());
        let encode = async move { Encoded::of(version, &binds, result.as_deref().unwrap_or_default()) };
        let encoded = lanes::heavy(lanes::current_group(), encode).await?;
        // Another request may have encoded them meanwhile.
        let _ = self.encoded[usize::from(version == Version::V5)].set(encoded);
        Ok(())
    }
}

fn kind_of(tree: &Tree) -> (StatementKind, Option<&Using>) {
    match tree {
        Tree::Select(s) => (StatementKind::Read, Some(&s.using)),
        Tree::Insert(s) => (StatementKind::Write, Some(&s.using)),
        Tree::Update(s) => (StatementKind::Write, Some(&s.using)),
        Tree::Delete(s) => (StatementKind::Write, Some(&s.using)),
        Tree::Batch(s) => (StatementKind::Batch, Some(&s.using)),
        Tree::Truncate(s) => (StatementKind::Other, Some(&s.using)),
        Tree::Compact(_) | Tree::Flush(_) | Tree::Scrub(_) => (StatementKind::Maintenance, None),
        _ => (StatementKind::Other, None),
    }
}

fn timeout(using: &Using) -> Result<Timeout, Error> {
    match &using.timeout {
        None => Ok(Timeout::Unspecified),
        Some(Term::Marker(marker)) => Ok(Timeout::Bound(marker.index)),
        Some(Term::Literal(Literal::Duration(d, _))) => {
            timeout_of(d.months, d.days, d.nanoseconds).map(Timeout::Fixed)
        }
        Some(_) => Err(Error::Invalid("USING TIMEOUT takes a duration, such as 50ms".to_owned())),
    }
}

/// Returns the timeout for the parts of a duration.
///
/// # Errors
/// The duration is negative, has months or days, or is not a multiple of 1 ms.
pub(crate) fn timeout_of(months: i32, days: i32, nanoseconds: i64) -> Result<Duration, Error> {
    let invalid = |text: &str| Err(Error::Invalid(text.to_owned()));
    if months != 0 || days != 0 {
        return invalid("Timeout values cannot be expressed in days/months");
    }
    if nanoseconds % 1_000_000 != 0 {
        return invalid("Timeout values must be expressed in millisecond granularity");
    }
    match u64::try_from(nanoseconds) {
        Ok(ns) => Ok(Duration::from_nanos(ns)),
        Err(_) => invalid("Timeout values must be non-negative"),
    }
}
