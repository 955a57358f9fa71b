//! Test of the threads that the kernel adds for requests that would block: they are few, on their
//! core's CPU, and counted.
#![expect(clippy::disallowed_methods, reason = "lists the process's threads from outside of lanes")]

use std::fs;

use bytes::Bytes;
use lanes::disk::{self, OpenOptions};
use lanes::{Config, Group, Lanes};

/// Returns the CPUs that each of the kernel's workers of this process may use.
fn cpus_of_workers() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").expect("/proc is there");
    let status = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("status")).ok());
    let workers = status.filter(|status| status.starts_with("Name:\tiou-wrk"));
    workers
        .map(|status| {
            let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            line.expect("every thread has CPUs").trim().to_owned()
        })
        .collect()
}

#[test]
fn kernel_workers_are_few_and_on_the_cpu_of_their_core() {
    let mut config = Config::detect();
    let cpu = config.cores.pop().expect("a CPU");
    config.cores = vec![cpu];
    let lanes = Lanes::start(config).expect("lanes start");
    if !lanes.uses_io_uring() {
        return lanes.shutdown(); // then the kernel adds no workers
    }
    let path = std::env::temp_dir().join(format!("lanes-workers-{}", std::process::id()));
    let used = lanes.block_on(0, Group::LOG, move || async move {
        let options = OpenOptions { write: true, create: true, ..OpenOptions::default() };
        let file = disk::open(&path, options).await.unwrap();
        let tasks: Vec<_> = (0..100_u64)
            .map(|n| {
                let file = file.clone();
                lanes::spawn(Group::LOG, async move {
                    file.write_at(n * 4096, Bytes::from(vec![7; 4096])).await.unwrap();
                    file.sync_data().await.unwrap(); // a worker always runs it
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
        disk::remove_file(&path).await.unwrap();
        disk::kernel_use().await.unwrap()
    });
    let cpus = cpus_of_workers();
    assert!(cpus.len() <= 6, "{cpus:?}");
    assert!(cpus.iter().all(|allowed| *allowed == cpu.to_string()), "{cpus:?} and not {cpu}");
    assert!(used.threads > 0 && used.cpu_ns > 0, "{used:?}");
    lanes.shutdown();
}
