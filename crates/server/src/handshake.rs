//! From the first byte to an authenticated session: OPTIONS, STARTUP and AUTH_RESPONSE, one at a
//! time. None of this is performance-critical. All of it runs in the `driver` group under one time
//! limit.

use std::rc::Rc;

use access::{AuthError, ClusterLogin, Login};
use cluster::Refusal;
use wire::{Compression, Envelope, Failure, FailureKind, Framing, Opcode, Request};

use crate::audit;
use crate::connection::Connection;
use crate::counters::add;
use crate::failure;
use crate::options::supported;
use crate::output::Ended;

/// Authenticator class that tells drivers to send a name and a password.
const AUTHENTICATOR: &str = "org.apache.cassandra.auth.PasswordAuthenticator";

/// Login that needs no password, with its role at the nodes of a cluster.
type KnownLogin = (Login, Option<Rc<cluster::Role>>);

/// Runs the handshake until the session is authenticated.
pub(crate) async fn handshake(connection: &mut Connection) -> Result<(), Ended> {
    if let Some((login, remote)) = startup(connection).await? {
        enter(connection, &login, connection.decoder.last_stream()).await?;
        if connection.session.core.shared.config.authenticate {
            audit::login(&connection.session, login.role(), None);
        }
        connection.session.log_in(login, remote);
        return Ok(());
    }
    loop {
        let envelope = connection.next().await?;
        match decode(&envelope, Opcode::AuthResponse) {
            Ok(Request::Options) => supported(&connection.session, envelope.stream),
            Ok(Request::AuthResponse(token)) => {
                if authenticate(connection, envelope.stream, token).await? {
                    return Ok(());
                }
            }
            Ok(_) => unreachable!("only these are decoded"),
            Err(failure) => connection.session.refuse(envelope.stream, &failure),
        }
    }
}

/// Returns the session's login if no password is needed: authentication is off, or the client's
/// certificate names a role that may log in.
fn login_without_password(connection: &Connection) -> Option<Login> {
    let access = &connection.session.core.access;
    if let Some(front) = &connection.session.core.front {
        return front.shared().authenticator().is_none().then(|| access.anonymous());
    }
    if !connection.session.core.shared.config.authenticate {
        return Some(access.anonymous());
    }
    connection
        .session
        .client
        .certificate_subject
        .borrow()
        .as_deref()
        .and_then(|name| access.log_in_by_certificate(name))
}

/// Reads messages until STARTUP is answered. Returns the session's login if no password is
/// needed.
async fn startup(connection: &mut Connection) -> Result<Option<KnownLogin>, Ended> {
    loop {
        let envelope = connection.next().await?;
        connection.session.outgoing.encoder.borrow_mut().set_version(envelope.version);
        let config = &connection.session.core.shared.config;
        if !connection.session.client.is_encrypted.get() && !config.takes_plaintext_cql() {
            let text = "This server takes encrypted connections only: connect with TLS";
            connection.session.refuse(envelope.stream, &failure::protocol(text));
            return Err(Ended::Refused);
        }
        let version_max = connection.session.core.front.as_ref().map(|front| front.shared().version());
        if version_max.is_some_and(|max| envelope.version.number() > max.number()) {
            let unsupported = wire::Error::UnsupportedVersion(envelope.version.number());
            return Err(connection.refuse_frame(&unsupported));
        }
        let refused = match decode(&envelope, Opcode::Startup) {
            Ok(Request::Options) => {
                supported(&connection.session, envelope.stream);
                continue;
            }
            Ok(Request::Startup(options)) => {
                let login = match login_without_password(connection) {
                    Some(login) => Some((login, remote_without_password(connection, &envelope).await?)),
                    None => None,
                };
                match answer_startup(connection, &envelope, &options, login.is_some()) {
                    Ok(()) => return Ok(login),
                    Err(failure) => failure,
                }
            }
            Ok(_) => unreachable!("only these are decoded"),
            Err(failure) => failure,
        };
        connection.session.refuse(envelope.stream, &refused);
    }
}

