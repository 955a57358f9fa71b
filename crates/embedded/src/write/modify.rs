//! Writes that depend on stored data: counters, list elements by index, and conditions (IF …).
//!
//! Each such write is a step on the core that owns its partition: lock the partition, read, decide,
//! write. Steps on one partition run one after the other. If the row is in memory, a step never
//! waits for I/O.
//!
//! The lock is released when the write is applied, before the log has made it durable. The next
//! step may see a write that is not durable yet. This is safe: the log keeps their order, so the
//! later write is durable only if the earlier one is.
//!
//! The log records the outcome, such as the new total of a counter, so that a replay may apply it
//! twice.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::rc::Rc;

use bytes::Bytes;
use engine::{Error, Request, ResultRows, StatementOutcome, Value};
use schema::TableDef;
use storage::{Change, Commit, Mutation, PartitionView, RowView, Slice, TableId};

use crate::bind::mask::Masks;
use crate::bind::show::RowSource;
use crate::heavy_lane::{heavy, run_to_completion};
use crate::index::apply::Limits;
use crate::owned::{InTurn, OwnedRequest};
use crate::read::partition::STATIC_BYTES_MAX;
use crate::write::batch::{BatchPart, WriteBatch, by_partition};
use crate::write::batch_log::Spread;
use crate::write::conditions::{self, ReadColumns, Verdict};
use crate::write::times::Times;
use crate::{Embedded, storage_error};

/// Changes to one partition, made under one lock.
#[derive(Clone, Debug)]
struct PartitionStep {
    token: i64,
    key: Bytes,
    parts: Vec<BatchPart>,
    request: OwnedRequest,
    /// Timestamps of the statement. A conditional write and a counter take later ones under the
    /// lock.
    times: Times,
}

impl PartitionStep {
    /// Returns the timestamps of a write under the lock. All statements of a batch without
    /// conditions have the same ones.
    fn times_under_lock(&self, engine: &Embedded) -> Times {
        let own = |part: &BatchPart| part.plan().is_conditional() || part.plan().counts();
        let count = self.parts.last().map_or(0, |part| part.number + 1);
        if self.parts.iter().any(own) { engine.timestamps.next_for(count) } else { self.times }
    }

    /// Returns the columns that decide which rows exist, and which are shown, if a condition fails.
    fn read_columns(&self) -> ReadColumns {
        let mut read = ReadColumns::default();
        self.parts.iter().for_each(|part| part.plan().add_read_columns(&mut read));
        read
    }

    /// Returns true if it has conditions, and all of them are on static columns.
    fn tests_statics_alone(&self) -> bool {
        let mut conditions = self.parts.iter().filter_map(|part| part.plan().conditions()).peekable();
        let def = &self.parts[0].plan().def;
        conditions.peek().is_some() && conditions.all(|conditions| conditions.is_static(def))
    }

    /// Returns true if the effect of some statement takes longer than a task poll may, on rows of
    /// at most `row_bytes`.
    async fn is_large(&self, row_bytes: usize) -> Result<bool, Error> {
        let mut in_turn = InTurn::of(&self.request.values);
        for part in &self.parts {
            if part.plan().units(in_turn.at(&part.places), row_bytes)? > UNITS_AT_ONCE {
                return Ok(true);
            }
            if lanes::spend(1) {
                lanes::yield_now().await;
            }
        }
        Ok(false)
    }
}

/// Work units of one statement that the fast lane binds and checks.
const UNITS_AT_ONCE: u64 = 250;

/// Effect of a step.
enum Decision {
    /// Some condition does not hold. With the rows that were checked.
    Refused(ResultRows),
    Write {
        changes: Vec<Change>,
        is_conditional: bool,
    },
}

/// A step with what it has read. Either lane decides it, with yields between statements.
struct Deciding {
    step: PartitionStep,
    read: Read,
    times: Times,
    now_s: u32,
}

impl Deciding {
    /// Decides. A heavy lane decides if values or rows are large.
    async fn on_a_lane(self) -> Result<(Deciding, Decision), Error> {
        let is_large = self.read.is_large() || self.step.is_large(self.read.largest_row()).await?;
        if is_large { heavy(self.run()).await } else { self.run().await }
    }

