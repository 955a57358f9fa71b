//! Query memory: what statements of the levels compute with (sorts, joins, aggregations). It is counted here and decided on with
//! numbers; nothing is allocated. What a level may have:
//!
//! ```text
//!   0 ─────────── memory_min ─────────── due ─────────── memory_limit ─────────── all of it
//!   always granted │  while any is left   │  borrowed: while nobody is owed,        │ the same, with
//!                  │                      │  and a 16th stays free for owners       │ memory_overcommit
//! ```
//!
//! 1. What is not used of a level's `memory_min` is kept for it: the sum over all levels of the larger of what is used and what is
//!    guaranteed never exceeds the total, so a growth below `memory_min` is always granted.
//! 2. *Due* to a level is its part of the total by shares, among the levels that use memory now, but no less than its
//!    `memory_min` and no more than its `memory_limit`. Alone, a level is due all that its limit allows.
//! 3. A level that finds memory full below what it is due is *owed*. From then on whoever has more than its due is refused at its
//!    next growth, and so made to spill, until the owed level has been granted something or its statements are over.
//! 4. An operator that cannot spill may borrow a 16th of the total at most.
//!
//! Counts are in pages of a KiB, in two words: a level's `memory_min` and use, changed together in one step; and the sum of point 1.
//! There are no locks. Room is taken in the sum first, and given back if the level's word has changed meanwhile, so that the sum is
//! never too small.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};

use arc_swap::ArcSwap;

use crate::refusal::{Refusal, Why};

/// Memory is counted in pieces of so many bytes.
pub const PAGE_BYTES: u64 = 1024;
/// Of all query memory, one part in so many is not lent, and is the most that is lent to what cannot spill.
const LENT_PART: u64 = 16;

/// What a level's options say of its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryLimits {
    /// Guaranteed, in millionths of query memory.
    pub min_ppm: u32,
    /// The most it may use, in millionths of query memory.
    pub limit_ppm: Option<u32>,
    /// Whether it may use idle memory beyond `limit_ppm`.
    pub overcommit: bool,
}

impl MemoryLimits {
    /// As they are where no option says anything.
    pub const NONE: MemoryLimits = MemoryLimits { min_ppm: 0, limit_ppm: None, overcommit: true };
}

/// A level that asks for more, in numbers. Memory is in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    /// How much more.
    pub more: u64,
    /// What it has.
    pub used: u64,
    /// What it is guaranteed.
    pub min: u64,
    /// The most it may have, without borrowing.
    pub limit: u64,
    /// Whether it may borrow beyond `limit`.
    pub overcommit: bool,
    /// What it is due.
    pub due: u64,
    /// Over all levels, the larger of used and guaranteed.
    pub committed: u64,
    /// All there is.
    pub total: u64,
    /// Another level is owed.
    pub others_owed: bool,
    /// Whether it can do with less.
    pub can_spill: bool,
}

impl Ask {
    /// What the growth takes of the total, beyond what is guaranteed anyway.
    #[must_use]
    pub fn extra(&self) -> u64 {
        (self.used + self.more).max(self.min) - self.used.max(self.min)
    }

    /// Decides.
    ///
    /// # Errors
    /// Why not.
    pub fn decide(&self) -> Result<(), Why> {
        let after = self.used + self.more;
        let (room, kept) = (self.total.saturating_sub(self.committed), self.total / LENT_PART);
        if after <= self.min {
            Ok(())
        } else if after > self.limit && !self.overcommit {
            Err(Why::Limit)
        } else if self.extra() > room {
            Err(Why::Full)
        } else if after <= self.due {
            Ok(())
        } else if self.others_owed {
            Err(Why::Owed)
        } else if !self.can_spill && after > self.due + kept {
            Err(Why::Unspillable)
        } else if self.extra() + kept > room {
            Err(Why::Full)
        } else {
            Ok(())
        }
    }
}

/// What a level is due, in pages: its part by shares among those that use memory, within its bounds.
#[must_use]
pub fn due(total: u64, min: u64, limit: u64, shares: u32, active_shares: u64) -> u64 {
    let part = u128::from(total) * u128::from(shares) / u128::from(active_shares.max(1));
    u64::try_from(part).unwrap_or(total).min(limit).max(min)
}

/// All query memory of the server.
pub struct Memory {
    total: AtomicU64,
    committed: AtomicU64,
    /// Levels that are owed.
    owed: AtomicU32,
    levels: ArcSwap<Vec<Arc<LevelMemory>>>,
}

