//! A connection from its first byte to login. Accepts or declines encryption, and authenticates the
//! role by SCRAM-SHA-256, by its certificate, or by its password in clear text if it has a bcrypt
//! hash. Executes cancel requests, which need no login.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use access::{AuthError, Login, ScramStart};
use bytes::Bytes;
use cluster::SessionRoles;
use frontdoor::ConnectionSlot;
use pgwire::messages::ProtocolVersion;
use pgwire::messages::startup::{Authentication, NegotiateProtocolVersion};

use crate::failure::{Failure, state};
use crate::postgres::cluster_login;
use crate::postgres::connection::ClientConnection;
use crate::postgres::counts::add;
use crate::postgres::error::End;
use crate::postgres::message::{First, Frame};
use crate::postgres::server::{CoreState, Sql};

const MECHANISM: &str = "SCRAM-SHA-256";
/// Mechanism with channel binding, for encrypted connections.
const BOUND_MECHANISM: &str = "SCRAM-SHA-256-PLUS";
/// Length of the secret in cancel requests, bytes: the maximum of protocol 3.0, and the
/// recommendation of 3.2.
const SECRET_BYTES: [usize; 2] = [4, 32];

/// A client after login.
pub(crate) struct Client {
    pub(crate) login: Login,
    /// Its role at the cluster in front of which the server stands.
    pub(crate) roles: Option<Arc<SessionRoles>>,
    /// Parameters of its startup message: `user`, `database`, settings.
    pub(crate) parameters: BTreeMap<String, String>,
    /// Length of the secret in its cancel requests, bytes.
    pub(crate) secret_bytes: usize,
}

/// A startup message.
struct Startup {
    major: u32,
    minor: u32,
    parameters: BTreeMap<String, String>,
}

/// Authenticates a client.
///
/// # Errors
/// The client is refused or gone, or the connection was for a cancel request.
pub(crate) async fn log_in(
    sql: &Sql,
    here: &Rc<CoreState>,
    connection: &mut ClientConnection,
    slot: &ConnectionSlot,
    peer: SocketAddr,
) -> Result<Client, End> {
    let startup = start(sql, connection).await?;
    connection.started(startup.minor);
    let unsupported: Vec<String> =
        startup.parameters.keys().filter(|name| name.starts_with("_pq_.")).cloned().collect();
    if startup.major != 3 {
        let version = format!("{}.{}", startup.major, startup.minor);
        let text = format!("unsupported frontend protocol {version}: server supports 3.0 to 3.2");
        return Err(End::Failed(Failure::fatal(state::UNSUPPORTED, text)));
    }
    // There is no 3.1.
    let has_long_secrets = startup.minor >= 2;
    if !matches!(startup.minor, 0 | 2) || !unsupported.is_empty() {
        let newest =
            if has_long_secrets { ProtocolVersion::PROTOCOL3_2 } else { ProtocolVersion::PROTOCOL3_0 };
        connection.put(&NegotiateProtocolVersion::new(newest.into(), unsupported))?;
    }
    let Some(user) = startup.parameters.get("user").filter(|user| !user.is_empty()).cloned() else {
        return Err(End::Failed(Failure::fatal("28000", "no user name was given")));
    };
    let (login, roles) = match &here.front {
        Some(front) => {
            let (login, role) = cluster_login::log_in(sql, here, front, connection, &user, peer).await?;
            let sql = sql.clone();
            let front = move || sql.here().and_then(|here| here.front.clone());
            (login, Some(SessionRoles::open(role, front).await))
        }
        None => (log_in_here(sql, here, connection, &user, peer).await?, None),
    };
    if let Err(refused) = slot.enter(login.role(), here.access.is_superuser(&login)).await {
        add(&here.counts.refused, 1);
        let text = format!("sorry, too many clients already: {refused}");
        return Err(End::Failed(Failure::fatal(state::CONNECTIONS, text)));
    }
    connection.put(&Authentication::Ok)?;
    Ok(Client {
        login,
        roles,
        parameters: startup.parameters,
        secret_bytes: SECRET_BYTES[usize::from(has_long_secrets)],
    })
}

/// Authenticates a role of this server.
async fn log_in_here(
    sql: &Sql,
    here: &Rc<CoreState>,
    connection: &mut ClientConnection,
    user: &str,
    peer: SocketAddr,
) -> Result<Login, End> {
    let proven = connection.certificate().filter(|name| **name == *user);
    let proven = proven.and_then(|name| here.access.log_in_by_certificate(&name));
    match proven {
        _ if !sql.config().authenticate => Ok(here.access.anonymous()),
        Some(login) => {
            sql.audit_login(peer, user, None);
            Ok(login)
        }
        None if here.access.takes_scram(user) => authenticate(sql, here, connection, user, peer).await,
        None => {
            let why = "this role's password is a bcrypt hash, which needs it in clear text";
            let password = clear_password(connection, peer, why).await?;
            match here.access.authenticate_from(Some(peer.ip()), user, &password).await {
                Ok(login) => {
                    sql.audit_login(peer, user, None);
                    Ok(login)
                }
                Err(error) => Err(wrong_password(sql, here, user, peer, &error).await),
            }
        }
    }
}

