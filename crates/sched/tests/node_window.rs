//! Rules of the limiter of a node's window, each with a few ticks. `simulated_cluster` has the
//! limiter together with nodes.

use sched::control::{ClassId, NODE_TICK_NS, NodeSample, NodeWindow, WindowBounds};
use testkit::Random;

const BOUNDS: WindowBounds = WindowBounds { min: 4, max: 1024 };
const MS: u64 = 1_000_000;
/// Opcode of EXECUTE.
const EXECUTE: u8 = 0x0a;
/// Ticks between two drains.
const DRAIN_EVERY: u64 = 300;
const DRAIN_TICKS: u64 = 6;

/// A limiter, its clock, and the answers of one core.
struct Driver {
    limiter: NodeWindow,
    sample: NodeSample,
    now_ns: u64,
    /// Window in force.
    window: u32,
}

impl Driver {
    fn new() -> Driver {
        let limiter = NodeWindow::new(BOUNDS, 0);
        Driver { limiter, sample: NodeSample::default(), now_ns: 0, window: BOUNDS.min }
    }

    fn answer(&mut self, answers: u64, time_ns: u64) {
        for _ in 0..answers {
            self.sample.answered(ClassId::of_statement(0, EXECUTE), time_ns);
        }
    }

    /// Ends a tick in which the window was the limit for a part of the time, in percent.
    fn tick(&mut self, full_percent: u64) -> u32 {
        self.sample.used(NODE_TICK_NS / 100 * full_percent, NODE_TICK_NS);
        self.now_ns += NODE_TICK_NS;
        self.window = self.limiter.tick(self.now_ns, &mut self.sample);
        self.window
    }

    /// Runs ticks of a full window at a node that serves `capacity` requests at once.
    fn run(&mut self, ticks: u64, capacity: u32, time_ns: u64) {
        for _ in 0..ticks {
            self.answer(200, time_ns * u64::from(self.window.max(capacity)) / u64::from(capacity));
            self.tick(100);
        }
    }

    /// Returns a limiter at rest at a node that serves 100 requests at once, and has just drained.
    fn at_rest() -> Driver {
        let mut driver = Driver::new();
        driver.run(4 * DRAIN_EVERY + 2 * DRAIN_TICKS, 100, MS);
        driver
    }
}

#[test]
fn window_doubles_until_times_grow() {
    let mut driver = Driver::new();
    let windows: Vec<u32> = (0..13)
        .map(|_| {
            driver.run(1, 100, MS);
            driver.window
        })
        .collect();
    assert_eq!(windows[..11], [8, 8, 16, 16, 32, 32, 64, 64, 128, 128, 256]);
    assert!(windows[12] < 256, "{windows:?}");
}

#[test]
fn root_of_the_window_waits_at_rest() {
    let window = f64::from(Driver::at_rest().window);
    assert!((window - 100.0 - window.sqrt()).abs() < 3.0, "{window}");
}

#[test]
fn window_that_is_not_the_limit_stays() {
    let mut driver = Driver::new();
    for _ in 0..DRAIN_EVERY + 10 {
        driver.answer(1000, MS);
        assert_eq!(driver.tick(49), BOUNDS.min);
    }
    let mut driver = Driver::at_rest();
    let window = driver.window;
    for tick in 0..2 * DRAIN_EVERY {
        driver.answer(1000, MS * (1 + tick % 5));
        assert_eq!(driver.tick(49), window);
    }
}

#[test]
fn tick_with_few_answers_waits_for_a_second() {
    let mut driver = Driver::at_rest();
    let window = driver.window;
    for _ in 0..9 {
        driver.answer(1, 10 * MS);
        assert_eq!(driver.tick(100), window);
    }
    driver.answer(1, 10 * MS);
    assert!(driver.tick(100) < window);
    let window = driver.window;
    driver.answer(16, 10 * MS);
    assert!(driver.tick(100) < window);
}

