//! Enforcement of a level's `query_limit` for CQL reads: their running time, and the size of their
//! pages.

use std::time::Duration;

use engine::{Error, Outcome};
use workload::{Action, Exceeded, Watch};

use crate::logging::Level;
use crate::pending::PendingResult;
use crate::session::Session;

/// Waits for a read for at most `limit` and enforces the level's limits. The read's own task
/// must await it, because that task may have to continue in another level.
pub(crate) async fn watched(
    session: &Session,
    mut watch: Watch,
    limit: Duration,
    later: &mut PendingResult,
) -> Result<Result<Outcome, Error>, lanes::time::Elapsed> {
    let began_ns = lanes::time::monotonic_ns();
    let mut left = limit;
    let mut early = None;
    if let Some(elapsed) = watch.elapsed_max().filter(|elapsed| *elapsed < limit) {
        match lanes::time::timeout(elapsed, &mut *later).await {
            Ok(result) => early = Some(result),
            Err(_) => {
                left = limit.saturating_sub(elapsed);
                if let Some(exceeded) = watch.check(elapsed, 0, 0)
                    && let Err(error) = act(session, exceeded).await
                {
                    return Ok(Err(error));
                }
            }
        }
    }
    let result = match early {
        Some(result) => result,
        None => lanes::time::timeout(left, later).await?,
    };
    let Ok(Outcome::Rows(rows)) = &result else { return Ok(result) };
    let elapsed = Duration::from_nanos(lanes::time::monotonic_ns().saturating_sub(began_ns));
    if let Some(exceeded) = watch.check(elapsed, rows.count.into(), rows.cells.len() as u64)
        && let Err(error) = act(session, exceeded).await
    {
        return Ok(Err(error));
    }
    Ok(result)
}

/// Applies the configured action to a statement that exceeded a limit.
async fn act(session: &Session, exceeded: Exceeded) -> Result<(), Error> {
    let role = session.login().map_or_else(String::new, |login| login.role().to_string());
    let logger = &session.core.shared.logger;
    let action = exceeded.action.to_string();
    let fields: [(&str, &dyn std::fmt::Display); 4] =
        [("level", &exceeded.level), ("role", &role), ("limit", &exceeded), ("action", &action)];
    logger.log(Level::Warn, "query_limit", &fields);
    match &exceeded.action {
        Action::Cancel => Err(Error::Invalid(format!("{exceeded}. It was cancelled."))),
        Action::Log => Ok(()),
        Action::Demote(level) => {
            // A dropped level has no group to move to: the statement stays in its own.
            let entry = session.core.access.levels().catalog().get(level).cloned();
            if let Some(entry) = entry {
                lanes::switch_group(entry.level.group()).await;
            }
            Ok(())
        }
    }
}
