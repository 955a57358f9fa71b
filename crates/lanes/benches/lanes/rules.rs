//! Comparison of the lanes with all rules of the scheduler and without one of them, in turn (A B B
//! A) in one process. Counts come first: a machine with other work changes times by a factor, and
//! counts hardly. `docs/decisions/0020-rules-beside-the-kernel.md` has the conclusions.
//!
//! Each load is one under which its rule should show. A cell has the median with the rule, the
//! median without it, and the quartiles of *without* divided by *with*, by pairs of runs.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, Instant};

use lanes::{Config, DeferredWork, Group, GroupSpec, Lanes, Reporter};
use result_file::Run;
use sched::Policy;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{Lane, cpu_ns, foreign_spinner, load, spin, without};

/// Results of one run of a load, each with its unit.
type Measured = Vec<(&'static str, f64, &'static str)>;

/// A rule's name, as `--without` takes it, and the load.
type Comparison = (&'static str, fn(&Setup) -> Measured);

const COMPARISONS: [Comparison; 10] = [
    ("short-slice", rare_reads_beside_busy_reads),
    ("credit", reads_beside_heavy_work),
    ("lag", queries_that_pause),
    ("active", rare_reads_beside_busy_reads),
    ("coalescing", reads_beside_heavy_work),
    ("heavy-turn", heavy_and_busy_work_of_one_level),
    ("long-lease", capped_heavy_work),
    ("offer", reads_beside_heavy_work),
    ("starved", urgent_work_beside_another_program),
    ("defer", answers_to_several_connections),
];

/// Length of a run. Short runs in turn meet the same other work.
const RUN: Duration = Duration::from_millis(200);
/// Time for urgent jobs, after which a run ends with the job in progress.
const URGENT: Duration = Duration::from_secs(5);
/// Most rounds of this rule: without it, each run takes many seconds.
const STARVED_ROUNDS: usize = 1;

struct Setup {
    lanes: Lanes,
    cpu: usize,
    time: Duration,
}

impl Setup {
    fn level(&self, shares: u32, cpu_limit_ppm: Option<u32>) -> Group {
        let spec = GroupSpec { cpu_limit_ppm, ..GroupSpec::new("level", shares) };
        self.lanes.create_group(Group::USERS, spec)
    }

    /// Runs `measured` beside loads of groups, and returns the growth of a group's CPU, ns, and of
    /// its heavy slices, both a second.
    fn beside<T>(
        &self,
        loads: &[(Group, Lane)],
        watched: Group,
        measured: impl FnOnce() -> T,
    ) -> (T, f64, f64) {
        let stop = Arc::new(AtomicBool::new(false));
        loads.iter().for_each(|&(group, lane)| load(&self.lanes, group, lane, &stop));
        std::thread::sleep(self.time / 10);
        let usage = || (cpu_ns(&self.lanes, watched), self.lanes.usage(watched).heavy_dispatches as f64);
        let (before, began) = (usage(), Instant::now());
        let result = measured();
        let (after, seconds) = (usage(), began.elapsed().as_secs_f64());
        stop.store(true, Relaxed);
        std::thread::sleep(Duration::from_millis(20));
        (result, (after.0 - before.0) / seconds, (after.1 - before.1) / seconds)
    }
}

/// Compares each rule, or `only`, in `rounds` rounds of four runs.
pub(crate) fn all(run: &mut Run, config: &Config, rounds: usize, only: Option<&str>) {
    for (rule, load) in COMPARISONS.into_iter().filter(|(rule, _)| only.is_none_or(|only| only == *rule)) {
        let rounds = if rule == "starved" { STARVED_ROUNDS } else { rounds };
        let [mut with, mut off] = [Vec::new(), Vec::new()];
        for is_with in std::iter::repeat_n([true, false, false, true], rounds).flatten() {
            let policy = if is_with { Policy::DEFAULT } else { without(rule) };
            let config = Config { policy, reporter: Reporter::new(|_| {}), ..config.clone() };
            let cpu = config.cores[0];
            let setup = Setup { lanes: Lanes::start(config).expect("lanes start"), cpu, time: RUN };
            let measured = load(&setup);
            setup.lanes.shutdown();
            if is_with { with.push(measured) } else { off.push(measured) }
        }
        for (at, &(what, _, unit)) in with[0].iter().enumerate() {
            let [with, off] = [&with, &off].map(|runs| runs.iter().map(|run| run[at].1).collect::<Vec<_>>());
            let pairs = off.iter().zip(&with).filter(|(_, with)| **with > 0.0);
            let ratio = match pairs.map(|(off, with)| off / with).collect::<Vec<_>>() {
                ratios if ratios.is_empty() => "–".to_owned(),
                ratios => {
                    let [low, median, high] = quartiles(ratios);
                    format!("{median:.2} ({low:.2}–{high:.2})")
                }
            };
            let [with, off] = [with, off].map(|runs| quartiles(runs)[1]);
            let cell = format!("{with:.1} · {off:.1}, ratio {ratio}");
            run.row(&format!("{rule}, {what}"), &cell, unit);
        }
    }
}

/// Returns the quartiles.
fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}

