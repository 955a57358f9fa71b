//! Limits and decisions for given measurements.

use super::super::{INTERVAL_NS, SECOND_NS};
use super::*;

const US: u64 = 1000;
const MS: u64 = 1000 * US;

/// Returns the limit of a level with a thousand statements ended in the last interval.
fn limit(work_ns: u64, part_ppm: u32, device_ns: u64) -> ConcurrencyLimit {
    let (cpu_ns, device_ns) = (1000 * work_ns, 1000 * device_ns);
    Concurrency::default().decide(ConcurrencyInput { ended: 1000, cpu_ns, device_ns, ..input(part_ppm) })
}

fn input(part_ppm: u32) -> ConcurrencyInput {
    ConcurrencyInput {
        interval_ns: INTERVAL_NS,
        entitlement_ppm: part_ppm,
        bounds: LevelBounds { time_limit_ns: 10 * SECOND_NS, latency_target_ns: None, limit_max: 16_384 },
        ..ConcurrencyInput::default()
    }
}

fn with_target(latency_target_ns: u64) -> LevelBounds {
    LevelBounds { latency_target_ns: Some(latency_target_ns), ..input(1).bounds }
}

#[test]
fn limit_is_time_in_the_system_over_work() {
    for (work_ns, part_ppm, device_ns, target_ns, statements) in [
        (3 * US, 1_000_000, 0, 5 * MS, 334),
        (3 * US, 100_000, 0, 5 * MS, 34),
        (3 * US, 10_000, 0, 5 * MS, 17),
        (19 * US, 1_000_000, 1200 * US, 5 * MS, 116),
        (369 * US, 1_000_000, 400 * US, 5 * MS, 10),
        (369 * US, 100_000, 0, 29_520 * US, 9),
        (100 * MS, 1_000_000, 0, 800 * MS, 9),
        (10, 1_000_000, 0, 5 * MS, 16_384),
        (2 * SECOND_NS, 10_000, 0, 2500 * MS, 1),
    ] {
        let limit = limit(work_ns, part_ppm, device_ns);
        assert_eq!((limit.target_ns, limit.statements), (target_ns, statements), "{limit:?}");
    }
}

#[test]
fn state_size_matches_the_documentation() {
    let bytes = size_of::<Concurrency>() + size_of::<ConcurrencyLimit>() + size_of::<StandingQueue>();
    assert_eq!(bytes, 184);
}

#[test]
fn work_is_the_larger_of_cpu_and_disk() {
    let both = ConcurrencyInput { ended: 10, cpu_ns: 30 * US, disk_ns: 190 * US, ..input(1_000_000) };
    assert_eq!(Concurrency::default().decide(both).work_ns, 19 * US);
}

#[test]
fn device_time_is_at_most_a_quarter_of_the_time_limit() {
    assert_eq!(limit(100 * US, 1_000_000, 20 * SECOND_NS).device_ns, 2500 * MS);
}

#[test]
fn queue_stands_after_100_ms_and_until_none_was_late_for_100_ms() {
    let mut words = [0; 4];
    // Time and age of each statement, and whether the queue stands if 2 ms are late.
    for (now_ms, age_ms, expected) in [
        (1000, 500, false), // The first one found it empty.
        (1100, 101, false), // For 100 ms.
        (1101, 2, true),
        (1102, 3, true),
        (1102, 0, true), // A moment without a queue.
        (1201, 2, true),
        (1202, 1, false), // The last late one was 100 ms ago.
        (9000, 9000, true),
        (9099, 0, true),
        (9100, 0, false),
    ] {
        // As levels keep it between two statements.
        let mut queue = StandingQueue::from_words(words);
        assert_eq!(queue.stands(now_ms * MS, age_ms * MS, 2 * MS), expected, "at {now_ms} ms");
        words = queue.to_words();
    }
}

#[test]
fn busy_queue_of_young_statements_does_not_stand() {
    let mut queue = StandingQueue::default();
    // Milliseconds and age of each statement. None finds the queue empty.
    let mut stands = |range: std::ops::Range<u64>, age_ms| {
        range.filter(|ms| queue.stands(ms * MS, age_ms * MS, 10 * MS)).count()
    };
    assert_eq!(stands(1000..3000, 2), 0);
    assert_eq!(stands(3000..3010, 30), 0, "a burst");
    assert_eq!(stands(3010..5000, 2), 0);
    assert!(stands(5000..5200, 12) > 100, "an overload");
}

