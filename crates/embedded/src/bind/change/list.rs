//! Elements of a list between the operations of one statement. As in Cassandra, an operation on an
//! index or on values sees the effects of the operations before it.

use std::borrow::Cow;

use super::Seen;
use crate::bind::elements::Element;

/// Live elements of a list, in the order of their paths.
#[derive(Default)]
pub(super) struct LiveList<'v> {
    elements: Vec<Live<'v>>,
}

/// Live element.
pub(super) struct Live<'v> {
    pub(super) path: Cow<'v, [u8]>,
    pub(super) value: Cow<'v, [u8]>,
    timestamp: i64,
}

impl<'v> LiveList<'v> {
    /// Returns the elements that were read before the write.
    pub(super) fn of(before: &[Seen<'v>]) -> LiveList<'v> {
        let live = |seen: &Seen<'v>| Live {
            path: Cow::Borrowed(seen.path),
            value: Cow::Borrowed(seen.value),
            timestamp: seen.timestamp,
        };
        LiveList { elements: before.iter().map(live).collect() }
    }

    pub(super) fn elements(&self) -> &[Live<'v>] {
        &self.elements
    }

    /// Applies a deletion of the elements with this timestamp or an earlier one.
    pub(super) fn delete(&mut self, dead_at: i64) {
        self.elements.retain(|live| live.timestamp > dead_at);
    }

    /// Applies changes of one operation at `timestamp`, each of which has a path of its own. Cells
    /// of one timestamp merge as in storage: a deletion wins, then the greater value.
    ///
    /// One change takes a binary search, and a deletion moves the elements behind it. Several take
    /// one pass over the list.
    pub(super) fn apply(&mut self, changes: &[Element], timestamp: i64) {
        if let [(path, value)] = changes {
            let place = self.elements.binary_search_by(|live| live.path.as_ref().cmp(path));
            match (place, value) {
                (Ok(at), _) if self.elements[at].timestamp > timestamp => {}
                (Ok(at), None) => drop(self.elements.remove(at)),
                (Ok(at), Some(value)) => self.elements[at].set(value, timestamp),
                (Err(_), None) => {}
                (Err(at), Some(value)) => self.elements.insert(at, Live::new(path, value, timestamp)),
            }
            return;
        }
        let mut changes: Vec<&Element> = changes.iter().collect();
        changes.sort_by(|(path, _), (other, _)| path.cmp(other));
        let mut changes = changes.into_iter().peekable();
        let mut merged = Vec::with_capacity(self.elements.len() + changes.len());
        for mut live in self.elements.drain(..) {
            while let Some((path, value)) = changes.next_if(|(path, _)| path[..] < *live.path) {
                merged.extend(value.as_ref().map(|value| Live::new(path, value, timestamp)));
            }
            match changes.next_if(|(path, _)| path[..] == *live.path) {
                Some((_, None)) if live.timestamp <= timestamp => continue,
                Some((_, Some(value))) if live.timestamp <= timestamp => live.set(value, timestamp),
                _ => {}
            }
            merged.push(live);
        }
        merged.extend(changes.filter_map(|(path, value)| Some(Live::new(path, value.as_ref()?, timestamp))));
        self.elements = merged;
    }
}

impl Live<'_> {
    fn new(path: &[u8], value: &[u8], timestamp: i64) -> Self {
        Live { path: Cow::Owned(path.to_vec()), value: Cow::Owned(value.to_vec()), timestamp }
    }

    fn set(&mut self, value: &[u8], timestamp: i64) {
        if self.timestamp < timestamp || *self.value < *value {
            (self.value, self.timestamp) = (Cow::Owned(value.to_vec()), timestamp);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Applies changes to elements with the paths 2, 4 and 6, whose values are 20, 40 and 60, at
    /// timestamp 5.
    fn check(changes: &[(u8, Option<u8>)], timestamp: i64, expected: &[(u8, u8)]) {
        let stored = [([2], [20]), ([4], [40]), ([6], [60])];
        let before: Vec<Seen<'_>> =
            stored.iter().map(|(path, value)| Seen { path, value, timestamp: 5 }).collect();
        let changes: Vec<Element> =
            changes.iter().map(|(path, value)| (vec![*path], value.map(|value| vec![value]))).collect();
        let mut at_once = LiveList::of(&before);
        at_once.apply(&changes, timestamp);
        let mut one_by_one = LiveList::of(&before);
        changes.iter().for_each(|change| one_by_one.apply(std::slice::from_ref(change), timestamp));
        for list in [at_once, one_by_one] {
            let found: Vec<_> = list.elements().iter().map(|live| (live.path[0], live.value[0])).collect();
            assert_eq!(found, expected, "{changes:?}");
        }
    }

    #[test]
    fn changes_merge_with_the_elements_of_a_list() {
        check(&[], 9, &[(2, 20), (4, 40), (6, 60)]);
        check(&[(4, None), (1, Some(10)), (9, Some(90))], 9, &[(1, 10), (2, 20), (6, 60), (9, 90)]);
        check(&[(2, Some(1)), (6, None)], 9, &[(2, 1), (4, 40)]);
        check(&[(3, None), (5, None)], 9, &[(2, 20), (4, 40), (6, 60)]);
        // At one timestamp, the greater value wins.
        check(&[(2, Some(1)), (4, Some(41)), (6, None)], 5, &[(2, 20), (4, 41)]);
        check(&[(2, Some(1)), (4, None)], 4, &[(2, 20), (4, 40), (6, 60)]);
    }

    #[test]
    fn deletion_of_a_list_spares_later_elements() {
        let mut list = LiveList::of(&[Seen { path: &[1], value: &[1], timestamp: 5 }]);
        list.apply(&[(vec![2], Some(vec![2]))], 6);
        list.delete(5);
        assert_eq!(list.elements().len(), 1);
        list.delete(6);
        assert!(list.elements().is_empty());
    }
}