/// What a level has of it.
pub struct LevelMemory {
    name: Arc<str>,
    /// `memory_min` and use, pages.
    word: AtomicU64,
    limits: ArcSwap<MemoryLimits>,
    shares: AtomicU32,
    is_owed: AtomicBool,
    refused: AtomicU64,
    most: AtomicU64,
    /// Statements that have an account.
    accounts: AtomicU32,
}

/// What a level has and had, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryUse {
    /// Now.
    pub used: u64,
    /// The most ever.
    pub most: u64,
    /// Kept for it, whether used or not.
    pub min: u64,
    /// Times it was refused more.
    pub refused: u64,
    /// It was refused what it is due, and waits for others to give it back.
    pub is_owed: bool,
}

/// The memory of one statement, to be charged from any thread. What it has is given back when it is dropped.
pub struct Account {
    memory: Arc<Memory>,
    level: Arc<LevelMemory>,
    bytes: AtomicU64,
}

/// `memory_min` and use.
fn split(word: u64) -> (u64, u64) {
    (word >> 32, word & u64::from(u32::MAX))
}

fn join(min: u64, used: u64) -> u64 {
    min << 32 | used
}

fn pages(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE_BYTES)
}

fn part_of(total: u64, ppm: u32) -> u64 {
    u64::try_from(u128::from(total) * u128::from(ppm) / 1_000_000).unwrap_or(total)
}

impl Memory {
    /// So many bytes of query memory; up to 4 TiB, since a level's pages are counted in 32 bits.
    #[must_use]
    pub fn new(total_bytes: u64) -> Arc<Memory> {
        Arc::new(Memory {
            total: AtomicU64::new((total_bytes / PAGE_BYTES).min(u32::MAX.into())),
            committed: AtomicU64::new(0),
            owed: AtomicU32::new(0),
            levels: ArcSwap::from_pointee(Vec::new()),
        })
    }

