//! Tests of the I/O queue with a simulated disk that is as fast as its model, or slower.

mod common;

use std::collections::VecDeque;

use common::{Shared, config};
use proptest::prelude::*;
use sched::disk::{BURST_NS, LEASE_NS, LIMIT_LEASE_NS};
use sched::{Class, DiskDirection, DiskModel, InFlight, IoQueue, NodeId, NodeSpec, Pop, SLICE_NS, Tree};
use testkit::Random;

const DISK: DiskModel = DiskModel {
    read_bandwidth_max: 2_000_000_000,
    write_bandwidth_max: 1_000_000_000,
    read_ops_max: 400_000,
    write_ops_max: 100_000,
    latency_ns: 100_000,
};

const IDLE: InFlight = InFlight { own_ns: 0, all_ns: 0 };
/// Another core has a small request in flight.
const BUSY: InFlight = InFlight { own_ns: 0, all_ns: 1 };

fn spec(shares: u32, class: Class) -> NodeSpec {
    NodeSpec::new(shares, class)
}

/// Disk that serves one request after another, for one core.
struct Disk {
    free_at_ns: u64,
    /// Requests in flight: the time at which each ends, and its cost, ns.
    in_flight: VecDeque<(u64, u64)>,
    /// Factor by which it is slower than its model.
    slower: u64,
    /// Time from the end of a request to its completion, ns.
    latency_ns: u64,
}

impl Default for Disk {
    fn default() -> Disk {
        Disk { free_at_ns: 0, in_flight: VecDeque::new(), slower: 1, latency_ns: 0 }
    }
}

impl Disk {
    /// Pops at `now_ns`. A sent request ends one cost after all earlier ones.
    fn pop<T>(&mut self, queue: &mut Queue<T>, now_ns: u64) -> Pop<T> {
        while self.in_flight.front().is_some_and(|&(done, _)| done <= now_ns) {
            self.in_flight.pop_front();
        }
        let popped = queue.pop(now_ns, self.in_flight());
        if let Pop::Ready { cost_ns, .. } = popped {
            self.free_at_ns = self.free_at_ns.max(now_ns) + cost_ns * self.slower;
            self.in_flight.push_back((self.free_at_ns + self.latency_ns, cost_ns));
        }
        popped
    }

    fn in_flight(&self) -> InFlight {
        let all_ns = self.in_flight.iter().map(|(_, cost_ns)| cost_ns).sum();
        InFlight { own_ns: all_ns, all_ns }
    }
}

type Queue<T> = IoQueue<T, Shared>;

fn queue<T>(depth_max: usize) -> Queue<T> {
    IoQueue::new(DISK, 1, Shared::default(), depth_max)
}

/// Checks groups whose queues of random requests are kept full. Disk time ÷ shares stays within the
/// longest requests and the credit. The queue inside the disk stays within the burst, a lease and
/// one request.
fn check_disk_time_follows_shares(seed: u64, shares: &[u32]) {
    let mut random = Random::new(seed);
    let mut queue = queue(4);
    let groups: Vec<NodeId> = shares.iter().map(|&s| queue.add(Tree::ROOT, spec(s, Class::Normal))).collect();
    let mut disk = Disk::default();
    let mut used_ns = vec![0_u64; shares.len()];
    let (mut now_ns, mut longest_ns) = (0, 0_u64);
    for _ in 0..2_000 {
        for &group in &groups {
            while queue.depth(group) < 4 {
                let kind = random.pick(&[DiskDirection::Read, DiskDirection::Write]);
                let bytes = random.pick(&[0, 512, 4_096, 131_072, 1_048_576]);
                queue.push(group, kind, bytes, ()).unwrap();
            }
        }
        match disk.pop(&mut queue, now_ns) {
            Pop::Empty => panic!("the queues are full"),
            Pop::Wait { until_ns, .. } => {
                assert!(until_ns > now_ns);
                now_ns = until_ns;
            }
            Pop::Full => now_ns = disk.in_flight.front().expect("a core with nothing in flight may send").0,
            Pop::Ready { group, cost_ns, .. } => {
                used_ns[groups.iter().position(|&known| known == group).unwrap()] += cost_ns;
                longest_ns = longest_ns.max(cost_ns);
                assert!(
                    disk.free_at_ns - now_ns <= BURST_NS + LEASE_NS + longest_ns,
                    "the disk's own queue is bounded"
                );
            }
        }
        for (a, b) in (0..shares.len()).flat_map(|a| (0..a).map(move |b| (a, b))) {
            let served = |at: usize| used_ns[at] as f64 / f64::from(shares[at]);
            let reach = |at: usize| (longest_ns + SLICE_NS) as f64 / f64::from(shares[at]);
            assert!((served(a) - served(b)).abs() <= reach(a) + reach(b) + 1.0);
        }
    }
    let total: u64 = used_ns.iter().sum();
    assert!(total >= now_ns, "the disk was never idle");
}

