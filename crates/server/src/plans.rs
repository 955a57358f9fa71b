//! The statements one core keeps ready: prepared ones by id, and recent ones that came as text. Both are bounded; what
//! was not used since the last look goes first ("clock"), so that a hit costs one store and no reordering.

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

/// A bounded map that lets go of what was not used lately.
struct Clock<K> {
    map: FxHashMap<K, Rc<Statement>>,
    hand: VecDeque<K>,
    max: usize,
}

impl<K: Copy + Eq + Hash> Clock<K> {
    fn new(max: usize) -> Clock<K> {
        Clock { map: FxHashMap::default(), hand: VecDeque::new(), max: max.max(1) }
    }

    fn get(&self, key: &K) -> Option<Rc<Statement>> {
        let found = self.map.get(key)?;
        found.used.set(true);
        Some(found.clone())
    }

    /// Puts a statement in, in place of one of the same key; how many had to go.
    fn put(&mut self, key: K, statement: Rc<Statement>) -> u64 {
        if self.map.insert(key, statement).is_some() {
            return 0;
        }
        self.hand.push_back(key);
        let mut gone = 0;
        while self.map.len() > self.max {
            let oldest = self.hand.pop_front().expect("every key is under the hand");
            let used = self.map.get(&oldest).is_some_and(|s| s.used.replace(false));
            if used {
                self.hand.push_back(oldest);
            } else {
                self.map.remove(&oldest);
                gone += 1;
            }
        }
        gone
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
    pub(crate) fn new(prepared_max: usize, texts_max: usize, counters: Arc<Counters>) -> Plans {
        Plans {
            prepared: RefCell::new(Clock::new(prepared_max)),
            texts: RefCell::new(Clock::new(texts_max)),
            hasher: RandomState::new(),
            counters,
        }
    }

    /// The prepared statement of that id.
    pub(crate) fn prepared(&self, id: &[u8]) -> Option<Rc<Statement>> {
        self.prepared.borrow().get(id.try_into().ok()?)
    }

    /// Keeps a prepared statement.
    pub(crate) fn keep_prepared(&self, statement: Rc<Statement>) {
        let mut prepared = self.prepared.borrow_mut();
        let gone = prepared.put(statement.id, statement);
        self.counters.prepared.store(prepared.map.len() as u64, Relaxed);
        crate::counters::add(&self.counters.prepared_evicted, gone);
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
    pub(crate) fn keep_text(&self, statement: Rc<Statement>) {
        if statement.text.len() <= TEXT_BYTES_MAX {
            let key = self.key(statement.keyspace.as_deref(), &statement.text);
            self.texts.borrow_mut().put(key, statement);
        }
    }

    fn key(&self, keyspace: Option<&str>, text: &str) -> u64 {
        self.hasher.hash_one((keyspace, text))
    }
}
