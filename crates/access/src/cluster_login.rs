//! Logins of clients at the cluster in front of which this server stands. The cluster judges the
//! password. Here failed logins and checks in flight are limited, as on one machine.

use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use cluster::{ClusterRole, Front, Refusal, Role};
use cql::ast::{ListServiceLevels, Statement};
use wire::{Envelope, FailureKind, Version};

use crate::access::Access;
use crate::authenticate::AuthError;
use crate::login::Login;

/// Interval between two LIST ROLES of a role.
const ASK_EVERY: Duration = Duration::from_secs(60);

/// Time limit of a login at the nodes: less than listeners give a client, so that it gets an error
/// and not the end of its connection.
const ANSWERED_WITHIN: Duration = Duration::from_secs(8);

/// A name and a password, for a cluster.
#[derive(Clone, Copy)]
pub struct ClusterLogin<'a> {
    /// The client's address, for the limits on failures.
    pub address: IpAddr,
    /// Protocol version of the connection that a login opens.
    pub version: Version,
    /// The role.
    pub name: &'a str,
    /// Its password, without zero bytes.
    pub password: &'a str,
}

impl std::fmt::Debug for ClusterLogin<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ClusterLogin({}, *****)", self.name)
    }
}

impl Access {
    /// Asks the cluster to check a name and a password, and for the roles granted to the role. A
    /// password that it has accepted lately is right.
    ///
    /// # Errors
    /// The limits of logins are reached, and the cluster was not asked. The inner error is the
    /// cluster's refusal, or [`Refusal::Unsent`].
    pub async fn log_in_at_cluster(
        &self,
        front: &Front,
        login: ClusterLogin<'_>,
    ) -> Result<Result<(Login, Rc<Role>), Refusal>, AuthError> {
        let ClusterLogin { address, version, name, password } = login;
        let attempt = self.begin_login(Some(address), name)?;
        // Without the first part, which may differ: equal passwords are one token.
        let token = Bytes::from(format!("\0{name}\0{password}"));
        if let Some(role) = front.kept_login(name, &token) {
            match self.follow_role(front, &role).await {
                // A node refuses the password that was kept: the cluster is asked for this one.
                Err(Refusal::Ended) => {}
                followed => return Ok(followed.and_then(|()| self.copied(role))),
            }
        }
        let slot = self.take_slot(attempt, name)?;
        let asked = async move {
            let result = front.log_in(version, name, Some(token), self.handshake().group()).await;
            drop(slot);
            if matches!(result, Err(Refusal::Credentials(_))) {
                self.login_failed(attempt);
            }
            let role = result?;
            self.follow_role(front, &role).await?;
            self.copied(role)
        };
        Ok(lanes::time::timeout(ANSWERED_WITHIN, asked).await.unwrap_or_else(|_| {
            let s = ANSWERED_WITHIN.as_secs();
            Err(Refusal::Unsent(format!("no node has checked the password within {s} s")))
        }))
    }

    /// Opens the session of a role. Core 0 may have dropped its copy at this moment.
    fn copied(&self, role: Rc<Role>) -> Result<(Login, Rc<Role>), Refusal> {
        let name = role.name();
        let forgotten = || Refusal::Unsent(format!("role {name} was forgotten meanwhile, log in again"));
        let login = self.relayed(name).ok_or_else(forgotten)?;
        Ok((login, role))
    }

    /// Asks the cluster for the roles granted to a role that has logged in, unless it was asked
    /// within [`ASK_EVERY`].
    ///
    /// # Errors
    /// No node answers, one refuses the password that was kept, or all roles would exceed their
    /// memory.
    pub async fn follow_role(&self, front: &Front, role: &Rc<Role>) -> Result<(), Refusal> {
        let name = role.name();
        if !role.has_to_ask_for_roles(ASK_EVERY.as_nanos() as u64) && self.knows_role(name) {
            return Ok(());
        }
        let granted = match front.granted_roles(role, front.shared().version(), name).await {
            Ok(granted) => granted,
            // A cluster that lists no roles: the role has no others.
            Err(Refusal::Answered(answer)) if is_judgement(&answer) => {
                vec![ClusterRole { name: name.to_string(), can_login: true, is_superuser: false }]
            }
            Err(Refusal::Answered(answer)) => {
                let refusal = Refusal::Answered(answer);
                return Err(Refusal::Unsent(format!("it does not list the roles of {name}: {refusal}")));
            }
            Err(other) => return Err(other),
        };
        self.copy_role(name, granted).await.map_err(|error| Refusal::NoMemory(error.to_string()))?;
        role.asked_for_roles();
        Ok(())
    }

    /// Returns the role that a statement on levels names, if this server has not heard of it, and
    /// the client may ask the cluster for it.
    pub fn unknown_role<'s>(&self, login: &Login, statement: &'s Statement) -> Option<&'s str> {
        let role = match statement {
            Statement::AttachServiceLevel(attach) => &attach.role,
            Statement::DetachServiceLevel(role) => role,
            Statement::ListServiceLevels(
                ListServiceLevels::AttachedTo(role) | ListServiceLevels::EffectiveOf(role),
            ) => role,
            _ => return None,
        };
        (self.follows_cluster() && self.is_superuser(login) && !self.knows_role(role)).then_some(role)
    }

    /// Returns the role that a text names, as [`Access::unknown_role`] does. For listeners with a
    /// language other than CQL.
    pub fn unknown_role_in(&self, login: &Login, text: &str) -> Option<String> {
        let statement = cql::parse(text).ok()?;
        self.unknown_role(login, &statement).map(str::to_owned)
    }

    /// Asks the cluster for a role, with the rights of the role `of` of a session.
    ///
    /// # Errors The cluster does not know the role or cannot be asked, or all roles would exceed
    /// their memory.
    pub async fn learn_role(
        &self,
        front: &Front,
        of: &Rc<Role>,
        version: Version,
        role: &str,
    ) -> Result<(), Refusal> {
        let granted = front.granted_roles(of, version, role).await?;
        self.copy_role(role, granted).await.map_err(|error| Refusal::Unsent(error.to_string()))
    }
}

/// Returns true for an error that is about the question, and not about the state of the nodes.
fn is_judgement(answer: &Envelope) -> bool {
    answer.failure().is_some_and(|failure| {
        matches!(failure.kind, FailureKind::Syntax | FailureKind::Invalid | FailureKind::Unauthorized)
    })
}
