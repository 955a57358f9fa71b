//! Plan cache of one core: prepared statements by id, and recent statements that were sent as text.
//! Both are bounded in number and in bytes. Eviction uses the CLOCK algorithm, which approximates
//! LRU. A hit costs one store and no reordering.
//!
//! A role that holds more than an equal part of the bytes evicts its own statements. A client that
//! prepares without end therefore evicts no statement of others.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash, RandomState};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rustc_hash::FxHashMap;

use crate::counters::Counters;
use crate::statement::{Id, Statement};

/// Maximum length of a cached text, bytes. Longer texts are bulk loads, which are not sent again.
const TEXT_BYTES_MAX: usize = 4096;

/// A cached statement.
struct CachedStatement {
    statement: Rc<Statement>,
    /// Number of the role that the statement is charged to.
    role: u32,
}

/// Cached statements of one role.
#[derive(Default)]
struct RoleStatements<K> {
    /// Keys in the order of the CLOCK hand.
    hand: VecDeque<K>,
    bytes: usize,
}

/// A bounded map with CLOCK eviction.
struct Clock<K> {
    map: FxHashMap<K, CachedStatement>,
    roles: FxHashMap<u32, RoleStatements<K>>,
    /// Roles in the order in which they lose a statement when the cache is full.
    next_roles: VecDeque<u32>,
    bytes: usize,
    count_max: usize,
    bytes_max: usize,
}

impl<K: Copy + Eq + Hash> Clock<K> {
    fn new(count_max: usize, bytes_max: usize) -> Clock<K> {
        Clock {
            map: FxHashMap::default(),
            roles: FxHashMap::default(),
            next_roles: VecDeque::new(),
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

    /// Adds a statement and returns the number of evicted ones. A statement that replaces another
    /// of the same key is charged to the role of the first.
    fn put(&mut self, key: K, statement: Rc<Statement>, role: u32) -> u64 {
        let bytes = statement.bytes();
        let role = match self.map.get_mut(&key) {
            Some(cached) => {
                let old = std::mem::replace(&mut cached.statement, statement).bytes();
                let role = cached.role;
                self.bytes -= old;
                self.role_statements(role).bytes -= old;
                role
            }
            None => {
                self.map.insert(key, CachedStatement { statement, role });
                self.role_statements(role).hand.push_back(key);
                role
            }
        };
        self.role_statements(role).bytes += bytes;
        self.bytes += bytes;
        let mut evicted = 0;
        while self.map.len() > self.count_max || self.bytes > self.bytes_max {
            let own = self.roles.get(&role).is_some_and(|own| own.bytes > self.bytes_max / self.roles.len());
            let from = if own { role } else { self.next_role() };
            evicted += u64::from(self.evict_from(from));
        }
        evicted
    }

    fn role_statements(&mut self, role: u32) -> &mut RoleStatements<K> {
        self.roles.entry(role).or_insert_with(|| {
            self.next_roles.push_back(role);
            RoleStatements { hand: VecDeque::new(), bytes: 0 }
        })
    }

    /// Returns the next role that loses a statement, round-robin.
    fn next_role(&mut self) -> u32 {
        let role = self.next_roles.pop_front().expect("a full cache has a statement of some role");
        self.next_roles.push_back(role);
        role
    }

    /// Moves the role's CLOCK hand by one statement. Returns true if it evicted that statement.
    fn evict_from(&mut self, role: u32) -> bool {
        let Some(role_statements) = self.roles.get_mut(&role) else { return false };
        let Some(oldest) = role_statements.hand.pop_front() else {
            self.roles.remove(&role);
            self.next_roles.retain(|other| *other != role);
            return false;
        };
        let Some(cached) = self.map.get(&oldest) else { return false };
        if cached.statement.used.replace(false) {
            role_statements.hand.push_back(oldest);
            return false;
        }
        let bytes = cached.statement.bytes();
        role_statements.bytes -= bytes;
        self.bytes -= bytes;
        self.map.remove(&oldest);
        true
    }
}

/// Plan cache of one core.
pub(crate) struct Plans {
    /// Prepared statements. Ids are halves of a SHA-256, so the fast hasher is safe from chosen
    /// collisions.
    prepared: RefCell<Clock<Id>>,
    /// Statements sent as text, by a keyed hash of keyspace and text. Two texts with one hash share
    /// an entry.
    texts: RefCell<Clock<u64>>,
    hasher: RandomState,
    counters: Arc<Counters>,
}

impl Plans {
    /// Creates a cache of at most `prepared_max` prepared statements in `prepared_bytes_max` bytes,
    /// and of at most `texts_max` texts in a quarter of those bytes.
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

    /// Returns the prepared statement with that id.
    pub(crate) fn prepared(&self, id: &[u8]) -> Option<Rc<Statement>> {
        self.prepared.borrow().get(id.try_into().ok()?)
    }

    /// Returns the bytes of all cached statements.
    pub(crate) fn bytes(&self) -> usize {
        self.prepared.borrow().bytes + self.texts.borrow().bytes
    }

    /// Adds a prepared statement, charged to a role.
    pub(crate) fn add_prepared(&self, statement: Rc<Statement>, role: u32) {
        let mut prepared = self.prepared.borrow_mut();
        let evicted = prepared.put(statement.id, statement, role);
        self.counters.prepared.store(prepared.map.len() as u64, Relaxed);
        crate::counters::add(&self.counters.prepared_evicted, evicted);
    }

    /// Replaces a prepared statement by one that was bound again, if it is still cached.
    pub(crate) fn replace_prepared(&self, statement: Rc<Statement>) {
        let mut prepared = self.prepared.borrow_mut();
        if prepared.map.contains_key(&statement.id) {
            prepared.put(statement.id, statement, 0);
        }
    }

    /// Returns the statement of a text, if it is cached and still fits the schema.
    pub(crate) fn text(&self, keyspace: Option<&str>, text: &str) -> Option<Rc<Statement>> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let found = self.texts.borrow().get(&self.key(keyspace, text))?;
        let same = &*found.text == text && found.keyspace.as_deref() == keyspace;
        (same && found.is_current()).then_some(found)
    }

    /// Adds a statement that was sent as text.
    pub(crate) fn add_text(&self, statement: Rc<Statement>, role: u32) {
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
    fn greedy_role_evicts_its_own_statements() {
        let mut clock = Clock::new(1000, 100_000);
        let other_ids: Vec<Id> = (0..4)
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
        assert!(other_ids.iter().all(|id| clock.get(id).is_some()), "the other role keeps its statements");
        assert!(clock.get(&[199; 16]).is_some() && clock.get(&[10; 16]).is_none());
        assert_eq!(clock.roles.values().map(|role| role.hand.len()).sum::<usize>(), clock.map.len());
    }

    #[test]
    fn statement_over_the_byte_limit_is_not_cached() {
        let mut clock = Clock::new(10, 1_000);
        let (id, statement) = statement(1, 2_000);
        clock.put(id, statement, 1);
        assert!(clock.get(&id).is_none() && clock.bytes == 0);
    }

    #[test]
    fn used_statements_stay_at_the_count_limit() {
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
