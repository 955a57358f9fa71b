//! Query memory: the working memory of statements (sorts, joins, aggregations) by level. This
//! module counts and decides, but does not allocate. Memory of one level:
//!
//! ```text
//!   0 ─────────── memory_min ─────── entitlement ─────── memory_limit ─────────── total
//!   always granted │  while any is free  │  borrowed: while no level lags,         │ the same, with
//!                  │                     │  and 1/16 stays free for owners         │ memory_overcommit
//! ```
//!
//! 1. The unused part of a level's `memory_min` is reserved for that level. Add up, over all
//!    levels, the larger of use and guarantee: this sum never exceeds the total. A growth below
//!    `memory_min` is therefore always granted.
//! 2. The *entitlement* of a level is its part by shares, among the levels that use memory now, of
//!    the total without the guarantees of the others. It is at least `memory_min` and at most
//!    `memory_limit`. Alone, a level is entitled to all that its limit and idle guarantees permit.
//!    All entitlements together are at most the total.
//! 3. A level *lags* once it finds memory full below its entitlement. From then on, levels above
//!    their entitlement are refused at their next growth, so that they spill. This ends when the
//!    lagging level is granted memory or its statements end.
//! 4. Operators without spilling may borrow at most 1/16 of the total.
//!
//! Counts are in pages of 1 KiB, in two words. The first has the `memory_min` and use of a level,
//! changed together in one step. The second has the sum of point 1. There are no locks. A growth is
//! reserved in the sum first, and released if the word of the level has changed meanwhile. The sum
//! is therefore never too small.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};

use arc_swap::ArcSwap;

use crate::refusal::{Refusal, RefusalReason};

/// Unit of accounting in bytes.
pub const PAGE_BYTES: u64 = 1024;
/// Reserved part of query memory: 1/16. Also the most that operators without spilling may borrow.
const RESERVED_PART: u64 = 16;

/// Memory options of a level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryLimits {
    /// Guaranteed part, in millionths of query memory.
    pub min_ppm: u32,
    /// Upper bound of use, in millionths of query memory. `None`: no bound.
    pub limit_ppm: Option<u32>,
    /// True if the level may use idle memory beyond `limit_ppm`.
    pub overcommit: bool,
}

impl MemoryLimits {
    /// Limits of a level without memory options.
    pub const NONE: MemoryLimits = MemoryLimits { min_ppm: 0, limit_ppm: None, overcommit: true };
}

/// Request of a level for more memory, with all inputs of the decision. Memory is in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryRequest {
    /// Pages requested.
    pub more: u64,
    /// Pages in use by the level.
    pub used: u64,
    /// Pages guaranteed to the level.
    pub min: u64,
    /// Pages permitted to the level without borrowing.
    pub limit: u64,
    /// True if the level may borrow beyond `limit`.
    pub overcommit: bool,
    /// Entitlement of the level.
    pub entitlement: u64,
    /// Sum over all levels of the larger of used and guaranteed.
    pub committed: u64,
    /// All query memory.
    pub total: u64,
    /// True if another level lags.
    pub others_lag: bool,
    /// True if the operator can spill instead.
    pub can_spill: bool,
}

impl MemoryRequest {
    /// Returns the growth of `committed` that this request causes.
    #[must_use]
    pub fn extra(&self) -> u64 {
        (self.used + self.more).max(self.min) - self.used.max(self.min)
    }

    /// Decides the request.
    ///
    /// # Errors
    /// Returns the reason of a refusal.
    pub fn decide(&self) -> Result<(), RefusalReason> {
        let after = self.used + self.more;
        let free = self.total.saturating_sub(self.committed);
        let reserved = self.total / RESERVED_PART;
        if after <= self.min {
            Ok(())
        } else if after > self.limit && !self.overcommit {
            Err(RefusalReason::Limit)
        } else if self.extra() > free {
            Err(RefusalReason::Full)
        } else if after <= self.entitlement {
            Ok(())
        } else if self.others_lag {
            Err(RefusalReason::Lag)
        } else if !self.can_spill && after > self.entitlement + reserved {
            Err(RefusalReason::Unspillable)
        } else if self.extra() + reserved > free {
            Err(RefusalReason::Full)
        } else {
            Ok(())
        }
    }
}

