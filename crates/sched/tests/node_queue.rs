//! Tests of the queue of a node with simulated nodes, whose requests take given times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use sched::{Class, NodeId, NodeQueue, NodeSpec};
use testkit::Random;

const MS: u64 = 1_000_000;

fn spec(shares: u32) -> NodeSpec {
    NodeSpec::new(shares, Class::Normal)
}

/// Level that always has requests waiting, each of which takes a time between these, ns.
struct Backlog {
    level: NodeId,
    least_ns: u64,
    most_ns: u64,
    sent: u64,
}

/// Node that answers each request after its time, whatever else is in flight.
struct Node {
    queue: NodeQueue<u64>,
    /// End, start and level of each request in flight.
    in_flight: BinaryHeap<Reverse<(u64, u64, u32)>>,
    now_ns: u64,
    random: Random,
}

impl Node {
    fn new(window: u32) -> Node {
        let queue = NodeQueue::new(window, 1 << 20);
        Node { queue, in_flight: BinaryHeap::new(), now_ns: 0, random: Random::new(7) }
    }

    fn backlog(&mut self, shares: u32, least_ns: u64, most_ns: u64) -> Backlog {
        let level = self.queue.add(spec(shares), self.now_ns);
        Backlog { level, least_ns, most_ns, sent: 0 }
    }

    /// Sends what the queue lets go.
    fn send(&mut self, backlogs: &mut [Backlog]) {
        for backlog in &*backlogs {
            while self.queue.use_of(backlog.level).queued < 8 {
                let took_ns = backlog.least_ns + self.random.below(backlog.most_ns - backlog.least_ns + 1);
                self.queue.push(backlog.level, 1, took_ns).expect("below the depth");
            }
        }
        while let Some((level, took_ns)) = self.queue.pop(self.now_ns) {
            self.in_flight.push(Reverse((self.now_ns + took_ns, self.now_ns, level.0)));
            let backlog = backlogs.iter_mut().find(|of| of.level == level).expect("a known level");
            backlog.sent += 1;
            let waiting_ns = backlog.least_ns;
            self.queue.push(level, 1, waiting_ns).expect("below the depth");
        }
    }

    fn run(&mut self, until_ns: u64, backlogs: &mut [Backlog]) {
        self.send(backlogs);
        while let Some(&Reverse((end_ns, since_ns, level))) = self.in_flight.peek() {
            if end_ns > until_ns {
                break;
            }
            self.in_flight.pop();
            self.now_ns = end_ns;
            self.queue.leave(NodeId(level), since_ns, end_ns);
            self.send(backlogs);
        }
        self.now_ns = until_ns;
    }

    /// Returns the part of each backlog in the occupancy of all, in thousandths.
    fn parts(&self, backlogs: &[Backlog]) -> Vec<u64> {
        let used = |backlog: &Backlog| self.queue.use_of(backlog.level).occupancy_ns;
        let all: u64 = backlogs.iter().map(used).sum();
        backlogs.iter().map(|backlog| used(backlog) * 1000 / all).collect()
    }
}

fn assert_close(parts: &[u64], expected: &[u64]) {
    let is_close = parts.iter().zip(expected).all(|(part, expected)| part.abs_diff(*expected) <= 10);
    assert!(is_close, "{parts:?}, expected {expected:?}, in thousandths");
}

#[test]
fn occupancy_goes_by_shares_whatever_requests_cost() {
    for window in [4, 16, 128] {
        let mut node = Node::new(window);
        let mut backlogs = [
            node.backlog(200, MS / 5, MS / 5),
            node.backlog(400, 10 * MS, 10 * MS),
            node.backlog(800, MS, 3 * MS),
        ];
        node.run(20_000 * MS, &mut backlogs);
        assert_close(&node.parts(&backlogs), &[143, 286, 571]);
        assert!(node.queue.in_flight() < window + 3, "one place for each other level beyond the window");
    }
}