proptest! {
    #![proptest_config(config(60))]

    #[test]
    fn disk_time_follows_shares(seed: u64, shares in prop::collection::vec(1_u32..=1000, 2..6)) {
        check_disk_time_follows_shares(seed, &shares);
    }
}

/// A reader with one small request in flight at a time gets less than its share alongside a full
/// queue, however soon each is sent. When it wants more, it repays part of that lag, with twice
/// what the other group gets. Then it has its share.
#[test]
fn reader_repays_lag_and_then_gets_its_share() {
    let (mut queue, mut disk) = (queue(4), Disk::default());
    let [reader, scan] = [100, 100].map(|shares| queue.add(Tree::ROOT, spec(shares, Class::Normal)));
    let mut now_ns = 0;
    // Runs until `until_ns` with one request of the reader every `every_ns`. Returns the reader's
    // part of the disk time.
    let mut part = |until_ns: u64, every_ns: u64| {
        let mut used_ns = 0;
        let mut all_ns = 0;
        let mut next_ns = now_ns;
        while now_ns < until_ns {
            while queue.push(scan, DiskDirection::Read, 131_072, ()).is_ok() {}
            while now_ns >= next_ns && queue.push(reader, DiskDirection::Read, 4_096, ()).is_ok() {
                next_ns += every_ns;
            }
            match disk.pop(&mut queue, now_ns) {
                Pop::Empty => panic!("the scan's queue is full"),
                Pop::Wait { until_ns, .. } => now_ns = until_ns,
                Pop::Full => now_ns = disk.in_flight.front().expect("a request is in flight").0,
                Pop::Ready { group, cost_ns, .. } => {
                    all_ns += cost_ns;
                    used_ns += if group == reader { cost_ns } else { 0 };
                }
            }
        }
        used_ns as f64 / all_ns as f64
    };
    let alone = part(200_000_000, 1_000_000);
    assert!(alone < 0.01, "{alone}");
    let repaying = part(250_000_000, 1);
    assert!((0.62..0.70).contains(&repaying), "{repaying}");
    let repaid = part(600_000_000, 1);
    assert!((0.49..0.52).contains(&repaid), "{repaid}");
}

#[test]
fn full_queue_returns_the_item() {
    let mut queue = queue(2);
    let a = queue.add(Tree::ROOT, spec(100, Class::Normal));
    let b = queue.add(Tree::ROOT, spec(100, Class::Normal));
    assert_eq!(queue.push(a, DiskDirection::Read, 1, 'x'), Ok(()));
    assert_eq!(queue.push(a, DiskDirection::Read, 1, 'y'), Ok(()));
    assert_eq!(queue.push(a, DiskDirection::Read, 1, 'z'), Err('z'));
    assert_eq!(queue.push(b, DiskDirection::Read, 1, 'b'), Ok(()), "another group has a queue of its own");
    assert_eq!((queue.len(), queue.depth(a), queue.depth(b)), (3, 2, 1));
    assert_eq!(queue.remove(a, 0), vec!['x', 'y']);
    assert_eq!(queue.len(), 1);
}

#[test]
fn requests_of_a_group_are_sent_in_order() {
    let mut queue = queue(8);
    let a = queue.add(Tree::ROOT, spec(100, Class::Normal));
    (0..8).for_each(|n| queue.push(a, DiskDirection::Write, 4_096, n).unwrap());
    for n in 0..8 {
        assert!(matches!(queue.pop(0, IDLE), Pop::Ready { item, .. } if item == n));
    }
    assert_eq!(queue.pop(0, IDLE), Pop::Empty);
}

