//! A statement that is ready to run: parsed, bound to the schema, its columns encoded, and what its text says about time
//! and level picked out, so that running it again costs none of that.

use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use std::time::Duration;

use access::Access;
use cql::ast::{Literal, Statement as Tree, Term, Using};
use engine::{Columns, Engine, Error, Latencies, Plan};
use sha2::{Digest, Sha256};
use wire::Version;

use crate::long::INLINE_TEXT_BYTES;

/// The id of a prepared statement: the first half of the SHA-256 of keyspace and text, so that it is the same on every
/// core, on every front, and after a restart.
pub(crate) type Id = [u8; 16];

/// Who runs a statement.
pub(crate) enum Work {
    /// The engine.
    Engine(Rc<dyn Plan>),
    /// Whoever keeps roles and levels.
    Access,
    /// This room: DESCRIBE.
    Describe,
    /// This room: USE.
    Use(String),
}

/// What a statement does, for counts and for the code of its timeout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Read,
    Write,
    Batch,
    /// Work on the files of a table, which is given up with its client: COMPACT, FLUSH, SCRUB.
    Maintenance,
    Other,
}

impl Kind {
    /// Returns true if a statement that is cancelled, too late, or without its client ends at once. Others are not left
    /// half done.
    pub(crate) fn may_be_given_up(self) -> bool {
        matches!(self, Kind::Read | Kind::Maintenance)
    }
}

/// What `USING TIMEOUT` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Timeout {
    Unsaid,
    Fixed(Duration),
    /// The value of that bind marker.
    Bound(u16),
}

/// A statement, ready to run.
pub(crate) struct Statement {
    pub(crate) id: Id,
    pub(crate) text: Rc<str>,
    pub(crate) keyspace: Option<Rc<str>>,
    pub(crate) tree: Shared,
    pub(crate) work: Work,
    pub(crate) kind: Kind,
    pub(crate) timeout: Timeout,
    /// `USING SERVICE LEVEL`.
    pub(crate) level: Option<String>,
    /// Encoded columns, by version.
    encoded: [OnceCell<Encoded>; 2],
    /// Whether result columns are others than when the statement was first prepared on this core. A v4 client has no
    /// way to be told, so it is sent them with every result.
    pub(crate) result_changed: bool,
    /// Used since the cache last looked.
    pub(crate) used: Cell<bool>,
    /// The role that was last allowed to run this, and the number of its rights then.
    pub(crate) allowed: Cell<(u32, u64)>,
}

/// A syntax tree and the number of its tokens. A long one is freed on a heavy lane.
pub(crate) struct Fresh {
    tree: Option<Tree>,
    tokens: u32,
}

/// A text that has been parsed, perhaps on a heavy lane.
pub(crate) type Parsed = Result<Fresh, cql::SyntaxError>;

/// Parses a text.
pub(crate) fn parse(text: &str) -> Parsed {
    let (tree, tokens) = cql::parse_counted(text)?;
    Ok(Fresh { tree: Some(tree), tokens })
}

impl Fresh {
    pub(crate) fn tree(&self) -> &Tree {
        self.tree.as_ref().expect("taken only by value")
    }

    fn take(mut self) -> (Tree, u32) {
        (self.tree.take().expect("taken only by value"), self.tokens)
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        if self.tokens > TOKENS_FREED_HERE
            && lanes::on_lane()
            && let Some(tree) = self.tree.take()
        {
            lanes::heavy(lanes::current_group(), async move { drop(tree) }).detach();
        }
    }
}

/// The tree of a bound statement. The last owner frees a long one on a heavy lane.
pub(crate) struct Shared {
    tree: Rc<Tree>,
    tokens: u32,
}

impl Shared {
    /// The tree, to be kept beside this.
    pub(crate) fn tree(&self) -> Rc<Tree> {
        self.tree.clone()
    }
}

impl std::ops::Deref for Shared {
    type Target = Tree;

    fn deref(&self) -> &Tree {
        &self.tree
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.tokens > TOKENS_FREED_HERE {
            let tree = std::mem::replace(&mut self.tree, Rc::new(Tree::Use(String::new())));
            drop(Fresh { tree: Rc::into_inner(tree), tokens: self.tokens });
        }
    }
}

/// A parsed statement with what runs it.
pub(crate) struct Bound {
    tree: Shared,
    work: Work,
    /// The id of the text, where a heavy lane has computed it.
    pub(crate) id: Option<Id>,
}

impl Bound {
    /// Binds a statement to the schema.
    ///
    /// # Errors
    /// What is wrong with it: [`Error::Invalid`] with its text for what the engine refuses.
    pub(crate) fn of(parsed: Fresh, keyspace: Option<&Rc<str>>, engine: &dyn Engine) -> Result<Bound, Error> {
        let (tree, tokens) = parsed.take();
        Bound::again(Shared { tree: Rc::new(tree), tokens }, keyspace, engine)
    }