#[test]
fn shares_hold_while_the_node_pauses() {
    for (shares, clients) in [([200, 400], 512), ([200, 400], 120), ([200, 800], 120)] {
        let mut queue: NodeQueue<()> = NodeQueue::new(128, 1 << 20);
        let levels = shares.map(|shares| queue.add(spec(shares), 0));
        levels.iter().for_each(|level| (0..clients).for_each(|_| queue.push(*level, 1, ()).expect("room")));
        let (mut in_flight, mut random, mut now_ns) = (BinaryHeap::new(), Random::new(5), 0);
        while now_ns < 20_000 * MS {
            while let Some((level, ())) = queue.pop(now_ns) {
                let took_ns = (-random.fraction().ln() * 5.0 * MS as f64) as u64;
                // It pauses for a fifth of each second, and then answers at once what has ended.
                let end_ns = now_ns + took_ns;
                let pause_ns = 1000 * MS - end_ns % (1000 * MS);
                let end_ns = if pause_ns < 200 * MS { end_ns + pause_ns } else { end_ns };
                // Answers of a level come together: it has connections of its own.
                in_flight.push(Reverse((end_ns, level.0, now_ns)));
            }
            let Reverse((end_ns, level, since_ns)) = in_flight.pop().expect("the window is full");
            now_ns = end_ns;
            queue.leave(NodeId(level), since_ns, now_ns);
            queue.push(NodeId(level), 1, ()).expect("room");
        }
        let used = levels.map(|level| queue.use_of(level).occupancy_ns);
        let part = used[1] * 1000 / (used[0] + used[1]);
        let expected = 1000 * u64::from(shares[1]) / u64::from(shares[0] + shares[1]);
        assert!(part.abs_diff(expected) <= 10, "{part} thousandths, expected {expected}, {clients} clients");
    }
}

#[test]
fn level_without_competitors_has_the_whole_window_and_owes_nothing_for_it() {
    let mut node = Node::new(16);
    let mut alone = [node.backlog(100, MS, MS)];
    node.run(10_000 * MS, &mut alone);
    assert_eq!(node.queue.in_flight(), 16);
    let [alone] = alone;
    let before = node.queue.use_of(alone.level).occupancy_ns;
    let mut both = [alone, node.backlog(100, MS, MS)];
    node.run(12_000 * MS, &mut both);
    let used = node.queue.use_of(both[0].level).occupancy_ns - before;
    let other = node.queue.use_of(both[1].level).occupancy_ns;
    assert_close(&[used * 1000 / (used + other)], &[500]);
}

#[test]
fn requests_in_flight_are_charged_before_they_end() {
    let mut node = Node::new(8);
    // Nothing is known of its requests: they seem to be short.
    let mut slow = [node.backlog(500, 5_000 * MS, 5_000 * MS)];
    node.run(MS, &mut slow);
    let [slow] = slow;
    let mut both = [slow, node.backlog(500, MS, MS)];
    node.run(4_000 * MS, &mut both);
    assert!(both[1].sent > 3_900, "one place beyond the window is used all the time: {}", both[1].sent);
    node.run(9_000 * MS, &mut both);
    let held = node.queue.use_of(both[0].level).in_flight;
    assert!(held <= 2, "the slow level holds {held} of 8 places after its first requests have ended");
}

#[test]
fn next_level_with_nothing_in_flight_does_not_wait_for_a_place() {
    let mut queue: NodeQueue<u8> = NodeQueue::new(2, 8);
    let (one, other) = (queue.add(spec(100), 0), queue.add(spec(100), 0));
    assert!(queue.enter(one, 0) && queue.enter(one, 0));
    assert!(!queue.enter(one, 0), "the window is full");
    queue.push(one, 1, 1).expect("room");
    assert!(queue.pop(0).is_none());
    assert!(queue.enter(other, 10 * MS), "a level that is behind its shares");
    assert!(!queue.enter(other, 10 * MS), "one place only");
    assert_eq!(queue.in_flight(), 3);
    queue.leave(other, 10 * MS, 11 * MS);
    assert!(queue.pop(11 * MS).is_none(), "the window is still full");
    queue.leave(one, 0, 12 * MS);
    assert_eq!(queue.pop(12 * MS), Some((one, 1)));
}

#[test]
fn level_with_few_shares_does_not_exceed_them_by_the_place_beyond_the_window() {
    let mut node = Node::new(4);
    let mut backlogs = [node.backlog(990, MS, MS), node.backlog(10, MS, MS)];
    node.run(20_000 * MS, &mut backlogs);
    assert_close(&node.parts(&backlogs), &[990, 10]);
}