/// Claim of a level that uses memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// Pages guaranteed to the level.
    pub min: u64,
    /// Its shares.
    pub shares: u32,
}

/// Returns the entitlement of a level in pages: its part of `total` by shares alongside the
/// `others` that use memory, at least its guarantee and at most `limit`. A level whose guarantee
/// exceeds its part has the guarantee, and the rest is divided among the others.
#[must_use]
pub fn entitlement(total: u64, limit: u64, own: Claim, others: &[Claim]) -> u64 {
    let mut others = others.to_vec();
    // By guarantee for each share: if one is within its part, so are those after it.
    others.sort_unstable_by_key(|one| std::cmp::Reverse((one.min << 32) / u64::from(one.shares.max(1))));
    let mut shares = others.iter().map(|one| u64::from(one.shares)).sum::<u64>() + u64::from(own.shares);
    let mut left = total;
    let part_of = |left: u64, shares: u64, of: Claim| {
        (u128::from(left) * u128::from(of.shares) / u128::from(shares.max(1))) as u64
    };
    // If the level itself is one of those with the guarantee, it does not matter what is left.
    for one in others {
        if one.min <= part_of(left, shares, one) {
            break;
        }
        (left, shares) = (left.saturating_sub(one.min), shares - u64::from(one.shares));
    }
    part_of(left, shares, own).min(limit).max(own.min)
}

/// All query memory of the server.
pub struct Memory {
    total: AtomicU64,
    committed: AtomicU64,
    /// Number of lagging levels.
    lagging: AtomicU32,
    levels: ArcSwap<Vec<Arc<LevelMemory>>>,
}

/// Query memory of one level.
pub struct LevelMemory {
    name: Arc<str>,
    /// `memory_min` and use in pages, 32 bits each.
    word: AtomicU64,
    limits: ArcSwap<MemoryLimits>,
    shares: AtomicU32,
    is_lagging: AtomicBool,
    refused: AtomicU64,
    short: AtomicU64,
    peak: AtomicU64,
    /// Number of statements with an account.
    accounts: AtomicU32,
}

/// Present and past use of a level's memory, bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryUse {
    /// Present use.
    pub used: u64,
    /// Highest use since the creation of the level.
    pub peak: u64,
    /// Guaranteed to the level, whether used or not.
    pub min: u64,
    /// Number of refused requests for more.
    pub refused: u64,
    /// Those of them that ended a statement because other levels held the memory. An operator that
    /// spills instead lacks nothing, and neither does a level at its own limit.
    pub short: u64,
    /// True if the level was refused part of its entitlement, and waits for other levels to release
    /// memory.
    pub is_lagging: bool,
}

/// Memory of one statement, charged from any thread. Dropping it releases the memory.
pub struct Account {
    memory: Arc<Memory>,
    /// Charges to its present level.
    charges: ArcSwap<Charges>,
    /// Begun and ended moves to another level. Odd during a move.
    moves: AtomicU64,
}

/// Memory of a statement that is charged to one level.
struct Charges {
    level: Arc<LevelMemory>,
    bytes: AtomicU64,
    /// Charges to the level before. They are empty, but for a growth that met the move.
    before: Option<Arc<Charges>>,
}

impl Charges {
    fn new(level: &Arc<LevelMemory>, before: Option<Arc<Charges>>) -> Arc<Charges> {
        level.accounts.fetch_add(1, Relaxed);
        Arc::new(Charges { level: level.clone(), bytes: AtomicU64::new(0), before })
    }

