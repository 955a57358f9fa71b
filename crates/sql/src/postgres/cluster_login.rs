//! Logins in front of a cluster: the cluster checks the password. A server in front of one has no
//! verifier for SCRAM, so that the client sends its password in clear text, over an encrypted
//! connection or on the same machine only.

use std::net::SocketAddr;
use std::rc::Rc;

use access::{AuthError, ClusterLogin, Login};
use cluster::{Front, Refusal, Role};

use crate::failure::{Failure, state};
use crate::postgres::connection::ClientConnection;
use crate::postgres::counts::add;
use crate::postgres::error::End;
use crate::postgres::login::clear_password;
use crate::postgres::server::{CoreState, Sql};

/// Logs a client in at the cluster.
///
/// # Errors
/// The client is refused or gone, or the cluster cannot be asked.
pub(crate) async fn log_in(
    sql: &Sql,
    here: &CoreState,
    front: &Front,
    connection: &mut ClientConnection,
    user: &str,
    peer: SocketAddr,
) -> Result<(Login, Rc<Role>), End> {
    let version = front.shared().version();
    if front.shared().authenticator().is_none() {
        let login = here.access.anonymous();
        let group = here.access.effective(&login).group();
        let role = front.log_in(version, "anonymous", None, group).await;
        return Ok((login, role.map_err(|refusal| no_login(&refusal))?));
    }
    let why = "passwords are sent in clear text in front of a cluster, which checks them";
    let password = clear_password(connection, peer, why).await?;
    let login = ClusterLogin { address: peer.ip(), version, name: user, password: &password };
    match here.access.log_in_at_cluster(front, login).await {
        Ok(Ok((login, role))) => {
            sql.audit_login(peer, user, None);
            Ok((login, role))
        }
        Ok(Err(refusal @ Refusal::Credentials(_))) => {
            sql.audit_login(peer, user, Some("refused by the cluster"));
            add(&here.counts.auth_failures, 1);
            lanes::time::sleep(sql.config().auth_failure_delay).await;
            Err(End::Failed(Failure::fatal(state::PASSWORD, refusal.to_string())))
        }
        // No password was judged.
        Ok(Err(refusal)) => Err(no_login(&refusal)),
        Err(AuthError::Refused(text) | AuthError::Overloaded(text)) => {
            sql.audit_login(peer, user, Some(&text));
            lanes::time::sleep(sql.config().auth_failure_delay).await;
            // The code of a wrong password: connection pools then stop instead of retrying.
            Err(End::Failed(Failure::fatal(state::PASSWORD, text)))
        }
    }
}

/// Returns the failure of what needs an answer of the cluster.
pub(crate) fn unreachable(refusal: &Refusal) -> Failure {
    Failure::new(state::NO_CLUSTER, format!("the cluster cannot be asked: {refusal}"))
}

fn no_login(refusal: &Refusal) -> End {
    End::Failed(Failure { is_fatal: true, ..unreachable(refusal) })
}
