//! Loads under which the rules of the scheduler show. Each is one core with two to four groups.

use sched::Class::{Batch, Latency, Normal};

use crate::core::{Group, Load, MS, US};

const REQUEST_NS: u64 = 12 * US;

fn reads(per_second: u64) -> Load {
    Load::Open { per_second, cpu_ns: REQUEST_NS }
}

fn closed(clients: u64, think_ns: u64) -> Load {
    Load::Closed { clients, cpu_ns: REQUEST_NS, think_ns }
}

/// Returns endless queries.
fn queries(clients: u64) -> Load {
    Load::Queries { clients, cpu_ns: 20 * MS, absences: 0, away_ns: 0 }
}

/// Returns endless background work: jobs of 50 ms that wait for the disk now and then.
fn jobs() -> Load {
    Load::Queries { clients: 2, cpu_ns: 50 * MS, absences: 20, away_ns: 300 * US }
}

/// Returns a level of queries that is capped at half of the core.
fn half() -> Group {
    Group { limit_ppm: 500_000, ..Group::level(1000, Normal, &[queries(4)]) }
}

pub(crate) fn reads_beside_batch() -> Vec<Group> {
    vec![Group::level(1000, Normal, &[reads(15_000)]), Group::level(100, Batch, &[queries(4)])]
}

pub(crate) fn reads_and_queries_of_one_level() -> Vec<Group> {
    let one = Group::level(1000, Normal, &[closed(64, 200 * US), queries(1)]);
    vec![one, Group::level(100, Normal, &[])]
}

pub(crate) fn writes_beside_flush() -> Vec<Group> {
    let log = Load::Open { per_second: 6_000, cpu_ns: 6 * US };
    vec![
        Group::level(1000, Normal, &[reads(25_000)]),
        Group::system(1000, Latency, &[log]),
        Group::system(200, Batch, &[jobs()]),
        Group::system(100, Batch, &[jobs()]),
    ]
}

pub(crate) fn busy_reads_beside_queries_that_pause() -> Vec<Group> {
    let pausing = Load::Queries { clients: 1, cpu_ns: 20 * MS, absences: 1, away_ns: 15 * MS };
    vec![Group::level(500, Normal, &[closed(64, 20 * US)]), Group::level(500, Normal, &[pausing])]
}

pub(crate) fn two_busy_levels_and_rare_reads() -> Vec<Group> {
    let busy = || Group::level(100, Normal, &[closed(64, 20 * US)]);
    vec![busy(), busy(), Group::level(100, Normal, &[reads(20)])]
}

pub(crate) fn rare_reads_beside_busy_reads() -> Vec<Group> {
    let busy = Group::level(1000, Normal, &[closed(64, 20 * US)]);
    vec![Group::level(1000, Normal, &[reads(100)]), busy]
}

pub(crate) fn capped_reads_beside_queries() -> Vec<Group> {
    let capped = Group { limit_ppm: 200_000, ..Group::level(1000, Normal, &[reads(5_000)]) };
    vec![capped, Group::level(1000, Normal, &[queries(4)])]
}

pub(crate) fn capped_queries_alone() -> Vec<Group> {
    vec![Group::level(1000, Normal, &[reads(1)]), half()]
}

pub(crate) fn capped_queries_beside_reads() -> Vec<Group> {
    vec![Group::level(1000, Normal, &[reads(3_000)]), half()]
}

pub(crate) fn three_levels_of_queries() -> Vec<Group> {
    vec![
        Group::level(100, Normal, &[queries(2)]),
        Group::level(100, Normal, &[queries(2)]),
        Group::level(100, Batch, &[queries(2)]),
        Group::level(1000, Normal, &[reads(5_000)]),
    ]
}
