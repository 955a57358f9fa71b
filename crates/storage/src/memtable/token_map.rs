//! A copy-on-write map ordered by token: a trie over the bits of the token, six at a time.
//!
//! ```text
//!   token   ┆ 6 bits ┆ 6 bits ┆ …
//!             │         └─ slot: a value with its token, or a branch for the next digit
//!             └─ branch: a bitmap of the digits that occur, and a slot for each of them.
//!                The index of a slot is the number of lower bits that are set.
//! ```
//!
//! Tokens are hashes, so a trie of n values is about log₆₄ n deep. A search reads one slot per
//! level without comparing: one or two cache misses, where a balanced tree of the same size has
//! four or five. Tokens chosen to share their first bits make it at most eleven levels deep.
//! Cloning is O(1). Writes copy shared branches, one at a time.
//!
//! After: P. Bagwell, "Ideal Hash Trees" (2001); M. Steindorfer and J. Vinju, "Optimizing
//! Hash-Array Mapped Tries" (2015).

use std::cmp::Ordering;
use std::ops::ControlFlow;

use triomphe::Arc;

use crate::model::FreeInChunks;

/// Number of bits in a digit.
const DIGIT_BITS: u32 = 6;

/// Map from tokens to values, without removal.
#[derive(Clone, Debug)]
pub(crate) struct TokenMap<V>(Branch<V>);

/// Values whose tokens share their first digits.
#[derive(Clone, Debug)]
struct Branch<V> {
    /// A bit for each next digit that occurs, the lowest for the smallest digit.
    digits: u64,
    /// One slot for each digit that occurs, in order, followed by a few empty ones.
    slots: Arc<[TrieSlot<V>]>,
}

#[derive(Clone, Debug)]
enum TrieSlot<V> {
    Empty,
    Value(i64, V),
    Branch(Branch<V>),
}

impl<V: FreeInChunks> FreeInChunks for TokenMap<V> {
    fn free_chunk(&mut self, left: &mut usize) -> bool {
        self.0.free_chunk(left)
    }
}

impl<V> Default for TokenMap<V> {
    fn default() -> TokenMap<V> {
        TokenMap(Branch { digits: 0, slots: [].into_iter().collect() })
    }
}

impl<V: Clone> TokenMap<V> {
    /// Upper bound on the average bytes of a value in the map: its slot, and its part of empty
    /// slots, branches and reference counts.
    pub(crate) const OVERHEAD: usize = 2 * size_of::<TrieSlot<V>>();

    #[inline]
    pub(crate) fn get(&self, token: i64) -> Option<&V> {
        let mut branch = &self.0;
        let mut shift = 0;
        loop {
            match &branch.slots[branch.find(digit(token, shift))?] {
                TrieSlot::Value(own, value) => return (*own == token).then_some(value),
                TrieSlot::Branch(next) => branch = next,
                TrieSlot::Empty => return None,
            }
            shift += DIGIT_BITS;
        }
    }

    /// Prefetches the last slot of a search for this token in a map of about `len` values. The
    /// levels above are mostly cached.
    #[inline]
    pub(crate) fn prefetch(&self, token: i64, len: usize) {
        let mut branch = &self.0;
        let mut shift = 0;
        for _ in 0..len.max(1).ilog2() / DIGIT_BITS {
            let Some(TrieSlot::Branch(next)) = branch.find(digit(token, shift)).map(|at| &branch.slots[at])
            else {
                return;
            };
            branch = next;
            shift += DIGIT_BITS;
        }
        if let Some(at) = branch.find(digit(token, shift)) {
            // The slot, and the position of the slots' reference count.
            lanes::prefetch(&branch.slots[at]);
            lanes::prefetch(&branch.slots[0]);
        }
    }

    /// Returns the value for modification. Copies shared branches on the path.
    #[inline]
    pub(crate) fn get_mut(&mut self, token: i64) -> Option<&mut V> {
        let mut branch = &mut self.0;
        let mut shift = 0;
        loop {
            let at = branch.find(digit(token, shift))?;
            match &mut unshared(&mut branch.slots)[at] {
                TrieSlot::Value(own, value) => return (*own == token).then_some(value),
                TrieSlot::Branch(next) => branch = next,
                TrieSlot::Empty => return None,
            }
            shift += DIGIT_BITS;
        }
    }

