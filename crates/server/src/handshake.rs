//! From the first byte to an authenticated session: OPTIONS, STARTUP and AUTH_RESPONSE, one at a
//! time. None of this is performance-critical. All of it runs in the `driver` group under one time
//! limit.

use access::{AuthError, Login};
use wire::{Compression, Envelope, Failure, FailureKind, Framing, Opcode, Request};

use crate::connection::{Connection, Ended};
use crate::request::protocol;
use crate::session::Session;

/// Authenticator class that tells drivers to send a name and a password.
const AUTHENTICATOR: &str = "org.apache.cassandra.auth.PasswordAuthenticator";

/// Number of a token's most significant bits that ScyllaDB's sharding ignores: its default.
pub(crate) const IGNORE_MSB: u32 = 12;

/// Name of the partitioner.
pub(crate) const PARTITIONER: &str = "org.apache.cassandra.dht.Murmur3Partitioner";

/// CQL version announced to clients.
pub(crate) const CQL_VERSION: &str = "3.4.7";

impl Connection {
    /// Runs the handshake until the session is authenticated.
    pub(crate) async fn handshake(&mut self) -> Result<(), Ended> {
        let login = self.startup().await?;
        if let Some(login) = login {
            self.enter(&login, self.decoder.last_stream()).await?;
            if self.session.core.shared.config.authenticate {
                self.session.audit_login(login.role(), None);
            }
            self.session.log_in(login);
            return Ok(());
        }
        loop {
            let envelope = self.next().await?;
            match self.decode(&envelope, Opcode::AuthResponse) {
                Ok(Request::Options) => self.session.supported(envelope.stream),
                Ok(Request::AuthResponse(token)) => {
                    if self.authenticate(envelope.stream, token).await? {
                        return Ok(());
                    }
                }
                Ok(_) => unreachable!("only these are decoded"),
                Err(failure) => self.session.refuse(envelope.stream, &failure),
            }
        }
    }

    /// Returns the session's login if no password is needed: authentication is off, or the client's
    /// certificate names a role that may log in.
    fn login_without_password(&self) -> Option<Login> {
        let access = &self.session.core.access;
        if !self.session.core.shared.config.authenticate {
            return Some(access.anonymous());
        }
        self.session
            .client
            .certificate_subject
            .borrow()
            .as_deref()
            .and_then(|name| access.log_in_by_certificate(name))
    }

    /// Reads messages until STARTUP is answered. Returns the session's login if no password is
    /// needed.
    async fn startup(&mut self) -> Result<Option<Login>, Ended> {
        loop {
            let envelope = self.next().await?;
            self.session.encoder.borrow_mut().set_version(envelope.version);
            let config = &self.session.core.shared.config;
            if !self.session.client.is_encrypted.get() && !config.takes_plaintext_cql() {
                let text = "This server takes encrypted connections only: connect with TLS";
                self.session.refuse(envelope.stream, &protocol(text));
                return Err(Ended::Refused);
            }
            let refused = match self.decode(&envelope, Opcode::Startup) {
                Ok(Request::Options) => {
                    self.session.supported(envelope.stream);
                    continue;
                }
                Ok(Request::Startup(options)) => {
                    let login = self.login_without_password();
                    match self.answer_startup(&envelope, &options, login.is_some()) {
                        Ok(()) => return Ok(login),
                        Err(failure) => failure,
                    }
                }
                Ok(_) => unreachable!("only these are decoded"),
                Err(failure) => failure,
            };
            self.session.refuse(envelope.stream, &refused);
        }
    }

