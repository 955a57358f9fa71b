//! Slots against a model, by seed, and slots that tasks of both lanes on several cores take
//! concurrently. A failure reports its seed: `SEED=… cargo test --release -p workload --test slots`
//! replays it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use lanes::{Flow, Group};
use testkit::Random;
use workload::{Arrival, Effective, LevelSpec, Levels, Occupancy, Queue, SlotLimits, SlotRequest, Waiter};

/// The pure part driven as by `gate`, with the expected state.
#[derive(Default)]
struct Model {
    occupancy: Occupancy,
    queue: Queue<u64>,
    running: usize,
    /// Waiting statements in order: number, start of the wait, longest wait.
    waiting: VecDeque<(u64, u64, Duration)>,
    now_ns: u64,
    next: u64,
}

impl Model {
    fn arrive(&mut self, limits: &SlotLimits, default_timeout: Duration) {
        let expected = if self.waiting.is_empty()
            && limits.max_concurrency.is_none_or(|max| self.running < max as usize)
        {
            Arrival::Enter
        } else if self.waiting.len() < limits.max_queue_size as usize {
            Arrival::Wait
        } else {
            Arrival::Full
        };
        let (occupancy, arrival) = self.occupancy.arrive(limits);
        assert_eq!(arrival, expected);
        self.occupancy = occupancy;
        self.running += usize::from(arrival == Arrival::Enter);
        if arrival == Arrival::Wait {
            let number = self.next;
            self.next += 1;
            let (flow, since_ns) = (Flow::NONE, self.now_ns);
            self.queue.join(Waiter { number, flow, since_ns, default_timeout, reply: number });
            self.waiting.push_back((number, self.now_ns, default_timeout));
        }
    }

    fn admit_waiters(&mut self, limits: &SlotLimits) {
        while let Some(late) = self.queue.late(self.now_ns, limits) {
            self.occupancy = self.occupancy.give_up();
            let at = self.waiting.iter().position(|(number, ..)| *number == late.reply).expect("it waited");
            let (_, since_ns, default_timeout) = self.waiting.remove(at).expect("seen");
            let longest = limits.queue_timeout.unwrap_or(default_timeout).as_nanos();
            assert!(u128::from(self.now_ns - since_ns) >= longest, "it was not late yet");
        }
        while !self.queue.is_empty() {
            let Some(occupancy) = self.occupancy.grant_slot(limits) else { break };
            self.occupancy = occupancy;
            let first = self.queue.first().expect("a statement waits");
            assert_eq!(
                Some(first.reply),
                self.waiting.pop_front().map(|(number, ..)| number),
                "the first waiter is admitted first"
            );
            self.running += 1;
        }
        let longest =
            |default_timeout: &Duration| limits.queue_timeout.unwrap_or(*default_timeout).as_nanos() as u64;
        let next = self
            .waiting
            .iter()
            .map(|(_, since_ns, default_timeout)| since_ns + longest(default_timeout))
            .min();
        assert_eq!(self.queue.next_deadline_ns(limits), next);
        assert!(next.is_none_or(|next_ns| next_ns > self.now_ns), "no late statement waits");
        let has_slot = limits.max_concurrency.is_none_or(|max| self.running < max as usize);
        assert!(!has_slot || self.waiting.is_empty(), "no statement waits while a slot is free");
    }

    fn step(&mut self, random: &mut Random, limits: &mut SlotLimits) {
        let (before, max) = (self.running, limits.max_concurrency);
        match random.below(10) {
            0..=3 => self.arrive(limits, Duration::from_nanos(1 + random.below(50))),
            4..=6 if self.running > 0 => {
                self.occupancy = self.occupancy.release_slot();
                self.running -= 1;
            }
            7 if !self.waiting.is_empty() => {
                let at = random.index(self.waiting.len());
                let (number, ..) = self.waiting.remove(at).expect("in bounds");
                assert_eq!(self.queue.remove(number).map(|waiter| waiter.reply), Some(number));
                self.occupancy = self.occupancy.give_up();
            }
            8 if random.below(4) == 0 => {
                limits.max_concurrency = Some(random.below(6) as u32).filter(|max| *max > 0);
                limits.max_queue_size = random.below(12) as u32;
                limits.queue_timeout = Some(Duration::from_nanos(random.below(80))).filter(|t| !t.is_zero());
            }
            _ => self.now_ns += random.below(20),
        }
        self.admit_waiters(limits);
        let expected = Occupancy { running: self.running as u32, waiting: self.waiting.len() as u32 };
        assert_eq!(self.occupancy, expected);
        if max == limits.max_concurrency {
            let most = max.map_or(usize::MAX, |max| max as usize);
            assert!(self.running <= most.max(before), "more statements run than there are slots");
        }
    }
}