    /// Inserts or replaces a value.
    pub(crate) fn insert(&mut self, token: i64, value: V) {
        let mut branch = &mut self.0;
        let mut shift = 0;
        loop {
            let Some(at) = branch.find(digit(token, shift)) else {
                return branch.add(digit(token, shift), TrieSlot::Value(token, value));
            };
            shift += DIGIT_BITS;
            let slot = &mut unshared(&mut branch.slots)[at];
            if let TrieSlot::Value(own, _) = slot
                && *own != token
            {
                // Two values at one position: a branch separates them, perhaps after more branches.
                let digit = digit(*own, shift);
                let own = std::mem::replace(slot, TrieSlot::Empty);
                *slot = TrieSlot::Branch(Branch::one(digit, own));
            }
            match slot {
                TrieSlot::Branch(next) => branch = next,
                TrieSlot::Value(..) | TrieSlot::Empty => {
                    *slot = TrieSlot::Value(token, value);
                    return;
                }
            }
        }
    }

    /// Returns true if no clone of it exists. Branches may still be shared with older clones.
    pub(crate) fn is_unshared(&self) -> bool {
        self.0.slots.is_unique()
    }

    /// Calls `visitor` for the values of the tokens `first..=last`, in order, until it returns
    /// `Break`.
    pub(crate) fn visit<'a>(
        &'a self,
        first: i64,
        last: i64,
        visitor: &mut impl FnMut(i64, &'a V) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.0.visit(Some(first), Some(last), 0, visitor)
    }
}

impl<V: Clone> Branch<V> {
    /// Returns a branch with one slot in use and one free.
    fn one(digit: u32, slot: TrieSlot<V>) -> Branch<V> {
        Branch { digits: 1 << digit, slots: [slot, TrieSlot::Empty].into_iter().collect() }
    }

    /// Returns the index of a digit's slot, present or not.
    #[inline]
    fn rank(&self, digit: u32) -> usize {
        (self.digits & ((1 << digit) - 1)).count_ones() as usize
    }

    /// Returns the index of a digit's slot, if it is present.
    #[inline]
    fn find(&self, digit: u32) -> Option<usize> {
        (self.digits >> digit & 1 == 1).then(|| self.rank(digit))
    }

    /// Adds a slot for a digit that has none.
    fn add(&mut self, digit: u32, slot: TrieSlot<V>) {
        let at = self.rank(digit);
        let used = self.digits.count_ones() as usize;
        self.digits |= 1 << digit;
        if used < self.slots.len() {
            let slots = unshared(&mut self.slots);
            slots[used] = slot;
            slots[at..=used].rotate_right(1);
            return;
        }
        let mut new = Some(slot);
        let old = unshared(&mut self.slots);
        let slots = (0..capacity(used + 1)).map(|to| match to.cmp(&at) {
            Ordering::Less => std::mem::replace(&mut old[to], TrieSlot::Empty),
            Ordering::Greater if to <= used => std::mem::replace(&mut old[to - 1], TrieSlot::Empty),
            Ordering::Equal | Ordering::Greater => new.take().unwrap_or(TrieSlot::Empty),
        });
        self.slots = slots.collect();
    }

    /// `first` and `last` are `Some` only if this branch is on the path to them. Otherwise the
    /// whole branch is inside that bound.
    fn visit<'a>(
        &'a self,
        first: Option<i64>,
        last: Option<i64>,
        shift: u32,
        visitor: &mut impl FnMut(i64, &'a V) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let from = first.map_or(0, |token| digit(token, shift));
        let to = last.map_or(u64::BITS - 1, |token| digit(token, shift));
        let mut left = self.digits & (u64::MAX << from) & (u64::MAX >> (u64::BITS - 1 - to));
        while left != 0 {
            let digit = left.trailing_zeros();
            left &= left - 1;
            let first = first.filter(|_| digit == from);
            let last = last.filter(|_| digit == to);
            match &self.slots[self.rank(digit)] {
                TrieSlot::Branch(next) => next.visit(first, last, shift + DIGIT_BITS, visitor)?,
                TrieSlot::Value(token, value) => {
                    if first.is_none_or(|first| *token >= first) && last.is_none_or(|last| *token <= last) {
                        visitor(*token, value)?;
                    }
                }
                TrieSlot::Empty => {}
            }
        }
        ControlFlow::Continue(())
    }
}