    /// Returns the charges to the present level, and to those before.
    fn all(&self) -> impl Iterator<Item = &Charges> {
        std::iter::successors(Some(self), |charges| charges.before.as_deref())
    }

    /// Releases up to `bytes`. Returns how many it released.
    fn shrink(&self, memory: &Memory, bytes: u64) -> u64 {
        let less = |before: u64| Some(before.saturating_sub(bytes));
        let before =
            self.bytes.fetch_update(SeqCst, SeqCst, less).expect("the closure always returns a value");
        let after = before.saturating_sub(bytes);
        memory.give(&self.level, pages(before) - pages(after));
        before - after
    }

    /// Adds `bytes` regardless of limits.
    fn grow(&self, memory: &Memory, bytes: u64) {
        loop {
            let before = self.bytes.load(SeqCst);
            let more = pages(before + bytes) - pages(before);
            // First the level, so that it never has less than is charged here.
            memory.force(&self.level, more);
            if self.bytes.compare_exchange(before, before + bytes, SeqCst, SeqCst).is_ok() {
                return;
            }
            memory.give(&self.level, more);
        }
    }
}

/// Splits a word into `memory_min` and use.
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
    /// Creates `total_bytes` of query memory. At most 4 TiB count: a level's pages are counted in
    /// 32 bits.
    #[must_use]
    pub fn new(total_bytes: u64) -> Arc<Memory> {
        Arc::new(Memory {
            total: AtomicU64::new((total_bytes / PAGE_BYTES).min(u32::MAX.into())),
            committed: AtomicU64::new(0),
            lagging: AtomicU32::new(0),
            levels: ArcSwap::from_pointee(Vec::new()),
        })
    }

    /// Returns the size of query memory in bytes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total.load(SeqCst) * PAGE_BYTES
    }

    /// Sets the size of query memory, before its first use.
    pub fn set_total(&self, bytes: u64) {
        self.total.store((bytes / PAGE_BYTES).min(u32::MAX.into()), SeqCst);
        self.levels.load().iter().for_each(|level| self.guarantee(level));
    }

    /// Returns the bytes in use by all levels.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.levels.load().iter().map(|level| level.used()).sum()
    }

    /// Adds a level.
    pub fn add(&self, name: &Arc<str>, shares: u16, limits: &MemoryLimits) -> Arc<LevelMemory> {
        let level = Arc::new(LevelMemory {
            name: name.clone(),
            word: AtomicU64::new(0),
            limits: ArcSwap::from_pointee(*limits),
            shares: AtomicU32::new(shares.into()),
            is_lagging: AtomicBool::new(false),
            refused: AtomicU64::new(0),
            short: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            accounts: AtomicU32::new(0),
        });
        self.levels.rcu(|levels| levels.iter().chain([&level]).cloned().collect::<Vec<_>>());
        self.guarantee(&level);
        level
    }

    /// Changes the limits of a level. If its `memory_min` grows, other levels keep borrowed memory
    /// until they shrink.
    pub fn alter(&self, level: &LevelMemory, shares: u16, limits: &MemoryLimits) {
        level.shares.store(shares.into(), SeqCst);
        level.limits.store(Arc::new(*limits));
        self.guarantee(level);
    }

    /// Removes a level. Memory of its running statements is counted until they end.
    pub fn remove(&self, level: &Arc<LevelMemory>) {
        self.alter(level, 1, &MemoryLimits::NONE);
        self.clear_lag(level);
        self.levels.rcu(|all| all.iter().filter(|one| !Arc::ptr_eq(one, level)).cloned().collect::<Vec<_>>());
    }

    /// Creates the account of a statement.
    #[must_use]
    pub fn account(self: &Arc<Self>, level: &Arc<LevelMemory>) -> Account {
        let charges = ArcSwap::new(Charges::new(level, None));
        Account { memory: self.clone(), charges, moves: AtomicU64::new(0) }
    }

    /// Updates the guarantee of the level after a change of its limits or of the total.
    fn guarantee(&self, level: &LevelMemory) {
        loop {
            let word = level.word.load(SeqCst);
            let (old, used) = split(word);
            let min = part_of(self.total.load(SeqCst), level.limits.load().min_ppm);
            let before = used.max(old);
            let after = used.max(min);
            self.committed.fetch_add(after.saturating_sub(before), SeqCst);
            if level.word.compare_exchange(word, join(min, used), SeqCst, SeqCst).is_ok() {
                self.committed.fetch_sub(before.saturating_sub(after), SeqCst);
                return;
            }
            self.committed.fetch_sub(after.saturating_sub(before), SeqCst);
        }
    }

    /// Collects the inputs of the decision on a growth by `more` pages.
    fn request(&self, level: &LevelMemory, word: u64, more: u64, can_spill: bool) -> MemoryRequest {
        let (min, used) = split(word);
        let total = self.total.load(SeqCst);
        let limits = level.limits.load();
        let limit = limits.limit_ppm.map_or(total, |ppm| part_of(total, ppm));
        let own_shares = level.shares.load(Relaxed);
        let mut request = MemoryRequest {
            more,
            used,
            min,
            limit,
            overcommit: limits.overcommit,
            entitlement: limit,
            committed: self.committed.load(SeqCst),
            total,
            others_lag: self.lagging.load(SeqCst) > u32::from(level.is_lagging.load(SeqCst)),
            can_spill,
        };
        // If memory is plentiful, the entitlement does not matter.
        let plenty = request.extra() + total / RESERVED_PART <= total.saturating_sub(request.committed);
        if !plenty || !can_spill || request.others_lag {
            let mut others = Vec::new();
            let mut idle = 0;
            for one in self.levels.load().iter().filter(|one| !std::ptr::eq(Arc::as_ptr(one), level)) {
                match split(one.word.load(SeqCst)) {
                    (min, 0) => idle += min,
                    (min, _) => others.push(Claim { min, shares: one.shares.load(Relaxed) }),
                }
            }
            let own = Claim { min, shares: own_shares };
            request.entitlement = entitlement(total.saturating_sub(idle), limit, own, &others);
        }
        request
    }

    /// Takes `more` pages for a level.
    fn take(&self, level: &LevelMemory, more: u64, can_spill: bool) -> Result<(), Box<Refusal>> {
        if more == 0 {
            return Ok(());
        }
        loop {
            let word = level.word.load(SeqCst);
            let request = self.request(level, word, more, can_spill);
            let taken = request.decide().and_then(|()| self.reserve(request.extra()));
            if let Err(why) = taken {
                return Err(Box::new(self.refuse(level, &request, why)));
            }
            if level.word.compare_exchange(word, word + more, SeqCst, SeqCst).is_ok() {
                level.peak.fetch_max(request.used + more, Relaxed);
                self.clear_lag(level);
                return Ok(());
            }
            self.committed.fetch_sub(request.extra(), SeqCst);
        }
    }

    /// Adds `extra` pages to the sum.
    fn reserve(&self, extra: u64) -> Result<(), RefusalReason> {
        let total = self.total.load(SeqCst);
        let free = |sum: u64| (extra == 0 || sum + extra <= total).then_some(sum + extra);
        self.committed.fetch_update(SeqCst, SeqCst, free).map(drop).map_err(|_| RefusalReason::Full)
    }

    /// Takes pages without a decision.
    fn force(&self, level: &LevelMemory, more: u64) {
        let before = level.word.fetch_update(SeqCst, SeqCst, |word| {
            (split(word).1 + more <= u64::from(u32::MAX)).then(|| word + more)
        });
        let (min, used) = split(before.expect("expected less than 4 TiB in use"));
        self.committed.fetch_add((used + more).max(min) - used.max(min), SeqCst);
        level.peak.fetch_max(used + more, Relaxed);
    }

    /// Releases pages of a level.
    fn give(&self, level: &LevelMemory, pages: u64) {
        let (min, used) = split(level.word.fetch_sub(pages, SeqCst));
        let after = used.checked_sub(pages).expect("released pages were in use");
        self.committed.fetch_sub(used.max(min) - after.max(min), SeqCst);
    }

    /// Ends the lag of a level.
    fn clear_lag(&self, level: &LevelMemory) {
        if level.is_lagging.load(Relaxed) && level.is_lagging.swap(false, SeqCst) {
            self.lagging.fetch_sub(1, SeqCst);
        }
    }

    #[cold]
    fn refuse(&self, level: &LevelMemory, request: &MemoryRequest, why: RefusalReason) -> Refusal {
        level.refused.fetch_add(1, Relaxed);
        if !request.can_spill && matches!(why, RefusalReason::Full | RefusalReason::Lag) {
            level.short.fetch_add(1, Relaxed);
        }
        if why == RefusalReason::Full
            && request.used + request.more <= request.entitlement
            && !level.is_lagging.swap(true, SeqCst)
        {
            self.lagging.fetch_add(1, SeqCst);
        }
        let levels = self.levels.load();
        let mut holders: Vec<(Arc<str>, u64)> = levels
            .iter()
            .filter(|one| one.name != level.name && one.used() > 0)
            .map(|one| (one.name.clone(), one.used()))
            .collect();
        holders.sort_by_key(|(_, used)| std::cmp::Reverse(*used));
        let lagging = levels.iter().find(|one| one.name != level.name && one.is_lagging.load(Relaxed));
        Refusal {
            level: level.name.clone(),
            request: *request,
            why,
            limit_ppm: level.limits.load().limit_ppm,
            lagging: lagging.map(|one| one.name.clone()),
            holders,
        }
    }
}

