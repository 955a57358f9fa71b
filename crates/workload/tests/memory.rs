//! Query memory against a model, by seed. `SEED=… cargo test --release -p workload --test memory`
//! replays one seed. At every moment, guarantees hold, guaranteed memory is not lent, and no memory
//! is lost. Each request gets the decision on the model's own count of use, entitlements and lag.

use std::sync::Arc;

use testkit::Random;
use workload::{
    Account, Claim, LevelMemory, Memory, MemoryLimits, MemoryRequest, PAGE_BYTES, RefusalReason, entitlement,
};

const MIB: u64 = 1 << 20;

struct Modelled {
    level: Arc<LevelMemory>,
    shares: u32,
    limits: MemoryLimits,
    accounts: Vec<(Account, u64)>,
    /// It was refused memory below its entitlement, and got none since.
    lags: bool,
}

impl Modelled {
    fn pages(&self) -> u64 {
        self.accounts.iter().map(|(_, bytes)| bytes.div_ceil(PAGE_BYTES)).sum()
    }
}

fn part(total: u64, ppm: u32) -> u64 {
    total / PAGE_BYTES * u64::from(ppm) / 1_000_000
}

/// Returns the request of a level for `more` pages.
fn request(levels: &[Modelled], at: usize, total: u64, more: u64, can_spill: bool) -> MemoryRequest {
    let total_pages = total / PAGE_BYTES;
    let min = |level: &Modelled| part(total, level.limits.min_ppm);
    let claim = |level: &Modelled| Claim { min: min(level), shares: level.shares };
    let others = || levels.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, level)| level);
    let idle: u64 = others().filter(|level| level.pages() == 0).map(min).sum();
    let active: Vec<Claim> = others().filter(|level| level.pages() > 0).map(claim).collect();
    let level = &levels[at];
    let limit = level.limits.limit_ppm.map_or(total_pages, |ppm| part(total, ppm));
    MemoryRequest {
        more,
        used: level.pages(),
        min: min(level),
        limit,
        overcommit: level.limits.overcommit,
        entitlement: entitlement(total_pages - idle, limit, claim(level), &active),
        committed: levels.iter().map(|level| level.pages().max(min(level))).sum(),
        total: total_pages,
        others_lag: others().any(|level| level.lags),
        can_spill,
    }
}

fn step(random: &mut Random, memory: &Arc<Memory>, levels: &mut [Modelled]) {
    let total = memory.total();
    let at = random.index(levels.len());
    let used: Vec<u64> = levels.iter().map(Modelled::pages).collect();
    let guaranteed: u64 = levels
        .iter()
        .zip(&used)
        .enumerate()
        .map(|(i, (level, used))| if i == at { 0 } else { part(total, level.limits.min_ppm).max(*used) })
        .sum();
    let what = random.below(8);
    let more = random.below(2 * MIB);
    let can_spill = random.below(4) > 0;
    let one = random.index(levels[at].accounts.len().max(1));
    let bytes = levels[at].accounts.get(one).map_or(0, |(_, bytes)| *bytes);
    let more_pages = (bytes + more).div_ceil(PAGE_BYTES) - bytes.div_ceil(PAGE_BYTES);
    let request = request(levels, at, total, more_pages, can_spill);
    let level = &mut levels[at];
    match what {
        0 => level.accounts.push((memory.account(&level.level), 0)),
        1 if !level.accounts.is_empty() => {
            level.accounts.swap_remove(one);
            level.lags = false;
        }
        2..=5 if !level.accounts.is_empty() => {
            let (account, bytes) = &mut level.accounts[one];
            let after = used[at] + more_pages;
            let granted = if can_spill { account.try_grow(more) } else { account.try_grow_unspillable(more) };
            let decided = if more_pages == 0 { Ok(()) } else { request.decide() };
            assert_eq!(granted.as_ref().map_err(|refusal| refusal.why), decided.as_ref().map_err(|why| *why));
            level.lags = match decided {
                Ok(()) => level.lags && more_pages == 0,
                Err(RefusalReason::Full) => level.lags || after <= request.entitlement,
                Err(_) => level.lags,
            };
            if after <= part(total, level.limits.min_ppm) {
                assert_eq!(granted, Ok(()), "guaranteed memory is granted");
            }
            match &granted {
                Ok(()) => {
                    *bytes += more;
                    assert!(
                        more_pages == 0 || guaranteed + after <= total / PAGE_BYTES,
                        "guaranteed memory of others is not lent"
                    );
                    let limit = level.limits.limit_ppm.map_or(u64::MAX, |ppm| part(total, ppm));
                    assert!(more_pages == 0 || level.limits.overcommit || after <= limit, "beyond its limit");
                }
                Err(refusal) => assert!(refusal.to_string().starts_with("The service level '"), "{refusal}"),
            }
        }
        6 if !level.accounts.is_empty() => {
            let (account, bytes) = &mut level.accounts[one];
            let less = random.below(*bytes + 1);
            account.shrink(less);
            *bytes -= less;
        }
        _ => {}
    }
    for level in levels.iter() {
        assert_eq!(level.level.used(), level.pages() * PAGE_BYTES);
        assert_eq!(level.level.usage().is_lagging, level.lags);
    }
}

