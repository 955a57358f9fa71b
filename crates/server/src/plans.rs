//! The statements one core keeps ready: prepared ones by id, and recent ones that came as text. Both are bounded in number and in
//! bytes. The least recently used go first ("clock"), so that a hit costs one store and no reordering.
//!
//! A role that holds more than an equal part of the bytes makes room for its own statements from its own, so that a client which
//! prepares without end evicts no statement of others.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash, RandomState};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustc_hash::FxHashMap;

use crate::counters::Counters;
use crate::statement::{Id, Statement};

/// Longest text whose plan is kept when it came unprepared, bytes: longer ones are bulk loads, never seen again.
const TEXT_BYTES_MAX: usize = 4096;

/// A kept statement.
struct Kept {
    statement: Rc<Statement>,
    /// Number of the role that it is charged to.
    role: u32,
}

/// The statements of one role.
#[derive(Default)]
struct OfRole<K> {
    /// Keys in the order in which they are checked for use.
    hand: VecDeque<K>,
    bytes: usize,
}

/// A bounded map that drops what was not used lately.
struct Clock<K> {
    map: FxHashMap<K, Kept>,
    roles: FxHashMap<u32, OfRole<K>>,
    /// Roles in the order in which they give up a statement when the whole is full.
    turn: VecDeque<u32>,
    bytes: usize,
    count_max: usize,
    bytes_max: usize,
}

impl<K: Copy + Eq + Hash> Clock<K> {
    fn new(count_max: usize, bytes_max: usize) -> Clock<K> {
        Clock {
            map: FxHashMap::default(),
            roles: FxHashMap::default(),
            turn: VecDeque::new(),
            bytes: 0,
            count_max: count_max.max(1),
            bytes_max,
        }
    }

    fn get(&self, key: &K) -> Option<Rc<Statement>> {
        let found = &self.map.get(key)?.statement;
        found.used.set(true);
        Some(found.clone())
    }

    /// Puts a statement in and returns the number of those that had to go. One in place of another of the same key is charged to
    /// the role of the other.
    fn put(&mut self, key: K, statement: Rc<Statement>, role: u32) -> u64 {
        let bytes = statement.bytes();
        let role = match self.map.get_mut(&key) {
            Some(kept) => {
                let old = std::mem::replace(&mut kept.statement, statement).bytes();
                let role = kept.role;
                self.bytes -= old;
                self.of_role(role).bytes -= old;
                role
            }
            None => {
                self.map.insert(key, Kept { statement, role });
                self.of_role(role).hand.push_back(key);
                role
            }
        };
        self.of_role(role).bytes += bytes;
        self.bytes += bytes;
        let mut gone = 0;
        while self.map.len() > self.count_max || self.bytes > self.bytes_max {
            let own = self.roles.get(&role).is_some_and(|own| own.bytes > self.bytes_max / self.roles.len());
            let from = if own { role } else { self.next_role() };
            gone += u64::from(self.evict_of(from));
        }
        gone
    }

    fn of_role(&mut self, role: u32) -> &mut OfRole<K> {
        self.roles.entry(role).or_insert_with(|| {
            self.turn.push_back(role);
            OfRole { hand: VecDeque::new(), bytes: 0 }
        })
    }

    /// The role whose turn it is to give up a statement.
    fn next_role(&mut self) -> u32 {
        let role = self.turn.pop_front().expect("a full cache has a statement of some role");
        self.turn.push_back(role);
        role
    }

    /// Evicts the statement of a role that was not used for longest, and returns whether one was found at this step.
    fn evict_of(&mut self, role: u32) -> bool {
        let Some(of_role) = self.roles.get_mut(&role) else { return false };
        let Some(oldest) = of_role.hand.pop_front() else {
            self.roles.remove(&role);
            self.turn.retain(|other| *other != role);
            return false;
        };
        let Some(kept) = self.map.get(&oldest) else { return false };
        if kept.statement.used.replace(false) {
            of_role.hand.push_back(oldest);
            return false;
        }
        let bytes = kept.statement.bytes();
        of_role.bytes -= bytes;
        self.bytes -= bytes;
        self.map.remove(&oldest);
        true
    }
}

/// The statements of one core.
pub(crate) struct Plans {
    /// Ids are halves of a SHA-256, so the quick hasher is safe.
    prepared: RefCell<Clock<Id>>,
    /// By a keyed hash of keyspace and text; two texts of one hash share the place.
    texts: RefCell<Clock<u64>>,
    hasher: RandomState,
    counters: Arc<Counters>,
}

