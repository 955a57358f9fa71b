//! Error of a statement that gets no more memory: the reason, the users of memory, and the remedy.

use std::fmt;
use std::sync::Arc;

use units::{Rounded, percent_text};

use crate::memory::{MemoryRequest, PAGE_BYTES};

/// Reason of a refusal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RefusalReason {
    /// The level is at its `memory_limit` and may not borrow.
    Limit,
    /// No memory is free.
    Full,
    /// The growth would borrow memory that a lagging level needs.
    Lag,
    /// The growth exceeds the bound on borrowing by operators without spilling.
    Unspillable,
    /// The operator exceeds its part of the statement's memory.
    Part {
        /// Memory of the statement, bytes.
        bytes: u64,
        /// Number of spillable operators.
        operators: u64,
    },
}

/// A refused growth. Its text is for the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The requesting level.
    pub level: Arc<str>,
    /// Inputs of the decision.
    pub request: MemoryRequest,
    /// Reason.
    pub why: RefusalReason,
    /// The `memory_limit` of the level, in millionths.
    pub limit_ppm: Option<u32>,
    /// A level that lags.
    pub lagging: Option<Arc<str>>,
    /// Other levels with memory in use and their bytes, largest first.
    pub holders: Vec<(Arc<str>, u64)>,
}

/// Number of holders that the text names.
const HOLDERS_SHOWN: usize = 3;

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |pages: u64| Rounded(pages.saturating_mul(PAGE_BYTES));
        let Refusal { level, request, .. } = self;
        write!(
            f,
            "The service level '{level}' has {} of query memory, and {} more ",
            of(request.used),
            of(request.more)
        )?;
        match self.why {
            RefusalReason::Limit => {
                let percent = percent_text(self.limit_ppm.unwrap_or(1_000_000));
                write!(
                    f,
                    "would be beyond its memory_limit, {percent} of {} or {}, with memory_overcommit = false. Raise \
                     memory_limit, allow memory_overcommit, or lower max_concurrency",
                    of(request.total),
                    of(request.limit)
                )
            }
            RefusalReason::Full => {
                write!(
                    f,
                    "are not free: of {} in total, {} are used or guaranteed",
                    of(request.total),
                    of(request.committed)
                )?;
                self.holders(f)?;
                write!(
                    f,
                    ". Give '{level}' a memory_min, lower the memory_limit of others or their \
                     memory_overcommit, or start the server with more memory"
                )
            }
            RefusalReason::Lag => {
                let lagging = self.lagging.as_deref().unwrap_or("another level");
                write!(
                    f,
                    "would be borrowed beyond its entitlement of {}, while '{lagging}' needs memory",
                    of(request.entitlement)
                )?;
                self.holders(f)?;
                write!(f, ". Give '{level}' more shares or a memory_min, or lower max_concurrency")
            }
            RefusalReason::Unspillable => write!(
                f,
                "would be borrowed far beyond its entitlement of {}, for an operator that cannot spill to \
                 disk. Give '{level}' a memory_min or more shares, or lower max_concurrency",
                of(request.entitlement)
            ),
            RefusalReason::Part { bytes, operators } => write!(
                f,
                "for one operator would exceed its part: the statement is entitled to {}, shared equally by its \
                 {operators} spillable operators. Raise the memory_limit of '{level}', give it a memory_min or \
                 more shares, or lower max_concurrency",
                Rounded(bytes)
            ),
        }
    }
}

impl Refusal {
    fn holders(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, bytes)) in self.holders.iter().take(HOLDERS_SHOWN).enumerate() {
            write!(f, "{}'{name}' has {}", if at == 0 { " (" } else { ", " }, Rounded(*bytes))?;
        }
        if self.holders.is_empty() { Ok(()) } else { f.write_str(")") }
    }
}

impl std::error::Error for Refusal {}
