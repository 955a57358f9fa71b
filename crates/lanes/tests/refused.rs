//! Test with a kernel that allows a ring to be set up and refuses to enter it, as the system-call
//! filter of a container may.
#![expect(unsafe_code, reason = "installs such a filter, for one thread and those it starts")]
#![expect(clippy::disallowed_methods, reason = "works outside of lanes")]

use bytes::Bytes;
use lanes::Group;
use lanes::disk::{self, OpenOptions};

/// Makes `io_uring_enter` fail with EPERM on this thread and on all threads that it starts from now
/// on.
fn forbid_io_uring_enter() {
    let instruction = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let program = [
        // The number of the system call is the first word of the filter's input.
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_io_uring_enter as u32),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: plain numbers; the second call reads `filter` and the program it points to, which
    // live until it returns.
    let installed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
    };
    assert!(installed, "a filter can be installed: {}", std::io::Error::last_os_error());
}

#[test]
fn threads_serve_requests_when_the_ring_is_refused() {
    std::thread::spawn(|| {
        forbid_io_uring_enter();
        let lanes = testkit::start_lanes(1);
        let path = std::env::temp_dir().join(format!("lanes-no-enter-{}", std::process::id()));
        lanes.block_on(0, Group::LOG, move || async move {
            let options = OpenOptions { write: true, create: true, ..OpenOptions::default() };
            let file = disk::open(&path, options).await.unwrap();
            let tasks: Vec<_> = (0..20_u8)
                .map(|n| {
                    let file = file.clone();
                    lanes::spawn(Group::LOG, async move {
                        file.write_at(u64::from(n), Bytes::from(vec![n])).await.unwrap();
                        file.sync_data().await.unwrap();
                        file.read_at(u64::from(n), 1).await.unwrap() == [n][..]
                    })
                })
                .collect();
            for task in tasks {
                assert!(task.await);
            }
            disk::remove_file(&path).await.unwrap();
        });
        assert!(!lanes.uses_io_uring());
        lanes.shutdown();
    })
    .join()
    .expect("no panic");
}