#[test]
fn memory_matches_the_model() {
    let one = std::env::var("SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    for seed in one.map_or(0..100, |seed| seed..seed + 1) {
        let steps = std::panic::catch_unwind(|| {
            let mut random = Random::new(seed);
            let memory = Memory::new((8 + random.below(32)) * MIB);
            let mut left_ppm = 1_000_000;
            let mut level = |i: u64| {
                let min_ppm = random.below(left_ppm / 2 + 1) as u32;
                left_ppm -= u64::from(min_ppm);
                let limit_ppm = (random.below(2) == 0)
                    .then(|| (min_ppm + 10_000).min(1_000_000).max(random.below(1_000_000) as u32));
                let limits = MemoryLimits { min_ppm, limit_ppm, overcommit: random.below(2) == 0 };
                let shares = 1 + random.below(1000) as u16;
                let level = memory.add(&format!("l{i}").into(), shares, &limits);
                Modelled { level, shares: shares.into(), limits, accounts: Vec::new(), lags: false }
            };
            let mut levels: Vec<Modelled> = (0..4).map(&mut level).collect();
            (0..3000).for_each(|_| step(&mut random, &memory, &mut levels));
            levels.clear();
            assert_eq!(memory.used(), 0, "no memory is lost");
        });
        assert!(steps.is_ok(), "SEED={seed} cargo test --release -p workload --test memory");
    }
}

fn limits(min: u32, limit: Option<u32>, overcommit: bool) -> MemoryLimits {
    MemoryLimits { min_ppm: min * 10_000, limit_ppm: limit.map(|limit| limit * 10_000), overcommit }
}

