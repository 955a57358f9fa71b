//! Writes that depend on what is there: counters, elements of lists by index, conditions (IF …).
//!
//! Each is a step on the core that owns its partition: wait for the partition's turn, read, decide, write. Steps on one partition
//! run one after the other; where the row is in memory nothing is ever waited for. A turn ends when the write is applied, and the
//! log is waited for outside of it: the next step sees what this one wrote, and counts only if this one does, because the log
//! keeps their order. What is logged is the outcome (a counter's new total, say), so that replaying it twice does no harm.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use engine::{Error, Execution, Outcome, Request, Value};
use lanes::sync::Notify;
use storage::{Commit, Mutation, PartitionView, RowView, TableId};

use crate::conditions::{self, Verdict};
use crate::show::Source;
use crate::write::{Times, WritePlan};
use crate::{Embedded, storage_error};

/// Whose turn it is on which partitions (by token) of this core. There are no more entries than steps under way.
#[derive(Default)]
pub(crate) struct Turns(RefCell<HashMap<i64, Rc<Notify>>>);

/// A partition's turn; it ends with this value.
struct Turn<'t> {
    turns: &'t Turns,
    token: i64,
}

impl Turns {
    async fn take(&self, token: i64) -> Turn<'_> {
        loop {
            let taken = self.0.borrow().get(&token).cloned();
            match taken {
                Some(bell) => bell.notified().await,
                None => {
                    self.0.borrow_mut().insert(token, Rc::default());
                    return Turn { turns: self, token };
                }
            }
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(bell) = self.turns.0.borrow_mut().remove(&self.token) {
            bell.notify_waiters();
        }
    }
}

/// A bound value that can travel.
#[derive(Clone, Debug)]
enum Kept {
    Null,
    Unset,
    Bytes(Vec<u8>),
}

fn keep(values: &[Value<'_>]) -> Arc<[Kept]> {
    let kept = values.iter().map(|value| match value {
        Value::Null => Kept::Null,
        Value::Unset => Kept::Unset,
        Value::Bytes(bytes) => Kept::Bytes(bytes.to_vec()),
    });
    kept.collect()
}

fn lent(kept: &[Kept]) -> Vec<Value<'_>> {
    let lent = kept.iter().map(|value| match value {
        Kept::Null => Value::Null,
        Kept::Unset => Value::Unset,
        Kept::Bytes(bytes) => Value::Bytes(bytes),
    });
    lent.collect()
}

/// One statement and its values.
#[derive(Clone, Debug)]
struct Part {
    plans: Arc<[WritePlan]>,
    at: usize,
    values: Arc<[Kept]>,
}

/// What is done to one partition in one turn.
#[derive(Clone, Debug)]
struct Step {
    token: i64,
    key: Bytes,
    parts: Vec<Part>,
    timestamp_us: Option<i64>,
    now_s: Option<u32>,
}

impl Part {
    fn plan(&self) -> &WritePlan {
        &self.plans[self.at]
    }
}

/// What a step has read of its partition.
struct Read {
    rows: BTreeMap<Vec<u8>, RowView>,
    /// Read only where static columns matter.
    view: Option<PartitionView>,
}

/// A statement with its values, as a request brings it.
pub(crate) type Given<'a> = (&'a Arc<[WritePlan]>, usize, &'a [Value<'a>]);