/// Depth one, on a disk a hundred times faster than its model: the model must not delay a request.
/// Three flows of a group have filled its queue. Another one gets a place, and its turn.
#[test]
fn flow_with_one_request_waits_for_one_turn_of_each_other() {
    const DEPTH: usize = 300;
    let mut queue = queue(DEPTH);
    let group = queue.add(Tree::ROOT, spec(100, Class::Normal));
    for request in 0..DEPTH as u64 {
        let flow = 1 + request % 3;
        assert_eq!(queue.push_from(group, flow, DiskDirection::Read, 64 << 10, flow), Ok(()));
    }
    assert_eq!(queue.push_from(group, 1, DiskDirection::Read, 4096, 1), Err(1), "the queue is full");
    assert_eq!(queue.push_from(group, 9, DiskDirection::Read, 4096, 9), Ok(()), "it has none here");
    assert_eq!(queue.push_from(group, 9, DiskDirection::Read, 4096, 9), Err(9), "it has one");
    let mut disk = Disk::default();
    let mut now_ns = 0;
    let mut used_ns = 0;
    loop {
        match disk.pop(&mut queue, now_ns) {
            Pop::Ready { item: 9, .. } => break,
            Pop::Ready { cost_ns, .. } => used_ns += cost_ns,
            Pop::Wait { until_ns, .. } => now_ns = until_ns.max(now_ns + 1),
            Pop::Full => now_ns += 10_000,
            Pop::Empty => panic!("it is queued"),
        }
    }
    // A turn is 250 µs of disk time, and a request 35 µs.
    assert!(used_ns <= 3 * (250_000 + 36_000), "it waited for {used_ns} ns of disk time");
}

#[test]
fn one_request_at_a_time_never_waits() {
    let bucket = Shared::default();
    let mut queue = IoQueue::new(DISK, 1, bucket.clone(), 1);
    let a = queue.add(Tree::ROOT, spec(1, Class::Batch));
    bucket.set(1_000_000_000_000); // a debt from before
    for round in 0..1_000 {
        queue.push(a, DiskDirection::Write, 1 << 20, ()).unwrap();
        assert!(matches!(queue.pop(round * 10_000, IDLE), Pop::Ready { .. }));
    }
    let ahead_ns = bucket.paid_until_ns() - 999 * 10_000;
    assert_eq!(ahead_ns, DISK.cost_ns(DiskDirection::Write, 1 << 20), "no debt is left for the next request");
}

#[test]
fn refusal_keeps_the_request_and_one_lease() {
    let bucket = Shared::default();
    let mut queue = IoQueue::new(DISK, 1, bucket.clone(), 8);
    let a = queue.add(Tree::ROOT, spec(100, Class::Normal));
    queue.push(a, DiskDirection::Read, 4_096, 'r').unwrap();
    bucket.set(BURST_NS + 77);
    assert_eq!(queue.pop(5, BUSY), Pop::Wait { until_ns: 77, for_disk: true });
    assert_eq!(queue.pop(76, BUSY), Pop::Wait { until_ns: 77, for_disk: true }, "it takes one lease only");
    assert_eq!(bucket.paid_until_ns(), BURST_NS + 77 + LEASE_NS);
    assert_eq!(queue.len(), 1);
    assert!(matches!(queue.pop(77, BUSY), Pop::Ready { item: 'r', .. }));
    let cost_ns = DISK.cost_ns(DiskDirection::Read, 4_096);
    assert_eq!(bucket.paid_until_ns(), BURST_NS + 77 + cost_ns, "the unused part of the lease is given back");
}

#[test]
fn idle_disk_ends_the_wait_for_a_lease() {
    let bucket = Shared::default();
    let mut queue = IoQueue::new(DISK, 1, bucket.clone(), 8);
    let a = queue.add(Tree::ROOT, spec(100, Class::Normal));
    queue.push(a, DiskDirection::Read, 4_096, ()).unwrap();
    bucket.set(1_000_000_000);
    assert!(matches!(queue.pop(5, BUSY), Pop::Wait { for_disk: true, .. }));
    assert!(matches!(queue.pop(6, IDLE), Pop::Ready { .. }));
    assert_eq!(bucket.paid_until_ns(), 6 + DISK.cost_ns(DiskDirection::Read, 4_096));
}

