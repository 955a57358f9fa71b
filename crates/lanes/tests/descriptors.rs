//! Opening of files while the process has no free descriptor. In a program of its own, whose limit
//! it changes.
#![expect(unsafe_code, reason = "the limit of open files is set by libc")]
#![expect(clippy::disallowed_methods, reason = "the limit is raised outside of the lanes")]

use std::time::Duration;

use lanes::Group;
use lanes::disk::{self, OpenOptions};
use testkit::start_lanes;

fn limit() -> libc::rlimit {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writes.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }, 0);
    limit
}

fn set_limit(files: u64) {
    let limit = libc::rlimit { rlim_cur: files, ..limit() };
    // SAFETY: `limit` is valid for reads.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
}

#[test]
fn open_is_repeated_until_a_descriptor_is_free() {
    let lanes = start_lanes(1);
    let before = limit().rlim_cur;
    let folder = std::env::temp_dir();
    let open = move || async move {
        let path = folder.join(format!("fairlane-descriptors-{}", std::process::id()));
        let options = OpenOptions { write: true, create: true, ..OpenOptions::default() };
        let file = disk::open(&path, options).await;
        let _ = std::fs::remove_file(&path);
        disk::sync_dir(&folder).await.and(file.map(drop)).map_err(|error| error.to_string())
    };
    // No descriptor of a number below this is free, so that every open fails.
    set_limit(0);
    let (answer, opened) = std::sync::mpsc::channel();
    let own = lanes.clone();
    let opener = std::thread::spawn(move || drop(answer.send(own.block_on(0, Group::CONTROL, open))));
    let early = opened.recv_timeout(Duration::from_millis(200));
    set_limit(before);
    assert!(early.is_err(), "it ended while no descriptor was free: {early:?}");
    assert_eq!(opened.recv_timeout(Duration::from_secs(20)), Ok(Ok(())));
    opener.join().expect("the thread has ended");
    lanes.shutdown();
}
