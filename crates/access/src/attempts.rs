//! Limits on password checks, on one core. A check costs CPU before the client is known. Without
//! limits, clients without an account could prevent all logins.
//!
//! ```text
//!   slots     0 ............ 128 ............ 192 ...... 224 ...... 256      one for each 4096 iterations
//!             one name ──────┘                │          │          │
//!             one address ────────────────────┘          │          │
//!             all roles ─────────────────────────────────┘          │
//!             superusers ───────────────────────────────────────────┘
//! ```
//!
//! 1. A check takes one slot per 4096 iterations of its verifier. One name gets fewer slots than
//!    one address, and one address fewer than all together. An attack on one role therefore leaves
//!    slots to every other role, even at the same address. The last slots are reserved for
//!    superusers. The bound on an address does not apply to them.
//! 2. A failed login charges the pair of name and address. A pair with too many failures is
//!    rejected before any hashing, until time has repaid the charge. Charging the name alone would
//!    let any client lock a role out.
//!
//! All bounds apply to unknown names too, so that a rejection does not reveal if a name exists.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::net::{IpAddr, Ipv6Addr};

use crate::scram::ITERATIONS;

/// Slots for password checks on a core, one for each 4096 iterations. At 1 ms per slot, the last
/// check waits about 256 ms.
pub const CHECKS_MAX: u32 = 256;
/// Slots that are not reserved for superusers.
const GENERAL_MAX: u32 = 224;
/// Slots of one address, except for superusers.
const ADDRESS_MAX: u32 = 192;
/// Slots of one name. Fewer than those of one address, because otherwise an attack on one role
/// would use all slots of its address.
const NAME_MAX: u32 = 128;
const _: () = assert!(NAME_MAX < ADDRESS_MAX && ADDRESS_MAX < GENERAL_MAX && GENERAL_MAX < CHECKS_MAX);

/// Burst of failed logins that a pair of name and address may have: retries of a person, or of a
/// connection pool with an old password.
const FAILURES_BURST: u64 = 20;
/// Time that repays one failure, in ns. A guesser gets one guess per second and core.
const FAILURE_NS: u64 = 1_000_000_000;
/// Most pairs with failures that a core remembers, at 16 bytes each. Above that, the pair with the
/// least charge is evicted.
const PAIRS_MAX: usize = 4096;

/// Limits on password checks, on one core.
#[derive(Default)]
pub(crate) struct Attempts {
    state: RefCell<AttemptState>,
    hasher: RandomState,
}

#[derive(Default)]
struct AttemptState {
    taken: u32,
    by_name: HashMap<u64, u32>,
    by_address: HashMap<u64, u32>,
    /// Time at which all failures of a pair are repaid, in ns of the monotonic clock (GCRA). Keyed
    /// by the hash of name and address.
    repaid_ns: HashMap<u64, u64>,
}

/// Hashes of the name and address of a login, with a key that clients do not know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attempt {
    name: u64,
    address: u64,
    pair: u64,
}

/// Reason for not checking a password now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// Too many slots are taken.
    Full,
    /// The pair failed too often. One more attempt is admitted after `retry_s` seconds.
    Failures { retry_s: u64 },
}

/// Slots that a check holds until it is dropped.
#[must_use]
pub struct Slots<'a> {
    attempts: &'a Attempts,
    attempt: Attempt,
    weight: u32,
}

impl Attempts {
    /// Returns the hashes for a login. `address` is `None` for callers inside the server.
    pub(crate) fn attempt(&self, name: &str, address: Option<IpAddr>) -> Attempt {
        let address = address.map(network);
        Attempt { name: self.hash(name), address: self.hash(address), pair: self.hash((name, address)) }
    }

    fn hash(&self, value: impl Hash) -> u64 {
        self.hasher.hash_one(value)
    }

    /// Checks the failures of a pair before any hashing.
    pub(crate) fn check_failures(&self, attempt: Attempt, now_ns: u64) -> Result<(), Refusal> {
        let repaid_ns = self.state.borrow().repaid_ns.get(&attempt.pair).copied().unwrap_or(0);
        let allowed_ns = now_ns.saturating_add((FAILURES_BURST - 1) * FAILURE_NS);
        match repaid_ns.checked_sub(allowed_ns) {
            None | Some(0) => Ok(()),
            Some(wait_ns) => Err(Refusal::Failures { retry_s: wait_ns.div_ceil(1_000_000_000) }),
        }
    }