#[test]
fn level_that_has_used_its_part_waits_in_line() {
    let mut queue: NodeQueue<u8> = NodeQueue::new(2, 8);
    let (large, small) = (queue.add(spec(900), 0), queue.add(spec(100), 0));
    assert!(queue.enter(large, 0) && queue.enter(large, 0));
    queue.push(large, 1, 1).expect("room");
    // It holds a place as long as the other level holds two, at a ninth of the shares.
    assert!(queue.enter(small, MS));
    queue.leave(small, MS, 20 * MS);
    assert!(!queue.enter(small, 20 * MS), "not the next one");
}

#[test]
fn limit_of_a_level_holds_without_waiting_requests() {
    let mut queue: NodeQueue<u8> = NodeQueue::new(8, 8);
    let level = queue.add(spec(100), 0);
    queue.set_in_flight_max(level, 2);
    assert!(queue.enter(level, 0) && queue.enter(level, 0) && !queue.enter(level, 0));
}

#[test]
fn limit_of_a_level_leaves_places_to_others() {
    let mut node = Node::new(16);
    let mut backlogs = [node.backlog(500, MS, MS), node.backlog(500, MS, MS)];
    node.queue.set_in_flight_max(backlogs[0].level, 4);
    node.run(5_000 * MS, &mut backlogs);
    assert_close(&node.parts(&backlogs), &[250, 750]);
    node.queue.set_in_flight_max(backlogs[0].level, u32::MAX);
    node.run(5_020 * MS, &mut backlogs);
    assert_eq!(node.queue.use_of(backlogs[0].level).in_flight, 8, "the limit is lifted");
}

#[test]
fn clients_of_a_level_take_turns() {
    let mut queue: NodeQueue<&str> = NodeQueue::new(1, 100);
    let level = queue.add(spec(100), 0);
    assert!(queue.enter(level, 0));
    for _ in 0..10 {
        queue.push(level, 1, "many").expect("room");
    }
    queue.push(level, 2, "few").expect("room");
    let mut order = Vec::new();
    for now_ns in 1..4 {
        queue.leave(level, now_ns - 1, now_ns);
        order.push(queue.pop(now_ns).expect("a place").1);
    }
    assert!(order.contains(&"few"), "{order:?}");
}

#[test]
fn queue_of_a_level_is_bounded() {
    let mut queue: NodeQueue<u32> = NodeQueue::new(2, 3);
    let level = queue.add(spec(100), 0);
    assert!(queue.enter(level, 0) && queue.enter(level, 0));
    for n in 0..3 {
        assert_eq!(queue.push(level, 1, n), Ok(()));
    }
    assert_eq!(queue.push(level, 1, 3), Err(3));
    assert!(!queue.remove(level), "it has requests");
}

#[test]
fn clock_that_steps_back_charges_nothing_and_loses_nothing() {
    let mut queue: NodeQueue<u32> = NodeQueue::new(1, 8);
    let level = queue.add(spec(100), 50 * MS);
    assert!(queue.enter(level, 50 * MS));
    queue.push(level, 1, 7).expect("room");
    queue.leave(level, 50 * MS, 20 * MS);
    assert_eq!(queue.pop(20 * MS), Some((level, 7)));
    queue.leave(level, 20 * MS, 10 * MS);
    assert_eq!((queue.in_flight(), queue.queued()), (0, 0));
    assert!(queue.remove(level));
}

#[test]
fn time_with_the_whole_window_in_use_is_counted() {
    let mut queue: NodeQueue<u8> = NodeQueue::new(2, 8);
    let level = queue.add(spec(100), 0);
    assert!(queue.enter(level, 0) && queue.enter(level, 10 * MS));
    assert_eq!(queue.take_full_ns(15 * MS), 5 * MS);
    queue.leave(level, 0, 18 * MS);
    assert_eq!(queue.take_full_ns(30 * MS), 3 * MS);
    queue.set_window(1, 35 * MS);
    assert_eq!(
        (queue.take_full_ns(40 * MS), queue.take_full_ns(50 * MS)),
        (5 * MS, 10 * MS),
        "one in flight"
    );
}

#[test]
fn place_without_a_request_counts_neither_as_an_answer_nor_in_the_mean() {
    let mut queue: NodeQueue<u8> = NodeQueue::new(1, 8);
    let level = queue.add(spec(100), 0);
    assert!(queue.enter(level, 0));
    queue.leave(level, 0, 10 * MS);
    for _ in 0..100 {
        assert!(queue.enter(level, 10 * MS));
        queue.give_back(level, 10 * MS);
    }
    assert_eq!(queue.use_of(level).answers, 1);
}

