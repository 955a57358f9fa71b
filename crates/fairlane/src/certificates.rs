//! Reload of certificates when their files change, and on SIGHUP, by a thread.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, SystemTime};

use cluster::NodeTls;
use frontdoor::Tls;
use server::logging::{Level, Logger};

/// Interval of the checks of the files.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Certificates in files.
pub(crate) trait Reload: Send + 'static {
    /// Returns the paths of all files.
    fn paths(&self) -> impl Iterator<Item = &Path>;

    /// Reads the files again, for new connections.
    ///
    /// # Errors
    /// A text with the file and the problem.
    fn reload(&self) -> Result<(), String>;
}

impl Reload for Tls {
    fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files().paths()
    }

    fn reload(&self) -> Result<(), String> {
        Tls::reload(self)
    }
}

impl Reload for Arc<NodeTls> {
    fn paths(&self) -> impl Iterator<Item = &Path> {
        NodeTls::paths(self)
    }

    fn reload(&self) -> Result<(), String> {
        NodeTls::reload(self)
    }
}

/// The thread that watches the files. It ends after this is dropped. The drop does not wait for the
/// end, because the disk of the files may not answer.
pub(crate) struct Certificates(Sender<()>);

impl Certificates {
    /// Starts to watch the files of certificates.
    pub(crate) fn watch(files: impl Reload, logger: &Logger) -> Certificates {
        let (sender, requests) = channel();
        let logger = logger.clone();
        std::thread::spawn(move || watch(&files, &requests, &logger));
        Certificates(sender)
    }

    /// Reloads the files now, changed or not.
    pub(crate) fn reload(&self) {
        // The thread lives as long as `self`.
        let _ = self.0.send(());
    }
}

fn watch(files: &impl Reload, requests: &Receiver<()>, logger: &Logger) {
    let stamps = || files.paths().map(Stamp::of).collect::<Vec<_>>();
    let mut known = stamps();
    // The files may have changed since the listeners read them.
    let _ = files.reload();
    loop {
        let is_requested = match requests.recv_timeout(CHECK_INTERVAL) {
            Ok(()) => true,
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let now = stamps();
        if is_requested || now != known {
            known = now;
            match files.reload() {
                Ok(()) => logger.log(Level::Info, "certificates reloaded", &[]),
                // The key may not have been replaced yet. The next change of a file tries again.
                Err(error) => logger.log(
                    Level::Warn,
                    "certificates not reloaded: the former ones stay in use",
                    &[("error", error.into())],
                ),
            }
        }
    }
}

/// Time of the last change and length of a file. `None`: the file cannot be read.
#[derive(PartialEq, Eq)]
struct Stamp(Option<(SystemTime, u64)>);

impl Stamp {
    fn of(path: &Path) -> Stamp {
        // Follows links, because certificates are often replaced by changing a link.
        let found = fs::metadata(path);
        Stamp(found.and_then(|found| Ok((found.modified()?, found.len()))).ok())
    }
}