    /// All of it, bytes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total.load(SeqCst) * PAGE_BYTES
    }

    /// Says how much there is, before anything is used.
    pub fn set_total(&self, bytes: u64) {
        self.total.store((bytes / PAGE_BYTES).min(u32::MAX.into()), SeqCst);
        self.levels.load().iter().for_each(|level| self.guarantee(level));
    }

    /// Used by all levels, bytes.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.levels.load().iter().map(|level| level.used()).sum()
    }

    /// Takes in a level.
    pub fn add(&self, name: &Arc<str>, shares: u16, limits: &MemoryLimits) -> Arc<LevelMemory> {
        let level = Arc::new(LevelMemory {
            name: name.clone(),
            word: AtomicU64::new(0),
            limits: ArcSwap::from_pointee(*limits),
            shares: AtomicU32::new(shares.into()),
            is_owed: AtomicBool::new(false),
            refused: AtomicU64::new(0),
            most: AtomicU64::new(0),
            accounts: AtomicU32::new(0),
        });
        self.levels.rcu(|levels| levels.iter().chain([&level]).cloned().collect::<Vec<_>>());
        self.guarantee(&level);
        level
    }

    /// Gives a level other limits. What others have borrowed of a greater `memory_min` they keep until they shrink.
    pub fn alter(&self, level: &LevelMemory, shares: u16, limits: &MemoryLimits) {
        level.shares.store(shares.into(), SeqCst);
        level.limits.store(Arc::new(*limits));
        self.guarantee(level);
    }

    /// Lets go of a level; what its statements still have is counted until they end.
    pub fn remove(&self, level: &Arc<LevelMemory>) {
        self.alter(level, 1, &MemoryLimits::NONE);
        self.settle(level);
        self.levels.rcu(|all| all.iter().filter(|one| !Arc::ptr_eq(one, level)).cloned().collect::<Vec<_>>());
    }

    /// An account for a statement of a level.
    #[must_use]
    pub fn account(self: &Arc<Self>, level: &Arc<LevelMemory>) -> Account {
        level.accounts.fetch_add(1, Relaxed);
        Account { memory: self.clone(), level: level.clone(), bytes: AtomicU64::new(0) }
    }

    /// Has the level's `memory_min` be what its limits say.
    fn guarantee(&self, level: &LevelMemory) {
        loop {
            let word = level.word.load(SeqCst);
            let (old, used) = split(word);
            let min = part_of(self.total.load(SeqCst), level.limits.load().min_ppm);
            let (before, after) = (used.max(old), used.max(min));
            self.committed.fetch_add(after.saturating_sub(before), SeqCst);
            if level.word.compare_exchange(word, join(min, used), SeqCst, SeqCst).is_ok() {
                self.committed.fetch_sub(before.saturating_sub(after), SeqCst);
                return;
            }
            self.committed.fetch_sub(after.saturating_sub(before), SeqCst);
        }
    }

    /// What a level that asks for more is to be decided by.
    fn ask(&self, level: &LevelMemory, word: u64, more: u64, can_spill: bool) -> Ask {
        let (min, used) = split(word);
        let (total, limits) = (self.total.load(SeqCst), level.limits.load());
        let limit = limits.limit_ppm.map_or(total, |ppm| part_of(total, ppm));
        let own_shares = level.shares.load(Relaxed);
        let mut ask = Ask {
            more,
            used,
            min,
            limit,
            overcommit: limits.overcommit,
            due: limit,
            committed: self.committed.load(SeqCst),
            total,
            others_owed: self.owed.load(SeqCst) > u32::from(level.is_owed.load(SeqCst)),
            can_spill,
        };
        // Where there is plenty it does not matter who else uses memory.
        let plenty = ask.extra() + total / LENT_PART <= total.saturating_sub(ask.committed);
        if !plenty || !can_spill || ask.others_owed {
            let is_other =
                |one: &&Arc<LevelMemory>| !std::ptr::eq(Arc::as_ptr(one), level) && one.pages_used() > 0;
            let levels = self.levels.load();
            let others = levels.iter().filter(is_other).map(|one| u64::from(one.shares.load(Relaxed)));
            ask.due = due(total, min, limit, own_shares, others.sum::<u64>() + u64::from(own_shares));
        }
        ask
    }

    /// Takes pages for a level.
    fn take(&self, level: &LevelMemory, more: u64, can_spill: bool) -> Result<(), Box<Refusal>> {
        if more == 0 {
            return Ok(());
        }
        loop {
            let word = level.word.load(SeqCst);
            let ask = self.ask(level, word, more, can_spill);
            let taken = ask.decide().and_then(|()| self.reserve(ask.extra()));
            if let Err(why) = taken {
                return Err(Box::new(self.refuse(level, &ask, why)));
            }
            if level.word.compare_exchange(word, word + more, SeqCst, SeqCst).is_ok() {
                level.most.fetch_max(ask.used + more, Relaxed);
                self.settle(level);
                return Ok(());
            }
            self.committed.fetch_sub(ask.extra(), SeqCst);
        }
    }

    /// Takes room in the sum.
    fn reserve(&self, extra: u64) -> Result<(), Why> {
        let total = self.total.load(SeqCst);
        let room = |sum: u64| (extra == 0 || sum + extra <= total).then_some(sum + extra);
        self.committed.fetch_update(SeqCst, SeqCst, room).map(drop).map_err(|_| Why::Full)
    }

    /// Takes pages without asking.
    fn force(&self, level: &LevelMemory, more: u64) {
        let before = level.word.fetch_update(SeqCst, SeqCst, |word| {
            (split(word).1 + more <= u64::from(u32::MAX)).then(|| word + more)
        });
        let (min, used) = split(before.expect("fewer than 4 TiB are used"));
        self.committed.fetch_add((used + more).max(min) - used.max(min), SeqCst);
        level.most.fetch_max(used + more, Relaxed);
    }

    /// Gives pages of a level back.
    fn give(&self, level: &LevelMemory, pages: u64) {
        let (min, used) = split(level.word.fetch_sub(pages, SeqCst));
        let after = used.checked_sub(pages).expect("what is given back was taken");
        self.committed.fetch_sub(used.max(min) - after.max(min), SeqCst);
    }

    /// The level is not owed any longer.
    fn settle(&self, level: &LevelMemory) {
        if level.is_owed.load(Relaxed) && level.is_owed.swap(false, SeqCst) {
            self.owed.fetch_sub(1, SeqCst);
        }
    }

    #[cold]
    fn refuse(&self, level: &LevelMemory, ask: &Ask, why: Why) -> Refusal {
        level.refused.fetch_add(1, Relaxed);
        if why == Why::Full && ask.used + ask.more <= ask.due && !level.is_owed.swap(true, SeqCst) {
            self.owed.fetch_add(1, SeqCst);
        }
        let levels = self.levels.load();
        let mut holders: Vec<(Arc<str>, u64)> = levels
            .iter()
            .filter(|one| one.name != level.name && one.used() > 0)
            .map(|one| (one.name.clone(), one.used()))
            .collect();
        holders.sort_by_key(|(_, used)| std::cmp::Reverse(*used));
        let owed = levels.iter().find(|one| one.name != level.name && one.is_owed.load(Relaxed));
        Refusal {
            level: level.name.clone(),
            ask: *ask,
            why,
            limit_ppm: level.limits.load().limit_ppm,
            owed: owed.map(|one| one.name.clone()),
            holders,
        }
    }
}

