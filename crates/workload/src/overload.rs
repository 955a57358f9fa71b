//! Overload of the server, and the statement that is asked for an action. Once a second:
//!
//! 1. The server is overloaded if a level lacks memory that it is entitled to, if a statement that
//!    cannot spill was refused memory that others hold, or if the limiter refused statements, since
//!    the last check.
//! 2. Of the levels with candidates, the one that uses most for its shares is the least
//!    entitled. Its heaviest statement is asked for its next action: by memory if memory is short,
//!    otherwise by the bytes that it has read. A statement that holds borrowed memory without
//!    growing is found in this way too.
//! 3. [`QUIET`] checks without overload end all suspensions.
//!
//! A statement that is held is no sign of overload: a level with a backlog always holds some.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::Levels;
use crate::candidates::Candidate;

/// Time between two checks, ns. An action has this long to show before the next one.
const EVERY_NS: u64 = 1_000_000_000;
/// Looks without overload after which suspended statements go on.
const QUIET: u32 = 3;

/// The resource that the server lacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lack {
    Memory,
    Cpu,
}

/// The watch over the server.
#[derive(Default)]
pub(crate) struct Overload {
    last_ns: u64,
    /// Refused requests for memory and refused statements, at the last check. `None`: no statement
    /// could be asked then.
    refused: Option<(u64, u64)>,
    quiet: u32,
}

impl Overload {
    /// Looks, if it is time, and asks one statement for an action.
    pub(crate) fn decide(&mut self, levels: &Levels, now_ns: u64) {
        if now_ns.saturating_sub(self.last_ns) < EVERY_NS {
            return;
        }
        self.last_ns = now_ns;
        let running = levels.candidates.running();
        if running.is_empty() {
            self.refused = None;
            return;
        }
        let catalog = levels.catalog();
        let mut refused = (0, 0);
        let mut lagging = None;
        for entry in catalog.entries() {
            let memory = entry.level.memory().usage();
            refused.0 += memory.short;
            refused.1 += entry.level.shed();
            lagging = lagging.or_else(|| memory.is_lagging.then(|| entry.spec.name.clone()));
        }
        // The first check of candidates only records what was refused before they began.
        let before = self.refused.replace(refused).unwrap_or(refused);
        let (lack, why) = match lagging {
            Some(level) => (Lack::Memory, format!("service level '{level}' lacks memory that is due to it")),
            None if refused.0 > before.0 => (Lack::Memory, "query memory is short".to_owned()),
            None if refused.1 > before.1 => (Lack::Cpu, "statements are refused".to_owned()),
            None => {
                self.quiet += 1;
                if self.quiet >= QUIET {
                    running.iter().for_each(|candidate| candidate.set_suspended(false));
                }
                return;
            }
        };
        self.quiet = 0;
        let shares: HashMap<u64, u64> =
            catalog.entries().map(|entry| (entry.level.id(), entry.spec.shares.into())).collect();
        if let Some(heaviest) = heaviest(&running, lack, |id| shares.get(&id).copied().unwrap_or(1)) {
            heaviest.ask(&why);
        }
    }
}

