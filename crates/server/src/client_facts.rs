//! Facts about a client for `system.connections`.

use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;

use engine::shortened;
use wire::Version;

/// Maximum length of a name sent by a client in STARTUP, bytes. Longer names are shortened.
const NAME_BYTES_MAX: usize = 128;

/// Facts about a client.
#[derive(Debug)]
pub(crate) struct ClientFacts {
    /// Connection time, milliseconds since 1970.
    pub(crate) connected_ms: i64,
    /// Number of requests after login.
    pub(crate) requests: Cell<u64>,
    /// Contents of its STARTUP, once received.
    startup: OnceCell<Box<Startup>>,
    /// True if the connection is encrypted.
    pub(crate) is_encrypted: Cell<bool>,
    /// Common name of the client's certificate, which is a role's name.
    pub(crate) certificate_subject: RefCell<Option<Arc<str>>>,
}

/// Contents of a STARTUP message.
#[derive(Debug)]
pub(crate) struct Startup {
    pub(crate) version: Version,
    pub(crate) driver_name: Option<String>,
    pub(crate) driver_version: Option<String>,
    pub(crate) application_name: Option<String>,
}

impl ClientFacts {
    /// Creates the facts of a client that has just connected.
    pub(crate) fn new() -> ClientFacts {
        ClientFacts {
            connected_ms: lanes::time::unix_micros() / 1000,
            requests: Cell::new(0),
            startup: OnceCell::new(),
            is_encrypted: Cell::new(false),
            certificate_subject: RefCell::default(),
        }
    }

    /// Counts a request.
    pub(crate) fn count(&self) {
        self.requests.set(self.requests.get() + 1);
    }

    /// Returns the contents of STARTUP, once received.
    pub(crate) fn startup(&self) -> Option<&Startup> {
        self.startup.get().map(|startup| &**startup)
    }

    /// Stores the contents of STARTUP. `named` returns the value of an option.
    pub(crate) fn started<'a>(&self, version: Version, named: impl Fn(&str) -> Option<&'a str>) {
        let name = |key| named(key).map(|name| shortened(name, NAME_BYTES_MAX).to_owned());
        self.startup.get_or_init(|| {
            Box::new(Startup {
                version,
                driver_name: name("DRIVER_NAME"),
                driver_version: name("DRIVER_VERSION"),
                application_name: name("APPLICATION_NAME"),
            })
        });
    }
}