impl Plans {
    /// Room for `prepared_max` prepared statements of `prepared_bytes_max` bytes, and for `texts_max` texts of a quarter as many bytes.
    pub(crate) fn new(
        prepared_max: usize,
        prepared_bytes_max: usize,
        texts_max: usize,
        counters: Arc<Counters>,
    ) -> Plans {
        Plans {
            prepared: RefCell::new(Clock::new(prepared_max, prepared_bytes_max)),
            texts: RefCell::new(Clock::new(texts_max, prepared_bytes_max / 4)),
            hasher: RandomState::new(),
            counters,
        }
    }

    /// The prepared statement of that id.
    pub(crate) fn prepared(&self, id: &[u8]) -> Option<Rc<Statement>> {
        self.prepared.borrow().get(id.try_into().ok()?)
    }

    /// Bytes of all kept statements.
    pub(crate) fn bytes(&self) -> usize {
        self.prepared.borrow().bytes + self.texts.borrow().bytes
    }

    /// Keeps a prepared statement for a role.
    pub(crate) fn keep_prepared(&self, statement: Rc<Statement>, role: u32) {
        let mut prepared = self.prepared.borrow_mut();
        let gone = prepared.put(statement.id, statement, role);
        self.counters.prepared.store(prepared.map.len() as u64, Relaxed);
        crate::counters::add(&self.counters.prepared_evicted, gone);
    }

    /// Keeps a prepared statement that was bound anew, if it was kept before.
    pub(crate) fn replace_prepared(&self, statement: Rc<Statement>) {
        let mut prepared = self.prepared.borrow_mut();
        if prepared.map.contains_key(&statement.id) {
            prepared.put(statement.id, statement, 0);
        }
    }

    /// The statement that text is, if it was seen lately and still fits the schema.
    pub(crate) fn text(&self, keyspace: Option<&str>, text: &str) -> Option<Rc<Statement>> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let found = self.texts.borrow().get(&self.key(keyspace, text))?;
        let same = &*found.text == text && found.keyspace.as_deref() == keyspace;
        (same && found.is_current()).then_some(found)
    }

    /// Keeps a statement that came as text.
    pub(crate) fn keep_text(&self, statement: Rc<Statement>, role: u32) {
        if statement.text.len() <= TEXT_BYTES_MAX {
            let key = self.key(statement.keyspace.as_deref(), &statement.text);
            self.texts.borrow_mut().put(key, statement, role);
        }
    }

    fn key(&self, keyspace: Option<&str>, text: &str) -> u64 {
        self.hasher.hash_one((keyspace, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(name: u8, bytes: usize) -> (Id, Rc<Statement>) {
        let statement = Statement::for_tests([name; 16], bytes);
        (statement.id, Rc::new(statement))
    }

    #[test]
    fn bytes_are_bounded_and_a_greedy_role_evicts_its_own() {
        let mut clock = Clock::new(1000, 100_000);
        let of_others: Vec<Id> = (0..4)
            .map(|name| {
                let (id, statement) = statement(name, 5_000);
                clock.put(id, statement, 1);
                id
            })
            .collect();
        for name in 10..200 {
            let (id, statement) = statement(name, 9_000);
            clock.put(id, statement, 2);
            assert!(clock.bytes <= 100_000, "{}", clock.bytes);
        }
        assert!(of_others.iter().all(|id| clock.get(id).is_some()), "the other role keeps its statements");
        assert!(clock.get(&[199; 16]).is_some() && clock.get(&[10; 16]).is_none());
        assert_eq!(clock.roles.values().map(|role| role.hand.len()).sum::<usize>(), clock.map.len());
    }

    #[test]
    fn one_statement_beyond_the_bytes_is_not_kept() {
        let mut clock = Clock::new(10, 1_000);
        let (id, statement) = statement(1, 2_000);
        clock.put(id, statement, 1);
        assert!(clock.get(&id).is_none() && clock.bytes == 0);
    }

    #[test]
    fn the_number_is_bounded_and_used_statements_stay() {
        let mut clock = Clock::new(3, usize::MAX);
        for name in 1..=3 {
            let (id, statement) = statement(name, 10);
            statement.used.set(false);
            clock.put(id, statement, u32::from(name));
        }
        assert!(clock.get(&[2; 16]).is_some(), "used now");
        let (id, newest) = statement(9, 10);
        clock.put(id, newest, 1);
        assert_eq!(clock.map.len(), 3);
        assert!(clock.map.contains_key(&[2; 16]) && clock.map.contains_key(&[9; 16]));
    }
}