/// Returns the heaviest statement of the level that uses most for its shares. `None` if none can
/// be asked.
fn heaviest(running: &[Arc<Candidate>], lack: Lack, shares: impl Fn(u64) -> u64) -> Option<&Arc<Candidate>> {
    let weight = |candidate: &Candidate| match lack {
        Lack::Memory => candidate.memory(),
        Lack::Cpu => candidate.read(),
    };
    let mut by_level = HashMap::<u64, u64>::new();
    for candidate in running {
        *by_level.entry(candidate.level()).or_default() += weight(candidate);
    }
    // Suspended statements read no more, but hold their memory.
    let can_give = |candidate: &&Arc<Candidate>| {
        candidate.can_be_asked() && (lack == Lack::Memory || !candidate.is_suspended())
    };
    let able = || running.iter().filter(can_give);
    let beside_shares = |id: u64| by_level[&id].saturating_mul(1000) / shares(id).max(1);
    let ids: BTreeSet<u64> = able().map(|candidate| candidate.level()).collect();
    let least_entitled = ids.into_iter().max_by_key(|id| beside_shares(*id))?;
    able().filter(|candidate| candidate.level() == least_entitled).max_by_key(|candidate| weight(candidate))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::candidates::Candidates;
    use crate::{Level, MemoryLimits};

    #[test]
    fn heaviest_statement_of_the_least_entitled_level_gives_way() {
        let all = Candidates::default();
        let shares = |level: u64| if level == 1 { 1000 } else { 100 };
        // Level 1 uses more memory, but has ten times the shares.
        let of = |level, memory, read| {
            let candidate = all.add(level, 2);
            candidate.report(memory, read);
            candidate
        };
        let one = of(1, 900, 900);
        let small = of(2, 100, 700);
        let large = of(2, 200, 10);
        let next = |lack| heaviest(&all.running(), lack, shares).map(|found| (found.level(), found.memory()));
        assert_eq!((next(Lack::Memory), next(Lack::Cpu)), (Some((2, 200)), Some((2, 100))));
        (0..2).for_each(|_| large.ask("memory"));
        assert_eq!(next(Lack::Memory), Some((2, 100)), "it has no action left");
        small.set_suspended(true);
        assert_eq!(next(Lack::Cpu), Some((1, 900)), "a suspended statement reads nothing");
        drop((small, large));
        assert_eq!(next(Lack::Memory), Some((1, 900)));
        drop(one);
        assert_eq!(next(Lack::Memory), None);
    }

    fn start() -> lanes::Lanes {
        let config = lanes::Config { cores: vec![0], pin: false, ..lanes::Config::detect() };
        lanes::Lanes::start(config).expect("lanes start")
    }

    /// A level at its own limit, and operators that spill, lack nothing that others could give.
    #[test]
    fn refusals_that_others_cannot_help_are_no_overload() {
        let lanes = start();
        let levels = Levels::new(lanes.clone());
        levels.memory().set_total(160 << 20);
        let catalog = levels.catalog();
        let [narrow, wide] = ["driver", "default"].map(|name| &catalog.get(name).expect("it exists").level);
        let limits = MemoryLimits { min_ppm: 0, limit_ppm: Some(50_000), overcommit: false };
        levels.memory().alter(narrow.memory(), 100, &limits);
        let candidate = wide.candidate(1);
        let mut overload = Overload::default();
        let mut is_asked = |second: u64| {
            overload.decide(&levels, second * EVERY_NS);
            !candidate.can_be_asked()
        };
        assert!(!is_asked(1));
        let account = |level: &Level| levels.memory().account(level.memory());
        let (small, spills) = (account(narrow), account(wide));
        assert!(small.try_grow(9 << 20).is_err() && small.try_grow_unspillable(9 << 20).is_err());
        assert!(spills.try_grow(150 << 20).is_ok() && spills.try_grow(20 << 20).is_err());
        assert!(!is_asked(2));
        assert!(small.try_grow_unspillable(6 << 20).is_ok());
        assert!(spills.try_grow_unspillable(6 << 20).is_err());
        assert!(is_asked(3), "it holds what a statement lacks");
        drop((candidate, small, spills, catalog, levels));
        lanes.shutdown();
    }

    #[test]
    fn statement_is_not_asked_for_refusals_before_it_began() {
        let lanes = start();
        let levels = Levels::new(lanes.clone());
        let level = levels.catalog().default_level().level.clone();
        let mut overload = Overload::default();
        let mut check = |second: u64| overload.decide(&levels, second * EVERY_NS);
        level.record_shed(0);
        check(1);
        let candidate = level.candidate(1);
        check(2);
        assert!(candidate.can_be_asked(), "it was refused before the statement began");
        level.record_shed(0);
        check(3);
        assert!(!candidate.can_be_asked());
        drop((candidate, level, levels));
        lanes.shutdown();
    }
}