impl LevelMemory {
    fn pages_used(&self) -> u64 {
        split(self.word.load(SeqCst)).1
    }

    /// Returns the bytes in use.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.pages_used() * PAGE_BYTES
    }

    /// Returns present and past use.
    #[must_use]
    pub fn usage(&self) -> MemoryUse {
        let (min, used) = split(self.word.load(SeqCst));
        MemoryUse {
            used: used * PAGE_BYTES,
            peak: self.peak.load(Relaxed) * PAGE_BYTES,
            min: min * PAGE_BYTES,
            refused: self.refused.load(Relaxed),
            short: self.short.load(Relaxed),
            is_lagging: self.is_lagging.load(Relaxed),
        }
    }
}

impl Account {
    /// Grows by `bytes`, for an operator that spills if this fails.
    ///
    /// # Errors
    /// [`Refusal`], whose text gives the reason and the remedy.
    pub fn try_grow(&self, bytes: u64) -> Result<(), Box<Refusal>> {
        self.grow_by(bytes, true)
    }

    /// Grows by `bytes`, for an operator that cannot spill.
    ///
    /// # Errors
    /// [`Refusal`], as from [`Account::try_grow`].
    pub fn try_grow_unspillable(&self, bytes: u64) -> Result<(), Box<Refusal>> {
        self.grow_by(bytes, false)
    }