/// Waits for a password in clear text. `why` begins the text of the refusal.
///
/// # Errors
/// The connection is neither encrypted nor from this machine, or the client is gone.
pub(crate) async fn clear_password(
    connection: &mut ClientConnection,
    peer: SocketAddr,
    why: &str,
) -> Result<String, End> {
    if !connection.is_encrypted() && !peer.ip().is_loopback() {
        let failure = Failure::fatal(state::NO_LOGIN, format!("{why}: this needs an encrypted connection"));
        return Err(End::Failed(failure.with_hint("Connect with sslmode=require or stricter.")));
    }
    connection.put(&Authentication::CleartextPassword)?;
    connection.flush().await?;
    connection.next().await?.body.password().map_err(fatal)
}

/// Counts a wrong password, and returns the refusal after the delay that slows down guessing.
async fn wrong_password(sql: &Sql, here: &CoreState, user: &str, peer: SocketAddr, error: &AuthError) -> End {
    sql.audit_login(peer, user, Some(&error.to_string()));
    add(&here.counts.auth_failures, 1);
    lanes::time::sleep(sql.config().auth_failure_delay).await;
    End::Failed(Failure::fatal(state::PASSWORD, error.to_string()))
}

/// Waits for the startup message. The client may request each kind of encryption once before it.
/// A login thus takes at most five messages of [`crate::SqlConfig::startup_bytes_max`].
async fn start(sql: &Sql, connection: &mut ClientConnection) -> Result<Startup, End> {
    let (mut wanted_tls, mut wanted_gss) = (false, false);
    loop {
        let Frame { body, .. } = connection.next().await?;
        match body.first().map_err(fatal)? {
            First::WantsTls if !std::mem::replace(&mut wanted_tls, true) => {
                let tls = sql.config().tls.as_ref().filter(|_| !connection.is_encrypted());
                connection.put_byte(if tls.is_some() { b'S' } else { b'N' });
                connection.flush().await?;
                if let Some(tls) = tls {
                    connection.encrypt(tls).await?;
                }
            }
            First::WantsGss if !std::mem::replace(&mut wanted_gss, true) => {
                connection.put_byte(b'N');
                connection.flush().await?;
            }
            First::WantsTls | First::WantsGss => {
                let text = "unexpected message while logging in: expected a startup message, got a second request \
                            for encryption";
                return Err(End::Failed(Failure::fatal(state::PROTOCOL, text)));
            }
            First::Cancel { session, secret } => {
                if !sql.cancel(session, secret).await {
                    // Slows down guessing, as for wrong passwords.
                    lanes::time::sleep(sql.config().auth_failure_delay).await;
                }
                return Err(End::Gone);
            }
            First::Startup { major, minor, parameters } => {
                if connection.is_encrypted() || sql.config().takes_plaintext() {
                    return Ok(Startup { major, minor, parameters });
                }
                let text = "this server takes encrypted connections only";
                let failure =
                    Failure::fatal("28000", text).with_hint("Connect with sslmode=require or stricter.");
                return Err(End::Failed(failure));
            }
        }
    }
}

async fn authenticate(
    sql: &Sql,
    here: &Rc<CoreState>,
    connection: &mut ClientConnection,
    user: &str,
    peer: SocketAddr,
) -> Result<Login, End> {
    let end_point = connection.end_point();
    // The stronger one first: clients use the first mechanism that they support.
    let mechanisms: &[&str] = if end_point.is_some() { &[BOUND_MECHANISM, MECHANISM] } else { &[MECHANISM] };
    connection.put(&Authentication::SASL(mechanisms.iter().map(|&name| name.to_owned()).collect()))?;
    connection.flush().await?;
    let (mechanism, data) = connection.next().await?.body.sasl_begin().map_err(fatal)?;
    if !mechanisms.contains(&mechanism.as_str()) {
        let text = format!("the SASL mechanism here is {}", mechanisms.join(" or "));
        return Err(End::Failed(Failure::fatal(state::PROTOCOL, text)));
    }
    let start = ScramStart {
        address: Some(peer.ip()),
        user,
        client_first: &data,
        is_bound: mechanism == BOUND_MECHANISM,
        end_point: end_point.as_deref(),
    };
    let (exchange, answer) = match here.access.start_scram(start) {
        Ok(begun) => begun,
        Err(error) => {
            let text = error.to_string();
            sql.audit_login(peer, user, Some(&text));
            // A name with too many failures is refused here, as slowly as a wrong password.
            lanes::time::sleep(sql.config().auth_failure_delay).await;
            let code = match error {
                // The code of a wrong password: connection pools then stop instead of retrying.
                AuthError::Overloaded(_) => state::PASSWORD,
                AuthError::Refused(_) => state::PROTOCOL,
            };
            return Err(End::Failed(Failure::fatal(code, text)));
        }
    };
    connection.put(&Authentication::SASLContinue(Bytes::from(answer)))?;
    connection.flush().await?;
    let last = connection.next().await?.body.sasl_data();
    match here.access.end_scram(exchange, &last) {
        Ok((login, answer)) => {
            sql.audit_login(peer, user, None);
            connection.put(&Authentication::SASLFinal(Bytes::from(answer)))?;
            Ok(login)
        }
        Err(error) => Err(wrong_password(sql, here, user, peer, &error).await),
    }
}

/// Makes a failure fatal: before login every error ends the connection.
pub(crate) fn fatal(failure: Failure) -> End {
    End::Failed(Failure { is_fatal: true, ..failure })
}