/// An answer that is sent when its group pauses, as those of a session.
struct Answer {
    output: tokio::net::tcp::OwnedWriteHalf,
    pending: Cell<bool>,
}

impl DeferredWork for Answer {
    fn run_deferred(self: Rc<Self>) {
        self.pending.set(false);
        assert_eq!(self.output.try_write(&[0; 100]).ok(), Some(100), "the socket takes an answer");
    }
}

/// Starts a server that spends 5 µs on each request of 100 bytes and defers the answer.
fn echo(lanes: &Lanes, group: Group) -> SocketAddr {
    lanes.block_on(0, group, move || async move {
        let listener = lanes::net::listen("127.0.0.1:0".parse().expect("an address"), false).expect("a port");
        let address = listener.local_addr().expect("bound");
        lanes::spawn(group, async move {
            while let Ok((stream, _)) = listener.accept().await {
                lanes::spawn(group, async move {
                    let (mut input, output) = stream.into_split();
                    let answer = Rc::new(Answer { output, pending: false.into() });
                    let mut request = [0; 100];
                    while input.read_exact(&mut request).await.is_ok() {
                        spin(5_000);
                        if !answer.pending.replace(true) {
                            lanes::defer(answer.clone());
                        }
                    }
                })
                .detach();
            }
        })
        .detach();
        address
    })
}

/// Requests of one client thread.
struct Client {
    /// Latencies in order, µs.
    latencies_us: Vec<f64>,
    /// Times that the thread slept, for each request.
    sleeps: f64,
    /// CPU of the thread for each request, µs.
    cpu_us: f64,
    /// Time that the thread waited for a CPU, for each request, µs. Other programs cause it.
    delay_us: f64,
}

impl Client {
    fn at(&self, part: f64) -> f64 {
        self.latencies_us[((self.latencies_us.len() - 1) as f64 * part) as usize]
    }

    /// Returns how many requests in 1,000 took longer than a millisecond.
    fn slow(&self) -> f64 {
        let slow = self.latencies_us.iter().filter(|us| **us > 1_000.0).count();
        slow as f64 * 1_000.0 / self.latencies_us.len() as f64
    }
}

/// Returns CPU time, time of waiting for a CPU, both ns, and the number of sleeps of this thread.
fn of_this_thread() -> [f64; 3] {
    let read = |file: &str| std::fs::read_to_string(format!("/proc/thread-self/{file}")).expect("in /proc");
    let number = |word: Option<&str>| word.and_then(|word| word.parse::<f64>().ok()).expect("a number");
    let status = read("status");
    let sleeps = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).map(str::trim);
    let schedstat = read("schedstat");
    let mut times = schedstat.split(' ');
    [number(times.next()), number(times.next()), number(sleeps)]
}

