//! All calls of libc: clocks, affinity, policies, timers, random bytes, raw reads and writes. The
//! functions are thin and safe: each takes owned or borrowed values that make its call sound.
#![expect(unsafe_code, reason = "system calls through libc; each wrapper upholds its call's contract")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Returns nanoseconds of `CLOCK_MONOTONIC`; about 25 ns to read.
pub(crate) fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// Returns nanoseconds of `CLOCK_BOOTTIME`; about 25 ns to read.
pub(crate) fn boot_ns() -> u64 {
    clock_ns(libc::CLOCK_BOOTTIME)
}

/// Returns the CPU time that the calling thread has used, ns; a system call, about 250 ns.
pub(crate) fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the CPU time that all threads of the process have used, ns.
pub(crate) fn process_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Returns nanoseconds of a clock; 0 if there is no such clock (a thread that has ended).
fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes, and any clock id is permitted.
    let status = unsafe { libc::clock_gettime(clock, &raw mut time) };
    if status != 0 {
        return 0;
    }
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CPU clock of one thread, readable from other threads of the process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadClock(libc::clockid_t);

impl ThreadClock {
    /// Returns the clock of the calling thread.
    pub(crate) fn of_this_thread() -> io::Result<ThreadClock> {
        let mut clock = 0;
        // SAFETY: `pthread_self` is always valid, and `clock` is valid for writes.
        let status = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
        if status == 0 { Ok(ThreadClock(clock)) } else { Err(io::Error::from_raw_os_error(status)) }
    }

    /// Returns the CPU time that the thread has used, ns; 0 once it has ended.
    pub(crate) fn read_ns(self) -> u64 {
        clock_ns(self.0)
    }
}

/// Fills `buffer` from the kernel's generator.
pub(crate) fn random(buffer: &mut [u8]) {
    let mut filled = 0;
    while filled < buffer.len() {
        let rest = &mut buffer[filled..];
        // SAFETY: `rest` is valid for writes of its length.
        let got = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match usize::try_from(got) {
            Ok(got) => filled += got,
            Err(_) => {
                let error = io::Error::last_os_error();
                assert!(error.kind() == io::ErrorKind::Interrupted, "no random bytes: {error}");
            }
        }
    }
}

/// Returns the CPUs that the calling thread may run on, in order.
pub(crate) fn affinity() -> io::Result<Vec<usize>> {
    // SAFETY: an all-zero `cpu_set_t` is an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is valid for writes of the size given; 0 is the calling thread.
    if unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: every index is below CPU_SETSIZE.
    Ok((0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect())
}

/// Returns a kernel CPU set with these CPUs. Those beyond its size are left out.
pub(crate) fn cpu_set(cpus: &[usize]) -> libc::cpu_set_t {
    // SAFETY: an all-zero `cpu_set_t` is an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for &cpu in cpus.iter().filter(|&&cpu| cpu < libc::CPU_SETSIZE as usize) {
        // SAFETY: the index is below CPU_SETSIZE.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    set
}

/// Pins the calling thread to these CPUs.
pub(crate) fn pin_to(cpus: &[usize]) -> io::Result<()> {
    let set = cpu_set(cpus);
    // SAFETY: `set` is valid for reads of the size given; 0 is the calling thread.
    if unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Gives the calling thread the `SCHED_IDLE` policy. Without privilege this cannot be undone, and
/// threads that it starts inherit it.
pub(crate) fn become_idle_class() -> io::Result<()> {
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: `parameter` is valid for reads; 0 is the calling thread.
    if unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameter) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Offers the CPU to another thread.
pub(crate) fn yield_cpu() {
    // SAFETY: no arguments.
    unsafe { libc::sched_yield() };
}

/// Ends the delay (by default 50 µs) by which the kernel coalesces timeouts, for the calling thread
/// and threads that it starts.
pub(crate) fn disable_timer_slack() {
    // SAFETY: the option takes a number, ns. If the kernel refuses it, wake-ups are later by the
    // slack.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}

/// Reserves space for `len` bytes, if the file system supports it.
pub(crate) fn allocate(file: &std::fs::File, len: u64) -> io::Result<()> {
    let len = i64::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    if len == 0 {
        return Ok(());
    }
    loop {
        // SAFETY: the descriptor is open as long as `file` is borrowed.
        if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, len) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EOPNOTSUPP) => return Ok(()), // the caller writes zeros to all of it anyway
            _ => return Err(error),
        }
    }
}

/// Clears `O_DIRECT`: requests of this descriptor use the page cache from now on.
pub(crate) fn clear_direct(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open as long as `file` is borrowed; the commands take and give
    // flags.
    let status = unsafe {
        match libc::fcntl(file.as_raw_fd(), libc::F_GETFL) {
            -1 => -1,
            flags => libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags & !libc::O_DIRECT),
        }
    };
    if status == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Returns the bytes free for this process, and all bytes, of the file system that holds `path`.
pub(crate) fn space(path: &Path) -> io::Result<(u64, u64)> {
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: all-zero is a valid `statvfs`.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: `path` ends in a zero byte and `found` is valid for writes.
    if unsafe { libc::statvfs(path.as_ptr(), &raw mut found) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize))
}

/// Returns the number of files that this process may have open at once; `u64::MAX` if there is no
/// limit.
pub(crate) fn open_files_max() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writes.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } {
        0 if limit.rlim_cur != libc::RLIM_INFINITY => limit.rlim_cur,
        _ => u64::MAX,
    }
}

/// Creates a timer of the monotonic clock, as a file.
pub(crate) fn timer() -> io::Result<File> {
    // SAFETY: any arguments may be passed.
    let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC) };
    owned(fd)
}

fn owned(fd: libc::c_int) -> io::Result<File> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made and has no other owner.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// Sets a timer to expire once at this time of the monotonic clock, ns; at once if that is past.
pub(crate) fn set_timer(timer: &File, at_ns: u64) {
    let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let at_ns = at_ns.max(1); // 0 would switch it off
    let at = libc::timespec {
        tv_sec: (at_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (at_ns % 1_000_000_000) as libc::c_long,
    };
    let setting = libc::itimerspec { it_interval: zero, it_value: at };
    // SAFETY: the descriptor is open, `setting` valid for reads, and the old setting is not
    // requested.
    let status = unsafe {
        libc::timerfd_settime(
            timer.as_raw_fd(),
            libc::TFD_TIMER_ABSTIME,
            &raw const setting,
            std::ptr::null_mut(),
        )
    };
    assert_eq!(status, 0, "a timer can be set: {}", io::Error::last_os_error());
}

/// Creates a counter of jobs, as a file. Each read waits for a job and takes one.
pub(crate) fn job_counter() -> io::Result<File> {
    // SAFETY: any arguments may be passed.
    owned(unsafe { libc::eventfd(0, libc::EFD_SEMAPHORE | libc::EFD_CLOEXEC) })
}

/// Returns the bytes of a page of memory.
pub(crate) fn page_bytes() -> u64 {
    // SAFETY: it reads a constant of the system.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4096)
}

/// Returns the clock ticks of a second, in which `/proc` counts.
pub(crate) fn ticks_per_second() -> u64 {
    // SAFETY: it reads a constant of the system.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(ticks).ok().filter(|ticks| *ticks > 0).unwrap_or(100)
}
