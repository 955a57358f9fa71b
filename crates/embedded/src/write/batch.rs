//! Statements that are written together: the values of all of them are copied, and their costs are
//! checked before the first of them is bound.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use engine::{BatchKind, Error, Guardrail, Plan, Request, Value};
use storage::{Mutation, TableId};

use crate::Embedded;
use crate::bind::choice::plus;
use crate::execute::{check_count, own, with_called};
use crate::owned::{OwnedRequest, OwnedValues};
use crate::plan::{EmbeddedPlan, PlanKind};
use crate::system::own_tables::is_server_keyspace;
use crate::write::mutations::{WriteCost, WritePlan};

/// Statements and rows bound and applied in one task poll: about 30 µs, or 160 µs if each merges a
/// row of 4 KiB.
pub(crate) const ROWS_AT_ONCE: u64 = 64;

/// Bytes of values checked and copied in one task poll, at about 5 GB/s.
const BYTES_AT_ONCE: u64 = 256 << 10;

/// The same for values with elements: about 500 of eight bytes, at 100 ns each.
const ELEMENT_BYTES_AT_ONCE: u64 = 4 << 10;

/// Most bytes of keys and values that a statement or batch may write, with guardrails and without.
/// Four times the longest message: only values that are written to many rows have more. All of them
/// are copied before the first row is applied.
pub(super) const WRITE_BYTES_MAX: u64 = 64 << 20;

/// Returns the number of bytes that one task poll checks and copies.
pub(crate) fn bytes_at_once(has_elements: bool) -> u64 {
    if has_elements { ELEMENT_BYTES_AT_ONCE } else { BYTES_AT_ONCE }
}

/// One write of a batch, with the positions of its values.
#[derive(Clone, Debug)]
pub(crate) struct BatchPart {
    plans: Arc<[WritePlan]>,
    at: usize,
    pub(crate) places: Range<usize>,
    /// Number of the write within the batch. Later ones append behind earlier ones.
    pub(crate) number: usize,
}

impl BatchPart {
    pub(crate) fn plan(&self) -> &WritePlan {
        &self.plans[self.at]
    }
}

/// Checked writes that run together, with an owned request.
#[derive(Debug)]
pub(crate) struct WriteBatch {
    pub(crate) parts: Vec<BatchPart>,
    pub(crate) request: OwnedRequest,
    /// True if it must be applied whole or not at all, even across cores: see
    /// [`crate::write::batch_log`].
    pub(crate) is_atomic: bool,
    cost: WriteCost,
    has_elements: bool,
    /// True if some write reads before it writes.
    pub(crate) reads_first: bool,
    /// True if some write appends to a list.
    pub(crate) appends: bool,
}

impl WriteBatch {
    /// Returns true if one task poll can bind and apply it.
    pub(crate) fn is_small(&self) -> bool {
        self.cost.rows <= ROWS_AT_ONCE && self.cost.bytes <= bytes_at_once(self.has_elements)
    }
}

/// Statements of a client that are to be written together, unchecked.
pub(crate) struct Unchecked {
    /// Plans with the positions of their values. A plan of a textual BATCH has several writes,
    /// which share its values.
    given: Vec<(Rc<dyn Plan>, Range<usize>)>,
    request: OwnedRequest,
    /// Number of statements, for guardrails and for checking them in one poll.
    statements: usize,
    is_atomic: bool,
    /// Kind that the writes must fit, unless they were bound together.
    kind: Option<BatchKind>,
}

impl Unchecked {
    /// Copies the values of one statement, or of a textual BATCH of `statements`.
    pub(crate) fn of_text(
        plan: &Rc<dyn Plan>,
        statements: usize,
        is_atomic: bool,
        request: &Request<'_>,
    ) -> Unchecked {
        let values = OwnedValues::of(request);
        let given = vec![(plan.clone(), 0..values.len())];
        let request = OwnedRequest::of(request, values);
        Unchecked { given, request, statements, is_atomic, kind: None }
    }