    async fn run(self) -> Result<(Deciding, Decision), Error> {
        let Deciding { step, read, times, now_s } = self;
        let (def, all) = (step.parts[0].plan().def.clone(), step.request.values.clone());
        let mut verdict = Verdict::default();
        let mut in_turn = InTurn::of(&all);
        for part in &step.parts {
            let (plan, values) = (part.plan(), in_turn.at(&part.places));
            if let Some(conditions) = plan.conditions() {
                let row = plan.row(values)?;
                let checked =
                    verdict.check(conditions, row.clone(), &read.source(&step, &def, &row, now_s), values);
                checked.await?;
            }
            if lanes::spend(STATEMENT_UNITS) {
                lanes::yield_now().await;
            }
        }
        // The rows that were read stay in memory with the answer.
        let grants = step.request.grants().beside(read.bytes);
        let in_batch = step.parts.len() > 1;
        let masks = Masks::of(&def)?;
        let refusal = verdict.refusal(&def, in_batch, || step.read_columns(), masks.as_ref());
        if let Some(mut refusal) = refusal.map(|refusal| refusal.within(grants)) {
            for row in std::mem::take(&mut refusal.keys) {
                refusal.add(&read.source(&step, &def, &row, now_s))?;
                if lanes::spend(refusal.row_units()) {
                    lanes::yield_now().await;
                }
            }
            let first = RowSource { row: read.first.as_ref(), ..read.source(&step, &def, &[], now_s) };
            refusal.add(&first)?;
            refusal.add_statics(&first)?;
            let refused = Decision::Refused(refusal.finish(&def));
            return Ok((Deciding { step, read, times, now_s }, refused));
        }
        let is_conditional = verdict.is_conditional();
        let mut changes = Vec::new();
        for part in &step.parts {
            let (plan, values) = (part.plan(), in_turn.at(&part.places));
            let own_time = plan.is_conditional() || is_conditional || plan.counts();
            let timestamp_us = step.request.timestamp_us;
            let now_us = if own_time { later_than(read.newest, times.now_us)? } else { times.now_us };
            let times = Times { now_us, is_decided: own_time, ..times.of_statement(part.number) };
            {
                let request = Request { timestamp_us, now_s: Some(now_s), ..Request::EMPTY };
                let before = |row: Option<&[u8]>| {
                    let source = read.source(&step, &plan.def, row.unwrap_or_default(), now_s);
                    plan.before(&source, row.is_none())
                };
                changes.extend(plan.changes(values, &request, times, &step.key, &before)?);
            }
            if lanes::spend(STATEMENT_UNITS) {
                lanes::yield_now().await;
            }
        }
        Ok((Deciding { step, read, times, now_s }, Decision::Write { changes, is_conditional }))
    }
}

/// Data of a partition that a step has read.
struct Read {
    rows: BTreeMap<Vec<u8>, Option<RowView>>,
    /// The first row of the partition, read only if conditions on static columns alone fail.
    first: Option<RowView>,
    /// Static cells, read only if the step needs them.
    view: Option<PartitionView>,
    /// Greatest timestamp read, of live and dead data.
    newest: i64,
    /// Bytes of all that was read.
    bytes: usize,
}

impl Read {
    /// Returns true if some row takes longer to show than a task poll may.
    fn is_large(&self) -> bool {
        let statics = self.view.as_ref().map_or(0, PartitionView::static_bytes);
        statics > STATIC_BYTES_MAX || self.all_rows().any(|row| !row.is_small())
    }

    /// Returns the bytes of the largest row.
    fn largest_row(&self) -> usize {
        let statics = self.view.as_ref().map_or(0, PartitionView::static_bytes);
        self.all_rows().map(RowView::bytes).max().unwrap_or(0).max(statics)
    }

    fn all_rows(&self) -> impl Iterator<Item = &RowView> {
        self.rows.values().flatten().chain(&self.first)
    }