#[test]
fn idle_memory_is_lent_until_its_owner_needs_it() {
    let memory = Memory::new(160 * MIB);
    let owner = memory.add(&"owner".into(), 1000, &limits(10, None, true));
    let guest = memory.add(&"guest".into(), 1000, &limits(0, Some(50), true));
    let (own, borrowed) = (memory.account(&owner), memory.account(&guest));
    // All but the guarantee of the owner, and the reserved 1/16.
    assert_eq!(borrowed.try_grow(134 * MIB), Ok(()));
    assert_eq!(borrowed.try_grow(MIB).unwrap_err().why, RefusalReason::Full);
    assert_eq!(own.try_grow(16 * MIB), Ok(()), "guaranteed");
    assert_eq!(own.try_grow(10 * MIB), Ok(()), "not lent");
    assert_eq!(own.try_grow(MIB).unwrap_err().why, RefusalReason::Full);
    assert!(owner.usage().is_lagging);
    // The guest shrinks, requests the memory again, and is refused: the owner lags.
    borrowed.shrink(20 * MIB);
    let refused = borrowed.try_grow(MIB).unwrap_err();
    assert_eq!(refused.why, RefusalReason::Lag);
    let text = "The service level 'guest' has 114.0 MiB of query memory, and 1.0 MiB more would be borrowed \
        beyond its entitlement of 80.0 MiB, while 'owner' needs memory ('owner' has 26.0 MiB). Give 'guest' \
        more shares or a memory_min, or lower max_concurrency";
    assert_eq!(refused.to_string(), text);
    assert_eq!(own.try_grow(MIB), Ok(()));
    assert!(!owner.usage().is_lagging);
    assert_eq!(borrowed.try_grow(MIB), Ok(()), "the lag has ended");
    assert_eq!(borrowed.try_grow_unspillable(MIB).unwrap_err().why, RefusalReason::Unspillable);
    drop(own);
    assert_eq!(borrowed.used(), 115 * MIB);
    memory.alter(&guest, 1000, &limits(0, Some(50), false));
    let refused = borrowed.try_grow(MIB).unwrap_err();
    let text = "The service level 'guest' has 115.0 MiB of query memory, and 1.0 MiB more would be beyond its \
        memory_limit, 50% of 160.0 MiB or 80.0 MiB, with memory_overcommit = false. Raise memory_limit, allow \
        memory_overcommit, or lower max_concurrency";
    assert_eq!((refused.why, refused.to_string()), (RefusalReason::Limit, text.to_owned()));
    let text = "The service level 'guest' has 115.0 MiB of query memory, and 4.0 MiB more for one operator \
        would exceed its part: the statement is entitled to 80.0 MiB, shared equally by its 3 spillable \
        operators. Raise the memory_limit of 'guest', give it a memory_min or more shares, or lower \
        max_concurrency";
    assert_eq!(borrowed.beyond_part(4 * MIB, 3).to_string(), text);
    assert_eq!(guest.usage().refused, 4);
    memory.remove(&guest);
    drop(borrowed);
    let own = memory.account(&owner);
    assert_eq!(own.try_grow(160 * MIB), Ok(()), "a level alone gets all memory");
}

#[test]
fn entitlement_follows_shares_within_bounds() {
    let claim = |min, shares| Claim { min, shares };
    let two = [claim(0, 200)];
    assert_eq!(entitlement(900, 900, claim(0, 100), &two), 300);
    assert_eq!(entitlement(900, 200, claim(0, 100), &two), 200);
    assert_eq!(entitlement(900, 900, claim(400, 100), &two), 400);
    assert_eq!(entitlement(900, 900, claim(0, 100), &[]), 900);
    // A guarantee beyond its part by shares takes from all others.
    assert_eq!(entitlement(900, 900, claim(0, 100), &[claim(600, 100), claim(0, 100)]), 150);
    assert_eq!(entitlement(900, 900, claim(0, 100), &[claim(600, 100), claim(140, 100)]), 150);
    assert_eq!(entitlement(900, 900, claim(0, 100), &[claim(600, 100), claim(160, 100)]), 140);
}

/// Entitlements that cannot be had at the same time would make levels lag, and others pay.
#[test]
fn entitlements_add_up_to_at_most_the_total() {
    for seed in 0..1_000 {
        let mut random = Random::new(seed);
        let total = 1_000 + random.below(1_000_000);
        let mut left = total;
        let claims: Vec<Claim> = (0..1 + random.below(8))
            .map(|_| {
                let min = if random.below(2) == 0 { 0 } else { random.below(left + 1) };
                left -= min;
                Claim { min, shares: 1 + random.below(1_000) as u32 }
            })
            .collect();
        let of = |at: usize| {
            let others: Vec<Claim> = (0..claims.len()).filter(|i| *i != at).map(|i| claims[i]).collect();
            entitlement(total, total, claims[at], &others)
        };
        let all: Vec<u64> = (0..claims.len()).map(of).collect();
        let sum: u64 = all.iter().sum();
        assert!(sum <= total && sum + claims.len() as u64 >= total, "seed {seed}: {all:?} of {total}");
        assert!(all.iter().zip(&claims).all(|(all, claim)| *all >= claim.min), "seed {seed}");
    }
}

