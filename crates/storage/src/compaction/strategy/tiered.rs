//! Choice by size.

/// Runs below this size cost the same to read: they are one tier.
const SMALL_BYTES: u64 = 64 << 10;
/// Factor between a level and the sum of all smaller runs.
const LEVEL_FACTOR: u64 = 10;

fn by_size(bytes: &[u64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..bytes.len()).collect();
    order.sort_by_key(|at| bytes[*at]);
    order
}

/// Returns the first full tier, starting with the smallest runs, which are the cheapest to reduce.
///
/// 1. Sort the runs by size.
/// 2. A tier is a sequence of runs of at most twice the size of its smallest.
/// 3. Return the first tier of at least `threshold` runs.
pub(crate) fn similar(bytes: &[u64], threshold: usize) -> Option<Vec<usize>> {
    let order = by_size(bytes);
    (0..order.len()).find_map(|start| {
        let limit = bytes[order[start]].max(SMALL_BYTES).saturating_mul(2);
        let len = order[start..].iter().take_while(|at| bytes[**at] <= limit).count();
        (len >= threshold).then(|| order[start..start + len].to_vec())
    })
}

/// Returns all runs, once their total exceeds `goal` per mille of the largest. In the worst case,
/// all data of the others is dead.
pub(crate) fn amplified(bytes: &[u64], goal: u32) -> Option<Vec<usize>> {
    let total: u128 = bytes.iter().map(|own| u128::from(*own)).sum();
    let largest = u128::from(*bytes.iter().max()?);
    (bytes.len() > 1 && total * 1000 > largest * u128::from(goal)).then(|| (0..bytes.len()).collect())
}

/// Returns a full tier, all smaller runs, and every larger run that is less than [`LEVEL_FACTOR`]
/// times as large as the sum of the runs before it. The remaining runs differ by that factor, like
/// levels.
pub(crate) fn leveled(bytes: &[u64], threshold: usize) -> Option<Vec<usize>> {
    let full = similar(bytes, threshold)?;
    let largest = full.iter().map(|at| bytes[*at]).max()?;
    let mut sum = 0_u64;
    let grows = |at: &usize| {
        let joins = bytes[*at] <= largest || bytes[*at] < sum.saturating_mul(LEVEL_FACTOR);
        sum = sum.saturating_add(bytes[*at]);
        joins
    };
    Some(by_size(bytes).into_iter().take_while(grows).collect())
}