#[test]
fn slots_match_the_model() {
    let one = std::env::var("SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    for seed in one.map_or(0..200, |seed| seed..seed + 1) {
        let steps = std::panic::catch_unwind(|| {
            let (mut random, mut model) = (Random::new(seed), Model::default());
            let mut limits = SlotLimits { max_concurrency: Some(3), max_queue_size: 5, ..SlotLimits::NONE };
            (0..2000).for_each(|_| model.step(&mut random, &mut limits));
        });
        assert!(steps.is_ok(), "SEED={seed} cargo test --release -p workload --test slots");
    }
}

/// Observed concurrency.
#[derive(Default)]
struct Observed {
    now: AtomicUsize,
    most: AtomicUsize,
    done: AtomicUsize,
    refused: AtomicUsize,
}

/// Connections that pour statements into the queue of a level, and one that has one at a time.
#[test]
fn statement_waits_for_one_of_each_other_connection() {
    let (pouring, polite) = ([Flow::new(), Flow::new(), Flow::new()], Flow::new());
    let (mut queue, mut numbers) = (Queue::default(), 0..);
    let mut join = |queue: &mut Queue<Flow>, flow: Flow| {
        let number = numbers.next().expect("without end");
        let default_timeout = Duration::from_secs(1);
        queue.join(Waiter { number, flow, since_ns: number, default_timeout, reply: flow });
        number
    };
    for flow in pouring {
        for _ in 0..300 {
            join(&mut queue, flow);
        }
    }
    let mut last = [0; 4];
    for _ in 0..50 {
        join(&mut queue, polite);
        let mut before = 0;
        loop {
            let next = queue.first().expect("statements wait");
            let at = pouring.iter().position(|&flow| flow == next.flow).unwrap_or(3);
            assert!(last[at] == 0 || next.number > last[at], "those of a connection keep their order");
            last[at] = next.number;
            if next.reply == polite {
                break;
            }
            before += 1;
            join(&mut queue, next.flow);
        }
        assert!(before <= pouring.len(), "{before} statements before it");
    }
    // Those that give up leave no trace.
    let numbers: Vec<u64> = (0..2000).filter(|&number| queue.remove(number).is_some()).collect();
    assert_eq!(numbers.len(), 900);
    assert!(queue.is_empty() && queue.first().is_none());
    let gone = join(&mut queue, pouring[0]);
    assert!(queue.take_abandoned(|_| true).is_some_and(|waiter| waiter.number == gone));
}

async fn statement(effective: Effective, seen: Arc<Observed>, heavy: bool) {
    match workload::admit(&effective, Duration::from_secs(60)).await {
        Ok(ticket) => {
            let work = async move {
                let now = seen.now.fetch_add(1, SeqCst) + 1;
                seen.most.fetch_max(now, SeqCst);
                lanes::yield_now().await;
                seen.now.fetch_sub(1, SeqCst);
                // A slot may be released from a heavy lane too.
                drop(ticket);
                seen.done.fetch_add(1, SeqCst);
            };
            if heavy { lanes::heavy(effective.group(), work).await } else { work.await }
        }
        Err(_) => drop(seen.refused.fetch_add(1, SeqCst)),
    }
}

#[test]
fn slots_are_shared_by_all_lanes_and_none_is_lost() {
    const CORES: usize = 3;
    const EACH: usize = 1000;
    let lanes = testkit::start_lanes(CORES);
    let levels = Levels::new(lanes.clone());
    let slots = SlotLimits { max_concurrency: Some(4), max_queue_size: 100_000, ..SlotLimits::NONE };
    levels.create(LevelSpec { slots, ..LevelSpec::new("few") }).expect("new");
    let effective = Effective::of(levels.catalog().get("few").expect("it is there"));
    let seen = Arc::new(Observed::default());
    std::thread::scope(|scope| {
        for core in 0..CORES {
            let lanes = &lanes;
            let effective = effective.clone();
            let seen = seen.clone();
            scope.spawn(move || {
                lanes.block_on(core, Group::CONTROL, move || async move {
                    let start = |i| {
                        lanes::spawn(
                            effective.group(),
                            statement(effective.clone(), seen.clone(), i % 3 == 0),
                        )
                    };
                    let mut tasks: Vec<_> = (0..EACH).map(start).collect();
                    // Some tasks are cancelled while they wait or run.
                    for task in tasks.split_off(EACH - EACH / 10) {
                        lanes::yield_now().await;
                        task.cancel().await;
                    }
                    for task in tasks {
                        task.await;
                    }
                });
            });
        }
    });
    assert!(seen.most.load(SeqCst) <= 4);
    assert_eq!(seen.refused.load(SeqCst), 0);
    assert!(seen.done.load(SeqCst) >= CORES * EACH * 9 / 10);
    let level = effective.level.clone();
    // A task cancelled on a heavy lane releases its slot when that lane drops it.
    while level.slot_use().occupancy != Occupancy::default() {
        std::thread::yield_now();
    }
    lanes.shutdown();
}

