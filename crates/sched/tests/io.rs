//! The I/O queue beside a simulated disk that does exactly what the model says.

mod common;

use std::collections::VecDeque;

use common::{Random, config};
use proptest::prelude::*;
use sched::disk::{self, BURST_NS};
use sched::{Class, DiskModel, IoQueue, Kind, NodeId, NodeSpec, Pop, TICK_NS, Tree};

const DISK: DiskModel = DiskModel {
    read_bandwidth_max: 2_000_000_000,
    write_bandwidth_max: 1_000_000_000,
    read_ops_max: 400_000,
    write_ops_max: 100_000,
};

fn spec(shares: u32, class: Class) -> NodeSpec {
    NodeSpec { shares, class }
}

/// A disk that works on one request after another; `in_flight` holds the times at which they will be done.
#[derive(Default)]
struct Disk {
    paid_until_ns: u64,
    free_at_ns: u64,
    in_flight: VecDeque<u64>,
}

impl Disk {
    /// Pops at `now_ns`; what is sent is done one cost after all that was sent before.
    fn pop<T>(&mut self, queue: &mut IoQueue<T>, now_ns: u64) -> Pop<T> {
        while self.in_flight.front().is_some_and(|&done| done <= now_ns) {
            self.in_flight.pop_front();
        }
        let in_flight = self.in_flight.len() as u32;
        let popped = queue.pop(now_ns, |cost_ns| {
            self.paid_until_ns = disk::take(self.paid_until_ns, now_ns, cost_ns, in_flight)?;
            Ok(())
        });
        if let Pop::Ready { cost_ns, .. } = popped {
            self.free_at_ns = self.free_at_ns.max(now_ns) + cost_ns;
            self.in_flight.push_back(self.free_at_ns);
        }
        popped
    }
}