impl LevelMemory {
    fn pages_used(&self) -> u64 {
        split(self.word.load(SeqCst)).1
    }

    /// Used now, bytes.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.pages_used() * PAGE_BYTES
    }

    /// What it has and had.
    #[must_use]
    pub fn usage(&self) -> MemoryUse {
        let (min, used) = split(self.word.load(SeqCst));
        MemoryUse {
            used: used * PAGE_BYTES,
            most: self.most.load(Relaxed) * PAGE_BYTES,
            min: min * PAGE_BYTES,
            refused: self.refused.load(Relaxed),
            is_owed: self.is_owed.load(Relaxed),
        }
    }
}

impl Account {
    /// So many bytes more, for an operator that can spill if it does not get them.
    ///
    /// # Errors
    /// [`Refusal`], whose text says why, and what to change.
    pub fn try_grow(&self, bytes: u64) -> Result<(), Box<Refusal>> {
        self.grow_by(bytes, true)
    }

    /// As [`Account::try_grow`], for an operator that cannot spill.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn try_grow_unspillable(&self, bytes: u64) -> Result<(), Box<Refusal>> {
        self.grow_by(bytes, false)
    }

    fn grow_by(&self, bytes: u64, can_spill: bool) -> Result<(), Box<Refusal>> {
        loop {
            let before = self.bytes.load(SeqCst);
            // More than can be counted is more than there is.
            let after = before.saturating_add(bytes).min(u64::from(u32::MAX) * PAGE_BYTES);
            let more = pages(after) - pages(before);
            self.memory.take(&self.level, more, can_spill)?;
            if self.bytes.compare_exchange(before, after, SeqCst, SeqCst).is_ok() {
                return Ok(());
            }
            self.memory.give(&self.level, more);
        }
    }

    /// What an operator is told that would leave too little for the `operators` of its statement that can spill, itself among them, of
    /// what the statement may count on.
    #[must_use]
    pub fn beyond_part(&self, bytes: u64, operators: u64) -> Refusal {
        let ask = self.memory.ask(&self.level, self.level.word.load(SeqCst), pages(bytes), true);
        let why = Why::Part { bytes: self.part(), operators };
        let limit_ppm = self.level.limits.load().limit_ppm;
        Refusal { level: self.level.name.clone(), ask, why, limit_ppm, owed: None, holders: Vec::new() }
    }

    /// So many bytes more that are there already: they are counted, whatever the limits say.
    pub fn grow(&self, bytes: u64) {
        let before = self.bytes.fetch_add(bytes, SeqCst);
        self.memory.force(&self.level, pages(before + bytes) - pages(before));
    }

    /// So many bytes less.
    pub fn shrink(&self, bytes: u64) {
        let less = |before: u64| Some(before.saturating_sub(bytes));
        let before = self.bytes.fetch_update(SeqCst, SeqCst, less).expect("always some");
        self.memory.give(&self.level, pages(before) - pages(before.saturating_sub(bytes)));
    }

    /// What it has, bytes.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.bytes.load(SeqCst)
    }

    /// What the statement may count on, bytes: its part of what its level is due, or could have now if that is more, among the
    /// level's statements. Whoever stays below it leaves room for the others.
    #[must_use]
    pub fn part(&self) -> u64 {
        let word = self.level.word.load(SeqCst);
        let ask = self.memory.ask(&self.level, word, 0, false);
        let free = ask.total.saturating_sub(ask.committed + ask.total / LENT_PART);
        let could_have = if ask.others_owed { 0 } else { ask.used.max(ask.min) + free };
        let most =
            if ask.overcommit { ask.due.max(could_have) } else { ask.due.max(could_have.min(ask.limit)) };
        most * PAGE_BYTES / u64::from(self.level.accounts.load(Relaxed).max(1))
    }

    /// The level's.
    #[must_use]
    pub fn level(&self) -> &Arc<LevelMemory> {
        &self.level
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.memory.give(&self.level, pages(self.used()));
        self.level.accounts.fetch_sub(1, Relaxed);
        // Its level asks again if it still wants what it was refused.
        self.memory.settle(&self.level);
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} of {} bytes)", self.used(), self.total())
    }
}

impl fmt::Debug for LevelMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LevelMemory({}, {:?})", self.name, self.usage())
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Account({}, {} bytes)", self.level.name, self.used())
    }
}