/// Idle guarantees are not lent: a level that is refused them does not lag.
#[test]
fn level_is_not_entitled_to_idle_guarantees() {
    let memory = Memory::new(160 * MIB);
    let idle = memory.add(&"idle".into(), 1000, &limits(50, None, true));
    let alone = memory.add(&"alone".into(), 1000, &limits(0, None, true));
    let account = memory.account(&alone);
    assert_eq!(account.try_grow(80 * MIB), Ok(()), "all that is not guaranteed");
    assert_eq!(account.try_grow(MIB).unwrap_err().why, RefusalReason::Full);
    assert!(!alone.usage().is_lagging && !idle.usage().is_lagging);
    // Another level uses its guarantee: the rest goes by shares.
    let own = memory.account(&idle);
    assert_eq!(own.try_grow(80 * MIB), Ok(()));
    assert_eq!(account.try_grow(MIB).unwrap_err().why, RefusalReason::Full);
    assert!(!alone.usage().is_lagging, "the guarantee is more than half");
}

#[test]
fn statement_relies_on_its_part_of_what_its_level_may_have() {
    let memory = Memory::new(160 * MIB);
    let [large, small] = [("large", 300), ("small", 100)]
        .map(|(name, shares)| memory.add(&name.into(), shares, &MemoryLimits::NONE));
    let of_large = memory.account(&large);
    let mib = |account: &Account| account.entitlement() / MIB;
    assert_eq!(mib(&of_large), 160, "alone");
    let beside = memory.account(&large);
    assert_eq!((mib(&of_large), mib(&beside)), (80, 80));
    drop(beside);
    let of_small = memory.account(&small);
    assert_eq!((of_small.try_grow(30 * MIB), of_large.try_grow(10 * MIB)), (Ok(()), Ok(())));
    // 1/16 stays free: 110 of 120 MiB are available in addition to what each has. That is less than
    // three quarters of all, and more than one.
    assert_eq!((mib(&of_large), mib(&of_small)), (120, 140));
    assert_eq!(of_small.try_grow(100 * MIB), Ok(()));
    assert_eq!(of_large.try_grow(30 * MIB).unwrap_err().why, RefusalReason::Full);
    assert_eq!((mib(&of_large), mib(&of_small)), (120, 40), "another level lags");
    assert_eq!(of_large.try_grow(MIB), Ok(()));
    assert_eq!(mib(&of_small), 139, "it lags no longer");
    memory.alter(&small, 100, &limits(0, Some(50), false));
    assert_eq!(mib(&of_small), 80, "it may not borrow beyond its limit");
}

#[test]
fn concurrent_charges_lose_no_memory() {
    let memory = Memory::new(8 * MIB);
    let levels: Vec<_> =
        (0..3).map(|i| memory.add(&format!("l{i}").into(), 100, &limits(20, None, true))).collect();
    std::thread::scope(|scope| {
        for seed in 0..6_u64 {
            let account = memory.account(&levels[seed as usize % levels.len()]);
            scope.spawn(move || {
                let mut random = Random::new(seed);
                let mut has = 0;
                for _ in 0..20_000 {
                    let bytes = random.below(200_000);
                    if random.below(3) > 0 && account.try_grow(bytes).is_ok() {
                        has += bytes;
                    } else {
                        let back = random.below(has + 1);
                        account.shrink(back);
                        has -= back;
                    }
                    assert_eq!(account.used(), has);
                }
            });
        }
    });
    assert_eq!(memory.used(), 0);
    let all = memory.account(&levels[0]);
    assert!(all.try_grow(8 * MIB).is_err(), "guarantees of other levels hold");
    assert_eq!(all.try_grow(8 * MIB * 5 / 10), Ok(()), "no byte of the rest is lost");
}

