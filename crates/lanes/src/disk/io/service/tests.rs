//! Threads serve requests that the kernel rejects in a ring.

use std::sync::Mutex;

use super::*;
use crate::disk::{OpenOptions, open, remove_file};
use crate::{Config, DiskBackend, Lanes, Report, Reporter};

#[test]
fn threads_serve_rejected_requests_with_one_report() {
    let reports = Arc::new(Mutex::new(Vec::new()));
    let sink = reports.clone();
    let config = Config {
        cores: vec![0],
        pin: false,
        disk_backend: DiskBackend::Restricted,
        reporter: Reporter::new(move |report| sink.lock().unwrap().push(report.clone())),
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
        // An invalid request gets its own error.
        let read_only = open(&path, OpenOptions::default()).await.unwrap();
        assert!(read_only.write_at(0, bytes::Bytes::from_static(b"x")).await.is_err());
        remove_file(&path).await.unwrap();
    });
    assert!(!lanes.uses_io_uring());
    lanes.shutdown();
    let mut reports = reports.lock().unwrap();
    // A busy machine may report stalls.
    reports.retain(|report| !matches!(report, Report::Stalls { .. }));
    assert!(matches!(reports[..], [Report::RingRefused { core: 0, .. }]), "{reports:?}");
}

#[test]
fn requests_beside_a_rejected_one_are_served_too() {
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
            ended.expect("the write ends").expect("the write succeeds");
        }
        remove_file(&path).await.unwrap();
    });
    lanes.shutdown();
}
