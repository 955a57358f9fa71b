//! Planned statements, kept for those who send the same text again: a dashboard, a driver that does not prepare. To plan a join of some tables
//! takes a few milliseconds, as long as a short query itself.
//!
//! A plan holds for a text, for what the session says of how it is to be read ([`PlanOptions`], the user among it), and for tables as they are
//! defined then. Rights are looked at afterwards, each time.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::execution::session_state::SessionState;

use crate::catalog::Tables;
use crate::counts::Plans;
use crate::plan::{PlanOptions, Planned};

/// Plans kept: 25 MB of them at most.
const PLANS_MAX: usize = 64;
/// Longer statements are not kept, bytes: mostly programs write a new one each time. The longest query of TPC-H and ClickBench has 1.4 KiB.
const TEXT_MAX: usize = 4 << 10;

struct Entry {
    text: Box<str>,
    options: PlanOptions,
    tables: Tables,
    planned: Arc<Planned>,
}

impl Entry {
    fn is_of(&self, text: &str, options: &PlanOptions) -> bool {
        *self.text == *text && self.options == *options
    }
}

/// See the head of this file. Heavy lanes share a short lock here.
#[derive(Default)]
pub(crate) struct PlanCache {
    /// Most recently used last.
    entries: Mutex<Vec<Entry>>,
    found: AtomicU64,
    /// How many entries there are, and what they take, for those who count them on a fast lane, where nobody is to wait for the lock.
    kept: AtomicU64,
    bytes: AtomicU64,
}

/// What of a statement is there already.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) planned: Option<Arc<Planned>>,
    /// What statements of sessions that say the same are planned in.
    pub(crate) state: Option<Arc<SessionState>>,
}

impl PlanCache {
    /// The plan of a statement, if it is kept.
    pub(crate) fn find(&self, text: &str, options: &PlanOptions, tables: &Tables) -> Found {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |entry: &Entry| entry.is_of(text, options) && entry.tables.are(tables);
        if let Some(at) = entries.iter().position(same) {
            entries[at..].rotate_left(1);
            self.found.fetch_add(1, Relaxed);
            let planned = entries.last().map(|entry| entry.planned.clone());
            return Found { planned, state: None };
        }
        let alike = entries.iter().find(|entry| entry.options == *options);
        Found { planned: None, state: alike.map(|entry| entry.planned.state().clone()) }
    }

    /// What is counted of them.
    pub(crate) fn counted(&self) -> Plans {
        let [found, kept, bytes] = [&self.found, &self.kept, &self.bytes].map(|count| count.load(Relaxed));
        Plans { found, kept, bytes }
    }

    /// Keeps a plan, in place of the one that was not used for longest, of those for tables as they were once, and of one that another session
    /// has made of the same meanwhile.
    pub(crate) fn keep(&self, text: &str, options: &PlanOptions, tables: Tables, planned: &Arc<Planned>) {
        if text.len() > TEXT_MAX {
            return;
        }
        let entry = Entry { text: text.into(), options: options.clone(), tables, planned: planned.clone() };
        let mut gone = Vec::new();
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let replaced = |other: &Entry| other.is_of(text, options) || !other.tables.are(&entry.tables);
        gone.extend(entries.extract_if(.., |other| replaced(other)));
        if entries.len() == PLANS_MAX {
            gone.push(entries.remove(0));
        }
        entries.push(entry);
        self.kept.store(entries.len() as u64, Relaxed);
        self.bytes.store(entries.iter().map(|entry| entry.planned.bytes).sum(), Relaxed);
        drop(entries);
        drop(gone); // what is much to free, without the lock
    }
}