    fn grow_by(&self, bytes: u64, can_spill: bool) -> Result<(), Box<Refusal>> {
        loop {
            let now = self.charges.load();
            let before = now.bytes.load(SeqCst);
            // Saturate: more than can be counted exceeds the total.
            let after = before.saturating_add(bytes).min(u64::from(u32::MAX) * PAGE_BYTES);
            let more = pages(after) - pages(before);
            self.memory.take(&now.level, more, can_spill)?;
            if now.bytes.compare_exchange(before, after, SeqCst, SeqCst).is_ok() {
                return Ok(());
            }
            self.memory.give(&now.level, more);
        }
    }

    /// Returns the refusal for an operator that would exceed its part of the statement's memory.
    /// `operators` is the number of spillable operators of the statement, including this one.
    #[must_use]
    pub fn beyond_part(&self, bytes: u64, operators: u64) -> Refusal {
        let level = &self.charges.load().level;
        let request = self.memory.request(level, level.word.load(SeqCst), pages(bytes), true);
        let why = RefusalReason::Part { bytes: self.entitlement(), operators };
        let limit_ppm = level.limits.load().limit_ppm;
        Refusal { level: level.name.clone(), request, why, limit_ppm, lagging: None, holders: Vec::new() }
    }

    /// Adds `bytes` that are allocated already. They are counted even above the limits.
    pub fn grow(&self, bytes: u64) {
        self.charges.load().grow(&self.memory, bytes);
    }

