//! Benchmark of the lanes on one pinned core of this machine. It measures CPU by shares in every
//! mix of lanes, wake-ups of the fast lane beside a heavy one, a cap, and the cost of a switch.
//! `cargo bench -p lanes`, with `-- --quick` for a tenth of the time. `-- shares`, `wake`,
//! `urgent`, `cap`, `cost`, `log` or `disk` runs one part. With
//! `BENCH_RESULTS=bench/results` the results are written to that folder.
#![expect(clippy::disallowed_methods, reason = "measures from outside of the lanes")]

mod disk;

use std::cell::Cell;
use std::io::Write;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, Instant};

use lanes::{Config, Group, GroupSpec, Lanes};
use result_file::{ResultRun, Section};
use sched::Class;

const SHARES: Section = Section {
    file: "01-lanes",
    title: "Shares and caps on lanes",
    goal: "Groups of busy work on one core get CPU by shares within 0.5 %, and a cap of 50 % holds within \
           0.5 points.",
};
const WAKE_UPS: Section = Section {
    file: "02-wake-ups",
    title: "Wake-ups of a fast lane",
    goal: "A fast lane wakes beside heavy work as quickly as on an idle core, and urgent heavy work goes on beside \
           other programs.",
};
const DISK: Section = Section {
    file: "03-disk",
    title: "The disk by shares",
    goal: "Disk requests of one core divide the disk by shares, and a single read beside a scan waits about a \
           millisecond.",
};
const LOG: Section = Section {
    file: "04-log-write",
    title: "A log write",
    goal: "The fast lane adds little CPU to a durable write beyond the kernel's own.",
};

#[derive(Clone, Copy, PartialEq, Debug)]
enum Lane {
    Fast,
    Heavy,
}

/// Computes for about `for_ns`, and reads the clock every few hundred nanoseconds at most.
fn spin(for_ns: u64) {
    let began = lanes::time::monotonic_ns();
    while lanes::time::monotonic_ns() - began < for_ns {
        (0..100).for_each(|n| {
            std::hint::black_box(n);
        });
    }
}

/// Starts two backlogged tasks of a group, which run until `stop`.
fn load(lanes: &Lanes, group: Group, lane: Lane, stop: &Arc<AtomicBool>) {
    for _ in 0..2 {
        let stop = stop.clone();
        lanes.block_on(0, group, move || async move {
            match lane {
                Lane::Fast => lanes::spawn(group, async move {
                    while !stop.load(Relaxed) {
                        spin(10_000);
                        lanes::yield_now().await;
                    }
                })
                .detach(),
                Lane::Heavy => lanes::heavy(group, async move {
                    while !stop.load(Relaxed) {
                        spin(100_000);
                        lanes::heavy_yield().await;
                    }
                })
                .detach(),
            }
        });
    }
}

fn cpu_ns(lanes: &Lanes, group: Group) -> f64 {
    let usage = lanes.usage(group);
    (usage.cpu_fast_ns + usage.cpu_heavy_ns) as f64
}

/// Measures CPU by shares: each part's ratio to the last, times the shares of the last.
fn shares(run: &mut ResultRun, lanes: &Lanes, parts: &[(u32, Lane)], time: Duration) {
    let stop = Arc::new(AtomicBool::new(false));
    let groups: Vec<Group> = parts
        .iter()
        .map(|&(shares, lane)| {
            let class = if lane == Lane::Fast { Class::Normal } else { Class::Batch };
            let group =
                lanes.create_group(Group::USERS, GroupSpec { class, ..GroupSpec::new("bench", shares) });
            load(lanes, group, lane, &stop);
            group
        })
        .collect();
    std::thread::sleep(Duration::from_millis(50));
    let before: Vec<f64> = groups.iter().map(|&group| cpu_ns(lanes, group)).collect();
    let began = Instant::now();
    std::thread::sleep(time);
    let wall = began.elapsed().as_nanos() as f64;
    let used: Vec<f64> =
        groups.iter().zip(before).map(|(&group, before)| cpu_ns(lanes, group) - before).collect();
    stop.store(true, Relaxed);
    std::thread::sleep(Duration::from_millis(5));
    let last = used[used.len() - 1];
    let last_shares = f64::from(parts[parts.len() - 1].0);
    let ratios: Vec<f64> = used.iter().map(|used| used / last * last_shares).collect();
    let is_met = ratios
        .iter()
        .zip(parts)
        .all(|(ratio, &(shares, _))| (ratio / f64::from(shares) - 1.0).abs() <= 0.005);
    let join = |parts: Vec<String>| parts.join(" : ");
    let wanted = join(parts.iter().map(|(shares, _)| shares.to_string()).collect());
    let on = join(parts.iter().map(|(_, lane)| format!("{lane:?}")).collect()).to_lowercase();
    let measured = join(ratios.iter().map(|ratio| format!("{ratio:.3}")).collect());
    let goal = format!("{wanted} ± 0.5 %");
    run.row_with_goal(&format!("shares {wanted}, lanes {on}"), &measured, "CPU ratio", &goal, is_met);
    run.row("all of them", &format!("{:.1}", used.iter().sum::<f64>() / wall * 100.0), "% of the core");
    groups.into_iter().for_each(|group| lanes.drop_group(group));
}