#[test]
fn overdraft_is_bounded_over_all_levels() {
    let memory = Memory::new(100 * PAGE_BYTES);
    let [one, other] = ["one", "other"].map(|name| memory.add(&name.into(), 100, &MemoryLimits::NONE));
    let (account, beside) = (memory.account(&one), memory.account(&other));
    beside.grow(60 * PAGE_BYTES);
    assert!(account.overdraw(40 * PAGE_BYTES, 0), "all of the total");
    assert!(!account.overdraw(1, 0) && !account.overdraw(6 * PAGE_BYTES, 5 * PAGE_BYTES));
    assert!(account.overdraw(5 * PAGE_BYTES, 5 * PAGE_BYTES));
    assert!(!account.overdraw(1, 5 * PAGE_BYTES));
    assert_eq!((account.used(), memory.used()), (45 * PAGE_BYTES, 105 * PAGE_BYTES));
    drop(beside);
    assert!(account.overdraw(1, 0));
}

#[test]
fn moved_account_is_charged_to_its_new_level() {
    let memory = Memory::new(1000 * PAGE_BYTES);
    let [old, new] = ["old", "new"].map(|name| memory.add(&name.into(), 100, &MemoryLimits::NONE));
    let limits = MemoryLimits { min_ppm: 0, limit_ppm: Some(10_000), overcommit: false };
    memory.alter(&new, 100, &limits);
    let account = memory.account(&old);
    let used = || [old.used(), new.used(), memory.used()].map(|bytes| bytes / PAGE_BYTES);
    account.grow(50 * PAGE_BYTES + 1);
    assert_eq!(used(), [51, 0, 51]);
    account.move_to(&new);
    assert_eq!((used(), account.used()), ([0, 51, 51], 50 * PAGE_BYTES + 1), "beyond the limit of 10 pages");
    let refused = account.try_grow(PAGE_BYTES).expect_err("its new level is at its limit");
    assert!(refused.to_string().contains("'new'"), "{refused}");
    account.shrink(45 * PAGE_BYTES);
    assert_eq!((used(), account.try_grow(PAGE_BYTES).is_ok()), ([0, 6, 6], true));
    account.move_to(&old);
    account.move_to(&new);
    account.move_to(&new);
    assert_eq!((used(), account.used()), ([0, 7, 7], 6 * PAGE_BYTES + 1));
    account.shrink(u64::MAX);
    assert_eq!((used(), account.used()), ([0; 3], 0));
    account.grow(1);
    drop(account);
    assert_eq!(used(), [0; 3]);
}

/// Two threads charge and release while the statement moves back and forth.
#[test]
fn moves_lose_no_charge() {
    let memory = Memory::new(1 << 30);
    let [old, new] = ["old", "new"].map(|name| memory.add(&name.into(), 100, &MemoryLimits::NONE));
    let account = memory.account(&old);
    std::thread::scope(|scope| {
        for seed in 1..=2 {
            let account = &account;
            scope.spawn(move || {
                let mut random = Random::new(seed);
                for _ in 0..20_000 {
                    let bytes = random.within(1, 5000);
                    match random.within(0, 2) {
                        0 => account.grow(bytes),
                        _ => account.try_grow(bytes).expect("memory is plentiful"),
                    }
                    account.shrink(bytes);
                }
                account.grow(777);
            });
        }
        for at in 0..2000 {
            account.move_to([&new, &old][at % 2]);
        }
    });
    assert_eq!(account.used(), 2 * 777);
    drop(account);
    assert_eq!((old.used(), new.used(), memory.used()), (0, 0, 0));
}