    /// Moves the account to another level, which is charged regardless of its limits: the memory is
    /// allocated already. Only the statement itself moves it, one move at a time.
    pub fn move_to(&self, level: &Arc<LevelMemory>) {
        let before = self.charges.load_full();
        if Arc::ptr_eq(&before.level, level) {
            return;
        }
        self.moves.fetch_add(1, SeqCst);
        let now = Charges::new(level, Some(before.clone()));
        self.charges.store(now.clone());
        before.level.accounts.fetch_sub(1, Relaxed);
        // Releases meanwhile take from `now`, and then less of it is released here.
        let bytes = before.bytes.load(SeqCst);
        now.grow(&self.memory, bytes);
        let moved = before.shrink(&self.memory, bytes);
        now.shrink(&self.memory, bytes - moved);
        self.moves.fetch_add(1, SeqCst);
        self.memory.clear_lag(&before.level);
    }

    /// Adds `bytes` beyond the limits, as long as all levels together are at most `beyond_max`
    /// bytes above the total. Returns false if they are not added.
    pub fn overdraw(&self, bytes: u64, beyond_max: u64) -> bool {
        let after = self.memory.committed.load(SeqCst).saturating_add(pages(bytes));
        let is_within = after <= self.memory.total.load(SeqCst).saturating_add(pages(beyond_max));
        if is_within {
            self.grow(bytes);
        }
        is_within
    }

    /// Releases `bytes`.
    pub fn shrink(&self, bytes: u64) {
        let mut left = bytes;
        loop {
            let moves = self.moves.load(SeqCst);
            left = self.release(left);
            // A move may have taken bytes from charges before they were visited, to charges that
            // had been visited. It is over soon.
            if left == 0 || (moves.is_multiple_of(2) && self.moves.load(SeqCst) == moves) {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Releases up to `bytes` from the charges as they are visited. Returns how many are left.
    fn release(&self, bytes: u64) -> u64 {
        let now = self.charges.load();
        now.all().fold(bytes, |left, charges| left - charges.shrink(&self.memory, left))
    }

    /// Returns the bytes in use by the statement.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.charges.load().all().map(|charges| charges.bytes.load(SeqCst)).sum()
    }

    /// Returns the memory in bytes that the statement may rely on. This is its part, among the
    /// statements of the level, of the entitlement, or of the memory available now if that is more.
    /// A statement that stays below it leaves memory for the others.
    #[must_use]
    pub fn entitlement(&self) -> u64 {
        let level = &self.charges.load().level;
        let request = self.memory.request(level, level.word.load(SeqCst), 0, false);
        let free = request.total.saturating_sub(request.committed + request.total / RESERVED_PART);
        let available = if request.others_lag { 0 } else { request.used.max(request.min) + free };
        let most = if request.overcommit {
            request.entitlement.max(available)
        } else {
            request.entitlement.max(available.min(request.limit))
        };
        most * PAGE_BYTES / u64::from(level.accounts.load(Relaxed).max(1))
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.release(u64::MAX);
        let now = self.charges.load();
        now.level.accounts.fetch_sub(1, Relaxed);
        // A level that still needs the refused memory requests it again.
        self.memory.clear_lag(&now.level);
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
        write!(f, "Account({}, {} bytes)", self.charges.load().level.name, self.used())
    }
}