    fn again(tree: Shared, keyspace: Option<&Rc<str>>, engine: &dyn Engine) -> Result<Bound, Error> {
        let work = match of_server(&tree) {
            Some(work) => work,
            None => Work::Engine(engine.prepare(tree.tree(), keyspace.map(|keyspace| &**keyspace))?),
        };
        Ok(Bound { tree, work, id: None })
    }

    /// As [`Bound::of`], for a long statement, which a heavy lane binds.
    ///
    /// # Errors
    /// As there.
    pub(crate) async fn of_long(
        parsed: Fresh,
        keyspace: Option<&Rc<str>>,
        engine: &dyn Engine,
    ) -> Result<Bound, Error> {
        if of_server(parsed.tree()).is_some() {
            return Bound::of(parsed, keyspace, engine);
        }
        let (tree, tokens) = parsed.take();
        let (tree, plan) = engine.prepare_long(tree, keyspace.map(|keyspace| &**keyspace)).await;
        let tree = Shared { tree, tokens };
        Ok(Bound { tree, work: Work::Engine(plan?), id: None })
    }
}

/// The part of this server that runs a statement, unless it is the engine.
fn of_server(tree: &Tree) -> Option<Work> {
    match tree {
        Tree::Describe(_) => Some(Work::Describe),
        Tree::Use(name) => Some(Work::Use(name.clone())),
        other if Access::handles(other) => Some(Work::Access),
        _ => None,
    }
}

/// Trees of more tokens than this are freed on a heavy lane: it takes longer than a fast lane may be held up.
const TOKENS_FREED_HERE: u32 = 1000;

/// Memory of a kept statement beside its text and tokens, bytes: plan, columns and the places in maps.
const STATEMENT_BYTES: usize = 2 << 10;
/// Memory of a token in tree and plan, bytes. A term of an IN list took 190 in a release build.
const TOKEN_BYTES: usize = 200;

/// Memory of the tree of a text of so many bytes and tokens, bytes.
pub(crate) fn tree_bytes(text_bytes: usize, tokens: u32) -> usize {
    text_bytes + tokens as usize * TOKEN_BYTES
}

/// A statement's columns as the wire wants them.
pub(crate) struct Encoded {
    pub(crate) bind: wire::Columns,
    pub(crate) result: wire::Columns,
    /// Changes with the result columns.
    pub(crate) result_id: Id,
}

/// The id of statements that were not prepared.
pub(crate) const UNPREPARED: Id = [0; 16];

/// The id of a text in a keyspace. Linear in the text: 64 KiB take about 0.15 ms.
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

/// Encodes columns for one version.
pub(crate) fn encode(version: Version, columns: &[engine::ColumnSpec]) -> Result<wire::Columns, wire::Error> {
    let specs: Vec<_> =
        columns.iter().map(|c| wire::ColumnSpec::new(&c.keyspace, &c.table, &c.name, &c.ty)).collect();
    wire::Columns::encode(version, &specs)
}

impl Statement {
    /// The statement of a text that has been bound. `id` is that of a prepared statement, and zeros for others.
    ///
    /// # Errors
    /// `USING TIMEOUT` is none.
    pub(crate) fn of(
        id: Id,
        text: &str,
        keyspace: Option<&Rc<str>>,
        bound: Bound,
    ) -> Result<Statement, Error> {
        Statement::made(id, text.into(), keyspace.cloned(), bound)
    }

    fn made(id: Id, text: Rc<str>, keyspace: Option<Rc<str>>, bound: Bound) -> Result<Statement, Error> {
        let Bound { tree, work, .. } = bound;
        let (kind, using) = kind_of(&tree);
        let timeout = using.map_or(Ok(Timeout::Unsaid), timeout)?;
        let level = using.and_then(|using| using.service_level.clone());
        Ok(Statement {
            id,
            text,
            keyspace,
            work,
            kind,
            timeout,
            level,
            tree,
            encoded: Default::default(),
            result_changed: false,
            used: Cell::new(true),
            allowed: Cell::new((0, 0)),
        })
    }

    /// Whether its plan still fits the schema.
    pub(crate) fn is_current(&self) -> bool {
        match &self.work {
            Work::Engine(plan) => plan.is_current(),
            _ => true,
        }
    }

    /// The same statement, bound to the schema as it is now.
    ///
    /// # Errors
    /// It no longer fits, or [`Error::Stale`] if it now takes other values: then the client must prepare it again.
    pub(crate) fn rebound(&self, engine: &dyn Engine) -> Result<Statement, Error> {
        let tree = Shared { tree: self.tree.tree(), tokens: self.tree.tokens };
        self.renewed(Bound::again(tree, self.keyspace.as_ref(), engine)?)
    }

