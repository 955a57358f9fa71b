//! Writes that depend on what is there: counters, elements of lists by index, conditions (IF …).
//!
//! Each is a step on the core that owns its partition: wait for the partition's turn, read, decide, write. Steps on one partition
//! run one after the other; where the row is in memory nothing is ever waited for. A turn ends when the write is applied, and the
//! log is waited for outside of it: the next step sees what this one wrote, and counts only if this one does, because the log
//! keeps their order. What is logged is the outcome (a counter's new total, say), so that replaying it twice does no harm.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bytes::Bytes;
use engine::{Error, Outcome, Request, Value};
use schema::TableDef;
use storage::{Change, Commit, Mutation, PartitionView, RowView, TableId};

use crate::batch_log::Spread;
use crate::conditions::{self, Verdict};
use crate::heavily::{heavy, to_its_end};
use crate::kept::KeptRequest;
use crate::show::Source;
use crate::write::Times;
use crate::writing::{Job, Part, by_partition};
use crate::{Embedded, storage_error};

/// What is done to one partition in one turn.
#[derive(Clone, Debug)]
struct Step {
    token: i64,
    key: Bytes,
    parts: Vec<Part>,
    request: KeptRequest,
}

impl Step {
    fn values(&self, part: &Part) -> Vec<Value<'_>> {
        self.request.values.lent(part.places.clone())
    }
}

/// What a step has read of its partition.
struct Read {
    rows: BTreeMap<Vec<u8>, Option<RowView>>,
    /// The static cells, read only where they matter.
    view: Option<PartitionView>,
    /// The greatest timestamp of all that was read, dead or alive.
    newest: i64,
}

impl Read {
    /// A row of the partition as it was read.
    fn source<'a>(&'a self, step: &'a Step, def: &'a TableDef, row: &[u8], now_s: u32) -> Source<'a> {
        Source {
            def,
            token: step.token,
            key: &step.key,
            row: self.rows.get(row).and_then(Option::as_ref),
            view: self.view.as_ref(),
            now_s,
        }
    }
}

/// Turns that a core keeps for a statement of another one; they end with this value.
struct HeldTurns {
    core: usize,
    number: u64,
}

impl Drop for HeldTurns {
    fn drop(&mut self) {
        // Off the lanes the server has stopped.
        if lanes::on_lane() {
            let (core, number) = (self.core, self.number);
            let end = move || async move { drop(Embedded::local().held_turns.borrow_mut().remove(&number)) };
            lanes::spawn(lanes::current_group(), lanes::call(core, end)).detach();
        }
    }
}

/// Work units of one statement of a step: it is bound, and its row looked for, judged and written.
const STATEMENT_UNITS: u32 = 10;