/// Runs a scan with endless requests and one small read of another group every millisecond. Returns
/// the longest latency of a read and the time that the disk was idle, ns.
fn lone_reads(disk: &mut Disk, model: DiskModel, scan_bytes: u64) -> (u64, u64) {
    let mut queue = IoQueue::new(model, 1, Shared::default(), 8);
    let scan = queue.add(Tree::ROOT, spec(100, Class::Batch));
    let reader = queue.add(Tree::ROOT, spec(1000, Class::Latency));
    let mut now_ns = 0;
    let mut pushed_ns = 0;
    let mut longest_ns = 0;
    let mut idle_ns = 0;
    while now_ns < 1_000_000_000 {
        while queue.push(scan, DiskDirection::Read, scan_bytes, false).is_ok() {}
        if queue.depth(reader) == 0 && now_ns >= pushed_ns {
            pushed_ns = now_ns;
            queue.push(reader, DiskDirection::Read, 4_096, true).unwrap();
        }
        let free_at_ns = disk.free_at_ns;
        match disk.pop(&mut queue, now_ns) {
            Pop::Ready { item, .. } => {
                if free_at_ns > 0 {
                    idle_ns += now_ns.saturating_sub(free_at_ns);
                }
                if item {
                    let done_ns = disk.in_flight.back().expect("just sent").0;
                    longest_ns = longest_ns.max(done_ns - pushed_ns);
                    pushed_ns = done_ns + 1_000_000;
                }
            }
            Pop::Wait { until_ns, .. } => {
                let done_ns = disk.in_flight.front().map_or(u64::MAX, |&(done_ns, _)| done_ns);
                now_ns = until_ns.min(done_ns);
            }
            Pop::Full => now_ns = disk.in_flight.front().expect("a core with nothing in flight may send").0,
            Pop::Empty => unreachable!("the scan's queue is full"),
        }
    }
    (longest_ns, idle_ns)
}

/// A model that is too fast for the disk (another program uses it, or its host has slowed it down)
/// must not fill it up.
#[test]
fn slow_disk_is_not_filled_up() {
    for slower in [1, 2, 10] {
        for scan_bytes in [4_096, 131_072, 1 << 20] {
            let mut disk = Disk { slower, latency_ns: DISK.latency_ns, ..Disk::default() };
            let (longest_ns, _) = lone_reads(&mut disk, DISK, scan_bytes);
            // The window, the scan's request that exceeded it, and the one that has to end first.
            let scan_ns = DISK.cost_ns(DiskDirection::Read, scan_bytes);
            let bound_ns = slower
                * (DISK.window_ns() + 2 * scan_ns + 2 * DISK.cost_ns(DiskDirection::Read, 4_096))
                + 2 * DISK.latency_ns;
            assert!(longest_ns <= bound_ns, "{longest_ns} of {bound_ns}, {slower} x slower, {scan_bytes}");
        }
    }
}

/// Little's law: a disk with twice its latency in flight always has work.
#[test]
fn window_keeps_a_disk_busy() {
    for (slower, latency_ns) in [(1, 100_000), (3, 100_000), (1, 5_000_000), (2, 5_000_000)] {
        for scan_bytes in [4_096, 131_072, 1 << 20] {
            let mut disk = Disk { slower, latency_ns, ..Disk::default() };
            let (_, idle_ns) = lone_reads(&mut disk, DiskModel { latency_ns, ..DISK }, scan_bytes);
            let allowed_ns = latency_ns + 5_000_000; // at the start it waits for the first completion
            assert!(idle_ns < allowed_ns, "{idle_ns} ns, {slower} x slower, {latency_ns}, {scan_bytes}");
        }
    }
}

/// One core has filled the window. Each other core may still have its part in flight.
#[test]
fn no_core_waits_for_requests_of_others() {
    let mut queue = IoQueue::new(DISK, 4, Shared::default(), 100);
    let a = queue.add(Tree::ROOT, spec(100, Class::Normal));
    (0..100).for_each(|_| queue.push(a, DiskDirection::Read, 4_096, ()).unwrap());
    let (mut in_flight, mut sent) = (InFlight { own_ns: 0, all_ns: DISK.window_ns() }, 0);
    while let Pop::Ready { cost_ns, .. } = queue.pop(0, in_flight) {
        in_flight = InFlight { own_ns: in_flight.own_ns + cost_ns, all_ns: in_flight.all_ns + cost_ns };
        sent += 1;
    }
    assert_eq!(queue.pop(0, in_flight), Pop::Full);
    assert_eq!(sent, (DISK.window_ns() / 4).div_ceil(DISK.cost_ns(DiskDirection::Read, 4_096)));
    assert!(matches!(queue.pop(0, InFlight { own_ns: 0, ..in_flight }), Pop::Ready { .. }));
}

