//! Enforcement of a level's `query_limit` for CQL reads: their running time, and the rows that they
//! read, over all pages. Of a read by its full key, the answer counts.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use engine::{Error, StatementOutcome};
use workload::{Action, Exceeded, LevelEntry, StatementProgress, Watch};

use crate::logging::{FieldValue, Level};
use crate::pending::PendingResult;
use crate::request::CqlRequest;
use crate::session::Session;

/// Interval of checks of the rows that a statement has read, and for the overload of the server.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// Waits for a read for at most its time limit and enforces the level's limits. The read's own task
/// must await it, because that task may have to continue in another level. `key` is that of the
/// task.
pub(crate) async fn watched(
    session: &Session,
    mut watch: Watch,
    request: &mut CqlRequest,
    key: usize,
    later: &mut PendingResult,
) -> Result<Result<StatementOutcome, Error>, lanes::time::Elapsed> {
    let limit = request.limit;
    let began_ns = lanes::time::monotonic_ns();
    let elapsed = || Duration::from_nanos(lanes::time::monotonic_ns().saturating_sub(began_ns));
    let result = loop {
        let left = limit.saturating_sub(elapsed());
        // Until its time limit, the limit of its level, or the next check for overload.
        let level_left = watch.elapsed_max().map(|longest| longest.saturating_sub(elapsed()));
        let check = (watch.heeds_overload() || watch.limits_reads()).then_some(CHECK_EVERY);
        let next = [Some(left), level_left, check].into_iter().flatten().min().unwrap_or(left);
        if watch.is_suspended() && next < left {
            lanes::time::sleep(next).await;
        } else {
            match lanes::time::timeout(next, &mut *later).await {
                Ok(result) => break result,
                Err(late) if next >= left => return Err(late),
                Err(_) => {}
            }
        }
        let (rows, bytes) = later.reads().map_or((0, 0), |reads| (reads.rows(), reads.bytes()));
        let progress = StatementProgress { elapsed: elapsed(), rows, bytes, memory: 0 };
        if let Some(exceeded) = watch.check(progress) {
            if let Err(error) = act(session, &exceeded) {
                return Ok(Err(error));
            }
            if let Action::Demote(level) = &exceeded.action {
                demote(session, &mut watch, request, key, level).await;
            }
        }
    };
    let Ok(StatementOutcome::Rows(rows)) = &result else { return Ok(result) };
    let (rows, bytes) = match later.reads() {
        Some(reads) => (reads.rows(), reads.bytes()),
        None => (rows.count.into(), rows.cells.len() as u64),
    };
    if let Some(exceeded) = watch.check(StatementProgress { elapsed: elapsed(), rows, bytes, memory: 0 })
        && let Err(error) = act(session, &exceeded)
    {
        return Ok(Err(error));
    }
    Ok(result)
}

/// Logs the configured action for a statement that exceeded a limit. The error of a statement that
/// it cancels.
fn act(session: &Session, exceeded: &Exceeded) -> Result<(), Error> {
    let role = session.login().map_or_else(String::new, |login| login.role().to_string());
    let logger = &session.core.shared.logger;
    let fields = [
        ("level", FieldValue::text(&exceeded.level)),
        ("role", role.into()),
        ("limit", FieldValue::text(exceeded)),
        ("action", FieldValue::text(&exceeded.action)),
    ];
    logger.log(Level::Warn, "query_limit", &fields);
    match &exceeded.action {
        Action::Cancel => Err(Error::Invalid(format!("{exceeded}. It was cancelled."))),
        // The watch knows that it is suspended.
        Action::Log | Action::Suspend | Action::Demote(_) => Ok(()),
    }
}

/// Moves a statement to another level with everything that counts it: its watch, permit and slot.
/// It keeps its time limit.
async fn demote(session: &Session, watch: &mut Watch, request: &mut CqlRequest, key: usize, level: &str) {
    let is_other = |entry: &Arc<LevelEntry>| !Arc::ptr_eq(&entry.level, &request.effective.level);
    // A dropped level has no group to move to: the statement stays in its own.
    let Some(entry) =
        session.core.access.levels().catalog().get(level).filter(|entry| is_other(entry)).cloned()
    else {
        return;
    };
    watch.move_to(&entry);
    let effective = Rc::new(request.effective.moved_to(&entry));
    request.admitted.iter_mut().for_each(|admitted| admitted.move_to(&effective));
    let takes_slot = effective.spec.slots.max_concurrency.is_some();
    request.slot = takes_slot.then(|| workload::enter_running(&effective));
    session.requests.tasks.borrow_mut().move_to(key, &effective);
    request.effective = effective.clone();
    lanes::switch_group(effective.group()).await;
}