/// Sends requests over several connections from one thread. Each connection sends the next one
/// `think` after the answer.
fn client(address: SocketAddr, connections: usize, think: Duration, time: Duration) -> Client {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let before = of_this_thread();
    let mut latencies_us = tokio::task::LocalSet::new().block_on(&runtime, async move {
        let all: Vec<_> = (0..connections)
            .map(|_| tokio::task::spawn_local(connection(address, think, Instant::now() + time)))
            .collect();
        let mut latencies_us = Vec::new();
        for connection in all {
            latencies_us.extend(connection.await.expect("a connection"));
        }
        latencies_us
    });
    let after = of_this_thread();
    latencies_us.sort_by(f64::total_cmp);
    let count = latencies_us.len() as f64;
    let [cpu_us, delay_us, sleeps] = [(0, 1_000.0), (1, 1_000.0), (2, 1.0)]
        .map(|(at, unit): (usize, f64)| (after[at] - before[at]) / count / unit);
    Client { latencies_us, sleeps, cpu_us, delay_us }
}

/// Returns the latencies of one connection's requests, µs.
async fn connection(address: SocketAddr, think: Duration, until: Instant) -> Vec<f64> {
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("the server listens");
    stream.set_nodelay(true).expect("an option of TCP");
    let (mut took, mut answer) = (Vec::new(), [0; 100]);
    while took.is_empty() || Instant::now() < until {
        let began = Instant::now();
        stream.write_all(&[0; 100]).await.expect("the server reads");
        stream.read_exact(&mut answer).await.expect("the server answers");
        took.push(began.elapsed().as_nanos() as f64 / 1_000.0);
        if !think.is_zero() {
            tokio::time::sleep(think).await;
        }
    }
    took
}

/// One connection of a level beside endless fast-lane work of another.
fn rare_reads_beside_busy_reads(setup: &Setup) -> Measured {
    let [rare, busy] = [(); 2].map(|()| setup.level(1000, None));
    let address = echo(&setup.lanes, rare);
    let think = Duration::from_millis(2);
    let (client, ..) = setup.beside(&[(busy, Lane::Fast)], busy, || client(address, 1, think, setup.time));
    vec![("rare reads beside busy ones, p50", client.at(0.5), "µs"), ("p90", client.at(0.9), "µs")]
}

/// Eight connections of a level beside heavy work of another.
fn reads_beside_heavy_work(setup: &Setup) -> Measured {
    let [reads, queries] = [(1000, None), (100, None)].map(|(shares, cap)| setup.level(shares, cap));
    let address = echo(&setup.lanes, reads);
    let think = Duration::from_millis(1);
    let (client, heavy_ns, slices) =
        setup.beside(&[(queries, Lane::Heavy)], queries, || client(address, 8, think, setup.time));
    let requests = client.latencies_us.len() as f64 / setup.time.as_secs_f64();
    vec![
        ("reads beside heavy work, p50", client.at(0.5), "µs"),
        ("the same, p99", client.at(0.99), "µs"),
        ("the same, slower than 1 ms", client.slow(), "in 1,000"),
        ("heavy slices", slices * 1_000.0 / requests, "for 1,000 requests"),
        ("CPU of the heavy work", heavy_ns / 1e7, "% of the core"),
    ]
}

/// Heavy work that computes for 3 ms and is away for 5 ms, beside endless fast-lane work of another
/// level with the same shares.
fn queries_that_pause(setup: &Setup) -> Measured {
    let [pausing, busy] = [(); 2].map(|()| setup.level(1000, None));
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    setup.lanes.block_on(0, pausing, move || async move {
        let rounds = async move {
            while !stopped.load(Relaxed) {
                let part = async {
                    for _ in 0..30 {
                        spin(100_000);
                        lanes::heavy_yield().await;
                    }
                };
                lanes::heavy(pausing, part).await;
                lanes::time::sleep(Duration::from_millis(5)).await;
            }
        };
        lanes::spawn(pausing, rounds).detach();
    });
    let wait = || {
        let before = cpu_ns(&setup.lanes, busy);
        std::thread::sleep(setup.time);
        cpu_ns(&setup.lanes, busy) - before
    };
    let (busy_ns, pausing_ns, _) = setup.beside(&[(busy, Lane::Fast)], pausing, wait);
    stop.store(true, Relaxed);
    let both = busy_ns / setup.time.as_secs_f64() + pausing_ns;
    vec![("work that pauses, of 1:1 with busy work", pausing_ns * 100.0 / both, "% of both")]
}

