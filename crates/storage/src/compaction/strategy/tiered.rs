//! Choosing by size.

/// Runs below this size cost the same to read: they are one tier.
const SMALL_BYTES: u64 = 64 << 10;
/// With levels, a run is at least so many times as large as all smaller ones.
const LEVEL_FACTOR: u64 = 10;

fn by_size(bytes: &[u64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..bytes.len()).collect();
    order.sort_by_key(|at| bytes[*at]);
    order
}

/// The first tier that is full, the smallest first, because it is the cheapest way to have fewer runs.
///
/// 1. Sort by size. 2. A tier is a sequence of which none is larger than twice the smallest. 3. The first of at
///    least `threshold` is merged, all of it.
pub(crate) fn similar(bytes: &[u64], threshold: usize) -> Option<Vec<usize>> {
    let order = by_size(bytes);
    (0..order.len()).find_map(|start| {
        let limit = bytes[order[start]].max(SMALL_BYTES).saturating_mul(2);
        let len = order[start..].iter().take_while(|at| bytes[**at] <= limit).count();
        (len >= threshold).then(|| order[start..start + len].to_vec())
    })
}

/// Everything, once all runs together are more than `goal` per mille of the largest: what the others hold is, at worst, all dead.
pub(crate) fn amplified(bytes: &[u64], goal: u32) -> Option<Vec<usize>> {
    let total: u128 = bytes.iter().map(|own| u128::from(*own)).sum();
    let largest = u128::from(*bytes.iter().max()?);
    (bytes.len() > 1 && total * 1000 > largest * u128::from(goal)).then(|| (0..bytes.len()).collect())
}

/// Once a tier is full: it, all that is smaller, and whatever larger run is less than [`LEVEL_FACTOR`] times as large as those before it. What
/// stays are runs that far apart, as levels are.
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
