//! Tests of the disk service on both backends. Written data is read back, by either lane, and the
//! end of a file is not taken for an error of the disk.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use lanes::disk::{self, AlignedBuf, BLOCK, OpenOptions};
use lanes::{Config, DiskBackend, Group, GroupSpec, Lanes, Reporter};
use testkit::{Folder, Random};

/// Runs one scenario in a new folder, on lanes of each backend.
fn check<Fut>(name: &str, scenario: impl Fn(PathBuf) -> Fut + Copy + Send + 'static)
where
    Fut: Future<Output = ()> + 'static,
{
    for backend in [DiskBackend::Auto, DiskBackend::Threads] {
        let folder = Folder::empty(&format!("{name}-{backend:?}"));
        let config = Config { cores: vec![0], pin: false, disk_backend: backend, ..Config::detect() };
        let lanes = Lanes::start(config).expect("lanes start");
        let inside = folder.to_path_buf();
        lanes.block_on(0, Group::LOG, move || scenario(inside));
        let usage = lanes.usage(Group::LOG);
        assert!(usage.disk_write_ops > 0, "{backend:?}: {usage:?}");
        lanes.shutdown();
    }
}

const NEW: OpenOptions = OpenOptions {
    write: true,
    create: true,
    create_new: false,
    truncate: false,
    direct: false,
    dsync: false,
};

#[test]
fn written_data_is_read_back() {
    check("round-trip", |folder| async move {
        let file = disk::open(&folder.join("a"), NEW).await.unwrap();
        let data: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
        file.write_at(10, Bytes::from(data.clone())).await.unwrap();
        file.sync_data().await.unwrap();
        file.sync_all().await.unwrap();
        assert_eq!(file.len().await.unwrap(), 300_010);
        assert_eq!(file.read_at(10, data.len()).await.unwrap(), data);
        assert_eq!(file.read_at(0, 10).await.unwrap(), [0; 10][..]);
        assert_eq!(file.read_at(300_000, 11).await.unwrap_err().kind(), ErrorKind::UnexpectedEof);
        assert_eq!(file.read_at(5, 0).await.unwrap().len(), 0);
        file.truncate(20).await.unwrap();
        assert_eq!(file.len().await.unwrap(), 20);
        let usage = lanes::handle().usage(Group::LOG);
        assert!(usage.disk_write_bytes >= 300_000 && usage.disk_read_bytes >= 300_000, "{usage:?}");
    });
}

#[test]
fn direct_file_writes_whole_blocks_and_reads_any_range() {
    check("direct", |folder| async move {
        let options = OpenOptions { direct: true, dsync: true, ..NEW };
        let file = disk::open(&folder.join("log"), options).await.unwrap();
        file.allocate(1 << 20).await.unwrap();
        assert_eq!(file.len().await.unwrap(), 1 << 20);
        let mut buffer = AlignedBuf::new(8192);
        buffer.iter_mut().enumerate().for_each(|(at, byte)| *byte = at as u8);
        let buffer = file.write_aligned(4096, buffer).await.unwrap();
        let read = file.read_at(4096 + 100, 5000).await.unwrap();
        assert_eq!(read, buffer[100..5100]);
        assert_eq!(file.read_at((1 << 20) - 3, 3).await.unwrap(), [0; 3][..]);
        assert!(file.read_at((1 << 20) - 3, 4).await.is_err());
    });
}

/// A direct file with reads and writes of any range has the same contents and length as bytes in
/// memory.
#[test]
fn direct_file_reads_and_writes_any_range() {
    check("any-range", |folder| async move {
        let file = disk::open(&folder.join("a"), OpenOptions { direct: true, ..NEW }).await.unwrap();
        let direct = file.is_direct();
        let mut model = Vec::new();
        let seed = 7;
        let mut random = Random::new(seed);
        for step in 0..300_u32 {
            let (at, len) = (random.index(40_000), random.index(20_000));
            let (at, len) = if step % 3 == 0 { (at / BLOCK * BLOCK, len) } else { (at, len) };
            if step % 2 == 0 {
                let data = vec![step as u8; len];
                model.resize(model.len().max(if len > 0 { at + len } else { 0 }), 0);
                model[at..at + len].copy_from_slice(&data);
                file.write_at(at as u64, Bytes::from(data)).await.unwrap();
                assert_eq!(file.len().await.unwrap(), model.len() as u64, "seed {seed}, step {step}");
            } else {
                let read = file.read_at(at as u64, len).await;
                match model.get(at..at + len) {
                    Some(expected) => {
                        assert!(read.unwrap() == expected, "seed {seed}, step {step}: {len} at {at}")
                    }
                    None if len > 0 => assert_eq!(read.unwrap_err().kind(), ErrorKind::UnexpectedEof),
                    None => assert_eq!(read.unwrap().len(), 0),
                }
            }
        }
        // Aligned memory is written without a copy.
        let aligned = Bytes::from(AlignedBuf::copy_of(&[9; 3 * BLOCK]));
        file.write_at(0, aligned.slice(..2 * BLOCK + 5)).await.unwrap();
        assert_eq!(file.read_at(BLOCK as u64, BLOCK + 5).await.unwrap(), vec![9; BLOCK + 5]);
        let misplaced = file.write_aligned(5, AlignedBuf::new(1)).await;
        assert_eq!(misplaced.unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(file.read_at(u64::MAX, 1).await.unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(file.is_direct(), direct, "an invalid request is not a refusal by the file system");
    });
}

#[test]
fn missing_direct_io_is_reported_once_and_files_work() {
    let reports = Arc::new(Mutex::new(Vec::new()));
    let sink = reports.clone();
    let reporter = Reporter::new(move |report| sink.lock().unwrap().push(report.to_string()));
    let config = Config { cores: vec![0], pin: false, reporter, ..Config::detect() };
    let lanes = Lanes::start(config).expect("lanes start");
    lanes.block_on(0, Group::LOG, || async {
        for _ in 0..2 {
            let options = OpenOptions { direct: true, ..OpenOptions::default() };
            let file = disk::open(Path::new("/proc/self/status"), options).await.unwrap();
            assert!(!file.is_direct());
            assert_eq!(file.read_at(0, 5).await.unwrap(), b"Name:"[..]);
        }
    });
    lanes.shutdown();
    let mut reports = reports.lock().unwrap();
    // A busy machine may report stalls.
    reports.retain(|report| !report.starts_with("stall"));
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert!(reports[0].contains("/proc/self/status does not support direct I/O"), "{reports:?}");
}

#[test]
fn large_file_is_removed_in_steps_unless_it_has_another_name() {
    check("paced", |folder| async move {
        let len = 5 * disk::REMOVE_STEP_BYTES / 2;
        for names in [1, 2] {
            let path = folder.join("large");
            let other = folder.join(names.to_string());
            let file = disk::open(&path, NEW).await.unwrap();
            file.truncate(len).await.unwrap();
            if names == 2 {
                disk::hard_link(&path, &other).await.unwrap();
            }
            disk::remove_paced(&path).await.unwrap();
            assert!(!disk::exists(&path).await.unwrap());
            // An open handle shows that it was truncated in steps.
            assert_eq!(file.len().await.unwrap(), if names == 1 { 0 } else { len });
        }
        let missing = disk::remove_paced(&folder.join("large")).await;
        assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
        disk::open(&folder.join("small"), NEW).await.unwrap();
        disk::remove_paced(&folder.join("small")).await.unwrap();
        assert_eq!(disk::list_dir(&folder).await.unwrap(), ["2"]);
    });
}

/// A thread of the pool closes files: not at once, but soon.
#[test]
#[expect(clippy::disallowed_methods, reason = "lists the process's open files")]
fn dropped_files_are_closed() {
    check("closed", |folder| async move {
        let path = folder.join("a");
        let is_open = || {
            let files = std::fs::read_dir("/proc/self/fd").unwrap();
            files.flatten().any(|file| std::fs::read_link(file.path()).is_ok_and(|target| target == path))
        };
        let file = disk::open(&path, OpenOptions { direct: true, ..NEW }).await.unwrap();
        file.write_at(1, Bytes::from_static(b"the page cache's descriptor, too")).await.unwrap();
        assert!(is_open());
        drop(file);
        let closed = async {
            while is_open() {
                lanes::time::sleep(Duration::from_millis(1)).await;
            }
        };
        lanes::time::timeout(Duration::from_secs(20), closed).await.expect("closed");
    });
}

/// One budget serves all cores: two cores are no faster than one. No request waits for a limit that
/// was lifted.
#[test]
#[expect(clippy::disallowed_methods, reason = "makes and clears the file from outside of lanes")]
fn io_limit_is_shared_by_all_cores() {
    const LIMIT: u64 = 20_000_000;
    const READS: u64 = 40;
    const LEN: u64 = 64 << 10;
    let path = std::env::temp_dir().join(format!("lanes-io-limit-{}", std::process::id()));
    std::fs::write(&path, vec![1; LEN as usize]).expect("a file for the test");
    let lanes = testkit::start_lanes(2);
    let limited = |io_limit| GroupSpec { io_limit, ..GroupSpec::new("limited", 100) };
    let group = lanes.create_group(Group::USERS, limited(Some(LIMIT)));
    let read = |reads: u64| {
        let path = path.clone();
        move || async move {
            let file = disk::open(&path, OpenOptions::default()).await.unwrap();
            let read = |_| {
                let file = file.clone();
                lanes::spawn(lanes::current_group(), async move {
                    file.read_at(0, LEN as usize).await.unwrap().len()
                })
            };
            for task in (0..reads).map(read).collect::<Vec<_>>() {
                assert_eq!(task.await as u64, LEN);
            }
        }
    };
    let both = |reads: u64| {
        std::thread::scope(|scope| {
            for core in 0..2 {
                let (lanes, read) = (lanes.clone(), read(reads));
                scope.spawn(move || lanes.block_on(core, group, read));
            }
        });
    };
    let began_ns = lanes::time::monotonic_ns();
    both(READS);
    let took_ns = lanes::time::monotonic_ns() - began_ns;
    // All but the first requests, which are repaid afterwards, take as long as the limit requires.
    let least_ns = (2 * READS - 4) * LEN * 1_000_000_000 / LIMIT - 10_000_000;
    assert!(took_ns >= least_ns, "{took_ns} ns instead of {least_ns} at least");
    // At a byte a second a read takes hours. Cores that hear late of the next limit must not leave
    // that debt to the others.
    const ROUNDS: u64 = 400;
    for round in 0..ROUNDS {
        lanes.alter_group(group, limited(Some(1)));
        std::thread::scope(|scope| {
            scope.spawn(|| both(3));
            // Meets the reads at different steps.
            let until_ns = lanes::time::monotonic_ns() + round * 1_000;
            while lanes::time::monotonic_ns() < until_ns {
                std::hint::spin_loop();
            }
            lanes.alter_group(group, limited(Some(1_000_000_000)));
        });
    }
    let usage = lanes.usage(group);
    assert_eq!(usage.disk_read_bytes, (2 * READS + 6 * ROUNDS) * LEN);
    assert!(usage.disk_queue_ns > 0 && usage.disk_queue_ns <= usage.disk_wait_ns, "{usage:?}");
    lanes.shutdown();
    std::fs::remove_file(&path).expect("the file goes");
}

#[test]
fn many_requests_at_once_and_a_heavy_task_are_served() {
    check("many", |folder| async move {
        let file = disk::open(&folder.join("a"), NEW).await.unwrap();
        let tasks: Vec<_> = (0..500_u64)
            .map(|n| {
                let file = file.clone();
                lanes::spawn(Group::LOG, async move {
                    file.write_at(n * 100, Bytes::from(vec![n as u8; 100])).await.unwrap();
                    file.read_at(n * 100, 100).await.unwrap() == vec![n as u8; 100]
                })
            })
            .collect();
        for task in tasks {
            assert!(task.await);
        }
        let read = lanes::heavy(Group::LOG, async move { file.read_at(100, 100).await.unwrap() }).await;
        assert_eq!(read, vec![1; 100]);
        // A request of a dropped task runs to its end.
        let file = disk::open(&folder.join("a"), NEW).await.unwrap();
        drop(lanes::spawn(Group::LOG, async move { file.write_at(0, Bytes::from(vec![9; 1 << 20])).await }));
    });
}

#[test]
fn folder_operations_match_the_file_system() {
    check("folders", |folder| async move {
        let inner = folder.join("x/y");
        disk::create_dir_all(&inner).await.unwrap();
        disk::open(&inner.join("one"), NEW).await.unwrap();
        let again = disk::open(&inner.join("one"), OpenOptions { create_new: true, ..NEW }).await;
        assert_eq!(again.unwrap_err().kind(), ErrorKind::AlreadyExists);
        let missing = disk::open(&inner.join("none"), OpenOptions::default()).await;
        assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
        disk::rename(&inner.join("one"), &inner.join("two")).await.unwrap();
        disk::hard_link(&inner.join("two"), &inner.join("three")).await.unwrap();
        disk::sync_dir(&inner).await.unwrap();
        assert_eq!(disk::list_dir(&inner).await.unwrap(), ["three", "two"]);
        disk::remove_file(&inner.join("two")).await.unwrap();
        assert!(!disk::exists(&inner.join("two")).await.unwrap() && disk::exists(&inner).await.unwrap());
        let lock = disk::lock_file(&inner.join("lock")).await.unwrap();
        assert_eq!(disk::lock_file(&inner.join("lock")).await.unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(lock);
        assert!(disk::lock_file(&inner.join("lock")).await.is_ok());
        let (free, all) = disk::space(&folder).await.unwrap();
        assert!(free <= all && all > 0);
    });
}