/// Measures wake-ups by a byte through a socket: from the write on another CPU's thread to the poll
/// of the task. The delay of a sleep, by the timer's own clock, would be that of the timer.
fn wake_ups(run: &mut ResultRun, lanes: &Lanes, what: &str, count: usize) {
    let group =
        lanes.create_group(Group::USERS, GroupSpec { class: Class::Latency, ..GroupSpec::new("wake", 1000) });
    let address = lanes.block_on(0, group, move || async move {
        let listener = lanes::net::listen("127.0.0.1:0".parse().unwrap(), false).unwrap();
        let address = listener.local_addr().unwrap();
        lanes::spawn(group, async move {
            use tokio::io::{AsyncReadExt, AsyncWriteExt};
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut sent = [0; 8];
            while stream.read_exact(&mut sent).await.is_ok() {
                let took = lanes::time::monotonic_ns().saturating_sub(u64::from_ne_bytes(sent));
                if stream.write_all(&took.to_ne_bytes()).await.is_err() {
                    break;
                }
            }
        })
        .detach();
        address
    });
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut took: Vec<u64> = (0..count)
        .map(|_| {
            std::thread::sleep(Duration::from_micros(700));
            stream.write_all(&lanes::time::monotonic_ns().to_ne_bytes()).unwrap();
            let mut answer = [0; 8];
            std::io::Read::read_exact(&mut stream, &mut answer).unwrap();
            u64::from_ne_bytes(answer)
        })
        .collect();
    took.sort_unstable();
    let at = |part: f64| took[((took.len() - 1) as f64 * part) as usize] as f64 / 1000.0;
    run.row(what, &format!("{:.1} · {:.1} · {:.1}", at(0.5), at(0.99), at(0.999)), "µs");
}

fn foreign_spinner(core: usize) -> std::process::Child {
    std::process::Command::new("taskset")
        .args(["-c", &core.to_string(), "sh", "-c", "while :; do :; done"])
        .spawn()
        .expect("taskset and sh")
}

fn latencies(run: &mut ResultRun, lanes: &Lanes, cpu: usize, count: usize) {
    wake_ups(run, lanes, "idle core", count);
    let stop = Arc::new(AtomicBool::new(false));
    let batch =
        lanes.create_group(Group::USERS, GroupSpec { class: Class::Batch, ..GroupSpec::new("batch", 100) });
    load(lanes, batch, Lane::Heavy, &stop);
    wake_ups(run, lanes, "beside a heavy lane that spins", count);
    let before = lanes.starved(0);
    let mut foreign = foreign_spinner(cpu);
    wake_ups(run, lanes, "beside a heavy lane and an ordinary spinner of another program", count);
    run.row("starvation detected beside them", &(lanes.starved(0) - before).to_string(), "times");
    drop((foreign.kill(), foreign.wait()));
    stop.store(true, Relaxed);
    let calls = Arc::new(AtomicBool::new(false));
    let stop = calls.clone();
    lanes.block_on(0, batch, move || async move {
        lanes::heavy(batch, async move {
            let mut out = std::fs::File::create(std::env::temp_dir().join("lanes-bench")).unwrap();
            let block = vec![7; 1 << 20];
            let mut written = 0;
            while !stop.load(Relaxed) {
                out.write_all(&block).unwrap();
                written += 1;
                if written % 64 == 0 {
                    out.set_len(0).unwrap();
                    std::io::Seek::rewind(&mut out).unwrap();
                }
                lanes::heavy_yield().await;
            }
        })
        .detach();
    });
    wake_ups(run, lanes, "beside a heavy lane that calls into the page cache, as ours never does", count);
    calls.store(true, Relaxed);
    drop(std::fs::remove_file(std::env::temp_dir().join("lanes-bench")));
    let mut foreign = foreign_spinner(cpu);
    wake_ups(run, lanes, "beside an ordinary spinner of another program", count);
    drop((foreign.kill(), foreign.wait()));
}