/// A level that always has `WAITING` requests, and a clock.
struct Served {
    queue: NodeQueue<u8>,
    level: NodeId,
    now_ns: u64,
}

const WAITING: usize = 112;

impl Served {
    /// Starts a node with a full window.
    fn new(window: u32) -> Served {
        let mut queue = NodeQueue::new(window, 1000);
        let level = queue.add(spec(100), 0);
        while queue.enter(level, 0) {}
        let mut served = Served { queue, level, now_ns: 0 };
        served.fill();
        served
    }

    fn fill(&mut self) {
        while (self.queue.use_of(self.level).queued as usize) < WAITING {
            self.queue.push(self.level, 1, 0).expect("below the depth");
        }
    }

    /// Answers requests that took `took_ns` each, one every `every_ns`. The next ones are sent.
    fn answer(&mut self, answers: u32, every_ns: u64, took_ns: u64) {
        for _ in 0..answers {
            self.now_ns += every_ns;
            self.queue.leave(self.level, self.now_ns.saturating_sub(took_ns), self.now_ns);
            while self.queue.pop(self.now_ns).is_some() {}
            self.fill();
        }
    }

    fn expected_ms(&self) -> u64 {
        self.queue.expected_wait_ns(self.level, self.now_ns) / MS
    }
}

#[test]
fn expected_wait_is_the_time_for_the_answers_of_those_before() {
    let mut node = Served::new(2);
    assert_eq!(node.expected_ms(), 0, "no evidence");
    // Requests of 10 ms, two at a time.
    node.answer(100, 5 * MS, 10 * MS);
    assert_eq!(node.expected_ms(), 112 * 5);
    // Fewer answers than make a measurement in 100 ms.
    node.answer(4, 300 * MS, 600 * MS);
    assert_eq!(node.expected_ms(), 112 * 300, "it became slower");
    node.answer(40, MS, 2 * MS);
    assert_eq!(node.expected_ms(), 112, "it became faster");
}

#[test]
fn pause_of_the_node_is_no_reason_to_expect_a_wait() {
    let mut node = Served::new(8);
    node.answer(400, MS / 8, MS);
    assert_eq!(node.expected_ms(), 14);
    // A second without answers, and then those of all requests in flight.
    node.now_ns += 1_000 * MS;
    for answer in 0..200 {
        node.answer(1, MS / 8, if answer < 8 { 1_000 * MS } else { MS });
        assert!(node.expected_ms() <= 15, "{} ms after {answer} answers", node.expected_ms());
    }
}

#[test]
fn smaller_window_is_no_reason_to_expect_a_wait() {
    let mut node = Served::new(128);
    // It serves 8 at once, each in 1 ms. The others wait in it.
    node.answer(1_000, MS / 8, 16 * MS);
    node.queue.set_window(4, node.now_ns);
    for _ in 0..124 {
        node.now_ns += MS / 8;
        node.queue.leave(node.level, node.now_ns - 16 * MS, node.now_ns);
        assert!(node.expected_ms() <= 15, "{} ms", node.expected_ms());
    }
    node.answer(100, MS / 4, MS);
    assert_eq!(node.expected_ms(), 28);
}

#[test]
fn evidence_of_a_wait_ends_with_the_requests_that_waited() {
    let mut node = Served::new(2);
    node.answer(100, 500 * MS, 1_000 * MS);
    let Served { mut queue, level, mut now_ns } = node;
    for _ in 0..WAITING {
        now_ns += 500 * MS;
        queue.leave(level, now_ns, now_ns);
        assert!(queue.pop(now_ns).is_some());
    }
    queue.push(level, 1, 0).expect("below the depth");
    assert!(queue.expected_wait_ns(level, now_ns) > 0, "the present evidence");
    assert!(queue.pop(now_ns).is_none());
    queue.leave(level, now_ns, now_ns);
    assert!(queue.pop(now_ns).is_some());
    now_ns += 1_001 * MS;
    for _ in 0..WAITING {
        queue.push(level, 1, 0).expect("below the depth");
    }
    assert_eq!(queue.expected_wait_ns(level, now_ns), 0, "another burst");
    // One slow answer is none, beside the old evidence.
    queue.leave(level, now_ns, now_ns);
    queue.leave(level, now_ns, now_ns + 400 * MS);
    assert_eq!(queue.expected_wait_ns(level, now_ns + 400 * MS), 0);
}