/// One core, its load and its results.
struct Core {
    queue: Queue<u64>,
    group: NodeId,
    bytes: u64,
    kind: DiskDirection,
    /// Time of its next pop, ns.
    next_pop_ns: u64,
    used_ns: u64,
}

/// Checks cores with endless requests, each of its own size. They pop at the time that the queue
/// returned, up to 50 µs late, or earlier. Together they get the speed of the model, and each gets
/// the same disk time.
fn check_cores_share_one_bucket(seed: u64, cores: usize) {
    let mut random = Random::new(seed);
    let bucket = Shared::default();
    let mut all: Vec<Core> = (0..cores)
        .map(|_| {
            let mut queue = IoQueue::new(DISK, 1, bucket.clone(), 4);
            let group = queue.add(Tree::ROOT, spec(100, Class::Normal));
            let bytes = random.pick(&[0, 512, 4_096, 65_536, 262_144]);
            let kind = random.pick(&[DiskDirection::Read, DiskDirection::Write]);
            Core { queue, group, bytes, kind, next_pop_ns: 0, used_ns: 0 }
        })
        .collect();
    let (end_ns, mut now_ns) = (1_000_000_000, 0);
    let longest_ns = all.iter().map(|core| DISK.cost_ns(core.kind, core.bytes)).max().unwrap().max(LEASE_NS);
    while now_ns < end_ns {
        let next = all.iter_mut().min_by_key(|core| core.next_pop_ns).expect("a core");
        now_ns = next.next_pop_ns;
        while next.queue.depth(next.group) < 4 {
            next.queue.push(next.group, next.kind, next.bytes, 0).unwrap();
        }
        match next.queue.pop(now_ns, BUSY) {
            Pop::Ready { cost_ns, .. } => next.used_ns += cost_ns,
            Pop::Wait { until_ns, for_disk } => {
                assert!(for_disk && until_ns > now_ns);
                next.next_pop_ns =
                    until_ns.min(now_ns + random.within(1, 1_000_000)) + random.within(0, 50_000);
            }
            Pop::Full | Pop::Empty => panic!("the queues are full, and this core has nothing in flight"),
        }
        let total_ns: u64 = all.iter().map(|core| core.used_ns).sum();
        assert!(total_ns <= now_ns + BURST_NS + (cores as u64 + 1) * longest_ns, "{total_ns} at {now_ns}");
    }
    let total_ns: u64 = all.iter().map(|core| core.used_ns).sum();
    assert!(total_ns >= end_ns - cores as u64 * longest_ns, "all of the disk is used: {total_ns}");
    let fair_ns = end_ns / cores as u64;
    for core in &all {
        let off_ns = core.used_ns.abs_diff(fair_ns);
        assert!(off_ns <= fair_ns / 10 + 2 * longest_ns, "{} instead of {fair_ns}", core.used_ns);
    }
}

proptest! {
    #![proptest_config(config(20))]

    #[test]
    fn cores_share_one_bucket(seed: u64, cores in 1_usize..9) {
        check_cores_share_one_bucket(seed, cores);
    }
}