    /// Returns a row of the partition as it was read.
    fn source<'a>(
        &'a self,
        step: &'a PartitionStep,
        def: &'a TableDef,
        row: &[u8],
        now_s: u32,
    ) -> RowSource<'a> {
        RowSource {
            place: None,
            def,
            token: step.token,
            key: &step.key,
            row: self.rows.get(row).and_then(Option::as_ref),
            view: self.view.as_ref(),
            now_s,
        }
    }
}

/// Guards that a core holds for a statement of another core. Dropping this value releases them.
struct RemoteGuards {
    core: usize,
    number: u64,
}

impl Drop for RemoteGuards {
    fn drop(&mut self) {
        // Outside the lanes the server has already stopped.
        if lanes::on_lane() {
            let (core, number) = (self.core, self.number);
            let end = move || async move { Embedded::local().locks.partitions.release(number) };
            lanes::spawn(lanes::current_group(), lanes::call(core, end)).detach();
        }
    }
}

/// Work units of one statement of a step: bind it, then look up, check and write its row.
const STATEMENT_UNITS: u32 = 10;

impl Embedded {
    /// Runs statements of which at least one reads before it writes.
    pub(crate) async fn modify(
        self: &Rc<Self>,
        batch: WriteBatch,
        times: Times,
    ) -> Result<StatementOutcome, Error> {
        if batch.parts.iter().any(|part| part.plan().is_conditional()) {
            let Some(step) = one_step(batch, times).await? else { return Ok(StatementOutcome::Void) };
            let core = self.owner(step.token);
            return lanes::call(core, move || async move {
                let engine = Embedded::local();
                let (commit, outcome) = engine.step(step).await?;
                match commit {
                    Some(commit) => commit.await,
                    // A rejection shows rows that were read. They must be durable, so that no crash
                    // takes them back.
                    None => engine.shard.settled().await,
                }
                .map_err(storage_error)?;
                Ok(outcome)
            })
            .await;
        }
        // A counter named twice is incremented twice: its second step must see the first one.
        let counts = batch.parts.iter().any(|part| part.plan().counts());
        let is_atomic = batch.is_atomic;
        let (steps, plain) = self.steps(batch, times).await?;
        let several =
            steps.iter().map(Vec::len).sum::<usize>() + plain.iter().map(Vec::len).sum::<usize>() > 1;
        if several && !counts {
            return self.modify_together(steps, plain, is_atomic).await;
        }
        if plain.iter().any(|part| !part.is_empty()) {
            let plain = plain.into_iter().map(by_partition).collect();
            self.apply_by_core(plain).await?;
        }
        self.run_steps(steps).await
    }

    /// Splits statements into steps for the cores that own their partitions, and mutations of
    /// statements that read nothing. Statements on one partition share a step, which reads it once;
    /// but each counter has its own, which sees the ones before.
    async fn steps(
        &self,
        batch: WriteBatch,
        times: Times,
    ) -> Result<(Vec<Vec<PartitionStep>>, Vec<Vec<Mutation>>), Error> {
        let cores = self.sharding.shards as usize;
        let (mut steps, mut plain) = (vec![Vec::<PartitionStep>::new(); cores], vec![Vec::new(); cores]);
        let mut places: HashMap<_, usize> = HashMap::new();
        let mut in_turn = InTurn::of(&batch.request.values);
        for part in batch.parts {
            let values = in_turn.at(&part.places);
            if part.plan().reads_first() {
                for (token, key) in keys(&part, values, &batch.request).await? {
                    let of_core = &mut steps[self.owner(token)];
                    let partition = (part.plan().def.id, token, key.clone());
                    let known = if part.plan().counts() { None } else { places.get(&partition) };
                    match known {
                        Some(&place) => of_core[place].parts.push(part.clone()),
                        None => {
                            places.insert(partition, of_core.len());
                            let (parts, request) = (vec![part.clone()], batch.request.clone());
                            of_core.push(PartitionStep { token, key, parts, request, times });
                        }
                    }
                    if lanes::spend(1) {
                        lanes::yield_now().await;
                    }
                }
            } else {
                let times = times.of_statement(part.number);
                for mutation in effect(part, values, &batch.request, times).await? {
                    plain[self.owner(mutation.token)].push(mutation);
                    if lanes::spend(1) {
                        lanes::yield_now().await;
                    }
                }
            }
            if lanes::spend(STATEMENT_UNITS) {
                lanes::yield_now().await;
            }
        }
        Ok((steps, plain))
    }

