//! Constants that the optimizer computes. One rule may call hundreds of functions of constants, and
//! the plan is counted after it only. So their results are charged as they are made.

use std::cell::RefCell;

use datafusion::error::{DataFusionError, Result};

use crate::run::tasks;

/// Copies of a constant: the value, the plan, and a copy during a rewrite.
const COPIES: u64 = 3;

thread_local! {
    /// Constants of the optimization that this thread runs.
    static COMPUTED: RefCell<Option<Computed>> = const { RefCell::new(None) };
}

#[derive(Default)]
struct Computed {
    bytes: u64,
    /// Reason why the level refused memory.
    refusal: Option<String>,
}

/// Runs an optimization, which takes one task poll.
///
/// # Errors
/// The level refused memory for its constants. DataFusion leaves a call whose evaluation fails in
/// the plan, where it would be evaluated for whole batches of rows.
pub(crate) fn computing<T>(optimize: impl FnOnce() -> Result<T>) -> Result<T> {
    let outer = COMPUTED.replace(Some(Computed::default()));
    let result = optimize();
    let computed = COMPUTED.replace(outer);
    match computed.and_then(|computed| computed.refusal) {
        Some(refusal) => Err(DataFusionError::ResourcesExhausted(refusal)),
        None => result,
    }
}

/// Charges a constant of `bytes`, if a plan is being optimized.
///
/// # Errors
/// The level refuses it, or has refused an earlier one.
pub(crate) fn computed(bytes: u64) -> Result<()> {
    COMPUTED.with_borrow_mut(|computed| {
        let Some(Computed { bytes: sum, refusal }) = computed else { return Ok(()) };
        *sum = sum.saturating_add(bytes);
        if refusal.is_none() {
            *refusal = tasks::charge(sum.saturating_mul(COPIES)).err();
        }
        refusal.clone().map_or(Ok(()), |refusal| Err(DataFusionError::ResourcesExhausted(refusal)))
    })
}
