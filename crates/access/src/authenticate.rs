//! Checks of passwords that clients send in full. The hashing runs on the heavy lane, in the
//! `driver` level. A name without a verifier is checked against a decoy, which takes the same time.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use lanes::Group;

use crate::access::Access;
use crate::attempts::{Attempt, CHECKS_MAX, Refusal, Slots};
use crate::login::Login;
use crate::plan::Actor;
use crate::scram::{ITERATIONS, PASSWORD_BYTES_MAX};
use crate::verifier::Verifier;

/// Longest part of a user name that messages repeat, in characters.
const NAME_CHARS_MAX: usize = 255;

/// Reason for rejecting a client. The text is for the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AuthError {
    /// Wrong name or password, or a role that may not log in: BadCredentials (0x0100).
    Refused(String),
    /// Too many checks in progress, or too many failures: Overloaded (0x1001).
    Overloaded(String),
}

impl fmt::Display for AuthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (AuthError::Refused(text) | AuthError::Overloaded(text)) = self;
        f.write_str(text)
    }
}

impl std::error::Error for AuthError {}

impl Access {
    /// Checks a name and password like [`Access::authenticate_from`], for callers inside the
    /// server.
    ///
    /// # Errors
    /// Returns the errors of [`Access::authenticate_from`].
    pub async fn authenticate(&self, user: &str, password: &str) -> Result<Login, AuthError> {
        self.authenticate_from(None, user, password).await
    }

