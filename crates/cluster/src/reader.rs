//! Reads of one session on all cores: SQL scans run everywhere, and a client logs in on one core.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use lanes::PerCore;
use wire::Consistency;

use crate::front::Front;
use crate::role::Role;

/// The role of a session on every core, with the password of its login.
pub struct SessionRoles {
    of: PerCore<Role>,
    /// True once a node has refused the password, to whichever core.
    is_ended: Arc<AtomicBool>,
}

impl std::fmt::Debug for SessionRoles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionRoles").field("is_ended", &self.is_ended).finish_non_exhaustive()
    }
}

impl SessionRoles {
    /// Lets a role that has logged in on this core read on every core. Connections are opened there
    /// when they are needed. `front` returns the front of the core that calls it, if it is open.
    pub async fn open(
        role: Rc<Role>,
        front: impl Fn() -> Option<Rc<Front>> + Clone + Send + 'static,
    ) -> Arc<SessionRoles> {
        let roles = Arc::new(SessionRoles { of: PerCore::new(), is_ended: Arc::default() });
        let login = role.login();
        roles.set(role);
        for core in (0..lanes::cores()).filter(|core| *core != lanes::current_core()) {
            let (roles, login, front) = (roles.clone(), login.clone(), front.clone());
            let adopt =
                move || async move { front().iter().for_each(|front| roles.set(front.adopt(&login))) };
            lanes::call(core, adopt).await;
        }
        roles
    }

    fn set(&self, role: Rc<Role>) {
        role.on_end(&self.is_ended);
        self.of.set(role);
    }

    /// Returns the role on this core. `None`: the server is stopping.
    pub fn here(&self) -> Option<Rc<Role>> {
        self.of.get()
    }

    /// Returns true once a node has refused the password. The session ends.
    pub fn is_ended(&self) -> bool {
        self.is_ended.load(Relaxed)
    }
}

/// Reader of the cluster's tables, which viewers of statements return (`engine::Viewer::reader`).
#[derive(Clone, Debug)]
pub struct Reader {
    /// Roles whose connections read.
    pub roles: Arc<SessionRoles>,
    /// Consistency of each page.
    pub consistency: Consistency,
}
