//! The plan cache, for clients that send the same text again: dashboards, and drivers that do not
//! prepare. Planning a join of a few tables takes milliseconds, as long as a short query itself.
//!
//! The key of a plan is the text, the session's options for planning ([`PlanOptions`], which
//! include the user), and the version of the table definitions. Rights are checked after the
//! lookup, each time.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::execution::session_state::SessionState;

use crate::catalog::Tables;
use crate::engine::plan::{PlanOptions, Planned};

/// Maximum number of plans. They take at most 25 MB.
const PLANS_MAX: usize = 64;
/// Maximum length of a statement whose plan is kept, bytes. Longer ones are mostly generated and
/// never repeated. The longest query of TPC-H and ClickBench has 1.4 KiB.
const TEXT_BYTES_MAX: usize = 4 << 10;

struct CachedPlan {
    text: Box<str>,
    options: PlanOptions,
    tables: Tables,
    planned: Arc<Planned>,
}

impl CachedPlan {
    fn is_of(&self, text: &str, options: &PlanOptions) -> bool {
        *self.text == *text && self.options == *options
    }
}

/// See the head of this file. Heavy lanes share a short lock here.
#[derive(Default)]
pub(crate) struct PlanCache {
    /// Most recently used last.
    entries: Mutex<Vec<CachedPlan>>,
    hits: AtomicU64,
    /// Number and size of the entries, as copies for metrics: a fast lane must not wait for the
    /// lock.
    plans: AtomicU64,
    bytes: AtomicU64,
}

/// Counters of the plan cache, which all cores share. The first core reports them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PlanCacheCounts {
    /// Statements whose plan was in the cache, since the start.
    pub(crate) hits: u64,
    /// Plans in the cache.
    pub(crate) plans: u64,
    /// Estimated size of these plans, bytes.
    pub(crate) bytes: u64,
}

/// Result of a lookup.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) planned: Option<Arc<Planned>>,
    /// State of another statement with the same options, to plan this one in.
    pub(crate) state: Option<Arc<SessionState>>,
}

impl PlanCache {
    /// Looks up the plan of a statement.
    pub(crate) fn find(&self, text: &str, options: &PlanOptions, tables: &Tables) -> Found {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |entry: &CachedPlan| entry.is_of(text, options) && entry.tables.are(tables);
        if let Some(at) = entries.iter().position(same) {
            entries[at..].rotate_left(1);
            self.hits.fetch_add(1, Relaxed);
            let planned = entries.last().map(|entry| entry.planned.clone());
            return Found { planned, state: None };
        }
        let alike = entries.iter().find(|entry| entry.options == *options);
        Found { planned: None, state: alike.map(|entry| entry.planned.state().clone()) }
    }

    /// Returns the metrics of the cache.
    pub(crate) fn counted(&self) -> PlanCacheCounts {
        let [hits, plans, bytes] = [&self.hits, &self.plans, &self.bytes].map(|count| count.load(Relaxed));
        PlanCacheCounts { hits, plans, bytes }
    }

    /// Keeps a plan. Evicts plans of outdated table definitions, a plan that another session has
    /// made for the same key, and, if the cache is still full, the least recently used one.
    pub(crate) fn keep(&self, text: &str, options: &PlanOptions, tables: Tables, planned: &Arc<Planned>) {
        if text.len() > TEXT_BYTES_MAX {
            return;
        }
        let entry =
            CachedPlan { text: text.into(), options: options.clone(), tables, planned: planned.clone() };
        let mut gone = Vec::new();
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let replaced = |other: &CachedPlan| other.is_of(text, options) || !other.tables.are(&entry.tables);
        gone.extend(entries.extract_if(.., |other| replaced(other)));
        if entries.len() == PLANS_MAX {
            gone.push(entries.remove(0));
        }
        entries.push(entry);
        self.plans.store(entries.len() as u64, Relaxed);
        self.bytes.store(entries.iter().map(|entry| entry.planned.bytes).sum(), Relaxed);
        drop(entries);
        drop(gone); // after the lock: freeing plans takes long
    }
}