#[test]
fn overload_lowers_the_window_and_rests_for_a_second() {
    let mut driver = Driver::at_rest();
    let window = driver.window;
    driver.answer(200, MS);
    driver.sample.overloaded();
    let low = driver.tick(100);
    assert!((low * 10).abs_diff(window * 7) < 10, "{low}, {window}");
    for _ in 0..10 {
        driver.answer(200, MS);
        driver.sample.overloaded();
        assert_eq!(driver.tick(100), low);
    }
    driver.answer(200, MS);
    assert!(driver.tick(100) > low);
}

#[test]
fn timeouts_over_one_percent_lower_the_window() {
    let is_lowered = |answers, timeouts_by_tick: &[u32]| {
        let mut driver = Driver::at_rest();
        let window = driver.window;
        // Answers of a longer time than the limiter remembers.
        for _ in 0..100 {
            driver.answer(answers, MS);
            driver.tick(0);
        }
        for timeouts in timeouts_by_tick {
            driver.answer(answers, MS);
            (0..*timeouts).for_each(|_| driver.sample.coordinator_timeout());
            driver.tick(0);
        }
        driver.window < window
    };
    assert!(!is_lowered(200, &[1; 50]), "half a percent");
    assert!(is_lowered(200, &[4; 50]), "two percent");
    assert!(is_lowered(20, &[1; 50]), "five percent");
    assert!(!is_lowered(1, &[1]), "a single one");
}

#[test]
fn full_window_is_halved_for_six_ticks_in_thirty_seconds() {
    let mut driver = Driver::at_rest();
    let mut halved = 0;
    for _ in 0..DRAIN_EVERY {
        driver.run(1, 100, MS);
        halved += u64::from(driver.window == driver.limiter.window() / 2);
    }
    assert_eq!(halved, DRAIN_TICKS);
}

#[test]
fn node_that_becomes_slower_keeps_its_window() {
    let mut driver = Driver::at_rest();
    driver.run(DRAIN_EVERY, 100, 4 * MS);
    let mut windows = Vec::new();
    for _ in 0..DRAIN_EVERY {
        driver.run(1, 100, 4 * MS);
        windows.push(driver.limiter.window());
    }
    assert!(windows.iter().all(|window| (100..130).contains(window)), "{windows:?}");
}

/// A pause makes a few times a thousand times longer.
#[test]
fn pause_of_the_node_hardly_counts() {
    let mut driver = Driver::at_rest();
    let window = driver.window;
    driver.answer(192, MS);
    driver.answer(8, 1000 * MS);
    let next = driver.tick(100);
    assert!(next > window * 92 / 100, "{next}, {window}");
}

#[test]
fn window_stays_within_its_bounds() {
    let mut driver = Driver::new();
    driver.run(1000, u32::MAX, MS);
    assert_eq!(driver.limiter.window(), BOUNDS.max);
    for _ in 0..1000 {
        driver.sample.overloaded();
        driver.tick(100);
    }
    assert_eq!(driver.limiter.window(), BOUNDS.min);
}

#[test]
fn samples_of_cores_are_added() {
    let mut driver = Driver::at_rest();
    let mut other = NodeSample::default();
    for _ in 0..16 {
        other.answered(ClassId::of_statement(0, EXECUTE), 10 * MS);
    }
    other.overloaded();
    let window = driver.window;
    driver.sample.take(&mut other);
    assert!(driver.tick(100) < window);
    let mut driver = Driver::at_rest();
    driver.sample.take(&mut other);
    assert_eq!(driver.tick(0), window, "taken once");
}

#[test]
fn classes_do_not_mix() {
    let mut driver = Driver::at_rest();
    let long = ClassId::of_statement(1, EXECUTE);
    // The base of the second class is measured in the drain.
    for _ in 0..DRAIN_EVERY {
        driver.answer(200, MS * u64::from(driver.window.max(100)) / 100);
        (0..20).for_each(|_| driver.sample.answered(long, 50 * MS * u64::from(driver.window.max(100)) / 100));
        driver.tick(100);
    }
    let window = driver.limiter.window();
    (0..200).for_each(|_| driver.sample.answered(long, 50 * MS * u64::from(window) / 100));
    driver.tick(100);
    assert!(driver.limiter.window().abs_diff(window) <= 2, "{window}");
}

