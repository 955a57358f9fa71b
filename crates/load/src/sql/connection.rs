//! A connection that several workers share. One of them opens it again after a loss.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Mutex;

use super::client::Client;
use super::spec::SqlSpec;

/// Wait between attempts to open a connection again.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// A connection. `client` is `None` while it is lost.
pub(crate) struct Connection {
    host: String,
    client: RefCell<Option<Rc<Client>>>,
    /// Held by the worker that opens the connection again.
    opening: Mutex<()>,
    /// True after the query in flight was cancelled, at the end of the run.
    cancelled: Cell<bool>,
}

impl Connection {
    /// Returns a connection to `host` that is open.
    pub(crate) fn new(host: String, client: Client) -> Connection {
        let client = RefCell::new(Some(Rc::new(client)));
        Connection { host, client, opening: Mutex::new(()), cancelled: Cell::new(false) }
    }

    /// Returns the client, opened again if it was lost. `None`: the run is over.
    pub(crate) async fn client(&self, spec: &SqlSpec, over: &Cell<bool>) -> Option<Rc<Client>> {
        while !over.get() {
            if let Some(client) = self.client.borrow().clone() {
                return Some(client);
            }
            let _guard = self.opening.lock().await;
            // Another worker may have opened it meanwhile.
            if over.get() || self.client.borrow().is_some() {
                continue;
            }
            match Client::open(spec, &self.host).await {
                Ok(opened) => *self.client.borrow_mut() = Some(Rc::new(opened)),
                Err(_) => tokio::time::sleep(RETRY_INTERVAL).await,
            }
        }
        None
    }

    /// Forgets a client that lost its connection. Returns true for the first worker that noticed.
    pub(crate) fn lose(&self, lost: &Rc<Client>) -> bool {
        let mut client = self.client.borrow_mut();
        let same = client.as_ref().is_some_and(|client| Rc::ptr_eq(client, lost));
        if same {
            *client = None;
        }
        same
    }

    /// Asks the server to cancel the query in flight, once. The run is over, so that the queries
    /// behind it end with the connection.
    pub(crate) async fn cancel(&self, client: &Client) {
        if !self.cancelled.replace(true) {
            client.cancel().await;
        }
    }
}