/// Decodes a permitted message: OPTIONS or `expected`. Refuses others by their opcode, without
/// reading the body.
fn decode(envelope: &Envelope, expected: Opcode) -> Result<Request<'_>, Failure> {
    if envelope.opcode == Opcode::Options || envelope.opcode == expected {
        return envelope.request().map_err(|error| Failure::from(&error));
    }
    let found = format!("{:?}", envelope.opcode).to_uppercase();
    let expected = if expected == Opcode::Startup { "STARTUP or OPTIONS" } else { "AUTH_RESPONSE" };
    Err(failure::protocol(&format!("Unexpected message {found}, expecting {expected}")))
}

/// Answers STARTUP in the old framing, then changes the framing.
fn answer_startup(
    connection: &mut Connection,
    envelope: &Envelope,
    options: &[(&str, &str)],
    is_known: bool,
) -> Result<(), Failure> {
    debug_assert_eq!(envelope.opcode, Opcode::Startup);
    let named = |key: &str| options.iter().find(|(k, _)| k.eq_ignore_ascii_case(key)).map(|(_, v)| *v);
    if named("CQL_VERSION").is_none() {
        return Err(failure::protocol("Missing value CQL_VERSION in STARTUP message"));
    }
    let compression = match named("COMPRESSION") {
        None => Compression::None,
        Some(name) => Compression::from_name(name)
            .ok_or_else(|| failure::protocol(&format!("Unknown compression algorithm: {name}")))?,
    };
    let framing =
        Framing::after_startup(envelope.version, compression).map_err(|error| Failure::from(&error))?;
    let mut encoder = connection.session.outgoing.encoder.borrow_mut();
    if is_known {
        encoder.ready(envelope.stream);
    } else {
        let front = connection.session.core.front.as_ref();
        let of_cluster = front.and_then(|front| front.shared().authenticator());
        encoder.authenticate(envelope.stream, of_cluster.unwrap_or(AUTHENTICATOR)).expect("a short name");
    }
    encoder.set_framing(framing);
    drop(encoder);
    connection.session.client.started(envelope.version, named);
    connection.decoder.set_framing(framing);
    connection.started = true;
    Ok(())
}

/// Checks a name and a password. Returns true if they are right.
async fn authenticate(connection: &mut Connection, stream: i16, token: Option<&[u8]>) -> Result<bool, Ended> {
    let core = connection.session.core.clone();
    let Some((name, password)) = token.and_then(plain) else {
        let text = "Malformed SASL PLAIN token: expected \\0name\\0password in UTF-8";
        connection.session.refuse(stream, &failure::protocol(text));
        return count_refusal(connection);
    };
    if let Some(front) = &core.front {
        let version = connection.session.outgoing.encoder.borrow().version();
        let login = ClusterLogin { address: connection.session.peer.ip(), version, name, password };
        return match core.access.log_in_at_cluster(front, login).await {
            Ok(result) => relayed_login(connection, stream, name, result).await,
            Err(error) => refuse_login(connection, stream, name, error).await,
        };
    }
    match core.access.authenticate_from(Some(connection.session.peer.ip()), name, password).await {
        Ok(login) => {
            enter(connection, &login, stream).await?;
            audit::login(&connection.session, name, None);
            connection.session.log_in(login, None);
            let mut encoder = connection.session.outgoing.encoder.borrow_mut();
            encoder.auth_success(stream, None).expect("no token");
            Ok(true)
        }
        Err(error) => refuse_login(connection, stream, name, error).await,
    }
}

async fn refuse_login(
    connection: &mut Connection,
    stream: i16,
    name: &str,
    error: AuthError,
) -> Result<bool, Ended> {
    let (kind, text) = match error {
        AuthError::Refused(text) => (FailureKind::Authentication, text),
        AuthError::Overloaded(text) => (FailureKind::Overloaded, text),
    };
    let core = connection.session.core.clone();
    audit::login(&connection.session, name, Some(&text));
    // Delay the refusal, which slows down password guessing on each connection.
    lanes::time::sleep(core.shared.config.auth_failure_delay).await;
    add(&core.counters.auth_failures, 1);
    connection.session.refuse(stream, &Failure::new(kind, text));
    count_refusal(connection)
}