    /// Checks a name and password from a client at `address`. Takes the same time for unknown
    /// names.
    ///
    /// # Errors
    /// Returns [`AuthError::Refused`] for a wrong name or password, or a role that may not log in.
    /// Returns [`AuthError::Overloaded`] while the limits on checks are reached.
    pub fn authenticate_from<'a>(
        &'a self,
        address: Option<IpAddr>,
        user: &'a str,
        password: &'a str,
    ) -> lanes::LocalBoxFuture<'a, Result<Login, AuthError>> {
        Box::pin(async move {
            let attempt = self.begin_login(address, user)?;
            if password.is_empty() || password.len() > PASSWORD_BYTES_MAX {
                return Err(refused(user));
            }
            let checked = self.verifier_of(user);
            let is_superuser = self.snapshot().roles.is_superuser(user);
            let _slots = self.take_slots(attempt, checked.verifier.iterations(), is_superuser)?;
            let verifier = checked.verifier.clone();
            let password = password.to_owned();
            let check = async move { verifier.accepts(&password).await };
            let accepted = lanes::heavy_urgent(Group::DRIVER, check).await;
            self.admit(attempt, user, &checked, accepted)
        })
    }

    /// True unless the role has a bcrypt hash, which SCRAM cannot check: its client sends the
    /// password in full. True for unknown names.
    #[must_use]
    pub fn takes_scram(&self, user: &str) -> bool {
        self.verifier_of(user).verifier.scram().is_some()
    }

    /// Begins a login whose password is checked elsewhere, within the limits of
    /// [`Access::authenticate_from`].
    ///
    /// # Errors
    /// Returns [`AuthError::Overloaded`] if the name failed too often at its address.
    pub fn begin_login(&self, address: Option<IpAddr>, user: &str) -> Result<Attempt, AuthError> {
        let attempt = self.attempts.attempt(user, address);
        self.check_failures(attempt, user)?;
        Ok(attempt)
    }

    /// Takes the slot of a password check elsewhere, until the result is dropped. A password that
    /// needs no check needs no slot. Superusers that are known have slots of their own.
    ///
    /// # Errors
    /// Returns [`AuthError::Overloaded`] if the name, its address or this core has too many checks
    /// in progress.
    pub fn take_slot(&self, attempt: Attempt, user: &str) -> Result<Slots<'_>, AuthError> {
        self.take_slots(attempt, ITERATIONS, self.snapshot().roles.is_superuser(user))
    }

    fn take_slots(
        &self,
        attempt: Attempt,
        iterations: u32,
        is_superuser: bool,
    ) -> Result<Slots<'_>, AuthError> {
        self.attempts.take(attempt, iterations, is_superuser).map_err(|_| {
            AuthError::Overloaded(format!(
                "The service level 'driver' is overloaded: the {CHECKS_MAX} slots for password checks on this core \
                 are taken. Try again in {CHECKS_MAX} ms."
            ))
        })
    }

    /// Charges a wrong name or password.
    pub fn login_failed(&self, attempt: Attempt) {
        self.attempts.failed(attempt, lanes::time::monotonic_ns());
    }

    /// Opens a session for the role in a client's certificate, which the listener has verified.
    /// Returns `None` if the role does not exist or may not log in. The session ends, like any
    /// other, when the role is dropped, loses LOGIN or gets another password.
    #[must_use]
    pub fn log_in_by_certificate(&self, name: &str) -> Option<Login> {
        let snapshot = self.snapshot();
        let (name, role) = snapshot.roles.get_key_value(name).filter(|(_, role)| role.can_login)?;
        let actor = Actor { role: name.clone(), id: role.id, anonymous: false };
        Some(self.log_in(actor, role.verifier.clone()))
    }

    /// Rejects a login if its name failed too often at its address.
    pub(crate) fn check_failures(&self, attempt: Attempt, user: &str) -> Result<(), AuthError> {
        match self.attempts.check_failures(attempt, lanes::time::monotonic_ns()) {
            Err(Refusal::Failures { retry_s }) => Err(AuthError::Overloaded(format!(
                "Too many logins of {} failed from this address. Try again in {retry_s} s.",
                truncated_name(user)
            ))),
            _ => Ok(()),
        }
    }

    /// Returns the verifier of a name, or its decoy.
    pub(crate) fn verifier_of(&self, user: &str) -> Checked {
        let snapshot = self.snapshot();
        match snapshot.roles.get(user).and_then(|role| role.verifier.clone()) {
            Some(verifier) => Checked { verifier, is_known: true },
            None => self.decoy_of(user),
        }
    }

    /// Returns the decoy of a name.
    pub(crate) fn decoy_of(&self, user: &str) -> Checked {
        let secret = &self.shared.decoy_secret;
        let iterations = self.snapshot().roles.decoy_iterations(secret, user);
        let verifier = Arc::new(Verifier::decoy(secret, user, iterations));
        Checked { verifier, is_known: false }
    }

    /// Opens a session after a successful check, or charges a failure. Checks the role again,
    /// because it may have changed during the check.
    pub(crate) fn admit(
        &self,
        attempt: Attempt,
        user: &str,
        checked: &Checked,
        accepted: bool,
    ) -> Result<Login, AuthError> {
        let snapshot = self.snapshot();
        let still_checked = |verifier: &Arc<Verifier>| verifier.is_same(&checked.verifier);
        let role = snapshot.roles.get_key_value(user).filter(|(_, role)| {
            checked.is_known & accepted && role.verifier.as_ref().is_some_and(still_checked)
        });
        let Some((name, role)) = role else {
            self.login_failed(attempt);
            return Err(refused(user));
        };
        if !role.can_login {
            return Err(AuthError::Refused(format!("{name} is not permitted to log in")));
        }
        let actor = Actor { role: name.clone(), id: role.id, anonymous: false };
        Ok(self.log_in(actor, role.verifier.clone()))
    }
}

/// Verifier to check a login against.
pub(crate) struct Checked {
    pub(crate) verifier: Arc<Verifier>,
    /// True for the verifier of a role, false for a decoy.
    is_known: bool,
}

fn truncated_name(user: &str) -> String {
    user.chars().take(NAME_CHARS_MAX).collect()
}

/// Returns the error for a wrong name or password.
pub(crate) fn refused(user: &str) -> AuthError {
    AuthError::Refused(format!("Provided username {} and/or password are incorrect", truncated_name(user)))
}