#[test]
fn idle_node_and_abandoned_requests_are_no_reason_to_expect_a_wait() {
    let mut node = Served::new(1);
    node.answer(100, 100 * MS, 100 * MS);
    assert_eq!(node.expected_ms(), 11_200);
    for _ in 0..WAITING - 2 {
        node.queue.abandon(node.level);
    }
    assert_eq!((node.expected_ms(), node.queue.use_of(node.level).queued), (200, 2));
    node.queue.leave(node.level, node.now_ns, node.now_ns);
    assert_eq!(node.expected_ms(), 0, "the node is idle");
    for _ in 0..WAITING - 2 {
        assert!(node.queue.pop(node.now_ns).is_some());
        node.queue.skip(node.level, node.now_ns);
    }
    assert_eq!((node.queue.use_of(node.level).queued, node.queue.in_flight()), (2, 0));
}

/// Node that serves all requests at once, each with an equal part of its CPUs, with one level of
/// reads that come at random and take 1 ms of CPU, and one of scans, eight of which always wait or
/// run.
struct Shared {
    queue: NodeQueue<u64>,
    cpus: f64,
    /// Length of the pauses of all work, 1.4 of them a second.
    pause_ms: f64,
    scan_ns: f64,
    random: Random,
    now_ns: f64,
    /// Level, time of arrival, time of the place, and CPU left, ns.
    running: Vec<(NodeId, f64, f64, f64)>,
    reads: NodeId,
    scans: NodeId,
    times_ns: Vec<f64>,
    scanned: u64,
}

impl Shared {
    fn new(cpus: f64, window: u32, scan_ns: f64, class: Class) -> Shared {
        let mut queue = NodeQueue::new(window, 1 << 20);
        let reads = queue.add(NodeSpec::new(1000, Class::Normal), 0);
        let scans = queue.add(NodeSpec::new(100, class), 0);
        let (random, running, times_ns) = (Random::new(3), Vec::new(), Vec::new());
        Shared {
            queue,
            cpus,
            pause_ms: 0.0,
            scan_ns,
            random,
            now_ns: 0.0,
            running,
            reads,
            scans,
            times_ns,
            scanned: 0,
        }
    }

    fn exponential(&mut self, mean_ns: f64) -> f64 {
        -self.random.fraction().ln() * mean_ns
    }

    fn start(&mut self) {
        while let Some((level, arrived_ns)) = self.queue.pop(self.now_ns as u64) {
            let mean_ns = if level == self.reads { MS as f64 } else { self.scan_ns };
            let work_ns = self.exponential(mean_ns);
            self.running.push((level, arrived_ns as f64, self.now_ns, work_ns));
        }
    }

    /// Runs with that many reads a second and scans. Returns the mean and the 99th percentile of
    /// the times of reads, ms, and the scans that ended, a second.
    fn run(&mut self, seconds: f64, reads_per_s: f64, scans: usize) -> [f64; 3] {
        let (end_ns, mut tick_ns) = (self.now_ns + seconds * 1e9, self.now_ns);
        let mut next_ns = self.now_ns + self.exponential(1e9 / reads_per_s);
        (self.times_ns, self.scanned) = (Vec::new(), 0);
        while self.now_ns < end_ns {
            let of_scans = self.queue.use_of(self.scans);
            for _ in of_scans.in_flight + of_scans.queued..scans as u32 {
                self.queue.push(self.scans, 1, self.now_ns as u64).expect("below the depth");
            }
            self.start();
            // As for the collection of garbage.
            let in_cycle_ns = self.now_ns % (730.0 * MS as f64);
            let pause_ns = self.pause_ms * MS as f64;
            let is_paused = in_cycle_ns < pause_ns;
            let change_ns = self.now_ns + if is_paused { pause_ns } else { 730.0 * MS as f64 } - in_cycle_ns;
            let speed = if is_paused { 1e-9 } else { (self.cpus / self.running.len() as f64).min(1.0) };
            let first =
                (0..self.running.len()).min_by(|a, b| self.running[*a].3.total_cmp(&self.running[*b].3));
            let done_ns = first.map_or(f64::INFINITY, |at| self.now_ns + self.running[at].3 / speed);
            let at_ns = done_ns.min(next_ns).min(tick_ns).min(change_ns + 1.0);
            for running in &mut self.running {
                running.3 -= (at_ns - self.now_ns) * speed;
            }
            self.now_ns = at_ns;
            if at_ns == tick_ns {
                tick_ns += 100.0 * MS as f64;
                self.queue.set_probing((at_ns as u64 / MS) % 10_000 < 300, at_ns as u64);
            } else if at_ns == next_ns {
                next_ns += self.exponential(1e9 / reads_per_s);
                if self.queue.enter(self.reads, at_ns as u64) {
                    let work_ns = self.exponential(MS as f64);
                    self.running.push((self.reads, at_ns, at_ns, work_ns));
                } else {
                    self.queue.push(self.reads, 1, at_ns as u64).expect("below the depth");
                }
            } else if at_ns == done_ns
                && let Some(at) = first
            {
                let (level, arrived_ns, since_ns, _) = self.running.swap_remove(at);
                self.queue.leave(level, since_ns as u64, at_ns as u64);
                match level == self.reads {
                    true => self.times_ns.push((at_ns - arrived_ns) / MS as f64),
                    false => self.scanned += 1,
                }
            }
        }
        self.times_ns.sort_by(f64::total_cmp);
        let mean = self.times_ns.iter().sum::<f64>() / self.times_ns.len() as f64;
        let p99 = self.times_ns.get(self.times_ns.len() * 99 / 100).copied().unwrap_or_default();
        [mean, p99, self.scanned as f64 / seconds]
    }
}