/// Runs heavy work of 3 ms, such as a login. Returns the time from its start to its end.
fn job_of_3_ms(lanes: &Lanes, urgent: bool) -> Duration {
    let began = Instant::now();
    lanes.block_on(0, Group::DRIVER, move || async move {
        let job = async {
            for _ in 0..30 {
                spin(100_000);
                lanes::heavy_yield().await;
            }
        };
        match urgent {
            true => lanes::heavy_urgent(Group::DRIVER, job).await,
            false => lanes::heavy(Group::DRIVER, job).await,
        }
    });
    began.elapsed()
}

/// Measures a job of about 3 ms every 50 ms beside another program.
fn beside_a_foreign_process(run: &mut ResultRun, lanes: &Lanes, cpu: usize, count: usize) {
    let mut foreign = foreign_spinner(cpu);
    for (urgent, what) in
        [(false, "idle class, as queries and compaction run"), (true, "urgent, as logins and flushes run")]
    {
        let mut took: Vec<Duration> = (0..count)
            .map(|_| {
                std::thread::sleep(Duration::from_millis(50));
                job_of_3_ms(lanes, urgent)
            })
            .collect();
        took.sort_unstable();
        let median = took[count / 2].as_millis();
        let worst = took[count - 1].as_millis();
        run.row(what, &format!("{median} · {worst}"), "ms");
    }
    run.row("slices at normal priority", &lanes.promotions(0).to_string(), "");
    drop((foreign.kill(), foreign.wait()));
}

fn cap(run: &mut ResultRun, lanes: &Lanes, lane: Lane, time: Duration) {
    let limit = Some(500_000);
    let group = lanes
        .create_group(Group::USERS, GroupSpec { cpu_limit_ppm: limit, ..GroupSpec::new("capped", 1000) });
    let stop = Arc::new(AtomicBool::new(false));
    load(lanes, group, lane, &stop);
    std::thread::sleep(Duration::from_millis(100));
    let (before, began) = (cpu_ns(lanes, group), Instant::now());
    std::thread::sleep(time);
    let used = cpu_ns(lanes, group) - before;
    let percent = used / began.elapsed().as_nanos() as f64 * 100.0;
    let what = format!("cap of 50 % on an idle core, {lane:?} lane").to_lowercase();
    let is_met = (percent - 50.0).abs() <= 0.5;
    run.row_with_goal(&what, &format!("{percent:.2}"), "% of the core", "50 ± 0.5", is_met);
    stop.store(true, Relaxed);
    lanes.drop_group(group);
}