/// Heavy and endless fast-lane work of one level.
fn heavy_and_busy_work_of_one_level(setup: &Setup) -> Measured {
    let level = setup.level(1000, None);
    let wait = || {
        let before = setup.lanes.usage(level);
        std::thread::sleep(setup.time);
        let after = setup.lanes.usage(level);
        [after.cpu_heavy_ns - before.cpu_heavy_ns, after.cpu_fast_ns - before.cpu_fast_ns]
            .map(|ns| ns as f64 / setup.time.as_nanos() as f64 * 100.0)
    };
    let ([heavy, fast], ..) = setup.beside(&[(level, Lane::Fast), (level, Lane::Heavy)], level, wait);
    vec![
        ("heavy beside fast work of its level", heavy, "% of the core"),
        ("the fast work", fast, "% of the core"),
    ]
}

/// Heavy work capped at half of the core, and nothing else.
fn capped_heavy_work(setup: &Setup) -> Measured {
    let level = setup.level(1000, Some(500_000));
    let control = || cpu_ns(&setup.lanes, Group::CONTROL);
    let wait = || {
        let before = control();
        std::thread::sleep(setup.time);
        (control() - before) / setup.time.as_secs_f64()
    };
    let (control_ns, capped_ns, slices) = setup.beside(&[(level, Lane::Heavy)], level, wait);
    vec![
        ("heavy work capped at half, slices", slices, "a second"),
        ("CPU of the level", capped_ns / 1e7, "% of the core"),
        ("CPU of `control`", control_ns / 1e7, "% of the core"),
    ]
}

/// Jobs of 3 ms, such as logins, beside a program that keeps the CPU busy.
fn urgent_work_beside_another_program(setup: &Setup) -> Measured {
    let mut foreign = foreign_spinner(setup.cpu);
    let until = Instant::now() + URGENT;
    let mut took_ms = Vec::new();
    while took_ms.is_empty() || (Instant::now() < until && took_ms.len() < 200) {
        std::thread::sleep(Duration::from_millis(50));
        took_ms.push(crate::job_of_3_ms(&setup.lanes, true).as_secs_f64() * 1_000.0);
    }
    drop((foreign.kill(), foreign.wait()));
    took_ms.sort_by(f64::total_cmp);
    vec![
        ("urgent jobs of 3 ms, median", took_ms[took_ms.len() / 2], "ms"),
        ("longest", took_ms[took_ms.len() - 1], "ms"),
        ("number of jobs", took_ms.len() as f64, ""),
    ]
}

/// Sixteen connections of one client thread, one request in flight each.
fn answers_to_several_connections(setup: &Setup) -> Measured {
    let level = setup.level(1000, None);
    let address = echo(&setup.lanes, level);
    let mut measured = Vec::new();
    let control = cpu_ns(&setup.lanes, Group::CONTROL);
    let before = cpu_ns(&setup.lanes, level) + control;
    let client = client(address, 16, Duration::ZERO, setup.time);
    let used_ns = cpu_ns(&setup.lanes, level) + cpu_ns(&setup.lanes, Group::CONTROL) - before;
    let requests = client.latencies_us.len() as f64;
    measured.push(("sleeps of a client of 16 connections", client.sleeps * 1_000.0, "for 1,000 requests"));
    measured.push(("CPU of the lane", used_ns / requests / 1_000.0, "µs a request"));
    measured.push(("CPU of the client", client.cpu_us, "µs a request"));
    measured.push(("the client's wait for a CPU", client.delay_us, "µs a request"));
    measured.push(("p50", client.at(0.5), "µs"));
    measured.push(("p99", client.at(0.99), "µs"));
    measured
}