impl Embedded {
    /// Runs statements of which some have to read before they write.
    pub(crate) fn modify(&self, given: &[Given<'_>], request: &Request<'_>) -> Execution {
        match self.steps(given, request) {
            Ok((steps, plain)) => {
                let conditional = given.iter().any(|(plans, at, _)| plans[*at].is_conditional());
                let engine = self.rc();
                Execution::Pending(Box::pin(async move {
                    if conditional {
                        let Some(step) = steps.into_iter().next() else { return Ok(Outcome::Void) };
                        let core = engine.owner(step.token);
                        return lanes::call(core, move || async move {
                            let engine = Embedded::local();
                            let (commit, outcome) = engine.step(&step).await?;
                            wait(commit).await?;
                            Ok(outcome)
                        })
                        .await;
                    }
                    if !plain.is_empty() {
                        engine.apply_everywhere(plain).await?;
                    }
                    engine.run_steps(steps).await
                }))
            }
            Err(error) => Execution::Ready(Err(error)),
        }
    }

    /// The statements as steps, partition by partition, and the effect of those that need not read.
    fn steps(&self, given: &[Given<'_>], request: &Request<'_>) -> Result<(Vec<Step>, Vec<Mutation>), Error> {
        let conditional = given.iter().any(|(plans, at, _)| plans[*at].is_conditional());
        let now_us = self.next_us();
        let (mut steps, mut plain): (Vec<Step>, _) = (Vec::new(), Vec::new());
        for (plans, at, values) in given {
            let plan = &plans[*at];
            if !conditional && !plan.reads_first() {
                let list_us = self.next_us();
                crate::write::mutations(plan, values, request, Times { now_us, list_us }, &mut plain)?;
                continue;
            }
            let part = Part { plans: (*plans).clone(), at: *at, values: keep(values) };
            for (token, key) in plan.keys(values)? {
                let same = |step: &&mut Step| step.key == key && step.parts[0].plan().def.id == plan.def.id;
                // Without conditions each statement has its own step, and sees what the one before it wrote.
                match steps.iter_mut().filter(|_| conditional).find(same) {
                    Some(step) => step.parts.push(part.clone()),
                    None => steps.push(Step {
                        token,
                        key,
                        parts: vec![part.clone()],
                        timestamp_us: request.timestamp_us,
                        now_s: request.now_s,
                    }),
                }
            }
        }
        if conditional && steps.len() > 1 {
            let table = steps[0].parts[0].plan().def.id;
            let what = match steps.iter().all(|step| step.parts[0].plan().def.id == table) {
                true => "partitions",
                false => "tables",
            };
            return Err(Error::Invalid(format!("Batch with conditions cannot span multiple {what}")));
        }
        Ok((steps, plain))
    }

    /// Runs steps on the cores that own their partitions, those of one core in their order.
    async fn run_steps(&self, steps: Vec<Step>) -> Result<Outcome, Error> {
        let mut by_core: Vec<Vec<Step>> = vec![Vec::new(); self.sharding.shards as usize];
        for step in steps {
            by_core[self.owner(step.token)].push(step);
        }
        for (core, steps) in by_core.into_iter().enumerate().filter(|(_, steps)| !steps.is_empty()) {
            let run = move || async move {
                let engine = Embedded::local();
                let mut commits = Vec::with_capacity(steps.len());
                for step in &steps {
                    commits.extend(engine.step(step).await?.0);
                }
                for commit in commits {
                    wait(Some(commit)).await?;
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
        let times = Times { now_us: self.next_us(), list_us: self.next_us() };
        let now_s = step.now_s.unwrap_or((times.now_us / 1_000_000) as u32);
        let read = self.read_before(step, now_s).await?;
        let def = &step.parts[0].plan().def;
        let of_row = |row: &[u8]| Source {
            def,
            token: step.token,
            key: &step.key,
            row: read.rows.get(row),
            view: read.view.as_ref(),
            now_s,
        };
        let mut verdict = Verdict::default();
        for part in &step.parts {
            let (plan, values) = (part.plan(), lent(&part.values));
            if let Some(conditions) = plan.conditions() {
                let row = plan.row(&values)?;
                verdict.judge(conditions, row.clone(), &of_row(&row), &values)?;
            }
        }
        if let Some(refused) = verdict.refusal(def, step.parts.len() > 1, of_row)? {
            return Ok((None, Outcome::Rows(refused)));
        }
        let mut changes = Vec::new();
        for part in &step.parts {
            let (plan, values) = (part.plan(), lent(&part.values));
            let own_time = plan.is_conditional() || verdict.is_conditional() || plan.def.is_counter();
            let timestamp_us = if own_time { None } else { step.timestamp_us };
            let request = Request { timestamp_us, now_s: Some(now_s), ..Request::EMPTY };
            let times = Times { list_us: self.next_us(), ..times };
            let before = |row: Option<&[u8]>| plan.before(&of_row(row.unwrap_or_default()), row.is_none());
            changes.extend(plan.changes(&values, &request, times, &step.key, &before)?);
        }
        let table = TableId(def.id.as_u128());
        let mutation = Mutation { table, token: step.token, key: step.key.clone(), changes };
        let commit = self.shard.apply(vec![mutation]).map_err(storage_error)?;
        let outcome = match verdict.is_conditional() {
            true => Outcome::Rows(conditions::applied(def)),
            false => Outcome::Void,
        };
        Ok((Some(commit), outcome))
    }

    /// Reads what the statements of a step look at.
    async fn read_before(&self, step: &Step, now_s: u32) -> Result<Read, Error> {
        let table = TableId(step.parts[0].plan().def.id.as_u128());
        let mut read = Read { rows: BTreeMap::new(), view: None };
        if step.parts.iter().any(|part| part.plan().reads_statics()) {
            let found = self.shard.read_partition(table, step.token, &step.key, now_s);
            read.view = found.wait().await.map_err(storage_error)?;
        }
        for part in &step.parts {
            for row in part.plan().rows(&lent(&part.values))? {
                if read.rows.contains_key(&row) {
                    continue;
                }
                let found =
                    self.shard.read_row(table, step.token, &step.key, &row, storage::Pick::ALL, now_s);
                if let Some(found) = found.wait().await.map_err(storage_error)? {
                    read.rows.insert(row, found);
                }
            }
        }
        Ok(read)
    }
}

async fn wait(commit: Option<Commit>) -> Result<(), Error> {
    match commit {
        Some(commit) => commit.await.map_err(storage_error),
        None => Ok(()),
    }
}