#[test]
fn latency_target_replaces_the_target() {
    let target = |latency_target_ns| {
        let bounds = with_target(latency_target_ns);
        let input = ConcurrencyInput { ended: 1, cpu_ns: MS, bounds, ..input(1_000_000) };
        Concurrency::default().decide(input).target_ns
    };
    assert_eq!([20 * MS, MS, 0].map(target), [19 * MS, LATENCY_SLICE_NS, LATENCY_SLICE_NS]);
}

#[test]
fn running_statement_raises_the_work_while_none_ends() {
    let mut control = Concurrency::default();
    let mut work_ns = |ended, cpu_ns, running| {
        control.decide(ConcurrencyInput { ended, cpu_ns, running, ..input(1_000_000) }).work_ns
    };
    assert_eq!(work_ns(0, 0, 0), WORK_NS_START);
    assert_eq!(work_ns(1000, 100 * MS, 0), 100 * US);
    assert_eq!(work_ns(0, 0, 0), 100 * US, "the last value");
    assert_eq!(work_ns(0, 20 * MS, 2), 10 * MS, "two statements run and none ends");
    assert_eq!(work_ns(0, 20 * MS, 2), 20 * MS, "each has used as much at least");
    // 1000 statements of 100 µs decayed by 80 ms in 200, and one of 40 ms.
    assert_eq!(work_ns(1, 0, 0) / US, 155);
}

fn check(overload: Overload, age_ns: u64, level_in_flight: u32, expected: Verdict) {
    // A limit of 1000 statements of 1 ms of work each, for a tenth of the core.
    let limit = ConcurrencyLimit {
        statements: 1000,
        target_ns: 10 * MS,
        work_ns: MS,
        device_ns: 5 * MS,
        refusal_ppm: 0,
        drain_ns: 10 * MS,
        busiest_ppm: 1_000_000,
        elsewhere: 0,
        has_target: false,
        time_limit_ns: 20 * SECOND_NS,
    };
    let random = u32::MAX / 2;
    let time_limit_ns = limit.time_limit_ns;
    let arriving = Arriving { age_ns, time_limit_ns, level_in_flight, queue_stands: true, overload, random };
    assert_eq!(limit.admit(arriving), expected, "{arriving:?}");
}

#[test]
fn statement_is_refused_only_while_the_queue_stands() {
    let limit = limit(100 * US, 1_000_000, 0);
    let refuses = |age_ns, queue_stands| {
        let (overload, time_limit_ns) = (Overload::Refuse, limit.time_limit_ns);
        let arriving =
            Arriving { age_ns, time_limit_ns, level_in_flight: 0, queue_stands, overload, random: 0 };
        matches!(limit.admit(arriving), Verdict::Refuse { .. })
    };
    assert_eq!(
        [refuses(10 * MS + 1, true), refuses(10 * MS, true), refuses(SECOND_NS, false)],
        [true, false, false]
    );
}

#[test]
fn cheap_statements_are_late_after_a_quarter_of_the_time_limit_without_a_target() {
    let late_ms = |work_ns| limit(work_ns, 1_000_000, 0).late_ns() / MS;
    assert_eq!([3 * US, 9_999, 10 * US, 2 * MS].map(late_ms), [2500, 2500, 10, 32]);
    let late_with_target_ms = |work_ns| {
        let (cpu_ns, bounds) = (1000 * work_ns, with_target(5 * MS));
        let input = ConcurrencyInput { ended: 1000, cpu_ns, bounds, ..input(1_000_000) };
        Concurrency::default().decide(input).late_ns() / MS
    };
    assert_eq!([3 * US, 9_999, 10 * US, 2 * MS].map(late_with_target_ms), [9, 9, 9, 6]);
}

#[test]
fn refusals_that_fill_the_core_make_statements_late_later() {
    let late_ms = |refusal_ppm| {
        let limit = ConcurrencyLimit { refusal_ppm, ..limit(100 * US, 1_000_000, 0) };
        limit.late_ns() / MS
    };
    assert_eq!(
        [0, 333_333, 500_000, 666_666, 750_000, 833_332, 999_999].map(late_ms),
        [10, 10, 1255, 2500, 6250, 10_000, 10_000]
    );
}