#[test]
fn statements_from_number_256_on_share_the_class_of_their_opcode() {
    assert_ne!(ClassId::of_statement(0, EXECUTE), ClassId::of_statement(255, EXECUTE));
    assert_ne!(ClassId::of_statement(255, EXECUTE), ClassId::of_statement(256, EXECUTE));
    assert_eq!(ClassId::of_statement(256, EXECUTE), ClassId::of_statement(u32::MAX, EXECUTE));
    assert_eq!(ClassId::of_statement(256, EXECUTE), ClassId::of_opcode(EXECUTE));
    assert_ne!(ClassId::of_opcode(7), ClassId::of_opcode(EXECUTE));
}

#[test]
fn front_without_requests_publishes_nothing_and_adopts() {
    let mut driver = Driver::new();
    driver.tick(0);
    assert_eq!(driver.limiter.publish(), None);
    driver.limiter.adopt(77);
    assert_eq!(driver.tick(0), 77);
    // It has no bases, so that its first requests move nothing.
    driver.run(20, 10, MS);
    assert_eq!(driver.window, 77);
}

#[test]
fn adopted_median_keeps_later_changes() {
    let mut driver = Driver::at_rest();
    let window = driver.limiter.window();
    assert_eq!(driver.limiter.publish(), Some(window));
    driver.sample.overloaded();
    driver.tick(100);
    driver.limiter.adopt(2 * window);
    assert!((driver.limiter.window() * 10).abs_diff(window * 14) < 20);
}

/// The clock stands, jumps and steps back, and answers have any time.
#[test]
fn no_clock_and_no_time_panics() {
    for seed in 0..50 {
        let mut random = Random::new(seed);
        let bounds = random.pick(&[BOUNDS, WindowBounds { min: 0, max: 0 }, WindowBounds { min: 9, max: 3 }]);
        let mut limiter = NodeWindow::new(bounds, random.next_u64());
        let mut sample = NodeSample::default();
        let mut now_ns = random.next_u64();
        for _ in 0..2000 {
            for _ in 0..random.below(300) {
                let class = ClassId::of_statement(random.below(300) as u32, random.next_u64() as u8);
                let bits = random.below(64);
                sample.answered(class, random.next_u64() >> bits);
            }
            sample.used(random.pick(&[0, NODE_TICK_NS, u64::MAX]), random.pick(&[0, NODE_TICK_NS]));
            if random.one_in(50) {
                sample.overloaded();
                sample.coordinator_timeout();
            }
            now_ns = random.pick(&[now_ns, now_ns.wrapping_add(NODE_TICK_NS), now_ns / 2, u64::MAX, 0]);
            let window = limiter.tick(now_ns, &mut sample);
            let least = bounds.min.max(1);
            assert!((least..=bounds.max.max(least)).contains(&window), "{window}");
            if random.one_in(10) {
                limiter.publish();
                limiter.adopt(random.pick(&[0, 1, 50, u32::MAX]));
            }
        }
    }
}

#[test]
fn clock_that_stops_ends_a_drain() {
    let mut driver = Driver::at_rest();
    let drains = |driver: &mut Driver| {
        driver.run(1, 100, MS);
        driver.window < driver.limiter.window()
    };
    assert!((0..DRAIN_EVERY).any(|_| drains(&mut driver)));
    let now_ns = driver.now_ns - NODE_TICK_NS;
    for _ in 0..DRAIN_TICKS {
        driver.now_ns = now_ns;
        driver.run(1, 100, MS);
    }
    assert_eq!(driver.window, driver.limiter.window());
}
