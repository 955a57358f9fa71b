//! Benchmark of the lanes on one pinned core of this machine. It measures CPU by shares in every
//! mix of lanes, wake-ups of the fast lane beside a heavy one, a cap, and the cost of a switch.
//! `cargo bench -p lanes`, with `-- --quick` for a tenth of the time. `-- shares`, `wake`,
//! `urgent`, `cap`, `cost`, `log` or `disk` runs one part. `-- --without RULE` switches a rule of
//! the scheduler off (see `policy`).
#![expect(clippy::disallowed_methods, reason = "measures from outside of the lanes")]

mod disk;

use std::cell::Cell;
use std::io::Write;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, Instant};

use lanes::{Config, Group, GroupSpec, Lanes};
use sched::{Class, Policy};

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

fn shares(lanes: &Lanes, parts: &[(u32, Lane)], time: Duration) {
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
    let (last, last_shares) = (used[used.len() - 1], parts[parts.len() - 1].0);
    let ratios: Vec<String> =
        used.iter().map(|used| format!("{:.3}", used / last * f64::from(last_shares))).collect();
    let wanted: Vec<String> = parts.iter().map(|(shares, lane)| format!("{shares} {lane:?}")).collect();
    let total: f64 = used.iter().sum();
    println!(
        "  {:34} CPU {:24} {:5.1} % of the core",
        wanted.join(" : "),
        ratios.join(" : "),
        total / wall * 100.0
    );
    groups.into_iter().for_each(|group| lanes.drop_group(group));
}

/// Measures wake-ups by a byte through a socket: from the write on another CPU's thread to the poll
/// of the task. The delay of a sleep, by the timer's own clock, would be that of the timer.
fn wake_ups(lanes: &Lanes, what: &str, count: usize) {
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
    println!("  {what:44} p50 {:7.1}  p99 {:7.1}  p99.9 {:7.1} us", at(0.5), at(0.99), at(0.999));
}

fn foreign_spinner(core: usize) -> std::process::Child {
    std::process::Command::new("taskset")
        .args(["-c", &core.to_string(), "sh", "-c", "while :; do :; done"])
        .spawn()
        .expect("taskset and sh")
}

fn latencies(lanes: &Lanes, cpu: usize, count: usize) {
    wake_ups(lanes, "idle core", count);
    let stop = Arc::new(AtomicBool::new(false));
    let batch =
        lanes.create_group(Group::USERS, GroupSpec { class: Class::Batch, ..GroupSpec::new("batch", 100) });
    load(lanes, batch, Lane::Heavy, &stop);
    wake_ups(lanes, "heavy lane spins", count);
    let before = lanes.starved(0);
    let mut foreign = foreign_spinner(cpu);
    wake_ups(lanes, "heavy lane spins, and a foreign process", count);
    println!("  (starvation of the heavy lane detected {} times)", lanes.starved(0) - before);
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
    wake_ups(lanes, "heavy lane calls into the kernel (page cache)", count);
    calls.store(true, Relaxed);
    drop(std::fs::remove_file(std::env::temp_dir().join("lanes-bench")));
    let mut foreign = foreign_spinner(cpu);
    wake_ups(lanes, "a foreign process only", count);
    drop((foreign.kill(), foreign.wait()));
}

/// Measures a job of about 3 ms every 50 ms beside another program, such as a login: from its start
/// to its end.
fn beside_a_foreign_process(lanes: &Lanes, cpu: usize, count: usize) {
    let mut foreign = foreign_spinner(cpu);
    for urgent in [false, true] {
        let mut took: Vec<Duration> = (0..count)
            .map(|_| {
                std::thread::sleep(Duration::from_millis(50));
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
            })
            .collect();
        took.sort_unstable();
        let (median, worst) = (took[count / 2].as_millis(), took[count - 1].as_millis());
        println!(
            "  3 ms of heavy work, urgent: {urgent:5}  median {median:5} ms, worst of {count} {worst:5} ms"
        );
    }
    println!("  (slices at normal priority: {})", lanes.promotions(0));
    drop((foreign.kill(), foreign.wait()));
}

fn cap(lanes: &Lanes, lane: Lane, time: Duration) {
    let limit = Some(500_000);
    let group = lanes
        .create_group(Group::USERS, GroupSpec { cpu_limit_ppm: limit, ..GroupSpec::new("capped", 1000) });
    let stop = Arc::new(AtomicBool::new(false));
    load(lanes, group, lane, &stop);
    std::thread::sleep(Duration::from_millis(100));
    let (before, began) = (cpu_ns(lanes, group), Instant::now());
    std::thread::sleep(time);
    let used = cpu_ns(lanes, group) - before;
    println!("  50 % of one idle core, {lane:?}: {:.2} %", used / began.elapsed().as_nanos() as f64 * 100.0);
    stop.store(true, Relaxed);
    lanes.drop_group(group);
}