#[test]
fn statement_that_would_wait_too_long_is_refused_at_once() {
    let lanes = testkit::start_lanes(1);
    let levels = Levels::new(lanes.clone());
    let slots = SlotLimits { max_concurrency: Some(1), ..SlotLimits::NONE };
    levels.create(LevelSpec { slots, ..LevelSpec::new("few") }).expect("new");
    let effective = Effective::of(levels.catalog().get("few").expect("it is there"));
    lanes.block_on(0, Group::CONTROL, move || async move {
        let enter = |limit| workload::enter(&effective, limit);
        // Each of a thousand statements has the slot for 1 ms.
        for _ in 0..1000 {
            let SlotRequest::In(ticket) = enter(Duration::MAX) else { panic!("the slot is free") };
            lanes::time::sleep(Duration::from_millis(1)).await;
            drop(ticket);
        }
        let SlotRequest::In(running) = enter(Duration::MAX) else { panic!("the slot is free") };
        let SlotRequest::Waits(waiting) = enter(Duration::from_secs(3600)) else { panic!("it may wait") };
        let SlotRequest::Full(refused) = enter(Duration::from_micros(500)) else {
            panic!("2 ms are expected")
        };
        assert!(refused.0.contains("would wait in its queue for about "), "{refused}");
        assert!(refused.0.contains("more than the statement's time limit of 0 ms"), "{refused}");
        let slot_use = effective.level.slot_use();
        assert_eq!((slot_use.predicted, slot_use.occupancy.waiting), (1, 1));
        drop(running);
        drop(waiting.await.expect("it got the slot"));
        assert_eq!(effective.level.slot_use().occupancy, Occupancy::default());
    });
    lanes.shutdown();
}

/// No slot becomes free, so that only the timer ends the wait.
#[test]
fn waiting_statement_is_refused_after_its_timeout() {
    let lanes = testkit::start_lanes(2);
    let levels = Levels::new(lanes.clone());
    let slots = SlotLimits { max_concurrency: Some(1), ..SlotLimits::NONE };
    let spec = LevelSpec { slots, ..LevelSpec::new("few") };
    levels.create(spec.clone()).expect("new");
    let of_level = levels.catalog().get("few").expect("it is there").clone();
    let (effective, levels) = (Effective::of(&of_level), levels.clone());
    lanes.block_on(0, Group::CONTROL, move || async move {
        let short = Duration::from_millis(20);
        let long = Duration::from_secs(3600);
        let patience = Duration::from_secs(60);
        let SlotRequest::In(running) = workload::enter(&effective, long) else { panic!("the slot is free") };
        let late = async |timeout, expected: &str| {
            let began = lanes::time::now();
            let SlotRequest::Waits(waiting) = workload::enter(&effective, timeout) else {
                panic!("the slot is taken")
            };
            let ended = lanes::time::timeout(patience, waiting).await.expect("the timer ends the wait");
            let refused = ended.expect_err("no slot became free");
            assert!(refused.0.contains(expected) && began.elapsed() >= short, "{refused}");
        };
        late(short, "waited in its queue for 20 ms, which is the statement's time limit").await;
        // The option of the level comes before the limit of the statement, and acts on those that
        // wait.
        let SlotRequest::Waits(waiting) = workload::enter(&effective, long) else { panic!("it is taken") };
        levels
            .alter(LevelSpec { slots: SlotLimits { queue_timeout: Some(short), ..slots }, ..spec })
            .expect("there");
        let ended = lanes::time::timeout(patience, waiting).await.expect("the timer ends the wait");
        ended.expect_err("no slot became free");
        late(long, "waited in its queue for 20 ms, which is its queue_timeout").await;
        let slot_use = effective.level.slot_use();
        assert_eq!((slot_use.timed_out, slot_use.waited), (3, 0));
        assert_eq!(slot_use.occupancy, Occupancy { running: 1, waiting: 0 });
        drop(running);
        assert_eq!(effective.level.slot_use().occupancy, Occupancy::default());
    });
    lanes.shutdown();
}
