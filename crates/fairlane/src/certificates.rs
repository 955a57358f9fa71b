//! Reads the certificates again when their files change, and on SIGHUP, on a thread of its own.

use std::fs;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, SystemTime};

use frontdoor::Tls;
use server::logging::{Level, Logger};

/// Interval of the checks of the files.
const CHECK: Duration = Duration::from_secs(5);

/// The thread that watches the files; it ends after this is dropped. Nobody waits for its end, as the files may lie on a
/// disk that does not answer.
pub(crate) struct Certificates(Sender<()>);

impl Certificates {
    /// Begins to watch the files of a certificate.
    pub(crate) fn watch(tls: Tls, logger: &Logger) -> Certificates {
        let (asked, asking) = channel();
        let logger = logger.clone();
        std::thread::spawn(move || watch(&tls, &asking, &logger));
        Certificates(asked)
    }

    /// Has the files read now, changed or not.
    pub(crate) fn read_now(&self) {
        // The thread ends with this.
        let _ = self.0.send(());
    }
}

fn watch(tls: &Tls, asking: &Receiver<()>, logger: &Logger) {
    let stamps = || tls.files().paths().map(Stamp::of).collect::<Vec<_>>();
    let mut known = stamps();
    // They may have changed between the first reading and this.
    let _ = tls.reload();
    loop {
        let is_asked = match asking.recv_timeout(CHECK) {
            Ok(()) => true,
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let now = stamps();
        if is_asked || now != known {
            known = now;
            match tls.reload() {
                Ok(()) => logger.log(Level::Info, "certificates were read again", &[]),
                // One file may have been written and the next not yet.
                Err(error) => logger.log(
                    Level::Warn,
                    "cannot use the changed certificates: the former ones stay in use",
                    &[("error", &error)],
                ),
            }
        }
    }
}

/// Time of the last change and length of a file. `None`: they cannot be read.
#[derive(PartialEq, Eq)]
struct Stamp(Option<(SystemTime, u64)>);

impl Stamp {
    fn of(path: &Path) -> Stamp {
        // Follows links: a certificate is often replaced by another link.
        let found = fs::metadata(path);
        Stamp(found.and_then(|found| Ok((found.modified()?, found.len()))).ok())
    }
}
