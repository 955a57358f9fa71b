//! What a statement is told that gets no more memory: why, who has it, and what to change.

use std::fmt;
use std::sync::Arc;

use crate::memory::{Ask, PAGE_BYTES};

/// Why a growth was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// The level has what its `memory_limit` allows, and may not borrow.
    Limit,
    /// There is no more.
    Full,
    /// It was borrowed, and another level needs it.
    Owed,
    /// What cannot spill may borrow only so much.
    Unspillable,
    /// Operators of the statement that can spill have a part each of what it may count on.
    Part {
        /// What the statement may count on, bytes.
        bytes: u64,
        /// How many they are.
        operators: u64,
    },
}

/// A growth that was refused. Its text is for the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The level that asked.
    pub level: Arc<str>,
    /// What it was decided by.
    pub ask: Ask,
    /// Why.
    pub why: Why,
    /// The level's `memory_limit`, in millionths.
    pub limit_ppm: Option<u32>,
    /// A level that is owed memory.
    pub owed: Option<Arc<str>>,
    /// Other levels that have some, with bytes: those with most first.
    pub holders: Vec<(Arc<str>, u64)>,
}

/// Holders that a text names.
const HOLDERS_SHOWN: usize = 3;

/// Bytes as people say them.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0 as f64;
        match self.0 {
            0..1024 => write!(f, "{} B", self.0),
            1024..0x10_0000 => write!(f, "{:.1} KiB", bytes / 1024.0),
            0x10_0000..0x4000_0000 => write!(f, "{:.1} MiB", bytes / 1_048_576.0),
            _ => write!(f, "{:.1} GiB", bytes / 1_073_741_824.0),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |pages: u64| Bytes(pages.saturating_mul(PAGE_BYTES));
        let Refusal { level, ask, .. } = self;
        write!(
            f,
            "The service level '{level}' has {} of query memory, and {} more ",
            of(ask.used),
            of(ask.more)
        )?;
        match self.why {
            Why::Limit => {
                let percent = f64::from(self.limit_ppm.unwrap_or(1_000_000)) / 10_000.0;
                write!(
                    f,
                    "would be beyond its memory_limit, {percent}% of {} or {}, with memory_overcommit = false. Raise \
                     memory_limit, allow memory_overcommit, or lower max_concurrency",
                    of(ask.total),
                    of(ask.limit)
                )
            }
            Why::Full => {
                write!(
                    f,
                    "are not there: of {} in all, {} are used or guaranteed",
                    of(ask.total),
                    of(ask.committed)
                )?;
                self.holders(f)?;
                write!(
                    f,
                    ". Give '{level}' a memory_min, lower the memory_limit of others or their memory_overcommit, or start \
                     the server with more memory"
                )
            }
            Why::Owed => {
                let owed = self.owed.as_deref().unwrap_or("another level");
                write!(
                    f,
                    "would be borrowed beyond the {} it is due, while '{owed}' needs memory",
                    of(ask.due)
                )?;
                self.holders(f)?;
                write!(f, ". Give '{level}' more shares or a memory_min, or lower max_concurrency")
            }
            Why::Unspillable => write!(
                f,
                "would be borrowed far beyond the {} it is due, for an operator that cannot spill to disk. Give '{level}' a \
                 memory_min or more shares, or lower max_concurrency",
                of(ask.due)
            ),
            Why::Part { bytes, operators } => write!(
                f,
                "for one operator would be beyond its part: the statement may count on {}, of which each of its {operators} \
                     operators that can spill may have as much. Raise the memory_limit of '{level}', give it a memory_min or \
                     more shares, or lower max_concurrency",
                Bytes(bytes)
            ),
        }
    }
}

impl Refusal {
    fn holders(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, bytes)) in self.holders.iter().take(HOLDERS_SHOWN).enumerate() {
            write!(f, "{}'{name}' has {}", if at == 0 { " (" } else { ", " }, Bytes(*bytes))?;
        }
        if self.holders.is_empty() { Ok(()) } else { f.write_str(")") }
    }
}

impl std::error::Error for Refusal {}