#[test]
fn wait_is_for_the_busiest_core() {
    let wait_ms = |busiest_ppm, elsewhere| {
        let input = ConcurrencyInput { ended: 10, cpu_ns: 80 * MS, busiest_ppm, elsewhere, ..input(500_000) };
        Concurrency::default().decide(input).wait_ns(3) / MS
    };
    // 8 ms of work each, for half of a core.
    assert_eq!(wait_ms(0, 0), 48);
    assert_eq!(wait_ms(1_000_000, 0), 48);
    assert_eq!(wait_ms(125_000, 0), 6, "parallel on eight cores");
    assert_eq!(wait_ms(125_000, 21), 48, "each core has three of them");
    let mut spread = Spread::new(2);
    assert_eq!(spread.add(INTERVAL_NS, &[0, 0]), 1_000_000, "nothing is known");
    assert_eq!(spread.add(INTERVAL_NS, &[10 * MS, 10 * MS]), 500_000);
    let busiest = (0..20).map(|_| spread.add(INTERVAL_NS, &[0, 10 * MS])).last();
    assert!((800_000..1_000_000).contains(&busiest.unwrap_or(0)), "{busiest:?}");
}

#[test]
fn overload_refuses_interactive_and_holds_batch() {
    use Overload::{Hold, Queue, Refuse};
    use Verdict::{Admit, Expired, Wait};
    for overload in [Refuse, Hold, Queue] {
        check(overload, 20 * MS, 999, Admit);
        // A quarter of the time limit is the most.
        let expired = Expired { retry_ns: 5 * SECOND_NS - 1 };
        check(overload, 20 * SECOND_NS - 5 * MS, 0, expired);
        check(overload, 10 * SECOND_NS - 5 * MS, 1000, expired);
    }
    check(Refuse, 20 * MS, 1000, Verdict::Hold);
    check(Refuse, 21 * MS, 0, Verdict::Refuse { retry_ns: 11 * MS - 1 });
    check(Hold, SECOND_NS, 1000, Verdict::Hold);
    check(Queue, SECOND_NS, 1000, Wait);
    check(Hold, SECOND_NS, 999, Admit);
}

#[test]
fn change_of_a_limit_names_its_cause() {
    let before = limit(100 * US, 500_000, MS);
    let cause = |work_ns, part_ppm, device_ns| limit(work_ns, part_ppm, device_ns).change_from(&before);
    assert_eq!(cause(100 * US, 500_000, MS), None);
    assert_eq!(cause(300 * US, 400_000, MS), Some(LimitChange::Work));
    assert_eq!(cause(100 * US, 250_000, MS), Some(LimitChange::Entitlement));
    assert_eq!(cause(110 * US, 500_000, 5 * MS), Some(LimitChange::Device));
    let other_target = ConcurrencyLimit { statements: 1, ..before };
    assert_eq!(other_target.change_from(&before), Some(LimitChange::Target));
    let names = LimitChange::ALL.map(LimitChange::name);
    assert_eq!(names, ["work", "entitlement", "device", "target"], "the labels of the metric");
}

#[test]
fn statement_expires_by_its_own_time_limit() {
    let limit = limit(MS, 1_000_000, 0);
    let expires = |time_limit_ns| {
        let age_ns = SECOND_NS;
        let level_in_flight = 1;
        let queue_stands = false;
        let overload = Overload::Hold;
        let arriving = Arriving { age_ns, time_limit_ns, level_in_flight, queue_stands, overload, random: 0 };
        matches!(limit.admit(arriving), Verdict::Expired { .. })
    };
    assert_eq!([SECOND_NS, SECOND_NS + MS, 3600 * SECOND_NS].map(expires), [true, true, false]);
    let of_level = limit.time_limit_ns;
    assert!(of_level > SECOND_NS + MS && of_level < 3600 * SECOND_NS, "it does not decide: {of_level}");
}

#[test]
fn pause_grows_with_the_cost_of_refusals() {
    let retry_ms = |refusal_ppm| {
        let limit = ConcurrencyLimit { refusal_ppm, ..limit(100 * US, 1_000_000, 0) };
        (limit.retry_ns(15 * MS, limit.longest_ns(), u32::MAX / 2) + MS / 2) / MS
    };
    assert_eq!([0, 58_824, 500_000, 999_999].map(retry_ms), [10, 20, 170, 2500]);
}

#[test]
fn entitlement_is_the_minimum_and_shares_of_the_rest() {
    assert_eq!(entitlement_ppm(100, 400, 0, 0, None), 250_000);
    assert_eq!(entitlement_ppm(100, 400, 200_000, 200_000, None), 400_000);
    assert_eq!(entitlement_ppm(300, 400, 0, 200_000, Some(500_000)), 500_000);
    assert_eq!(entitlement_ppm(100, 0, 0, 0, None), 1_000_000, "an idle core");
    assert_eq!(entitlement_ppm(1, 2_000_000, 0, 0, None), 1, "never nothing");
}