#[test]
fn reads_take_hardly_longer_beside_scans_of_a_batch_level() {
    for (cpus, window, scan_ms, reads_per_s, pause_ms) in [
        (1.0, 128, 50.0, 200.0, 0.0),
        (1.0, 8, 50.0, 200.0, 0.0),
        (1.0, 8, 400.0, 400.0, 0.0),
        (1.0, 128, 50.0, 700.0, 0.0),
        (8.0, 128, 400.0, 4000.0, 0.0),
        (1.0, 128, 50.0, 400.0, 100.0),
        (1.0, 8, 50.0, 400.0, 100.0),
        (8.0, 128, 400.0, 4000.0, 50.0),
    ] {
        let found = [Class::Normal, Class::Batch].map(|class| {
            let mut node = Shared::new(cpus, window, scan_ms * MS as f64, class);
            node.pause_ms = pause_ms;
            let alone = node.run(20.0, reads_per_s, 0);
            // The first scans come while only reads are known.
            let first = node.run(20.0, reads_per_s, 8);
            let beside = node.run(60.0, reads_per_s, 8);
            [first[0] / alone[0], beside[0] / alone[0], beside[1] / alone[1], beside[2]]
        });
        let [normal, batch] = found;
        assert!(normal[1] > 1.2, "the class makes the difference: {normal:?}");
        assert!(batch[0] < 2.0 && batch[1] < 1.5 && batch[2] < 1.6, "window {window}: {batch:?}");
        assert!(batch[3] > 0.04, "scans go on: {batch:?}");
    }
}

#[test]
fn batch_level_without_competitors_has_the_whole_window() {
    for scans in [1, 8] {
        let [normal, batch] = [Class::Normal, Class::Batch].map(|class| {
            let mut node = Shared::new(8.0, 4, 50.0 * MS as f64, class);
            node.run(1.0, 1000.0, 8);
            // The last reads have ended.
            node.run(2.0, 0.001, scans);
            node.run(30.0, 0.001, scans)[2]
        });
        assert!(batch > 0.9 * normal, "{scans} scans: {batch} a second, and {normal} of another class");
    }
}

#[test]
fn batch_level_holds_its_shares_beside_a_backlog() {
    let mut node = Node::new(16);
    let mut backlogs = [node.backlog(500, MS, 3 * MS), node.backlog(500, 10 * MS, 10 * MS)];
    node.queue.set(backlogs[1].level, NodeSpec::new(500, Class::Batch));
    node.run(2_000 * MS, &mut backlogs);
    let before = backlogs.each_ref().map(|of| node.queue.use_of(of.level).occupancy_ns);
    node.run(20_000 * MS, &mut backlogs);
    let used = backlogs.each_ref().map(|of| node.queue.use_of(of.level).occupancy_ns);
    let part = (used[1] - before[1]) * 1000 / (used[0] - before[0] + used[1] - before[1]);
    assert!((450..=550).contains(&part), "{part} thousandths");
}