/// Groups with full queues of random requests, kept full: disk time ÷ shares stays within the longest requests and the
/// credit, and the queue inside the disk within the burst and one request.
fn check_disk_time_follows_shares(seed: u64, shares: &[u32]) {
    let mut random = Random::new(seed);
    let mut queue = IoQueue::new(DISK, 4);
    let groups: Vec<NodeId> = shares.iter().map(|&s| queue.add(Tree::ROOT, spec(s, Class::Normal))).collect();
    let mut disk = Disk::default();
    let mut used_ns = vec![0_u64; shares.len()];
    let (mut now_ns, mut longest_ns) = (0, 0_u64);
    for _ in 0..2_000 {
        for &group in &groups {
            while queue.depth(group) < 4 {
                let kind = random.of(&[Kind::Read, Kind::Write]);
                let bytes = random.of(&[0, 512, 4_096, 131_072, 1_048_576]);
                queue.push(group, kind, bytes, ()).unwrap();
            }
        }
        match disk.pop(&mut queue, now_ns) {
            Pop::Empty => panic!("the queues are full"),
            Pop::Wait { until_ns } => {
                assert!(until_ns > now_ns);
                now_ns = until_ns;
            }
            Pop::Ready { group, cost_ns, .. } => {
                used_ns[groups.iter().position(|&known| known == group).unwrap()] += cost_ns;
                longest_ns = longest_ns.max(cost_ns);
                assert!(disk.free_at_ns - now_ns <= BURST_NS + longest_ns, "the disk's own queue is bounded");
            }
        }
        for (a, b) in (0..shares.len()).flat_map(|a| (0..a).map(move |b| (a, b))) {
            let served = |at: usize| used_ns[at] as f64 / f64::from(shares[at]);
            let reach = |at: usize| (longest_ns + TICK_NS) as f64 / f64::from(shares[at]);
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

#[test]
fn a_full_queue_hands_the_item_back() {
    let mut queue = IoQueue::new(DISK, 2);
    let a = queue.add(Tree::ROOT, spec(100, Class::Normal));
    let b = queue.add(Tree::ROOT, spec(100, Class::Normal));
    assert_eq!(queue.push(a, Kind::Read, 1, 'x'), Ok(()));
    assert_eq!(queue.push(a, Kind::Read, 1, 'y'), Ok(()));
    assert_eq!(queue.push(a, Kind::Read, 1, 'z'), Err('z'));
    assert_eq!(queue.push(b, Kind::Read, 1, 'b'), Ok(()), "another group's room is its own");
    assert_eq!((queue.len(), queue.depth(a), queue.depth(b)), (3, 2, 1));
    assert_eq!(queue.remove(a), vec!['x', 'y']);
    assert_eq!(queue.len(), 1);
}

#[test]
fn a_group_is_served_in_order() {
    let mut queue = IoQueue::new(DISK, 8);
    let a = queue.add(Tree::ROOT, spec(100, Class::Normal));
    (0..8).for_each(|n| queue.push(a, Kind::Write, 4_096, n).unwrap());
    for n in 0..8 {
        assert!(matches!(queue.pop(0, |_| Ok(())), Pop::Ready { item, .. } if item == n));
    }
    assert_eq!(queue.pop(0, |_| panic!("nothing to ask for")), Pop::Empty);
}

/// Depth one, on a disk a hundred times faster than its model: the model must not hold a request back.
#[test]
fn one_request_at_a_time_never_waits() {
    let mut queue = IoQueue::new(DISK, 1);
    let a = queue.add(Tree::ROOT, spec(1, Class::Batch));
    let mut disk = Disk::default();
    for round in 0..1_000 {
        queue.push(a, Kind::Write, 1 << 20, ()).unwrap();
        disk.in_flight.clear();
        assert!(matches!(disk.pop(&mut queue, round * 10_000), Pop::Ready { .. }));
    }
    let ahead_ns = disk.paid_until_ns - 999 * 10_000;
    assert_eq!(ahead_ns, DISK.cost_ns(Kind::Write, 1 << 20), "and no debt is left for those who come next");
}

#[test]
fn a_refusal_keeps_the_request_and_its_turn() {
    let mut queue = IoQueue::new(DISK, 8);
    let a = queue.add(Tree::ROOT, spec(100, Class::Normal));
    queue.push(a, Kind::Read, 4_096, 'r').unwrap();
    assert_eq!(queue.pop(5, |_| Err(77)), Pop::Wait { until_ns: 77 });
    assert_eq!(queue.len(), 1);
    assert!(matches!(queue.pop(77, |_| Ok(())), Pop::Ready { item: 'r', .. }));
}

/// A limited group waits for its own limit while others pass, and is not forgotten when it comes due.
#[test]
fn an_io_limit_holds_one_group_only() {
    let mut queue = IoQueue::new(DISK, 100);
    let limited = queue.add(Tree::ROOT, spec(1000, Class::Latency));
    let free = queue.add(Tree::ROOT, spec(1, Class::Batch));
    queue.set_io_limit(limited, Some(10_000_000));
    let (mut now_ns, mut bytes, mut others, mut next_free_ns) = (0_u64, 0_u64, 0, 0);
    while now_ns < 100_000_000 {
        while queue.push(limited, Kind::Read, 10_000, ()).is_ok() {}
        if now_ns >= next_free_ns {
            next_free_ns = now_ns + 2_000_000;
            queue.push(free, Kind::Read, 10_000, ()).unwrap();
        }
        match queue.pop(now_ns, |_| Ok(())) {
            Pop::Ready { group, .. } if group == limited => bytes += 10_000,
            Pop::Ready { .. } => others += 1,
            Pop::Wait { until_ns } => {
                assert!(until_ns > now_ns);
                now_ns = until_ns;
            }
            Pop::Empty => unreachable!("the limited queue is full"),
        }
    }
    assert!((1_000_000..=1_000_000 + 10_000 + 10_000).contains(&bytes), "{bytes} in 100 ms at 10 MB/s");
    assert!(others > 10, "{others}");
    queue.set_io_limit(limited, None);
    assert!(matches!(queue.pop(now_ns, |_| Ok(())), Pop::Ready { group, .. } if group == limited));
}

#[test]
fn ids_are_those_of_a_tree_with_the_same_history() {
    let (mut queue, mut tree) = (IoQueue::<()>::new(DISK, 1), Tree::new());
    let same = spec(5, Class::Normal);
    let users = queue.add(Tree::ROOT, same);
    assert_eq!(users, tree.add(Tree::ROOT, same));
    let (a, b) = (queue.add(users, same), queue.add(users, same));
    assert_eq!((a, b), (tree.add(users, same), tree.add(users, same)));
    queue.remove(a);
    tree.remove(a);
    assert_eq!(queue.add(Tree::ROOT, same), tree.add(Tree::ROOT, same));
}