impl<V: FreeInChunks> Branch<V> {
    /// Frees from the last slot to the first.
    fn free_chunk(&mut self, left: &mut usize) -> bool {
        // The last owner of shared slots frees them.
        let Some(slots) = Arc::get_mut(&mut self.slots) else { return false };
        for slot in slots.iter_mut().rev() {
            let more = match slot {
                TrieSlot::Empty => continue,
                TrieSlot::Value(_, value) => value.free_chunk(left),
                TrieSlot::Branch(branch) => branch.free_chunk(left),
            };
            if more {
                return true;
            }
            // Free at least one slot, whatever it contained, so that each call makes progress.
            *slot = TrieSlot::Empty;
            *left = left.saturating_sub(1);
            if *left == 0 {
                return true;
            }
        }
        false
    }
}

/// Returns the digit of a token after `shift` bits, in the order of signed tokens. The last digit
/// has four bits.
#[inline]
fn digit(token: i64, shift: u32) -> u32 {
    let bits = token.cast_unsigned() ^ (1 << 63);
    ((bits << shift) >> (u64::BITS - DIGIT_BITS)) as u32
}

/// Returns the number of slots to allocate for `used` ones.
fn capacity(used: usize) -> usize {
    used.next_multiple_of(if used <= 4 { 2 } else { 4 })
}