/// One budget serves all cores: a group moves as many bytes on several cores as on one.
#[test]
fn io_limit_holds_over_all_cores_together() {
    for cores in [1, 2, 5] {
        let budget = Shared::default();
        let mut queues: Vec<(Queue<()>, u64)> = (0..cores).map(|_| (queue(4), 0)).collect();
        let group = queues
            .iter_mut()
            .map(|(queue, _)| queue.add(Tree::ROOT, spec(100, Class::Normal)))
            .last()
            .unwrap();
        for (queue, _) in &mut queues {
            queue.set_io_limit(group, Some((10_000_000, budget.clone())));
        }
        let (mut now_ns, mut moved) = (0, vec![0_u64; cores]);
        while now_ns < 1_000_000_000 {
            let next = (0..cores).min_by_key(|&at| queues[at].1).unwrap();
            let (queue, next_pop_ns) = &mut queues[next];
            now_ns = *next_pop_ns;
            while queue.push(group, DiskDirection::Read, 10_000, ()).is_ok() {}
            match queue.pop(now_ns, IDLE) {
                Pop::Ready { .. } => moved[next] += 10_000,
                Pop::Wait { until_ns, for_disk } => {
                    assert!(!for_disk);
                    *next_pop_ns = until_ns;
                }
                Pop::Full | Pop::Empty => unreachable!("its queue is full, and the disk idle"),
            }
        }
        let total: u64 = moved.iter().sum();
        let leases = (cores as u64 + 1) * 10_000.max(LIMIT_LEASE_NS / 100);
        assert!((9_990_000 - leases..=10_010_000 + leases).contains(&total), "{total} on {cores} cores");
        let fair = total / cores as u64;
        assert!(moved.iter().all(|bytes| bytes.abs_diff(fair) <= 20_000), "{moved:?}");
    }
}

/// No request waits for hours for a limit of a byte a second that was lifted or raised.
#[test]
fn new_limit_acts_at_once() {
    let budget = Shared::default();
    let mut queue = queue(8);
    let a = queue.add(Tree::ROOT, spec(100, Class::Normal));
    queue.set_io_limit(a, Some((1, budget.clone())));
    (0..8).for_each(|_| queue.push(a, DiskDirection::Read, 1_000_000, ()).unwrap());
    assert!(matches!(queue.pop(0, IDLE), Pop::Ready { .. }));
    let Pop::Wait { until_ns, for_disk: false } = queue.pop(0, IDLE) else { panic!("over its limit") };
    assert!(until_ns > 900_000 * 1_000_000_000);
    budget.set(0);
    queue.set_io_limit(a, Some((1_000_000_000, budget)));
    assert!(matches!(queue.pop(5, IDLE), Pop::Ready { .. }));
}

/// A limited group waits for its own limit while others pass, and resumes in time.
#[test]
fn io_limit_throttles_one_group_only() {
    let mut queue = queue(100);
    let limited = queue.add(Tree::ROOT, spec(1000, Class::Latency));
    let free = queue.add(Tree::ROOT, spec(1, Class::Batch));
    queue.set_io_limit(limited, Some((10_000_000, Shared::default())));
    let mut now_ns = 0_u64;
    let mut bytes = 0_u64;
    let mut others = 0;
    let mut next_free_ns = 0;
    while now_ns < 100_000_000 {
        while queue.push(limited, DiskDirection::Read, 10_000, ()).is_ok() {}
        if now_ns >= next_free_ns {
            next_free_ns = now_ns + 2_000_000;
            queue.push(free, DiskDirection::Read, 10_000, ()).unwrap();
        }
        match queue.pop(now_ns, IDLE) {
            Pop::Ready { group, .. } if group == limited => bytes += 10_000,
            Pop::Ready { .. } => others += 1,
            Pop::Wait { until_ns, .. } => {
                assert!(until_ns > now_ns);
                now_ns = until_ns;
            }
            Pop::Full | Pop::Empty => unreachable!("the limited queue is full, and the disk idle"),
        }
    }
    assert!((1_000_000..=1_000_000 + 10_000 + 10_000).contains(&bytes), "{bytes} in 100 ms at 10 MB/s");
    assert!(others > 10, "{others}");
    queue.set_io_limit(limited, None);
    assert!(matches!(queue.pop(now_ns, IDLE), Pop::Ready { group, .. } if group == limited));
}

#[test]
fn ids_match_a_tree_with_the_same_history() {
    let (mut queue, mut tree) = (queue::<()>(1), Tree::new());
    let same = spec(5, Class::Normal);
    let users = queue.add(Tree::ROOT, same);
    assert_eq!(users, tree.add(Tree::ROOT, same));
    let (a, b) = (queue.add(users, same), queue.add(users, same));
    assert_eq!((a, b), (tree.add(users, same), tree.add(users, same)));
    queue.remove(a, 0);
    tree.remove(a);
    assert_eq!(queue.add(Tree::ROOT, same), tree.add(Tree::ROOT, same));
}
