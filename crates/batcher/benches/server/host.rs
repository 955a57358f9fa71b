//! The server behind its delay line, both on one core, and CPU times of all parts.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use load::{DelayLine, Exposed};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use server_process::kernel::thread_cpu_s;
use server_process::wait_until_ready;

/// Delay of the line in each direction.
const DELAY: Duration = Duration::from_millis(1);
/// Longest start of a server on an empty folder.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// The superuser and its password.
pub(crate) const ADMIN: [&str; 2] = ["admin", "of the benchmark"];

/// Returns the cores that this process may use.
pub(crate) fn cores() -> Vec<usize> {
    let set = sched_getaffinity(None).expect("the kernel returns the cores of this process");
    (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect()
}

/// Pins this thread, and threads and processes that it starts later, to a core.
pub(crate) fn pin_to(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).expect("the core is one of this process");
}

/// A server and its delay line. They end when dropped.
pub(crate) struct Host {
    child: Child,
    folder: PathBuf,
    pub(crate) line: DelayLine,
    /// Address of the server's metrics.
    metrics: String,
}

impl Host {
    /// Starts a server on an empty folder, and a line to it, both on the cores of this thread.
    pub(crate) fn start(program: &str) -> Host {
        let folder = std::env::temp_dir().join(format!("fairlane-batcher-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("the temporary folder can be written");
        let mut command = Command::new(program);
        command.args(["serve", "--data-dir", "data", "--disk-probe", "off", "--log-level", "error"]);
        command.args(["--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--sql-listen", "off"]);
        // The delay line uses the server's core too.
        command.args(["--shard-aware-port", "off", "--overprovisioned"]).current_dir(&folder).env_clear();
        command.env("FAIRLANE_ADMIN_PASSWORD", ADMIN[1]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child =
            command.spawn().unwrap_or_else(|error| panic!("{program} cannot be started: {error}"));
        let ready = wait_until_ready(&mut child, READY_TIMEOUT).expect("the server gets ready");
        let line = DelayLine::start(&ready.cql, DELAY).expect("a free port");
        Host { child, folder, line, metrics: ready.http }
    }

    /// Returns the server's service times so far.
    pub(crate) fn service(&self) -> Exposed {
        let page = load::fetch_metrics(&self.metrics).expect("the server has metrics");
        load::scrape(&page).remove("default").unwrap_or_default()
    }

    /// Returns the CPU seconds so far of the client, the server and the delay line.
    pub(crate) fn cpu_s(&self) -> [f64; 3] {
        let is_line = |name: &str| name == "delay-line";
        let server = cpu_s(&self.child.id().to_string(), |_| true);
        [cpu_s("self", |name| !is_line(name)), server, cpu_s("self", is_line)]
    }
}

impl Drop for Host {
    /// Kills the server, without the flush of an orderly stop, since its data is removed.
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
        let _left = std::fs::remove_dir_all(&self.folder);
    }
}

/// Returns the CPU seconds of the threads of a process that have certain names.
fn cpu_s(process: &str, is_counted: impl Fn(&str) -> bool) -> f64 {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).expect("the process runs");
    let of = |thread: PathBuf| {
        let name = std::fs::read_to_string(thread.join("comm")).ok()?;
        thread_cpu_s(&thread).filter(|_| is_counted(name.trim_end()))
    };
    // A thread may end meanwhile.
    threads.filter_map(|thread| of(thread.ok()?.path())).sum()
}