fn switches(run: &mut ResultRun, lanes: &Lanes, rounds: u64) {
    let each = lanes.block_on(0, Group::DEFAULT, move || async move {
        let began = lanes::time::monotonic_ns();
        let tasks: Vec<_> = (0..10)
            .map(|_| {
                lanes::spawn(Group::DEFAULT, async move {
                    for _ in 0..rounds {
                        lanes::yield_now().await;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
        (lanes::time::monotonic_ns() - began) as f64 / (10 * rounds) as f64
    });
    run.row("task switch", &format!("{each:.0}"), "ns");
    let each = lanes.block_on(0, Group::DEFAULT, move || async move {
        let began = lanes::time::monotonic_ns();
        let sum = Rc::new(Cell::new(0));
        for _ in 0..rounds {
            let sum = sum.clone();
            lanes::spawn(Group::DEFAULT, async move { sum.set(sum.get() + 1) }).await;
        }
        (lanes::time::monotonic_ns() - began) as f64 / rounds as f64
    });
    run.row("spawn, run and await a task", &format!("{each:.0}"), "ns");
    let count = rounds / 10;
    let each = lanes.block_on(0, Group::DEFAULT, move || async move {
        let began = lanes::time::monotonic_ns();
        for _ in 0..count {
            lanes::heavy(Group::DEFAULT, async {}).await;
        }
        (lanes::time::monotonic_ns() - began) as f64 / count as f64
    });
    run.row("lane switch to the heavy lane and back", &format!("{:.1}", each / 1000.0), "µs");
}

/// Measures writes like those of the commit log, one at a time, in a file in the current folder.
fn log_writes(run: &mut ResultRun, lanes: &Lanes, count: u64) {
    let path = std::path::PathBuf::from("lanes-bench.log");
    let file = path.clone();
    let (wall, before) = lanes.block_on(0, Group::LOG, move || async move {
        use lanes::disk::{AlignedBuf, OpenOptions};
        let options =
            OpenOptions { write: true, create: true, direct: true, dsync: true, ..OpenOptions::default() };
        let file = lanes::disk::open(&file, options).await.unwrap();
        file.allocate(16 << 20).await.unwrap();
        let before = [Group::LOG, Group::CONTROL].map(|group| cpu_ns(&lanes::handle(), group));
        let began = lanes::time::monotonic_ns();
        let mut buffer = AlignedBuf::new(4096);
        for n in 0..count {
            buffer = file.write_aligned(n * 4096 % (16 << 20), buffer).await.unwrap();
        }
        (lanes::time::monotonic_ns() - began, before)
    });
    let after = [Group::LOG, Group::CONTROL].map(|group| cpu_ns(lanes, group));
    let cpu = after.iter().zip(before).map(|(after, before)| after - before).sum::<f64>();
    let each = |ns: f64| ns / count as f64 / 1000.0;
    run.row("4 KiB direct dsync write, one at a time", &format!("{:.1}", each(wall as f64)), "µs");
    run.row("CPU of the fast lane for it", &format!("{:.1}", each(cpu)), "µs");
    drop(std::fs::remove_file(path));
}

/// Parts of the benchmark, in order.
const PARTS: [(&str, Section); 7] = [
    ("shares", SHARES),
    ("wake", WAKE_UPS),
    ("urgent", WAKE_UPS),
    ("cap", SHARES),
    ("cost", WAKE_UPS),
    ("log", LOG),
    ("disk", DISK),
];

/// Options of the command line.
struct Options {
    /// A tenth of the time.
    quick: bool,
    /// The part to run. `None`: all.
    part: Option<String>,
}

impl Options {
    fn parse() -> Options {
        let mut options = Options { quick: false, part: None };
        for arg in std::env::args().skip(1) {
            match arg.as_str() {
                "--quick" => options.quick = true,
                "--bench" => {} // cargo adds it
                _ => options.part = Some(arg),
            }
        }
        if let Some(part) = &options.part {
            let is_known = PARTS.iter().any(|(known, _)| known == part);
            assert!(is_known, "expected a part of {PARTS:?}, got {part:?}");
        }
        options
    }

    fn runs(&self, part: &str) -> bool {
        self.part.as_ref().is_none_or(|wanted| wanted == part)
    }

    /// Returns the command that repeats a part.
    fn command(&self, part: &str) -> String {
        format!("cargo bench -p lanes -- {part}{}", if self.quick { " --quick" } else { "" })
    }
}

/// Runs a part on lanes with one core.
fn run_part(part: &str, run: &mut ResultRun, lanes: &Lanes, cpu: usize, scale: u32) {
    let time = Duration::from_millis(250) * scale;
    match part {
        "shares" => {
            for mix in [[Lane::Fast, Lane::Fast], [Lane::Fast, Lane::Heavy], [Lane::Heavy, Lane::Heavy]] {
                for (a, b) in [(1, 1), (2, 1), (4, 1), (100, 1)] {
                    shares(run, lanes, &[(a * 10, mix[0]), (b * 10, mix[1])], time);
                }
                shares(run, lanes, &[(10, mix[0]), (20, mix[1]), (40, mix[0])], time);
            }
        }
        "wake" => latencies(run, lanes, cpu, 300 * scale as usize),
        "urgent" => beside_a_foreign_process(run, lanes, cpu, 5 * scale as usize),
        "cap" => [Lane::Fast, Lane::Heavy].into_iter().for_each(|lane| cap(run, lanes, lane, time)),
        "cost" => switches(run, lanes, 20_000 * u64::from(scale)),
        "log" => log_writes(run, lanes, 100 * u64::from(scale)),
        _ => disk::all(run, lanes, time),
    }
}

fn note(part: &str) -> &'static str {
    match part {
        "shares" => "CPU is from the threads' own clocks.",
        "wake" => "Time from another CPU's write to the task's slice. Cells are p50, p99 and p99.9.",
        "urgent" => {
            "3 ms of heavy work every 50 ms beside an ordinary program that spins on the same CPU. Cells are median \
             and maximum."
        }
        _ => "",
    }
}

fn main() {
    let options = Options::parse();
    let scale = if options.quick { 1 } else { 10 };
    let mut config = Config::detect();
    config.cores.truncate(1);
    println!("{config}");
    for (part, section) in PARTS.into_iter().filter(|(part, _)| options.runs(part)) {
        let mut run = ResultRun::new(section, options.command(part), 1).note(note(part));
        let lanes = Lanes::start(config.clone()).expect("lanes start");
        run_part(part, &mut run, &lanes, config.cores[0], scale);
        println!(
            "  io_uring {} stalls {} overruns {} starved {}",
            lanes.uses_io_uring(),
            lanes.stalls(),
            lanes.slice_overruns(),
            lanes.starved(0)
        );
        lanes.shutdown();
        run.finish();
    }
}