/// Opens the session of a role that the cluster has judged. Returns true if it was accepted.
async fn relayed_login(
    connection: &mut Connection,
    stream: i16,
    name: &str,
    result: Result<(Login, Rc<cluster::Role>), Refusal>,
) -> Result<bool, Ended> {
    let core = connection.session.core.clone();
    let session = connection.session.clone();
    match result {
        Ok((login, remote)) => {
            enter(connection, &login, stream).await?;
            audit::login(&session, name, None);
            session.log_in(login, Some(remote));
            session.outgoing.encoder.borrow_mut().auth_success(stream, None).expect("no token");
            return Ok(true);
        }
        Err(Refusal::Answered(answer) | Refusal::Credentials(answer)) => {
            audit::login(&session, name, Some("refused by the cluster"));
            lanes::time::sleep(core.shared.config.auth_failure_delay).await;
            add(&core.counters.auth_failures, 1);
            let mut encoder = session.outgoing.encoder.borrow_mut();
            let _ = encoder.relay(stream, answer.opcode, answer.flags, &answer.body);
        }
        Err(refusal) => {
            // No password was judged.
            session.refuse(stream, &unreachable_cluster(&refusal));
            return Ok(false);
        }
    }
    count_refusal(connection)
}

fn unreachable_cluster(refusal: &Refusal) -> Failure {
    Failure::new(FailureKind::Overloaded, format!("The cluster cannot be asked: {refusal}"))
}

/// Returns the role of a session at a cluster that wants no credentials.
async fn remote_without_password(
    connection: &Connection,
    startup: &Envelope,
) -> Result<Option<Rc<cluster::Role>>, Ended> {
    let session = &connection.session;
    let Some(front) = session.core.front.clone() else { return Ok(None) };
    let group = session.core.access.effective(&session.core.access.anonymous()).group();
    match front.log_in(startup.version, "anonymous", None, group).await {
        Ok(role) => Ok(Some(role)),
        Err(refusal) => {
            session.refuse(startup.stream, &unreachable_cluster(&refusal));
            Err(Ended::Refused)
        }
    }
}

/// Counts the connection as a session. Refuses a client over a limit.
async fn enter(connection: &Connection, login: &Login, stream: i16) -> Result<(), Ended> {
    let core = &connection.session.core;
    let entered = connection.slot.enter(login.role(), core.access.is_superuser(login)).await;
    entered.map_err(|refused| {
        add(&core.counters.refused, 1);
        let text = format!("Too many connections: {refused}");
        connection.session.refuse(stream, &Failure::new(FailureKind::Overloaded, text));
        Ended::Refused
    })
}

fn count_refusal(connection: &mut Connection) -> Result<bool, Ended> {
    connection.wrong_passwords += 1;
    let failures_max = connection.session.core.shared.config.auth_failures_max;
    if connection.wrong_passwords >= failures_max { Err(Ended::Refused) } else { Ok(false) }
}

/// Returns name and password of a SASL PLAIN token: `[authorization] 0 name 0 password`.
fn plain(token: &[u8]) -> Option<(&str, &str)> {
    let mut parts = token.splitn(3, |&byte| byte == 0);
    let (_, name, password) = (parts.next()?, parts.next()?, parts.next()?);
    let (name, password) = (std::str::from_utf8(name).ok()?, std::str::from_utf8(password).ok()?);
    (!name.is_empty() && !password.contains('\0')).then_some((name, password))
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn tokens_are_taken_apart() {
        let check = |token: &[u8], expected| assert_eq!(plain(token), expected, "{token:?}");
        check(b"\0ann\0secret", Some(("ann", "secret")));
        check(b"other\0ann\0secret", Some(("ann", "secret")));
        check(b"\0ann\0", Some(("ann", "")));
        check(b"\0ann", None);
        check(b"", None);
        check(b"\0\0secret", None);
        check(b"\0ann\0se\0cret", None);
        check(b"\0a\xff\0secret", None);
    }
}
