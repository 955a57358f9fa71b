//! Hard cap in simulated time. Cores take leases, overrun them, come late, fall asleep and give
//! time back.

mod common;

use common::config;
use proptest::prelude::*;
use sched::cap::{self, BURST_NS, Cap, LEASE_NS, PERIOD_NS};
use testkit::Random;

#[derive(Clone, Copy, Debug)]
struct Server {
    limit_ppm: u32,
    /// Cores of the machine.
    cores: u32,
    busy_cores: u32,
    /// Longest overrun of a slice, ns.
    overrun_ns: u64,
    late_ns: u64,
    /// One slice in this many is followed by sleep; 0 is never.
    sleeps_one_in: u64,
    /// Takes long leases.
    long: bool,
}

impl Server {
    fn lease_ns(self) -> u64 {
        if self.long { cap::long_lease_ns(self.limit_ppm) } else { LEASE_NS }
    }
}

struct Use {
    /// CPU time used, ns.
    used_ns: u64,
    /// Most by which any interval exceeded `rate × interval`, ns of CPU.
    excess_ns: i128,
}

/// Runs the group for `for_ns`. Each core is its own time line. The earliest core acts next, as on
/// a shared clock.
fn simulate(server: Server, for_ns: u64, seed: u64) -> Use {
    let Server { limit_ppm, cores, .. } = server;
    let mut random = Random::new(seed);
    let mut paid_until_ns = 0;
    let mut lanes = vec![(1_000_000_u64, Cap::new()); server.busy_cores as usize];
    let mut used_ns = 0_u64;
    let mut least = i128::MAX;
    let mut excess_ns = 0;
    loop {
        let (now_ns, cap) = lanes.iter_mut().min_by_key(|lane| lane.0).expect("a core is busy");
        if *now_ns > for_ns {
            return Use { used_ns, excess_ns };
        }
        if cap.exhausted() {
            match cap::take(
                paid_until_ns,
                *now_ns,
                cap.want_ns(server.lease_ns()),
                limit_ppm,
                cores,
                BURST_NS,
            ) {
                Err(retry_ns) => {
                    assert!(retry_ns > *now_ns);
                    *now_ns = retry_ns + random.within(0, server.late_ns + 1);
                }
                Ok(paid) => {
                    paid_until_ns = paid;
                    cap.grant(cap.want_ns(server.lease_ns()));
                }
            }
            continue;
        }
        // Used time less allowed time, before and after the slice: its least and its greatest so
        // far.
        let allowed = i128::from(*now_ns) * i128::from(limit_ppm) * i128::from(cores) / 1_000_000;
        least = least.min(i128::from(used_ns) - allowed);
        let slice = cap.remaining_ns().unsigned_abs().min(500_000) + random.within(0, server.overrun_ns + 1);
        cap.charge(slice);
        used_ns += slice;
        excess_ns = excess_ns.max(i128::from(used_ns) - allowed - least);
        *now_ns += slice;
        if server.sleeps_one_in > 0 && random.one_in(server.sleeps_one_in) {
            paid_until_ns = cap::give_back(paid_until_ns, cap.release(), limit_ppm, cores);
            *now_ns += random.within(0, 30_000_000);
        }
    }
}

/// Checks that no interval uses more than rate × (interval + burst), one lease for each core, and
/// the overrun of the last slices.
fn check_excess(server: Server, seed: u64) {
    let used = simulate(server, 5 * PERIOD_NS, seed);
    let rate = i128::from(server.limit_ppm) * i128::from(server.cores);
    let burst = rate * i128::from(BURST_NS) / 1_000_000;
    let lease = i128::from(server.lease_ns() + 2 * server.overrun_ns);
    let bound = burst + i128::from(server.busy_cores) * lease + 1_000;
    assert!(used.excess_ns <= bound, "{} > {bound}: {server:?}", used.excess_ns);
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn cap_is_exceeded_by_at_most_a_lease(
        seed: u64,
        limit_ppm in prop_oneof![Just(500_000), Just(1_000_000), 1_000_u32..=1_000_000],
        cores in 1_u32..=16,
        busy in 1_u32..=16,
        overrun_ns in prop_oneof![Just(0), Just(50_000), Just(10_000_000)],
        late_ns in 0_u64..5_000_000,
        sleeps_one_in in 0_u64..20,
        long: bool,
    ) {
        let busy_cores = busy.min(cores);
        check_excess(Server { limit_ppm, cores, busy_cores, overrun_ns, late_ns, sleeps_one_in, long }, seed);
    }
}

/// Checks the CPU that a group with endless work gets on an idle machine, in millionths of the
/// machine.
fn check_reached(
    limit_ppm: u32,
    cores: u32,
    busy_cores: u32,
    overrun_ns: u64,
    late_ns: u64,
    expected_ppm: u64,
) {
    for long in [false, true] {
        let server = Server { limit_ppm, cores, busy_cores, overrun_ns, late_ns, sleeps_one_in: 0, long };
        let for_ns = 100 * PERIOD_NS;
        let used = simulate(server, for_ns, 7);
        let ppm = u128::from(used.used_ns) * 1_000_000 / (u128::from(for_ns) * u128::from(cores));
        let off = ppm.abs_diff(u128::from(expected_ppm));
        assert!(off <= 1_000, "{ppm} ppm instead of {expected_ppm}: {server:?}");
    }
}

#[test]
fn busy_group_reaches_its_cap_within_a_thousandth() {
    check_reached(500_000, 1, 1, 0, 0, 500_000);
    check_reached(500_000, 1, 1, 50_000, 100_000, 500_000);
    check_reached(500_000, 2, 2, 50_000, 2_000_000, 500_000);
    check_reached(500_000, 4, 3, 50_000, 2_000_000, 500_000);
    check_reached(10_000, 1, 1, 0, 100_000, 10_000);
    check_reached(333_333, 16, 16, 10_000_000, 100_000, 333_333);
}

#[test]
fn half_of_two_cores_is_all_of_one_core() {
    check_reached(500_000, 2, 1, 0, 0, 500_000);
    check_reached(750_000, 2, 1, 0, 0, 500_000);
}

/// A burst and a lease can be had at once after a sleep of any length.
#[test]
fn sleep_saves_a_burst_and_a_lease() {
    let mut paid = 0;
    let mut granted = 0;
    while let Ok(next) = cap::take(paid, 3_600_000_000_000, LEASE_NS, 500_000, 1, BURST_NS) {
        (paid, granted) = (next, granted + LEASE_NS);
    }
    assert_eq!(granted, BURST_NS / 2 + LEASE_NS);
}

/// An overrun charged to the budget delays the next lease of every core by the time that it takes
/// to pay.
#[test]
fn overrun_is_debt_of_the_budget() {
    let now = 1_000_000_000;
    let paid = cap::overrun(0, now, 10_000_000, 500_000, 1);
    assert_eq!(cap::take(paid, now, LEASE_NS, 500_000, 1, BURST_NS), Err(now + 20_000_000 - BURST_NS));
}

/// A lowered limit applies from the next lease on.
#[test]
fn new_limit_acts_with_the_next_lease() {
    let now = 1_000_000_000;
    let paid = cap::take(0, now, LEASE_NS, 500_000, 1, 0).unwrap();
    assert_eq!(paid, now + 2 * LEASE_NS);
    assert_eq!(cap::take(paid, paid, LEASE_NS, 100_000, 1, 0), Ok(paid + 10 * LEASE_NS));
}
