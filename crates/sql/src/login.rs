//! From the first byte to a session: encryption begins or is declined, the role proves its password by SCRAM-SHA-256, and a connection that
//! only wants to cancel another's statement does so.

use std::collections::BTreeMap;
use std::rc::Rc;

use access::Login;
use bytes::Bytes;
use frontdoor::Slot;
use pgwire::messages::startup::{Authentication, NegotiateProtocolVersion, SecretKey, Startup};
use pgwire::messages::{PgWireFrontendMessage, ProtocolVersion, SslNegotiationMetaMessage};

use crate::connection::{Connection, End};
use crate::counts::add;
use crate::failure::{Failure, state};
use crate::server::{Here, Sql};

const MECHANISM: &str = "SCRAM-SHA-256";

/// A client that was let in.
pub(crate) struct Client {
    pub(crate) login: Login,
    /// What it said when it began: `user`, `database`, settings.
    pub(crate) parameters: BTreeMap<String, String>,
}

/// Lets a client in.
///
/// # Errors
/// Why not.
pub(crate) async fn log_in(
    sql: &Sql,
    here: &Rc<Here>,
    connection: &mut Connection,
    slot: &Slot,
) -> Result<Client, End> {
    let startup = start(sql, connection).await?;
    connection.started();
    let unsupported: Vec<String> =
        startup.parameters.keys().filter(|name| name.starts_with("_pq_.")).cloned().collect();
    if startup.protocol_number_major != 3 {
        let version = format!("{}.{}", startup.protocol_number_major, startup.protocol_number_minor);
        let text = format!("unsupported frontend protocol {version}: server supports 3.0");
        return Err(End::Failed(Failure::fatal(state::UNSUPPORTED, text)));
    }
    if startup.protocol_number_minor > 0 || !unsupported.is_empty() {
        connection.put(&NegotiateProtocolVersion::new(ProtocolVersion::PROTOCOL3_0.into(), unsupported))?;
    }
    let Some(user) = startup.parameters.get("user").filter(|user| !user.is_empty()).cloned() else {
        return Err(End::Failed(Failure::fatal("28000", "no user name was given")));
    };
    let login = if sql.config().authenticate {
        authenticate(sql, here, connection, &user).await?
    } else {
        here.access.anonymous()
    };
    if let Err(refused) = slot.enter(login.role(), here.access.is_superuser(&login)).await {
        add(&here.counts.refused, 1);
        let text = format!("sorry, too many clients already: {refused}");
        return Err(End::Failed(Failure::fatal(state::CONNECTIONS, text)));
    }
    connection.put(&Authentication::Ok)?;
    Ok(Client { login, parameters: startup.parameters })
}

/// The client's startup message, after what may come before.
async fn start(sql: &Sql, connection: &mut Connection) -> Result<Startup, End> {
    loop {
        match connection.next().await? {
            PgWireFrontendMessage::SslNegotiation(SslNegotiationMetaMessage::None) => connection.plain(),
            PgWireFrontendMessage::SslNegotiation(wish) => {
                let tls = sql.config().tls.as_ref().filter(|_| !connection.is_encrypted());
                let tls = tls.filter(|_| matches!(wish, SslNegotiationMetaMessage::PostgresSsl(_)));
                connection.put_byte(if tls.is_some() { b'S' } else { b'N' });
                connection.flush().await?;
                if let Some(tls) = tls {
                    connection.encrypt(tls).await?;
                }
            }
            PgWireFrontendMessage::CancelRequest(request) => {
                if let SecretKey::I32(secret) = request.secret_key {
                    sql.cancel(request.pid, secret).await;
                }
                return Err(End::Gone);
            }
            PgWireFrontendMessage::Startup(startup) => {
                if connection.is_encrypted() || sql.config().takes_plaintext() {
                    return Ok(startup);
                }
                let text = "this server takes encrypted connections only";
                let failure =
                    Failure::fatal("28000", text).with_hint("Connect with sslmode=require or stricter.");
                return Err(End::Failed(failure));
            }
            _ => return Err(unexpected()),
        }
    }
}

async fn authenticate(
    sql: &Sql,
    here: &Rc<Here>,
    connection: &mut Connection,
    user: &str,
) -> Result<Login, End> {
    connection.put(&Authentication::SASL(vec![MECHANISM.to_owned()]))?;
    connection.flush().await?;
    let PgWireFrontendMessage::PasswordMessageFamily(first) = connection.next().await? else {
        return Err(unexpected());
    };
    let first = first.into_sasl_initial_response().map_err(|_| unexpected())?;
    if first.auth_method != MECHANISM {
        let text = format!("the SASL mechanism here is {MECHANISM}");
        return Err(End::Failed(Failure::fatal(state::PROTOCOL, text)));
    }
    let data = first.data.unwrap_or_default();
    let begun = here.access.begin_scram(user, &data);
    let (exchange, answer) =
        begun.map_err(|error| End::Failed(Failure::fatal(state::PROTOCOL, error.to_string())))?;
    connection.put(&Authentication::SASLContinue(Bytes::from(answer)))?;
    connection.flush().await?;
    let PgWireFrontendMessage::PasswordMessageFamily(last) = connection.next().await? else {
        return Err(unexpected());
    };
    let last = last.into_sasl_response().map_err(|_| unexpected())?;
    match here.access.end_scram(exchange, &last.data) {
        Ok((login, answer)) => {
            connection.put(&Authentication::SASLFinal(Bytes::from(answer)))?;
            Ok(login)
        }
        Err(error) => {
            add(&here.counts.auth_failures, 1);
            lanes::time::sleep(sql.config().auth_failure_delay).await;
            Err(End::Failed(Failure::fatal(state::PASSWORD, error.to_string())))
        }
    }
}

fn unexpected() -> End {
    End::Failed(Failure::fatal(state::PROTOCOL, "unexpected message while logging in"))
}