impl Embedded {
    /// Runs statements of which some have to read before they write.
    pub(crate) async fn modify(self: &Rc<Self>, job: Job, times: Times) -> Result<Outcome, Error> {
        if job.parts.iter().any(|part| part.plan().is_conditional()) {
            let Some(step) = one_step(job).await? else { return Ok(Outcome::Void) };
            let core = self.owner(step.token);
            return lanes::call(core, move || async move {
                let engine = Embedded::local();
                let (commit, outcome) = engine.step(&step).await?;
                match commit {
                    Some(commit) => commit.await,
                    // A refusal shows what was read: nothing that a crash takes back.
                    None => engine.shard.settled().await,
                }
                .map_err(storage_error)?;
                Ok(outcome)
            })
            .await;
        }
        // A counter that is named twice counts twice: its second step has to see the first one.
        let counts = job.parts.iter().any(|part| part.plan().counts());
        let is_atomic = job.is_atomic;
        let (steps, plain) = self.steps(job, times).await?;
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

    /// The statements as steps of their partitions' cores, and the effect of those that need not
    /// read. Without conditions each statement has its own step.
    async fn steps(&self, job: Job, times: Times) -> Result<(Vec<Vec<Step>>, Vec<Vec<Mutation>>), Error> {
        let cores = self.sharding.shards as usize;
        let (mut steps, mut plain) = (vec![Vec::new(); cores], vec![Vec::new(); cores]);
        for (at, part) in job.parts.into_iter().enumerate() {
            let times = Times { list_us: times.list_us + at as i64, ..times };
            if part.plan().reads_first() {
                for (token, key) in keys(&part, &job.request).await? {
                    let request = job.request.clone();
                    steps[self.owner(token)].push(Step { token, key, parts: vec![part.clone()], request });
                    if lanes::spend(1) {
                        lanes::yield_now().await;
                    }
                }
            } else {
                for mutation in effect(part, &job.request, times).await? {
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

    /// Runs steps on the cores that own their partitions, those of one core in their order.
    async fn run_steps(&self, by_core: Vec<Vec<Step>>) -> Result<Outcome, Error> {
        let mut has_run = false;
        for (core, steps) in by_core.into_iter().enumerate().filter(|(_, steps)| !steps.is_empty()) {
            let earlier = std::mem::replace(&mut has_run, true);
            let run = move || async move {
                let engine = Embedded::local();
                let mut commits = Vec::with_capacity(steps.len());
                for (at, step) in steps.iter().enumerate() {
                    let made = engine.step(step).await;
                    commits.extend(made.map_err(|error| not_again(error, earlier || at > 0))?.0);
                }
                // The log keeps their order: the last one counts only if all before it do.
                for commit in commits {
                    commit.await.map_err(storage_error)?;
                }
                Ok::<(), Error>(())
            };
            lanes::call(core, run).await?;
        }
        Ok(Outcome::Void)
    }

    /// One step, on the core that owns the partition.
    async fn step(&self, step: &Step) -> Result<(Option<Commit>, Outcome), Error> {
        let _turn = self.turns.take(step.token).await;
        let times = self.times_of(step.parts.len());
        let now_s = step.request.now_s.unwrap_or(times.now_s);
        let read = self.read_before(step, now_s).await?;
        let def = &step.parts[0].plan().def;
        let of_row = |row: &[u8]| read.source(step, def, row, now_s);
        let mut verdict = Verdict::default();
        for part in &step.parts {
            let (plan, values) = (part.plan(), step.values(part));
            if let Some(conditions) = plan.conditions() {
                let row = plan.row(&values)?;
                verdict.judge(conditions, row.clone(), &of_row(&row), &values).await?;
            }
            if lanes::spend(STATEMENT_UNITS) {
                lanes::yield_now().await;
            }
        }
        if let Some(refused) = verdict.refusal(def, step.parts.len() > 1, of_row)? {
            return Ok((None, Outcome::Rows(refused)));
        }
        let changes = self.changes(step, &read, verdict.is_conditional(), times, now_s).await?;
        let table = TableId(def.data_id().as_u128());
        let mutation = Mutation { table, token: step.token, key: step.key.clone(), changes };
        self.keep_floor().map_err(storage_error)?;
        let commit = self.shard.apply_in_turns(vec![mutation]).await.map_err(storage_error)?;
        let outcome = match verdict.is_conditional() {
            true => Outcome::Rows(conditions::applied(def)),
            false => Outcome::Void,
        };
        Ok((Some(commit), outcome))
    }

    /// Works out the changes of a step from the rows that it has read.
    async fn changes(
        &self,
        step: &Step,
        read: &Read,
        is_conditional: bool,
        times: Times,
        now_s: u32,
    ) -> Result<Vec<Change>, Error> {
        let def = &step.parts[0].plan().def;
        let mut changes = Vec::new();
        for (at, part) in step.parts.iter().enumerate() {
            let (plan, values) = (part.plan(), step.values(part));
            let own_time = plan.is_conditional() || is_conditional || plan.counts();
            let timestamp_us = if own_time { None } else { step.request.timestamp_us };
            let request = Request { timestamp_us, now_s: Some(now_s), ..Request::EMPTY };
            let now_us = if own_time { later_than(read.newest, times.now_us)? } else { times.now_us };
            let times = Times { now_us, list_us: times.list_us + at as i64, ..times };
            let before = |row: Option<&[u8]>| {
                let source = read.source(step, def, row.unwrap_or_default(), now_s);
                plan.before(&source, row.is_none())
            };
            changes.extend(plan.changes(&values, &request, times, &step.key, &before)?);
            if lanes::spend(STATEMENT_UNITS) {
                lanes::yield_now().await;
            }
        }
        Ok(changes)
    }

    /// Runs steps, and applies mutations beside them; all or none if `is_atomic`. Every statement reads
    /// what was there before all of them, as in Cassandra.
    async fn modify_together(
        &self,
        steps: Vec<Vec<Step>>,
        mut changed: Vec<Vec<Mutation>>,
        is_atomic: bool,
    ) -> Result<Outcome, Error> {
        let engine = self.rc();
        // A task of its own: other cores keep turns for it.
        let work = async move {
            let mut held = Vec::new();
            // In the order of cores and tokens, so that no two wait for each other.
            for (core, steps) in steps.into_iter().enumerate().filter(|(_, steps)| !steps.is_empty()) {
                let bind = move || async move { Embedded::local().bind_steps(steps).await };
                let (number, mutations) = lanes::call(core, bind).await?;
                held.push(HeldTurns { core, number });
                changed[core].extend(mutations);
            }
            let spread =
                async move { Spread::of(changed.into_iter().map(by_partition).collect(), is_atomic) };
            engine.apply_spread(heavy(spread).await).await?;
            drop(held);
            Ok(Outcome::Void)
        };
        to_its_end(work).await
    }

    /// Takes the turns of all partitions of steps on this core, and works out what they change. The
    /// turns end with [`HeldTurns`] of the number.
    async fn bind_steps(&self, steps: Vec<Step>) -> Result<(u64, Vec<Mutation>), Error> {
        let tokens: BTreeSet<i64> = steps.iter().map(|step| step.token).collect();
        let mut turns = Vec::with_capacity(tokens.len());
        for token in tokens {
            turns.push(self.turns.take(token).await);
            if lanes::spend(1) {
                lanes::yield_now().await;
            }
        }
        let mut mutations = Vec::with_capacity(steps.len());
        for step in &steps {
            let times = self.times_of(step.parts.len());
            let now_s = step.request.now_s.unwrap_or(times.now_s);
            let read = self.read_before(step, now_s).await?;
            let changes = self.changes(step, &read, false, times, now_s).await?;
            let table = TableId(step.parts[0].plan().def.data_id().as_u128());
            mutations.push(Mutation { table, token: step.token, key: step.key.clone(), changes });
        }
        let number = self.next_held.replace(self.next_held.get() + 1);
        self.held_turns.borrow_mut().insert(number, turns);
        Ok((number, mutations))
    }

    /// Reads what the statements of a step look at.
    async fn read_before(&self, step: &Step, now_s: u32) -> Result<Read, Error> {
        let table = TableId(step.parts[0].plan().def.data_id().as_u128());
        let mut read = Read { rows: BTreeMap::new(), view: None, newest: i64::MIN };
        if step.parts.iter().any(|part| part.plan().reads_statics()) {
            let found = self.shard.read_statics_before(table, step.token, &step.key, now_s);
            let found = found.wait().await.map_err(storage_error)?;
            (read.view, read.newest) = (found.view, read.newest.max(found.newest));
        }
        // The timestamp of a conditional batch exceeds what its other statements meet as well.
        let is_conditional = step.parts.iter().any(|part| part.plan().is_conditional());
        for part in &step.parts {
            for row in part.plan().rows(&step.values(part), is_conditional)? {
                if lanes::spend(STATEMENT_UNITS) {
                    lanes::yield_now().await;
                }
                if read.rows.contains_key(&row) {
                    continue;
                }
                let found = self.shard.read_row_before(table, step.token, &step.key, &row, now_s);
                let found = found.wait().await.map_err(storage_error)?;
                read.newest = read.newest.max(found.newest);
                read.rows.insert(row, found.row);
            }
        }
        Ok(read)
    }
}

/// The partitions of a statement. An IN may name thousands: a heavy lane makes their keys.
async fn keys(part: &Part, request: &KeptRequest) -> Result<Vec<(i64, Bytes)>, Error> {
    if !part.plan().has_in {
        return part.plan().keys(&request.values.lent(part.places.clone()));
    }
    let (part, request) = (part.clone(), request.clone());
    let keys = async move { part.plan().keys(&request.values.lent(part.places.clone())) };
    heavy(keys).await
}

/// The effect of a statement that need not read, likewise.
async fn effect(part: Part, request: &KeptRequest, times: Times) -> Result<Vec<Mutation>, Error> {
    let bind = move |part: &Part, request: &KeptRequest| {
        let (values, mut all) = (request.values.lent(part.places.clone()), Vec::new());
        crate::write::mutations(part.plan(), &values, &request.lent(&values), times, &mut all)?;
        Ok(all)
    };
    if !part.plan().has_in {
        return bind(&part, request);
    }
    let request = request.clone();
    heavy(async move { bind(&part, &request) }).await
}

/// The error of a step after others: a statement that is run again as its table was replaced would count twice.
fn not_again(error: Error, after_others: bool) -> Error {
    match error {
        Error::Stale if after_others => Error::Server(
            "a table was truncated or dropped while the statement was running: a part of it has been applied"
                .to_owned(),
        ),
        error => error,
    }
}

/// The one step of statements with conditions. They are refused at the second partition, before the
/// others are looked at.
async fn one_step(job: Job) -> Result<Option<Step>, Error> {
    let mut found: Option<(i64, Bytes)> = None;
    let Some(table) = job.parts.first().map(|part| part.plan().def.id) else { return Ok(None) };
    let Job { parts: given, request, .. } = job;
    let mut parts = Vec::with_capacity(given.len());
    for part in given {
        if part.plan().def.id != table {
            return Err(Error::Invalid("Batch with conditions cannot span multiple tables".into()));
        }
        let keys = keys(&part, &request).await?;
        for key in &keys {
            if found.get_or_insert_with(|| key.clone()) != key {
                return Err(Error::Invalid("Batch with conditions cannot span multiple partitions".into()));
            }
        }
        // An empty IN names no partition: that statement does nothing.
        if !keys.is_empty() {
            parts.push(part);
        }
        if lanes::spend(STATEMENT_UNITS) {
            lanes::yield_now().await;
        }
    }
    Ok(found.map(|(token, key)| Step { token, key, parts, request }))
}

/// A write time above what was read: a lower one would lose to it, and the write be acknowledged and
/// gone.
fn later_than(newest: i64, now_us: i64) -> Result<i64, Error> {
    match newest.checked_add(1) {
        Some(next) => Ok(now_us.max(next)),
        None => Err(Error::Invalid(
            "expected stored timestamps below 2^63 - 1, got one that no conditional write can exceed".into(),
        )),
    }
}
