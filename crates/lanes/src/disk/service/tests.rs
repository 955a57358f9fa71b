//! What a kernel refuses of a ring is done by threads.

use std::sync::Mutex;

use super::*;
use crate::disk::{OpenOptions, open, remove_file};
use crate::{Config, DiskBackend, Lanes, Report, Reporter};

#[test]
fn operations_that_the_kernel_refuses_are_done_by_threads_and_it_is_said_once() {
    let said = Arc::new(Mutex::new(Vec::new()));
    let hears = said.clone();
    let config = Config {
        cores: vec![0],
        pin: false,
        disk_backend: DiskBackend::Restricted,
        reporter: Reporter::new(move |report| hears.lock().unwrap().push(report.clone())),
        ..Config::detect()
    };
    let lanes = Lanes::start(config).expect("lanes start");
    assert!(lanes.uses_io_uring());
    let path = std::env::temp_dir().join(format!("lanes-refused-{}", std::process::id()));
    lanes.block_on(0, Group::LOG, move || async move {
        let options = OpenOptions { write: true, create: true, ..OpenOptions::default() };
        let file = open(&path, options).await.unwrap();
        for n in 0..50_u8 {
            file.write_at(u64::from(n), bytes::Bytes::from(vec![n])).await.unwrap();
            file.sync_data().await.unwrap();
            assert_eq!(file.read_at(u64::from(n), 1).await.unwrap(), [n][..]);
        }
        // A request that is wrong by itself gets its own error.
        let read_only = open(&path, OpenOptions::default()).await.unwrap();
        assert!(read_only.write_at(0, bytes::Bytes::from_static(b"x")).await.is_err());
        remove_file(&path).await.unwrap();
    });
    assert!(!lanes.uses_io_uring());
    lanes.shutdown();
    let mut said = said.lock().unwrap();
    // A busy machine may have something to say of its own.
    said.retain(|report| !matches!(report, Report::Stall { .. }));
    assert!(matches!(said[..], [Report::RingRefused { core: 0, .. }]), "{said:?}");
}

#[test]
fn operations_put_in_beside_a_refused_one_are_done_too() {
    let config = Config {
        cores: vec![0],
        pin: false,
        disk_backend: DiskBackend::Restricted,
        reporter: Reporter::new(|_| ()),
        ..Config::detect()
    };
    let lanes = Lanes::start(config).expect("lanes start");
    let path = std::env::temp_dir().join(format!("lanes-refused-several-{}", std::process::id()));
    lanes.block_on(0, Group::LOG, move || async move {
        let options = OpenOptions { write: true, create: true, ..OpenOptions::default() };
        let file = open(&path, options).await.unwrap();
        let write = |n: u8| {
            let file = file.clone();
            let write = async move { file.write_at(u64::from(n), bytes::Bytes::from(vec![n])).await };
            crate::spawn(Group::LOG, write)
        };
        let writes: Vec<_> = (0..16).map(write).collect();
        for write in writes {
            let ended = crate::time::timeout(std::time::Duration::from_secs(20), write).await;
            ended.expect("it ends").expect("it is done");
        }
        remove_file(&path).await.unwrap();
    });
    lanes.shutdown();
}