    /// Runs steps on the cores that own their partitions. Steps of one core keep their order.
    async fn run_steps(&self, by_core: Vec<Vec<PartitionStep>>) -> Result<StatementOutcome, Error> {
        let mut has_run = false;
        for (core, steps) in by_core.into_iter().enumerate().filter(|(_, steps)| !steps.is_empty()) {
            let earlier = std::mem::replace(&mut has_run, true);
            let run = move || async move {
                let engine = Embedded::local();
                let mut commits = Vec::with_capacity(steps.len());
                for (at, step) in steps.into_iter().enumerate() {
                    let made = engine.step(step).await;
                    commits.extend(made.map_err(|error| forbid_retry(error, earlier || at > 0))?.0);
                }
                // The log keeps their order: the last commit is durable only if all earlier ones
                // are.
                for commit in commits {
                    commit.await.map_err(storage_error)?;
                }
                Ok::<(), Error>(())
            };
            lanes::call(core, run).await?;
        }
        Ok(StatementOutcome::Void)
    }

    /// Runs one step on the core that owns the partition.
    async fn step(&self, step: PartitionStep) -> Result<(Option<Commit>, StatementOutcome), Error> {
        let _guard = self.locks.partitions.lock(step.token).await;
        let (step, decision) = self.decide(step).await?;
        let (changes, is_conditional) = match decision {
            Decision::Refused(rows) => return Ok((None, StatementOutcome::Rows(rows))),
            Decision::Write { changes, is_conditional } => (changes, is_conditional),
        };
        let def = &step.parts[0].plan().def;
        let table = TableId(def.data_id().as_u128());
        let mutation = Mutation { table, token: step.token, key: step.key.clone(), changes };
        let commit = self.apply_here(vec![mutation], Limits::Plain).await.map_err(storage_error)?;
        let outcome = match is_conditional {
            true => StatementOutcome::Rows(conditions::applied(def)),
            false => StatementOutcome::Void,
        };
        Ok((Some(commit), outcome))
    }

    /// Reads what a step depends on, and decides its effect, under the partition's lock.
    async fn decide(&self, step: PartitionStep) -> Result<(PartitionStep, Decision), Error> {
        let times = step.times_under_lock(self);
        let now_s = step.request.now_s.unwrap_or(times.now_s);
        let read = self.read_before(&step, now_s).await?;
        let (mut decided, mut decision) = Deciding { step, read, times, now_s }.on_a_lane().await?;
        if matches!(decision, Decision::Refused(_)) && decided.step.tests_statics_alone() {
            // The answer shows the first row, which no condition needs.
            decided.read.first = self.first_row(&decided.step, now_s).await?;
            decided.read.bytes += decided.read.first.as_ref().map_or(0, RowView::bytes);
            (decided, decision) = decided.on_a_lane().await?;
        }
        Ok((decided.step, decision))
    }

    /// Runs steps and applies mutations together; all or none if `is_atomic`. Every statement reads
    /// the data from before all of them, as in Cassandra.
    async fn modify_together(
        &self,
        steps: Vec<Vec<PartitionStep>>,
        mut changed: Vec<Vec<Mutation>>,
        is_atomic: bool,
    ) -> Result<StatementOutcome, Error> {
        let engine = self.rc();
        // A task of its own: other cores hold guards for it, which must be released.
        let work = async move {
            let mut held = Vec::new();
            // Locks in the order of cores and tokens, so that two statements cannot deadlock.
            for (core, steps) in steps.into_iter().enumerate().filter(|(_, steps)| !steps.is_empty()) {
                let bind = move || async move { Embedded::local().bind_steps(steps).await };
                let (number, mutations) = lanes::call(core, bind).await?;
                held.push(RemoteGuards { core, number });
                changed[core].extend(mutations);
            }
            let spread =
                async move { Spread::of(changed.into_iter().map(by_partition).collect(), is_atomic) };
            engine.apply_spread(heavy(spread).await).await?;
            drop(held);
            Ok(StatementOutcome::Void)
        };
        run_to_completion(work).await
    }