    /// Returns true if the plan no longer fits the schema and takes a heavy lane to be made anew.
    pub(crate) fn is_stale_long(&self) -> bool {
        self.text.len() > INLINE_TEXT_BYTES && !self.is_current()
    }

    /// The same statement with a new plan.
    ///
    /// # Errors
    /// [`Error::Stale`], as for [`Statement::rebound`].
    pub(crate) fn renewed(&self, bound: Bound) -> Result<Statement, Error> {
        let (text, keyspace) = (self.text.clone(), self.keyspace.clone());
        let mut fresh = Statement::made(self.id, text, keyspace, bound)?;
        if fresh.binds() != self.binds() {
            return Err(Error::Stale);
        }
        fresh.result_changed = self.result_changed || fresh.result() != self.result();
        Ok(fresh)
    }

    /// Memory that it takes, bytes: an estimate from above.
    pub(crate) fn bytes(&self) -> usize {
        STATEMENT_BYTES + self.text.len() + tree_bytes(self.text.len(), self.tree.tokens)
    }

    /// A statement that takes about `bytes`.
    #[cfg(test)]
    pub(crate) fn for_tests(id: Id, bytes: usize) -> Statement {
        let tree = Shared { tree: Rc::new(Tree::Use("ks".to_owned())), tokens: 0 };
        let text = "-".repeat(bytes.saturating_sub(STATEMENT_BYTES) / 2);
        Statement {
            id,
            text: text.into(),
            keyspace: None,
            work: Work::Use("ks".to_owned()),
            kind: Kind::Other,
            timeout: Timeout::Unsaid,
            level: None,
            tree,
            encoded: Default::default(),
            result_changed: false,
            used: Cell::new(true),
            allowed: Cell::new((0, 0)),
        }
    }

    /// The bind markers.
    pub(crate) fn binds(&self) -> &[engine::ColumnSpec] {
        match &self.work {
            Work::Engine(plan) => plan.binds(),
            _ => &[],
        }
    }

    /// Latencies of its table on this core, where it is about one.
    pub(crate) fn latencies(&self) -> Option<Rc<Latencies>> {
        match &self.work {
            Work::Engine(plan) => plan.latencies().cloned(),
            _ => None,
        }
    }

    /// The result's columns, where they are known.
    pub(crate) fn result(&self) -> Option<&Columns> {
        match &self.work {
            Work::Engine(plan) => plan.result(),
            _ => None,
        }
    }

    /// Its columns for a version.
    ///
    /// # Errors
    /// A name is too long for the protocol.
    pub(crate) fn encoded(&self, version: Version) -> Result<&Encoded, wire::Error> {
        let place = &self.encoded[usize::from(version == Version::V5)];
        if let Some(encoded) = place.get() {
            return Ok(encoded);
        }
        let bind = encode(version, self.binds())?;
        let result = encode(version, self.result().map_or(&[][..], |columns| columns))?;
        let mut hash = Sha256::new();
        for column in self.result().into_iter().flat_map(|columns| columns.iter()) {
            for part in [&*column.keyspace, &column.table, &column.name, &column.ty.to_string()] {
                hash.update((part.len() as u64).to_be_bytes());
                hash.update(part);
            }
        }
        Ok(place.get_or_init(|| Encoded { bind, result, result_id: first_half(hash) }))
    }
}

fn kind_of(tree: &Tree) -> (Kind, Option<&Using>) {
    match tree {
        Tree::Select(s) => (Kind::Read, Some(&s.using)),
        Tree::Insert(s) => (Kind::Write, Some(&s.using)),
        Tree::Update(s) => (Kind::Write, Some(&s.using)),
        Tree::Delete(s) => (Kind::Write, Some(&s.using)),
        Tree::Batch(s) => (Kind::Batch, Some(&s.using)),
        Tree::Compact(_) | Tree::Flush(_) | Tree::Scrub(_) => (Kind::Maintenance, None),
        _ => (Kind::Other, None),
    }
}

fn timeout(using: &Using) -> Result<Timeout, Error> {
    match &using.timeout {
        None => Ok(Timeout::Unsaid),
        Some(Term::Marker(marker)) => Ok(Timeout::Bound(marker.index)),
        Some(Term::Literal(Literal::Duration(d))) => {
            timeout_of(d.months, d.days, d.nanoseconds).map(Timeout::Fixed)
        }
        Some(_) => Err(Error::Invalid("USING TIMEOUT takes a duration, such as 50ms".to_owned())),
    }
}

/// A timeout from the parts of a duration.
///
/// # Errors
/// It is not a positive number of milliseconds.
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
