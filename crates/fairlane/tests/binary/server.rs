//! The built binary as a child process, with its own folder and ports. Every wait has a time limit.
//! The server of a failed test is killed.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use load::session::Session;
use rustix::process::{Pid, Signal, kill_process};
pub(crate) use testkit::Folder;

/// Time limit of a start and of an end, on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Set in a test that runs in a user namespace of its own.
const IN_NAMESPACE: &str = "FAIRLANE_TEST_NAMESPACE";

/// A small file system in memory, mounted in a folder and unmounted at the end.
pub(crate) struct Mounted(PathBuf);

impl Mounted {
    /// Mounts it. Without the right to mount, the test with the path `test` runs in a user
    /// namespace, where its user has that right. `None`: it has passed there.
    pub(crate) fn new(folder: &Folder, size: &str, test: &str) -> Option<Mounted> {
        let path = folder.path().join("disk");
        std::fs::create_dir_all(&path).expect("made");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "fairlane-test"]).arg(&path);
        let done = mount.output().expect("the program `mount` is installed");
        if done.status.success() {
            return Some(Mounted(path));
        }
        let refused = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(std::env::var_os(IN_NAMESPACE).is_none(), "no right to mount in a user namespace: {refused}");
        let program = std::env::current_exe().expect("this program");
        let mut again = Command::new("unshare");
        again.args(["--user", "--map-root-user", "--mount"]).arg(program).args([
            "--exact",
            test,
            "--nocapture",
        ]);
        let done = again.env(IN_NAMESPACE, "1").output().expect("the program `unshare` is installed");
        let [text, errors] = [&done.stdout, &done.stderr].map(|bytes| String::from_utf8_lossy(bytes));
        assert!(
            done.status.success() && text.contains("test result: ok. 1 passed"),
            "expected the right to mount ({refused}), or user namespaces; run the tests as root: {text} {errors}"
        );
        None
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// Returns a command of the binary, without the settings in the environment of the tests.
pub(crate) fn fairlane(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fairlane"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("FAIRLANE_")) {
        command.env_remove(name);
    }
    command.args(args).current_dir(std::env::temp_dir());
    command
}

/// Waits for a command. Returns its output and status.
pub(crate) fn output(command: &mut Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    wait(&mut child);
    child.wait_with_output().expect("its output")
}

/// Waits for a process to end.
pub(crate) fn wait(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().expect("a child of ours") {
            return status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("the process did not end in {PATIENCE:?}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Runs statements one after the other. Each must succeed.
#[track_caller]
pub(crate) fn run(session: &mut Session, statements: &[&str]) {
    for statement in statements {
        session.query(statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
}

/// A running `fairlane serve`.
pub(crate) struct Server {
    child: Child,
    pub(crate) cql: String,
    pub(crate) http: String,
    pub(crate) shard_aware: String,
}

impl Server {
    /// Returns a command with free ports and two cores, unpinned because tests share the machine.
    pub(crate) fn command(folder: &Folder) -> Command {
        let mut command = fairlane(&["serve", "--cores", "2", "--overprovisioned", "--memory", "256MiB"]);
        command.args(["--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--shard-aware-port", "0"]);
        command
            .args(["--sql-listen", "127.0.0.1:0", "--disk-probe", "off"])
            .arg("--data-dir")
            .arg(folder.path());
        command
    }

    /// Starts a server whose administrator has the password `secret`.
    pub(crate) fn start(folder: &Folder) -> Server {
        Server::ready(Server::command(folder).env("FAIRLANE_ADMIN_PASSWORD", "secret"))
    }

    /// Starts a command and waits until the server is ready.
    pub(crate) fn ready(command: &mut Command) -> Server {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the binary starts");
        let stdout = child.stdout.take().expect("a pipe");
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let mut stdout = BufReader::new(stdout);
            let mut line = String::new();
            let _ = stdout.read_line(&mut line);
            let _ = sender.send(line);
            let _ = stdout.read_to_end(&mut Vec::new());
        });
        let line = receiver.recv_timeout(PATIENCE).unwrap_or_default();
        let after = |word: &str| {
            let rest = line.split_once(word)?.1;
            Some(rest.split([',', '\n']).next()?.to_owned())
        };
        let server = Server {
            child,
            cql: after("ready: CQL ").unwrap_or_default(),
            http: after(", HTTP ").unwrap_or_default(),
            shard_aware: after(", shard-aware CQL ").unwrap_or_default(),
        };
        assert!(
            !server.cql.is_empty() && !server.http.is_empty(),
            "expected the addresses of the listeners, got {line}"
        );
        server
    }

    pub(crate) fn session(&self, user: &str, password: &str) -> Session {
        Session::connect(&self.cql, Some(user), Some(password), PATIENCE).expect("a session")
    }

    /// Returns the answer to a GET request, with its header.
    pub(crate) fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.http).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a bound");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        text
    }

    /// Returns a value of `/metrics`, such as `fairlane_connections`.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics");
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let value = line.unwrap_or_else(|| panic!("there is no {name} in {text}"));
        value.parse().expect("a number")
    }

    /// Stops the server by SIGTERM.
    pub(crate) fn stop(mut self) -> ExitStatus {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("it runs");
        wait(&mut self.child)
    }

    /// Sends the server a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    /// Kills the server by SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        wait(&mut self.child);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