    /// Charges a failed login.
    pub(crate) fn failed(&self, attempt: Attempt, now_ns: u64) {
        let repaid = &mut self.state.borrow_mut().repaid_ns;
        if repaid.len() >= PAIRS_MAX && !repaid.contains_key(&attempt.pair) {
            repaid.retain(|_, repaid_ns| *repaid_ns > now_ns);
            if repaid.len() >= PAIRS_MAX
                && let Some(least) =
                    repaid.iter().min_by_key(|(_, repaid_ns)| **repaid_ns).map(|(pair, _)| *pair)
            {
                repaid.remove(&least);
            }
        }
        let repaid_ns = repaid.entry(attempt.pair).or_insert(now_ns);
        *repaid_ns = (*repaid_ns).max(now_ns).saturating_add(FAILURE_NS);
    }

    /// Takes the slots of a check.
    pub(crate) fn take(
        &self,
        attempt: Attempt,
        iterations: u32,
        is_superuser: bool,
    ) -> Result<Slots<'_>, Refusal> {
        let weight = iterations.div_ceil(ITERATIONS).max(1);
        let state = &mut *self.state.borrow_mut();
        let of = |map: &HashMap<u64, u32>, key| map.get(&key).copied().unwrap_or(0) + weight;
        let most = if is_superuser { CHECKS_MAX } else { GENERAL_MAX };
        let is_full = state.taken + weight > most
            || of(&state.by_name, attempt.name) > NAME_MAX
            || !is_superuser && of(&state.by_address, attempt.address) > ADDRESS_MAX;
        if is_full {
            return Err(Refusal::Full);
        }
        state.taken += weight;
        *state.by_name.entry(attempt.name).or_default() += weight;
        *state.by_address.entry(attempt.address).or_default() += weight;
        Ok(Slots { attempts: self, attempt, weight })
    }
}

impl Drop for Slots<'_> {
    fn drop(&mut self) {
        let state = &mut *self.attempts.state.borrow_mut();
        state.taken -= self.weight;
        for (map, key) in
            [(&mut state.by_name, self.attempt.name), (&mut state.by_address, self.attempt.address)]
        {
            if let Some(taken) = map.get_mut(&key) {
                *taken -= self.weight;
                if *taken == 0 {
                    map.remove(&key);
                }
            }
        }
    }
}

