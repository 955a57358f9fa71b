//! Order of phases that are compared with each other.

/// Returns two settings in the order A B B A, so that a drift of the machine favours neither.
pub(crate) fn pairs<T: Clone>(a: &T, b: &T, count: usize) -> Vec<T> {
    let pair = |number: usize| match number.is_multiple_of(2) {
        true => [a.clone(), b.clone()],
        false => [b.clone(), a.clone()],
    };
    (0..count).flat_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_alternate_in_pairs() {
        assert_eq!(pairs(&'a', &'b', 3), ['a', 'b', 'b', 'a', 'a', 'b']);
        assert!(pairs(&1, &2, 0).is_empty());
    }
}