fn switches(lanes: &Lanes, rounds: u64) {
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
    println!("  task switch (yield) {each:.0} ns");
    let each = lanes.block_on(0, Group::DEFAULT, move || async move {
        let began = lanes::time::monotonic_ns();
        let sum = Rc::new(Cell::new(0));
        for _ in 0..rounds {
            let sum = sum.clone();
            lanes::spawn(Group::DEFAULT, async move { sum.set(sum.get() + 1) }).await;
        }
        (lanes::time::monotonic_ns() - began) as f64 / rounds as f64
    });
    println!("  spawn, run and await {each:.0} ns");
    let count = rounds / 10;
    let each = lanes.block_on(0, Group::DEFAULT, move || async move {
        let began = lanes::time::monotonic_ns();
        for _ in 0..count {
            lanes::heavy(Group::DEFAULT, async {}).await;
        }
        (lanes::time::monotonic_ns() - began) as f64 / count as f64
    });
    println!("  lane switch to the heavy lane and back {:.1} us", each / 1000.0);
}

/// Measures writes like those of the commit log, one at a time, in a file in the current folder.
fn log_writes(lanes: &Lanes, count: u64) {
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
    println!(
        "  4 KiB direct dsync write: {:.1} us, CPU of the fast lane {:.1} us",
        each(wall as f64),
        each(cpu)
    );
    drop(std::fs::remove_file(path));
}

/// Returns the default rules, without the one that `--without` names.
fn policy() -> Policy {
    let all = Policy::DEFAULT;
    let Some(rule) = std::env::args().skip_while(|arg| arg != "--without").nth(1) else { return all };
    match rule.as_str() {
        "short-slice" => Policy { latency_slice_ns: all.slice_ns, ..all },
        "credit" => Policy { credit_ns: 0, ..all },
        "lag" => Policy { lag_max_ns: 0, ..all },
        "kept-slice" => Policy { keep_slices: false, ..all },
        "active" => Policy { recently_active_ns: 0, ..all },
        "coalescing" => Policy { poll_part: 0, poll_part_lagging: 0, ..all },
        "long-lease" => Policy { long_lease_ns: 0, ..all },
        "offer" => Policy { offer_cpu_ns: u64::MAX, ..all },
        "starved" => Policy { starved_ns: u64::MAX, ..all },
        "defer" => Policy { defer_ns: 0, ..all },
        other => panic!("expected the name of a rule, got {other:?}"),
    }
}

fn main() {
    let quick = std::env::args().any(|arg| arg == "--quick");
    let scale = if quick { 1 } else { 10 };
    let mut config = Config::detect();
    config.policy = policy();
    config.cores.truncate(1);
    let cpu = config.cores[0];
    println!("{config}");
    let lanes = Lanes::start(config).expect("lanes start");
    println!("io_uring: {}", lanes.uses_io_uring());
    let mut before = String::new();
    let only = std::env::args().skip(1).find(|arg| {
        let value = std::mem::replace(&mut before, arg.clone()) == "--without";
        !value && !arg.starts_with('-')
    });
    let wanted = |section: &str| only.as_ref().is_none_or(|only| only == section);
    let time = Duration::from_millis(250 * scale);
    if wanted("shares") {
        println!("CPU by shares, all backlogged");
        for mix in [[Lane::Fast, Lane::Fast], [Lane::Fast, Lane::Heavy], [Lane::Heavy, Lane::Heavy]] {
            for (a, b) in [(1, 1), (2, 1), (4, 1), (100, 1)] {
                shares(&lanes, &[(a * 10, mix[0]), (b * 10, mix[1])], time);
            }
            shares(&lanes, &[(10, mix[0]), (20, mix[1]), (40, mix[0])], time);
        }
    }
    if wanted("wake") {
        println!("wake-up of the fast lane, from another CPU's write to the task poll");
        latencies(&lanes, cpu, 300 * scale as usize);
    }
    if wanted("urgent") {
        println!("heavy work beside a foreign process on the same CPU");
        beside_a_foreign_process(&lanes, cpu, 5 * scale as usize);
    }
    if wanted("cap") {
        println!("hard cap");
        cap(&lanes, Lane::Fast, time);
        cap(&lanes, Lane::Heavy, time);
    }
    if wanted("cost") {
        println!("costs");
        switches(&lanes, 20_000 * scale);
    }
    if wanted("log") {
        println!("a commit log's writes");
        log_writes(&lanes, 100 * scale);
    }
    if wanted("disk") {
        println!("the disk by shares");
        disk::all(&lanes, time);
    }
    println!("stalls {} overruns {} starved {}", lanes.stalls(), lanes.slice_overruns(), lanes.starved(0));
    lanes.shutdown();
}
