//! Tests beside another program that computes on the same CPU, where the kernel gives the idle
//! class next to nothing. Urgent heavy work goes on all the same, and the starvation is reported.
//! The tests check that this happens within generous time limits, not how fast.

use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lanes::{Config, Group, Lanes, Report, Reporter};

/// Program that computes on a CPU until this is dropped, or for 60 s of CPU if this test is killed.
struct Foreign(Child);

impl Foreign {
    fn on(cpu: usize) -> Foreign {
        let script = "ulimit -t 60; while :; do :; done";
        let child = Command::new("taskset").args(["-c", &cpu.to_string(), "sh", "-c", script]).spawn();
        Foreign(child.expect("taskset and sh are there"))
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        drop((self.0.kill(), self.0.wait()));
    }
}

/// Computes for about a millisecond.
fn compute() {
    (0..300_000_u64).for_each(|n| {
        std::hint::black_box(n);
    });
}

#[test]
fn urgent_work_runs_and_starvation_is_reported() {
    let reports = Arc::new(Mutex::new(Vec::new()));
    let sink = reports.clone();
    let mut config = Config::detect();
    let cpu = config.cores.pop().expect("a CPU");
    config.cores = vec![cpu];
    config.reporter = Reporter::new(move |report| sink.lock().unwrap().push(report.clone()));
    let lanes = Lanes::start(config).expect("lanes start");
    let foreign = Foreign::on(cpu);
    let stop = Arc::new(AtomicBool::new(false));
    let (seen, rounds) = (stop.clone(), Arc::new(AtomicU64::new(0)));
    let counted = rounds.clone();
    lanes.block_on(0, Group::COMPACTION, move || async move {
        let work = async move {
            while !seen.load(Relaxed) {
                compute();
                counted.fetch_add(1, Relaxed);
                lanes::heavy_yield().await;
            }
        };
        lanes::heavy(Group::COMPACTION, work).detach();
    });
    let watched = lanes.clone();
    let promoted = lanes.block_on(0, Group::DRIVER, move || async move {
        let until = async {
            // Each login has several task polls, and is alone in its group.
            while watched.promotions(0) < 20 {
                let login = async {
                    for _ in 0..5 {
                        compute();
                        lanes::heavy_yield().await;
                    }
                };
                lanes::heavy_urgent(Group::DRIVER, login).await;
                lanes::time::sleep(Duration::from_millis(1)).await;
            }
        };
        lanes::time::timeout(Duration::from_secs(50), until).await
    });
    assert_eq!(promoted, Ok(()), "starved {} promotions {}", lanes.starved(0), lanes.promotions(0));
    assert!(lanes.starved(0) > 0 && lanes.usage(Group::DRIVER).cpu_heavy_ns > 0);
    {
        let reports = reports.lock().unwrap();
        let starved = |report: &&Report| matches!(report, Report::Starved { core: 0, .. });
        assert!(reports.iter().any(|report| starved(&report)), "{reports:?}");
    }
    // With the CPU to itself again, the heavy lane finishes the rest, urgent work too, without
    // promotions.
    drop(foreign);
    let before = rounds.load(Relaxed);
    let watched = lanes.clone();
    let recovered = lanes.block_on(0, Group::DRIVER, move || async move {
        let until = async {
            loop {
                let promotions = watched.promotions(0);
                lanes::heavy_urgent(Group::DRIVER, async { compute() }).await;
                if watched.promotions(0) == promotions && rounds.load(Relaxed) > before {
                    break;
                }
                lanes::time::sleep(Duration::from_millis(1)).await;
            }
        };
        lanes::time::timeout(Duration::from_secs(50), until).await
    });
    assert_eq!(recovered, Ok(()));
    stop.store(true, Relaxed);
    lanes.shutdown();
}

#[test]
fn lanes_measure_wake_ups_at_start_if_configured() {
    let mut config = Config::detect();
    config.cores.truncate(1);
    let quiet = Lanes::start(config.clone()).expect("lanes start");
    assert_eq!(quiet.wake_up(0), None);
    quiet.shutdown();
    let lanes = Lanes::start(Config { self_check: true, ..config.clone() }).expect("lanes start");
    assert!(lanes.wake_up(0).is_some_and(|wake_up| wake_up.samples > 0 && wake_up.p99_us >= wake_up.p50_us));
    lanes.shutdown();
    let unpinned = Lanes::start(Config { self_check: true, pin: false, ..config }).expect("lanes start");
    assert_eq!(unpinned.wake_up(0), None);
    unpinned.shutdown();
}