    /// Locks all partitions of the steps on this core, and computes their changes. Returns the
    /// number under which the guards are held; [`RemoteGuards`] releases them.
    async fn bind_steps(&self, steps: Vec<PartitionStep>) -> Result<(u64, Vec<Mutation>), Error> {
        let tokens: BTreeSet<i64> = steps.iter().map(|step| step.token).collect();
        let mut guards = Vec::with_capacity(tokens.len());
        for token in tokens {
            guards.push(self.locks.partitions.lock(token).await);
            if lanes::spend(1) {
                lanes::yield_now().await;
            }
        }
        let mut mutations = Vec::with_capacity(steps.len());
        for step in steps {
            let (step, decision) = self.decide(step).await?;
            let Decision::Write { changes, .. } = decision else {
                unreachable!("statements with conditions are one step")
            };
            let table = TableId(step.parts[0].plan().def.data_id().as_u128());
            mutations.push(Mutation { table, token: step.token, key: step.key, changes });
        }
        Ok((self.locks.partitions.hold(guards), mutations))
    }

    /// Reads the data that the statements of a step depend on.
    ///
    /// # Errors
    /// Returns an error if the read fails, or if there is no memory for the rows.
    async fn read_before(&self, step: &PartitionStep, now_s: u32) -> Result<Read, Error> {
        let table = TableId(step.parts[0].plan().def.data_id().as_u128());
        let mut read = Read { rows: BTreeMap::new(), first: None, view: None, newest: i64::MIN, bytes: 0 };
        let mut grants = step.request.grants();
        if step.parts.iter().any(|part| part.plan().reads_statics()) {
            let found = self.shard.read_statics_before(table, step.token, &step.key, now_s);
            let found = found.wait().await.map_err(storage_error)?;
            (read.view, read.newest) = (found.view, read.newest.max(found.newest));
            read.bytes += read.view.as_ref().map_or(0, PartitionView::static_bytes);
        }
        // The timestamp of a conditional batch also exceeds the data that its other statements
        // overwrite.
        let is_conditional = step.parts.iter().any(|part| part.plan().is_conditional());
        let mut in_turn = InTurn::of(&step.request.values);
        for part in &step.parts {
            let values = in_turn.at(&part.places);
            let rows = match part.plan().has_in {
                false => part.plan().rows(values, is_conditional)?,
                // An IN may name thousands.
                true => {
                    let (part, request) = (part.clone(), step.request.clone());
                    let rows = async move {
                        part.plan().rows(&request.values.borrowed(part.places.clone()), is_conditional)
                    };
                    heavy(rows).await?
                }
            };
            for row in rows {
                if lanes::spend(STATEMENT_UNITS) {
                    lanes::yield_now().await;
                }
                if read.rows.contains_key(&row) {
                    continue;
                }
                let found = self.shard.read_row_before(table, step.token, &step.key, &row, now_s);
                let found = found.wait().await.map_err(storage_error)?;
                read.newest = read.newest.max(found.newest);
                read.bytes += found.row.as_ref().map_or(0, RowView::bytes);
                read.rows.insert(row, found.row);
                // A batch of short statements can read 65,535 large rows.
                grants.cover(read.bytes)?;
            }
        }
        Ok(read)
    }
}

/// Rows requested from storage at a time, in search of the first that exists.
const FIRST_ROWS: usize = 16;

impl Embedded {
    /// Returns the first row of a partition that exists by the columns that a step reads.
    async fn first_row(&self, step: &PartitionStep, now_s: u32) -> Result<Option<RowView>, Error> {
        let def = &step.parts[0].plan().def;
        let (table, columns) = (TableId(def.data_id().as_u128()), step.read_columns());
        let mut slice = Slice { statics: false, ..Slice::all(FIRST_ROWS) };
        loop {
            let read = self.shard.read_slice(table, step.token, &step.key, &slice, now_s).wait().await;
            let Some(sliced) = read.map_err(storage_error)? else { return Ok(None) };
            let mut rows = sliced.view.range(Bound::Unbounded, Bound::Unbounded, false);
            while let Some(row) = rows.next_unopened() {
                if lanes::spend(STATEMENT_UNITS) {
                    lanes::yield_now().await;
                }
                let open = if row.is_small() { row.open() } else { heavy(async move { row.open() }).await };
                let key = &step.key;
                let source = RowSource {
                    def,
                    token: step.token,
                    key,
                    row: open.as_ref(),
                    place: None,
                    view: None,
                    now_s,
                };
                if columns.find_row(&source) {
                    return Ok(open);
                }
            }
            let Some(next) = sliced.next else { return Ok(None) };
            slice = slice.behind(next);
        }
    }
}