/// Returns the part of an address that a client cannot choose: the first 64 bits of IPv6, or the
/// whole IPv4 address.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn from(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    /// Takes slots of 4096 iterations each until one is rejected.
    fn fill<'a>(attempts: &'a Attempts, attempt: Attempt, is_superuser: bool) -> Vec<Slots<'a>> {
        std::iter::from_fn(|| attempts.take(attempt, ITERATIONS, is_superuser).ok()).collect()
    }

    #[test]
    fn attack_on_one_role_leaves_slots_to_other_roles() {
        let attempts = Attempts::default();
        let attack = fill(&attempts, attempts.attempt("victim", from(1)), false);
        assert_eq!(attack.len(), NAME_MAX as usize);
        for (name, address) in [("other", 1), ("other", 2), ("unknown", 1)] {
            assert!(
                attempts.take(attempts.attempt(name, from(address)), ITERATIONS, false).is_ok(),
                "{name}"
            );
        }
        assert!(attempts.take(attempts.attempt("admin", from(1)), ITERATIONS, true).is_ok());
    }

    #[test]
    fn superuser_has_slots_when_all_others_are_taken() {
        let attempts = Attempts::default();
        let attack: Vec<_> = (0..4_u8)
            .flat_map(|i| fill(&attempts, attempts.attempt(&format!("name {i}"), from(i)), false))
            .collect();
        assert_eq!(attack.len(), GENERAL_MAX as usize);
        assert_eq!(
            attempts.take(attempts.attempt("other", from(9)), ITERATIONS, false).err(),
            Some(Refusal::Full)
        );
        // Also from the attacker's address.
        assert!(attempts.take(attempts.attempt("admin", from(1)), 8 * ITERATIONS, true).is_ok());
        drop(attack);
        let state = attempts.state.borrow();
        assert_eq!((state.taken, state.by_name.len(), state.by_address.len()), (0, 0, 0));
    }

    #[test]
    fn address_has_a_bound_except_for_superusers() {
        let attempts = Attempts::default();
        let attempt = |name: &str| attempts.attempt(name, from(1));
        let attack: Vec<_> =
            ["a", "b"].iter().flat_map(|name| fill(&attempts, attempt(name), false)).collect();
        assert_eq!(attack.len(), ADDRESS_MAX as usize);
        assert_eq!(attempts.take(attempt("c"), ITERATIONS, false).err(), Some(Refusal::Full));
        assert!(attempts.take(attempts.attempt("c", from(2)), ITERATIONS, false).is_ok());
        // Superusers have all slots that the attack left.
        assert_eq!(fill(&attempts, attempt("admin"), true).len(), (CHECKS_MAX - ADDRESS_MAX) as usize);
    }

    #[test]
    fn check_takes_slots_by_its_iterations() {
        let attempts = Attempts::default();
        let attempt = attempts.attempt("heavy", from(1));
        let mut held = Vec::new();
        while let Ok(slots) = attempts.take(attempt, 65_536, false) {
            held.push(slots);
        }
        assert_eq!(held.len(), 8);
        drop(held);
        // A part of a slot counts as a whole one.
        let weight = |iterations| attempts.take(attempt, iterations, false).map(|slots| slots.weight).ok();
        assert_eq!([1, ITERATIONS, ITERATIONS + 1].map(weight), [Some(1), Some(1), Some(2)]);
    }

    #[test]
    fn failures_block_only_their_name_at_their_address() {
        let attempts = Attempts::default();
        let guesser = attempts.attempt("admin", from(1));
        for _ in 0..FAILURES_BURST {
            assert_eq!(attempts.check_failures(guesser, 5 * SECOND), Ok(()));
            attempts.failed(guesser, 5 * SECOND);
        }
        assert_eq!(attempts.check_failures(guesser, 5 * SECOND), Err(Refusal::Failures { retry_s: 1 }));
        for (name, address) in [("admin", 2), ("other", 1)] {
            assert_eq!(attempts.check_failures(attempts.attempt(name, from(address)), 5 * SECOND), Ok(()));
        }
        assert_eq!(attempts.check_failures(guesser, 6 * SECOND), Ok(()), "one attempt per second");
        attempts.failed(guesser, 6 * SECOND);
        assert!(attempts.check_failures(guesser, 6 * SECOND).is_err());
        // A started second counts as a whole one.
        assert_eq!(attempts.check_failures(guesser, 6 * SECOND + 1), Err(Refusal::Failures { retry_s: 1 }));
    }

    #[test]
    fn quiet_time_permits_no_more_than_the_burst() {
        let attempts = Attempts::default();
        let guesser = attempts.attempt("admin", from(1));
        attempts.failed(guesser, 0);
        (0..FAILURES_BURST).for_each(|_| attempts.failed(guesser, 1_000 * SECOND));
        assert!(attempts.check_failures(guesser, 1_000 * SECOND).is_err());
    }

    #[test]
    fn eviction_keeps_the_pairs_with_most_failures() {
        let attempts = Attempts::default();
        let worst = attempts.attempt("admin", from(1));
        (0..=FAILURES_BURST).for_each(|_| attempts.failed(worst, 0));
        for i in 0..2 * PAIRS_MAX {
            attempts.failed(attempts.attempt(&format!("name {i}"), from(1)), 0);
        }
        assert_eq!(attempts.state.borrow().repaid_ns.len(), PAIRS_MAX);
        assert!(attempts.check_failures(worst, 0).is_err());
        // A known pair takes no place, and repaid pairs give theirs back.
        attempts.failed(worst, 0);
        assert_eq!(attempts.state.borrow().repaid_ns.len(), PAIRS_MAX);
        attempts.failed(attempts.attempt("later", from(1)), SECOND);
        assert_eq!(attempts.state.borrow().repaid_ns.len(), 2);
    }

    #[test]
    fn ipv6_addresses_of_one_network_share_slots() {
        let attempts = Attempts::default();
        let of = |text: &str| attempts.attempt("a", Some(text.parse().expect("an address")));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }
}