/// Returns the slots, copied if they are shared.
#[inline]
fn unshared<V: Clone>(slots: &mut Arc<[TrieSlot<V>]>) -> &mut [TrieSlot<V>] {
    if !slots.is_unique() {
        *slots = slots.iter().cloned().collect();
    }
    Arc::get_mut(slots).expect("not shared")
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::collections::BTreeMap;
    use std::rc::Rc;

    use testkit::Random;

    use super::*;

    /// Tokens that collide in all ways: random ones, neighbours, and ones with a long common
    /// prefix.
    fn token(random: u64) -> i64 {
        let shared = [0, 6, 30, 60, 64][(random % 5) as usize];
        let bits = random.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 3;
        let mask = u64::MAX.checked_shr(shared).unwrap_or(0);
        let prefix = [0, u64::MAX, 1 << 63][(random / 5 % 3) as usize];
        ((bits & mask) | (prefix & !mask)).cast_signed()
    }

    fn shown(map: &TokenMap<u64>, first: i64, last: i64) -> Vec<(i64, u64)> {
        let mut shown = Vec::new();
        let _ = map.visit(first, last, &mut |token, value| {
            shown.push((token, *value));
            ControlFlow::Continue(())
        });
        shown
    }

    #[test]
    fn map_agrees_with_a_btree_and_clones_never_change() {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let (mut map, mut model) = (TokenMap::default(), BTreeMap::new());
            let mut clones = Vec::new();
            for n in 0..3000 {
                let token = token(random.next_u64());
                match random.next_u64() % 4 {
                    0 => assert_eq!(map.get(token), model.get(&token), "seed {seed}, step {n}"),
                    1 => {
                        let own = map.get_mut(token);
                        let expected = model.get_mut(&token);
                        assert_eq!(own.is_some(), expected.is_some(), "seed {seed}, step {n}");
                        own.into_iter().chain(expected).for_each(|value| *value = n);
                    }
                    _ => {
                        map.insert(token, n);
                        model.insert(token, n);
                    }
                }
                if n % 500 == 0 {
                    clones.push((map.clone(), model.clone()));
                }
            }
            clones.push((map, model));
            for (map, model) in clones {
                let (a, b) = (token(random.next_u64()), token(random.next_u64()));
                for (first, last) in [(i64::MIN, i64::MAX), (a.min(b), a.max(b)), (a, a)] {
                    let expected: Vec<_> = model.range(first..=last).map(|(t, v)| (*t, *v)).collect();
                    assert_eq!(shown(&map, first, last), expected, "seed {seed}, {first}..={last}");
                }
            }
        }
    }

    #[test]
    fn smallest_and_largest_tokens_are_in_order() {
        let tokens = [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX];
        let mut map = TokenMap::default();
        tokens.iter().rev().zip(0..).for_each(|(token, n)| map.insert(*token, n));
        let seen: Vec<i64> = shown(&map, i64::MIN, i64::MAX).into_iter().map(|(token, _)| token).collect();
        assert_eq!(seen, tokens);
        assert_eq!(shown(&map, 0, i64::MAX - 1).len(), 3);
        assert_eq!(shown(&map, 1, 0), []);
    }

    #[test]
    fn visit_stops_at_break() {
        let mut map = TokenMap::default();
        (0..1000).for_each(|n| map.insert(n * 7, 0_u64));
        let mut seen = 0;
        let ended = map.visit(0, i64::MAX, &mut |_, _| {
            seen += 1;
            if seen == 10 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!((ended, seen), (ControlFlow::Break(()), 10));
    }

    /// Counts the live values.
    #[derive(Debug)]
    struct CountedDrop(Rc<Cell<usize>>);

    impl CountedDrop {
        fn new(count: &Rc<Cell<usize>>) -> CountedDrop {
            count.set(count.get() + 1);
            CountedDrop(count.clone())
        }
    }

    impl Clone for CountedDrop {
        fn clone(&self) -> CountedDrop {
            CountedDrop::new(&self.0)
        }
    }

    impl Drop for CountedDrop {
        fn drop(&mut self) {
            self.0.set(self.0.get() - 1);
        }
    }

    impl FreeInChunks for CountedDrop {
        fn free_chunk(&mut self, _left: &mut usize) -> bool {
            false
        }
    }

    #[test]
    fn map_is_freed_in_chunks_except_shared_branches() {
        let (count, mut random) = (Rc::default(), Random::new(7));
        let (mut map, mut clone) = (TokenMap::default(), TokenMap::default());
        for n in 0..20_000 {
            map.insert(token(random.next_u64()), CountedDrop::new(&count));
            if n == 12_000 {
                clone = map.clone();
            }
        }
        let seen = |map: &TokenMap<CountedDrop>| {
            let mut seen = 0;
            let _ = map.visit(i64::MIN, i64::MAX, &mut |_, _| {
                seen += 1;
                ControlFlow::Continue(())
            });
            seen
        };
        let (all, of_clone) = (seen(&map), seen(&clone));
        assert!(map.is_unshared() && of_clone > 5_000 && all > of_clone);
        let mut before = count.get();
        while map.free_chunk(&mut 10) {
            assert!(before - count.get() <= 10, "{} at once", before - count.get());
            before = count.get();
        }
        assert_eq!(count.get(), of_clone);
        assert_eq!(seen(&clone), of_clone);
        while clone.free_chunk(&mut 1000) {}
        assert_eq!(count.get(), 0);
    }

    #[test]
    fn values_take_at_most_the_documented_bytes() {
        fn bytes(branch: &Branch<[u64; 2]>) -> usize {
            let below = branch.slots.iter().map(|slot| match slot {
                TrieSlot::Branch(next) => bytes(next),
                _ => 0,
            });
            // The reference count precedes the slots.
            8 + size_of_val(&*branch.slots) + below.sum::<usize>()
        }
        let (mut map, mut random) = (TokenMap::default(), Random::new(1));
        for n in 1..=200_000_usize {
            let random = random.next_u64();
            map.insert(random.wrapping_mul(0x9E37_79B9_7F4A_7C15).cast_signed(), [0; 2]);
            if n >= 64 && n % 5000 == 64 {
                let each = bytes(&map.0) as f64 / n as f64;
                assert!(each <= TokenMap::<[u64; 2]>::OVERHEAD as f64, "{n} values of {each} bytes");
            }
        }
    }
}