    /// Decodes a permitted message: OPTIONS or `expected`. Refuses others by their opcode, without
    /// reading the body.
    fn decode<'a>(&self, envelope: &'a Envelope, expected: Opcode) -> Result<Request<'a>, Failure> {
        if envelope.opcode == Opcode::Options || envelope.opcode == expected {
            return envelope.request().map_err(|error| Failure::from(&error));
        }
        let found = format!("{:?}", envelope.opcode).to_uppercase();
        let expected = if expected == Opcode::Startup { "STARTUP or OPTIONS" } else { "AUTH_RESPONSE" };
        Err(protocol(&format!("Unexpected message {found}, expecting {expected}")))
    }

    /// Answers STARTUP in the old framing, then changes the framing.
    fn answer_startup(
        &mut self,
        envelope: &Envelope,
        options: &[(&str, &str)],
        is_known: bool,
    ) -> Result<(), Failure> {
        debug_assert_eq!(envelope.opcode, Opcode::Startup);
        let named = |key: &str| options.iter().find(|(k, _)| k.eq_ignore_ascii_case(key)).map(|(_, v)| *v);
        if named("CQL_VERSION").is_none() {
            return Err(protocol("Missing value CQL_VERSION in STARTUP message"));
        }
        let compression = match named("COMPRESSION") {
            None => Compression::None,
            Some(name) => Compression::from_name(name)
                .ok_or_else(|| protocol(&format!("Unknown compression algorithm: {name}")))?,
        };
        let framing =
            Framing::after_startup(envelope.version, compression).map_err(|error| Failure::from(&error))?;
        let mut encoder = self.session.encoder.borrow_mut();
        if is_known {
            encoder.ready(envelope.stream);
        } else {
            encoder.authenticate(envelope.stream, AUTHENTICATOR).expect("a short name");
        }
        encoder.set_framing(framing);
        drop(encoder);
        self.session.client.started(envelope.version, named);
        self.decoder.set_framing(framing);
        self.started = true;
        Ok(())
    }

    /// Checks a name and a password. Returns true if they are right.
    async fn authenticate(&mut self, stream: i16, token: Option<&[u8]>) -> Result<bool, Ended> {
        let core = self.session.core.clone();
        let Some((name, password)) = token.and_then(plain) else {
            let text = "Malformed SASL PLAIN token: expected \\0name\\0password in UTF-8";
            self.session.refuse(stream, &protocol(text));
            return self.count_refusal();
        };
        match core.access.authenticate_from(Some(self.session.peer.ip()), name, password).await {
            Ok(login) => {
                self.enter(&login, stream).await?;
                self.session.audit_login(name, None);
                self.session.log_in(login);
                let mut encoder = self.session.encoder.borrow_mut();
                encoder.auth_success(stream, None).expect("no token");
                Ok(true)
            }
            Err(error) => {
                let (kind, text) = match error {
                    AuthError::Refused(text) => (FailureKind::Authentication, text),
                    AuthError::Overloaded(text) => (FailureKind::Overloaded, text),
                };
                self.session.audit_login(name, Some(&text));
                // Delay the refusal, which slows down password guessing on each connection.
                lanes::time::sleep(core.shared.config.auth_failure_delay).await;
                crate::counters::add(&core.counters.auth_failures, 1);
                self.session.refuse(stream, &Failure::new(kind, text));
                self.count_refusal()
            }
        }
    }

    /// Counts the connection as a session. Refuses a client over a limit.
    async fn enter(&self, login: &Login, stream: i16) -> Result<(), Ended> {
        let core = &self.session.core;
        let entered = self.slot.enter(login.role(), core.access.is_superuser(login)).await;
        entered.map_err(|refused| {
            crate::counters::add(&core.counters.refused, 1);
            let text = format!("Too many connections: {refused}");
            self.session.refuse(stream, &Failure::new(FailureKind::Overloaded, text));
            Ended::Refused
        })
    }

    fn count_refusal(&mut self) -> Result<bool, Ended> {
        self.wrong_passwords += 1;
        let failures_max = self.session.core.shared.config.auth_failures_max;
        if self.wrong_passwords >= failures_max { Err(Ended::Refused) } else { Ok(false) }
    }
}

/// Returns name and password of a SASL PLAIN token: `[authorization] 0 name 0 password`.
fn plain(token: &[u8]) -> Option<(&str, &str)> {
    let mut parts = token.splitn(3, |&byte| byte == 0);
    let (_, name, password) = (parts.next()?, parts.next()?, parts.next()?);
    let (name, password) = (std::str::from_utf8(name).ok()?, std::str::from_utf8(password).ok()?);
    (!name.is_empty() && !password.contains('\0')).then_some((name, password))
}

impl Session {
    /// Answers OPTIONS.
    pub(crate) fn supported(&self, stream: i16) {
        let shared = &self.core.shared;
        let mut options: Vec<(&str, Vec<String>)> = vec![
            ("PROTOCOL_VERSIONS", vec!["4/v4".to_owned(), "5/v5".to_owned()]),
            ("COMPRESSION", vec!["snappy".to_owned(), "lz4".to_owned()]),
            ("CQL_VERSION", vec![CQL_VERSION.to_owned()]),
        ];
        if let Some(port) = shared.bound.get().and_then(|bound| bound.shard_aware).map(|at| at.port()) {
            let mut put = |key, value: String| options.push((key, vec![value]));
            put("SCYLLA_SHARD", self.core.index.to_string());
            put("SCYLLA_NR_SHARDS", shared.counters.len().to_string());
            put("SCYLLA_PARTITIONER", PARTITIONER.to_owned());
            put("SCYLLA_SHARDING_ALGORITHM", "biased-token-round-robin".to_owned());
            put("SCYLLA_SHARDING_IGNORE_MSB", IGNORE_MSB.to_string());
            // The same port accepts TLS: the first byte of a client decides.
            put("SCYLLA_SHARD_AWARE_PORT", port.to_string());
            if shared.config.tls.is_some() {
                put("SCYLLA_SHARD_AWARE_PORT_SSL", port.to_string());
            }
        }
        let options: Vec<(String, Vec<String>)> =
            options.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
        self.encoder.borrow_mut().supported(stream, &options).expect("short names");
    }
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
