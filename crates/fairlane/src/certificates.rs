//! Reload of the certificates when their files change, and on SIGHUP, by a thread.

use std::fs;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, SystemTime};

use frontdoor::Tls;
use server::logging::{Level, Logger};

/// Interval of the checks of the files.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The thread that watches the files. It ends after this is dropped. The drop does not wait for the
/// end, because the disk of the files may not answer.
pub(crate) struct Certificates(Sender<()>);

impl Certificates {
    /// Starts to watch the files of a certificate.
    pub(crate) fn watch(tls: Tls, logger: &Logger) -> Certificates {
        let (sender, requests) = channel();
        let logger = logger.clone();
        std::thread::spawn(move || watch(&tls, &requests, &logger));
        Certificates(sender)
    }

    /// Reloads the files now, changed or not.
    pub(crate) fn reload(&self) {
        // The thread lives as long as `self`.
        let _ = self.0.send(());
    }
}

fn watch(tls: &Tls, requests: &Receiver<()>, logger: &Logger) {
    let stamps = || tls.files().paths().map(Stamp::of).collect::<Vec<_>>();
    let mut known = stamps();
    // The files may have changed since the listeners read them.
    let _ = tls.reload();
    loop {
        let is_requested = match requests.recv_timeout(CHECK_INTERVAL) {
            Ok(()) => true,
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let now = stamps();
        if is_requested || now != known {
            known = now;
            match tls.reload() {
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