/// Returns the partitions of a statement. An IN may name thousands, so a heavy lane builds their
/// keys, and those of large values.
async fn keys(
    part: &BatchPart,
    values: &[Value<'_>],
    request: &OwnedRequest,
) -> Result<Vec<(i64, Bytes)>, Error> {
    if !part.plan().has_in && part.plan().units(values, 0)? <= UNITS_AT_ONCE {
        return part.plan().keys(values);
    }
    let (part, request) = (part.clone(), request.clone());
    let keys = async move { part.plan().keys(&request.values.borrowed(part.places.clone())) };
    heavy(keys).await
}

/// Returns the mutations of a statement that reads nothing. A heavy lane builds those of an IN, and
/// those of large values.
async fn effect(
    part: BatchPart,
    values: &[Value<'_>],
    request: &OwnedRequest,
    times: Times,
) -> Result<Vec<Mutation>, Error> {
    let bind = move |part: &BatchPart, values: &[Value<'_>], request: &OwnedRequest| {
        let mut all = Vec::new();
        crate::write::mutations::mutations(part.plan(), values, &request.borrowed(values), times, &mut all)?;
        Ok(all)
    };
    if !part.plan().has_in && part.plan().units(values, 0)? <= UNITS_AT_ONCE {
        return bind(&part, values, request);
    }
    let request = request.clone();
    heavy(async move { bind(&part, &request.values.borrowed(part.places.clone()), &request) }).await
}

/// Replaces `Error::Stale` after earlier steps were applied. The statement must not be retried
/// then: it would apply those steps twice.
fn forbid_retry(error: Error, after_others: bool) -> Error {
    match error {
        Error::Stale if after_others => Error::Server(
            "a table was truncated or dropped while the statement was running: a part of it has been applied"
                .to_owned(),
        ),
        error => error,
    }
}

/// Merges statements with conditions into one step. Rejects them at the second partition, before
/// checking the rest.
async fn one_step(batch: WriteBatch, times: Times) -> Result<Option<PartitionStep>, Error> {
    let mut found: Option<(i64, Bytes)> = None;
    let Some(table) = batch.parts.first().map(|part| part.plan().def.id) else { return Ok(None) };
    let WriteBatch { parts: given, request, .. } = batch;
    let mut parts = Vec::with_capacity(given.len());
    let mut in_turn = InTurn::of(&request.values);
    for part in given {
        if part.plan().def.id != table {
            return Err(Error::Invalid("Batch with conditions cannot span multiple tables".into()));
        }
        let keys = keys(&part, in_turn.at(&part.places), &request).await?;
        for key in &keys {
            if found.get_or_insert_with(|| key.clone()) != key {
                return Err(Error::Invalid("Batch with conditions cannot span multiple partitions".into()));
            }
        }
        // An empty IN names no partition: the statement does nothing.
        if !keys.is_empty() {
            parts.push(part);
        }
        if lanes::spend(STATEMENT_UNITS) {
            lanes::yield_now().await;
        }
    }
    drop(in_turn);
    Ok(found.map(|(token, key)| PartitionStep { token, key, parts, request, times }))
}

/// Returns a write time above `newest`, the greatest timestamp read. With a lower one an
/// acknowledged write would lose to the stored data.
fn later_than(newest: i64, now_us: i64) -> Result<i64, Error> {
    match newest.checked_add(1) {
        Some(next) => Ok(now_us.max(next)),
        None => Err(Error::Invalid(
            "expected stored timestamps below 2^63 - 1, got one that no conditional write can exceed".into(),
        )),
    }
}