    /// Copies the values of a batch of statements.
    ///
    /// # Errors
    /// Returns an error if a call that an execution makes once fails.
    pub(crate) fn of_batch(
        kind: BatchKind,
        parts: &[(Rc<dyn Plan>, &[Value<'_>])],
        request: &Request<'_>,
    ) -> Result<Unchecked, Error> {
        let mut values = OwnedValues::within(request);
        let mut given = Vec::with_capacity(parts.len());
        for (plan, own_values) in parts {
            let called = own(plan).added.call_once()?;
            let places = match called.is_empty() {
                true => values.add(own_values),
                false => values.add(&with_called(own_values, &called)),
            };
            given.push((plan.clone(), places));
        }
        let request = OwnedRequest::of(request, values);
        let (statements, is_atomic) = (given.len(), kind == BatchKind::Logged);
        Ok(Unchecked { given, request, statements, is_atomic, kind: Some(kind) })
    }

    /// Returns true if one task poll can check it.
    pub(crate) fn is_short(&self) -> bool {
        self.statements as u64 <= ROWS_AT_ONCE
    }

    /// Returns true if values are to be read from JSON.
    pub(super) fn has_json(&self) -> bool {
        self.given.iter().any(|(plan, _)| own(plan).added.from_json > 0)
    }

    /// Returns the writes whose values are to be read from JSON: their position in the batch, and
    /// those of the client's values.
    pub(super) fn json_writes(&self) -> impl Iterator<Item = (usize, &Arc<[WritePlan]>, &Range<usize>)> {
        self.given.iter().enumerate().filter_map(|(at, (plan, places))| match own(plan) {
            EmbeddedPlan { kind: PlanKind::Write { plans, .. }, added, .. } if added.from_json > 0 => {
                Some((at, plans, places))
            }
            _ => None,
        })
    }

    /// Checks the number of values that the client gave to each statement with JSON.
    pub(super) fn check_json_counts(&self) -> Result<(), Error> {
        let with_json = self.given.iter().map(|(plan, places)| (own(plan), places.len()));
        with_json.filter(|(plan, _)| plan.added.from_json > 0).try_for_each(|(plan, given)| {
            if plan.is_current() { check_count(plan, given) } else { Err(Error::Stale) }
        })
    }

    pub(super) fn values(&self) -> &OwnedValues {
        &self.request.values
    }

    /// Takes the values, to add others. They must be put back.
    pub(super) fn take_values(&mut self) -> OwnedValues {
        Arc::unwrap_or_clone(std::mem::take(&mut self.request.values))
    }

    pub(super) fn set_values(&mut self, values: OwnedValues) {
        self.request.values = Arc::new(values);
    }

    /// Moves the values of a statement.
    pub(super) fn set_places(&mut self, at: usize, places: Range<usize>) {
        self.given[at].1 = places;
    }

    /// Returns the writes of a statement.
    fn parts_of<'p>(
        &self,
        engine: &Embedded,
        plan: &'p Rc<dyn Plan>,
        values: &[Value<'_>],
        places: &'p Range<usize>,
    ) -> Result<impl Iterator<Item = BatchPart> + 'p, Error> {
        let plan = own(plan);
        // The values of one statement are checked before its kind is known, unless they are read
        // from JSON.
        if self.kind.is_some() || plan.added.from_json > 0 {
            engine.check_values(plan, values)?;
        }
        let PlanKind::Write { plans, .. } = &plan.kind else {
            return Err(Error::Invalid("A batch can hold INSERT, UPDATE and DELETE statements only".into()));
        };
        let part = move |at| BatchPart { plans: plans.clone(), at, places: places.clone(), number: at };
        Ok((0..plans.len()).map(part))
    }

    /// Checks the statements in one task poll.
    ///
    /// # Errors
    /// Returns an error if a plan is stale or is no write, or if the batch exceeds a limit.
    pub(crate) fn check(self, engine: &Embedded) -> Result<WriteBatch, Error> {
        let mut checked = Checked::default();
        for (plan, places) in &self.given {
            let values = self.request.values.borrowed(places.clone());
            for part in self.parts_of(engine, plan, &values, places)? {
                checked.add(engine, part, &values, &self)?;
            }
        }
        checked.finish(engine, self)
    }

    /// Checks the statements in as many task polls as it takes. See [`Unchecked::check`].
    pub(crate) async fn check_yielding(self, engine: &Embedded) -> Result<WriteBatch, Error> {
        let mut checked = Checked::default();
        for (plan, places) in &self.given {
            let values = self.request.values.borrowed(places.clone());
            for part in self.parts_of(engine, plan, &values, places)? {
                checked.add(engine, part, &values, &self)?;
                if lanes::spend(2) {
                    lanes::yield_now().await;
                }
            }
        }
        checked.finish(engine, self)
    }
}

/// Writes that were checked so far, and their sums.
#[derive(Default)]
struct Checked {
    parts: Vec<BatchPart>,
    cost: WriteCost,
    reads_first: bool,
    has_elements: bool,
    appends: bool,
    kinds: TableKinds,
}

impl Checked {
    /// Adds a write of a batch. Checks its cost before any of its values is bound.
    fn add(
        &mut self,
        engine: &Embedded,
        part: BatchPart,
        values: &[Value<'_>],
        unchecked: &Unchecked,
    ) -> Result<(), Error> {
        let write = part.plan();
        write.check_viewer(unchecked.request.viewer.as_ref())?;
        let cost = write.cost(values)?;
        self.reads_first |= write.reads_first();
        self.appends |= write.appends();
        self.kinds.add(write);
        self.has_elements |= write.has_elements();
        self.cost.rows = plus(self.cost.rows, cost.rows)?;
        self.cost.bytes = plus(self.cost.bytes, cost.bytes)?;
        // System tables are exempt: a guardrail must not block changes of roles and levels.
        if !is_server_keyspace(&write.def.keyspace) {
            self.check_limits(engine, write.has_in, cost, unchecked.statements)?;
        }
        let number = self.parts.len();
        self.parts.push(BatchPart { number, ..part });
        Ok(())
    }

    fn check_limits(
        &self,
        engine: &Embedded,
        has_in: bool,
        cost: WriteCost,
        statements: usize,
    ) -> Result<(), Error> {
        let guardrails = engine.guardrails();
        if has_in {
            guardrails.check(Guardrail::InProduct, cost.rows)?;
        }
        guardrails.check(Guardrail::WriteBytes, cost.bytes)?;
        if self.cost.bytes > WRITE_BYTES_MAX {
            return Err(Error::Invalid(format!(
                "expected at most {WRITE_BYTES_MAX} bytes written by one statement or batch, got {}: \
                 send several statements",
                self.cost.bytes
            )));
        }
        if statements > 1 {
            let before = self.cost.bytes - cost.bytes;
            guardrails.check_growth(Guardrail::BatchBytes, before, self.cost.bytes)?;
        }
        Ok(())
    }

    fn finish(self, engine: &Embedded, unchecked: Unchecked) -> Result<WriteBatch, Error> {
        let is_own = self.parts.first().is_some_and(|part| is_server_keyspace(&part.plan().def.keyspace));
        if unchecked.statements > 1 && !is_own {
            // The check while it grew noted the size at the threshold.
            engine.guardrails().note(Guardrail::BatchBytes, self.cost.bytes);
        }
        if let Some(kind) = unchecked.kind {
            self.kinds.check(kind)?;
        }
        Ok(WriteBatch {
            parts: self.parts,
            request: unchecked.request,
            is_atomic: unchecked.is_atomic,
            cost: self.cost,
            has_elements: self.has_elements,
            reads_first: self.reads_first,
            appends: self.appends,
        })
    }
}

/// Kinds of tables that a batch writes to.
#[derive(Default)]
struct TableKinds {
    counters: bool,
    others: bool,
}

impl TableKinds {
    fn add(&mut self, write: &WritePlan) {
        match write.counts() {
            true => self.counters = true,
            false => self.others = true,
        }
    }

    /// Checks that these tables may be in one batch of this kind.
    fn check(&self, kind: BatchKind) -> Result<(), Error> {
        let (counter, logged) = (kind == BatchKind::Counter, kind == BatchKind::Logged);
        let text = match () {
            () if counter && self.others => "Cannot include non-counter statement in a counter batch",
            () if logged && self.counters => "Cannot include a counter statement in a logged batch",
            () if self.counters && self.others => {
                "Counter and non-counter mutations cannot exist in the same batch"
            }
            () => return Ok(()),
        };
        Err(Error::Invalid(text.into()))
    }
}

/// Checks that the statements may be in one batch of this kind.
pub(crate) fn check_kind<'p>(
    kind: BatchKind,
    writes: impl Iterator<Item = &'p WritePlan>,
) -> Result<(), Error> {
    let mut kinds = TableKinds::default();
    writes.for_each(|write| kinds.add(write));
    kinds.check(kind)
}

/// Merges mutations into one per partition, ordered by first occurrence. Readers then see all
/// changes of a batch to a partition, or none.
pub(crate) fn by_partition(all: Vec<Mutation>) -> Vec<Mutation> {
    let mut places: HashMap<(TableId, Bytes), usize> = HashMap::with_capacity(all.len());
    let mut merged: Vec<Mutation> = Vec::with_capacity(all.len());
    for mutation in all {
        match places.entry((mutation.table, mutation.key.clone())) {
            Entry::Occupied(place) => merged[*place.get()].changes.extend(mutation.changes),
            Entry::Vacant(place) => {
                place.insert(merged.len());
                merged.push(mutation);
            }
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use storage::{Change, Deletion};

    use super::*;

    #[test]
    fn changes_of_one_partition_become_one_mutation_in_their_order() {
        let change = |timestamp| Change::DeletePartition(Deletion { timestamp, deleted_at_s: 0 });
        let one = |table, key: &'static str, timestamp| Mutation {
            table: TableId(table),
            token: 0,
            key: Bytes::from_static(key.as_bytes()),
            changes: vec![change(timestamp)],
        };
        let all = vec![one(1, "a", 1), one(1, "b", 2), one(2, "a", 3), one(1, "a", 4)];
        let merged = by_partition(all);
        let shown: Vec<(u128, &[u8], usize)> =
            merged.iter().map(|m| (m.table.0, &m.key[..], m.changes.len())).collect();
        assert_eq!(shown, [(1, &b"a"[..], 2), (1, b"b", 1), (2, b"a", 1)]);
        assert!(matches!(
            &merged[0].changes[..],
            [
                Change::DeletePartition(Deletion { timestamp: 1, .. }),
                Change::DeletePartition(Deletion { timestamp: 4, .. })
            ]
        ));
    }
}
