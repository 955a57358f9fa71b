//! Loads that the rules are compared under. Each is one core with one to five groups.

use sched::Class;

use crate::core::{Group, Load, MS, US};

pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) groups: Vec<Group>,
    /// Group whose latencies are reported.
    pub(crate) interactive: usize,
    /// Group whose throughput is reported.
    pub(crate) batch: usize,
    /// Two groups whose CPU is compared with their shares.
    pub(crate) by_shares: Option<(usize, usize)>,
}

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

pub(crate) fn all() -> Vec<Scenario> {
    use Class::{Batch, Latency, Normal};
    let level = Group::level;
    let scenario = |name, groups, interactive, batch, by_shares| Scenario {
        name,
        groups,
        interactive,
        batch,
        by_shares,
    };
    vec![
        scenario(
            "reads | batch",
            vec![level(1000, Normal, &[reads(15_000)]), level(100, Batch, &[queries(4)])],
            0,
            1,
            None,
        ),
        scenario(
            "latency-class reads | queries",
            vec![level(1000, Latency, &[reads(15_000)]), level(100, Normal, &[queries(4)])],
            0,
            1,
            None,
        ),
        scenario(
            "rare latency-class reads | queries",
            vec![level(1000, Latency, &[reads(200)]), level(1000, Normal, &[queries(4), reads(5_000)])],
            0,
            1,
            None,
        ),
        scenario(
            "few reads, a tenth of the shares | queries",
            vec![level(100, Normal, &[reads(3_000)]), level(1000, Normal, &[queries(4)])],
            0,
            1,
            None,
        ),
        scenario(
            "reads and queries of one level",
            vec![level(1000, Normal, &[reads(10_000), queries(2)]), level(100, Normal, &[])],
            0,
            0,
            None,
        ),
        scenario(
            "closed reads and queries of one level",
            vec![level(1000, Normal, &[closed(64, 200 * US), queries(1)]), level(100, Normal, &[])],
            0,
            0,
            None,
        ),
        scenario(
            "writes, log | flush, compaction",
            vec![
                level(1000, Normal, &[reads(25_000)]),
                Group::system(1000, Latency, &[Load::Open { per_second: 6_000, cpu_ns: 6 * US }]),
                Group::system(200, Batch, &[jobs()]),
                Group::system(100, Batch, &[jobs()]),
            ],
            0,
            2,
            None,
        ),
        scenario(
            "one query client each, 200 : 100",
            vec![
                level(
                    200,
                    Normal,
                    &[Load::Queries { clients: 1, cpu_ns: 20 * MS, absences: 4, away_ns: 3 * MS }],
                ),
                level(
                    100,
                    Normal,
                    &[Load::Queries { clients: 3, cpu_ns: 20 * MS, absences: 4, away_ns: 3 * MS }],
                ),
                level(10, Normal, &[reads(1_000)]),
            ],
            2,
            0,
            Some((0, 1)),
        ),
        scenario(
            "closed reads, 800 : 200",
            vec![level(800, Normal, &[closed(64, 20 * US)]), level(200, Normal, &[closed(64, 20 * US)])],
            1,
            0,
            Some((0, 1)),
        ),
        scenario(
            "busy reads | queries that pause, 500 : 500",
            vec![
                level(500, Normal, &[closed(64, 20 * US)]),
                level(
                    500,
                    Normal,
                    &[Load::Queries { clients: 1, cpu_ns: 20 * MS, absences: 1, away_ns: 15 * MS }],
                ),
            ],
            0,
            1,
            Some((0, 1)),
        ),
        scenario(
            "two query clients and two query clients, 200 : 100",
            vec![
                level(
                    200,
                    Normal,
                    &[Load::Queries { clients: 2, cpu_ns: 40 * MS, absences: 4, away_ns: 3 * MS }],
                ),
                level(
                    100,
                    Normal,
                    &[Load::Queries { clients: 2, cpu_ns: 40 * MS, absences: 4, away_ns: 3 * MS }],
                ),
                level(10, Normal, &[reads(1_000)]),
            ],
            2,
            0,
            Some((0, 1)),
        ),
        scenario(
            "busy reads, 100 : 100, and rare reads",
            vec![
                level(100, Normal, &[closed(64, 20 * US)]),
                level(100, Normal, &[closed(64, 20 * US)]),
                level(100, Normal, &[reads(20)]),
            ],
            2,
            0,
            Some((0, 1)),
        ),
        scenario(
            "reads | busy reads capped at half",
            vec![
                level(1000, Normal, &[reads(3_000)]),
                Group { limit_ppm: 500_000, ..level(1000, Normal, &[closed(64, 20 * US)]) },
            ],
            0,
            1,
            None,
        ),
        scenario(
            "reads capped at a fifth | queries",
            vec![
                Group { limit_ppm: 200_000, ..level(1000, Normal, &[reads(5_000)]) },
                level(1000, Normal, &[queries(4)]),
            ],
            0,
            1,
            None,
        ),
        scenario(
            "latency-class reads beyond their share | queries",
            vec![level(100, Latency, &[reads(6_000)]), level(1000, Normal, &[queries(4)])],
            0,
            1,
            None,
        ),
        scenario(
            "latency-class reads near their share | queries",
            vec![level(1000, Latency, &[reads(14_000)]), level(1000, Normal, &[queries(4)])],
            0,
            1,
            None,
        ),
        scenario(
            "rare reads | busy reads",
            vec![level(1000, Normal, &[reads(100)]), level(1000, Normal, &[closed(64, 20 * US)])],
            0,
            1,
            None,
        ),
        scenario("one level alone, busy", vec![level(1000, Normal, &[closed(64, 20 * US)])], 0, 0, None),
        scenario(
            "bursts | queries",
            vec![
                level(500, Normal, &[Load::Bursts { every_ns: 20 * MS, requests: 100, cpu_ns: REQUEST_NS }]),
                level(500, Normal, &[queries(4)]),
            ],
            0,
            1,
            None,
        ),
        scenario(
            "reads | queries capped at half",
            vec![
                level(1000, Normal, &[reads(3_000)]),
                Group { limit_ppm: 500_000, ..level(1000, Normal, &[queries(4)]) },
            ],
            0,
            1,
            None,
        ),
        scenario(
            "queries capped at half, alone",
            vec![
                level(1000, Normal, &[reads(1)]),
                Group { limit_ppm: 500_000, ..level(1000, Normal, &[queries(4)]) },
            ],
            0,
            1,
            None,
        ),
        scenario(
            "three levels of queries, 100 : 100 : 100, and reads",
            vec![
                level(100, Normal, &[queries(2)]),
                level(100, Normal, &[queries(2)]),
                level(100, Batch, &[queries(2)]),
                level(1000, Normal, &[reads(5_000)]),
            ],
            3,
            0,
            Some((0, 2)),
        ),
    ]
}
