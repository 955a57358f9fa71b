//! Session state: its role, rights and level. A session caches the results of its last lookup until
//! something changes that they depend on. Checking that they are current costs one atomic load.
//!
//! ```text
//!   Login ── Identity   role, its id and its verifier when the session began: decides if the session is current
//!     └───── View ─┬─── Rights     of the role and all roles granted to it; new when one of them changes
//!                  └─── Effective  level and limits; new when rights or levels change
//! ```
//!
//! All sessions of a role on a core share one view. A change of one role keeps the views of
//! unrelated roles.

use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use engine::Error;
use workload::{Catalog, Effective};

use crate::plan::Actor;
use crate::published::Published;
use crate::rights::Rights;
use crate::roles::{RoleName, Roles};
use crate::verifier::Verifier;
use crate::visibility::Visibility;

/// State that the sessions of a role on a core share.
pub(crate) struct View {
    pub(crate) effective: Rc<Effective>,
    pub(crate) rights: Rc<Rights>,
    levels: Arc<Catalog>,
    /// Visibility of rows, derived on first use.
    visibility: OnceCell<Arc<Visibility>>,
}

impl View {
    /// Creates the view that the sessions of a role share.
    pub(crate) fn of(role: &str, rights: Rc<Rights>, roles: &Roles, levels: &Arc<Catalog>) -> View {
        let effective = roles.effective(role, levels);
        let effective = Rc::new(effective.unwrap_or_else(|| Effective::of(levels.default_level())));
        View { effective, rights, levels: levels.clone(), visibility: OnceCell::new() }
    }

    /// Creates the view of a session without a role. It has all rights if authentication is off,
    /// and none if the session ended.
    pub(crate) fn without_role(number: u64, may_everything: bool, levels: &Arc<Catalog>) -> View {
        let rights = Rc::new(Rights::new(number, may_everything, Vec::new()));
        let effective = Rc::new(Effective::of(levels.default_level()));
        View { effective, rights, levels: levels.clone(), visibility: OnceCell::new() }
    }

    /// Returns the visibility of rows.
    pub(crate) fn visibility(&self) -> Arc<Visibility> {
        let visibility = || Arc::new(Visibility::of(&self.rights, self.effective.level.name()));
        self.visibility.get_or_init(visibility).clone()
    }

    /// True if its rights are current.
    pub(crate) fn has_current_rights(&self, roles: &Roles) -> bool {
        self.rights.is_current(roles)
    }

    /// True if its level is current, provided that its rights are.
    pub(crate) fn has_current_level(&self, levels: &Arc<Catalog>) -> bool {
        Arc::ptr_eq(&self.levels, levels)
    }
}

/// Identity of a session when it began.
pub(crate) struct Identity {
    pub(crate) actor: Actor,
    verifier: Option<Arc<Verifier>>,
    /// Runs once, when the session ends.
    on_end: RefCell<Option<Box<dyn FnOnce()>>>,
}

impl Identity {
    /// True if the role is the one that logged in, may log in, and has the same password.
    pub(crate) fn is_current(&self, roles: &Roles) -> bool {
        if self.actor.anonymous {
            return true;
        }
        let same_password = |now: &Option<Arc<Verifier>>| match (now, &self.verifier) {
            (Some(now), Some(then)) => Arc::ptr_eq(now, then) || now.is_same(then),
            (None, None) => true,
            _ => false,
        };
        roles
            .get(&self.actor.role)
            .is_some_and(|role| role.id == self.actor.id && role.can_login && same_password(&role.verifier))
    }

    /// Notifies the listener that the session ends.
    pub(crate) fn end(&self) {
        if let Some(on_end) = self.on_end.take() {
            on_end();
        }
    }
}

/// Session of a role. It stays on its core. Clones are cheap.
#[derive(Clone)]
pub struct Login {
    pub(crate) identity: Rc<Identity>,
    published: Arc<Published>,
    /// The latest version at which [`Login::is_current`] was checked, and its result.
    current: Cell<(u64, bool)>,
    /// The cached view and its version.
    pub(crate) cached_view: RefCell<(u64, Rc<View>)>,
}

impl Login {
    pub(crate) fn new(
        actor: Actor,
        verifier: Option<Arc<Verifier>>,
        published: Arc<Published>,
        stale: Rc<View>,
    ) -> Login {
        let identity = Rc::new(Identity { actor, verifier, on_end: RefCell::default() });
        // Version 0 is never current, so that the first use replaces this view.
        let cached_view = RefCell::new((0, stale));
        Login { identity, published, current: Cell::new((0, true)), cached_view }
    }

    /// Returns the role.
    #[must_use]
    pub fn role(&self) -> &RoleName {
        &self.identity.actor.role
    }

    pub(crate) fn actor(&self) -> &Actor {
        &self.identity.actor
    }

    /// True if the session may continue: its role still exists, is not a later one of the same
    /// name, may log in, and has the password of the session. Costs one atomic load while nothing
    /// changes anywhere.
    #[must_use]
    pub fn is_current(&self) -> bool {
        let version = self.published.version();
        let (known, is_current) = self.current.get();
        if known == version || !is_current {
            return is_current;
        }
        let is_current = self.identity.is_current(&self.published.load().roles);
        self.current.set((version, is_current));
        is_current
    }

    /// Registers `end`. It runs once, on this core, soon after [`Login::is_current`] turns false,
    /// so that idle sessions end too. A later call replaces an earlier one.
    pub fn on_end(&self, end: impl FnOnce() + 'static) {
        *self.identity.on_end.borrow_mut() = Some(Box::new(end));
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({})", self.role())
    }
}

/// Returns the error for a session that may not continue.
#[must_use]
pub fn ended(role: &str) -> Error {
    Error::Unauthorized(format!("Role {role} was dropped, lost LOGIN or got another password: log in again"))
}
