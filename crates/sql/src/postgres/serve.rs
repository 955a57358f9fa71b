//! A connection from its first byte to its end: login, session, and the last error.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use frontdoor::ConnectionSlot;
use lanes::net::TcpStream;

use crate::postgres::connection::ClientConnection;
use crate::postgres::connection_status::Ended;
use crate::postgres::counts::add;
use crate::postgres::error::End;
use crate::postgres::login;
use crate::postgres::server::{CoreState, Sql};
use crate::postgres::session::Session;

/// Time limit for sending the last error to a client.
const REFUSAL: Duration = Duration::from_secs(1);

/// Serves a client until one side ends the connection.
pub(crate) async fn serve(sql: Sql, here: Rc<CoreState>, stream: TcpStream, slot: ConnectionSlot) {
    let config = sql.config();
    let peer = stream.peer_addr().unwrap_or_else(|_| SocketAddr::new(slot.peer(), 0));
    add(&here.counts.accepted, 1);
    let status = here.accept(peer);
    let _left = Left { here: here.clone(), number: status.number };
    let mut connection =
        ClientConnection::new(stream, config.startup_bytes_max, here.counts.clone(), status.clone());
    let login = status.unless_ended(login::log_in(&sql, &here, &mut connection, &slot, peer));
    let Some(login) = slot.log_in(config.startup_timeout, login).await else { return };
    let ended = match login {
        Ok(client) => {
            let account = config.accounts.connection(client.login.role());
            connection.allow(config.message_bytes_max, account.clone());
            let live = here.enter(&status, client.login.role().to_string(), client.secret_bytes);
            let ended = Rc::downgrade(&live);
            client.login.on_end(move || {
                if let Some(live) = ended.upgrade() {
                    live.status.end(Ended::WithRole);
                    live.bell.notify();
                }
            });
            match Session::new(sql.clone(), here, client, live, account) {
                Ok(session) => session.run(&mut connection, status.number).await,
                Err(failure) => End::Failed(failure),
            }
        }
        Err(end) => end,
    };
    if let End::Failed(failure) = ended {
        let last = async {
            connection.put_failure(&failure)?;
            connection.flush().await
        };
        let _ = lanes::time::timeout(REFUSAL, last).await;
    }
}

/// Removes a session from its core's list when dropped.
struct Left {
    here: Rc<CoreState>,
    number: i32,
}

impl Drop for Left {
    fn drop(&mut self) {
        self.here.leave(self.number);
    }
}
