//! A session's role, and what holds for it. What was looked up stays with the session until
//! something changes that it depends on, so that looking again costs one atomic load.
//!
//! ```text
//!   Login ── Identity   role, its id and its verifier when the session began: whether the session may go on
//!     └───── View ─┬─── Rights     of the role and all roles granted to it; new when one of them changes
//!                  └─── Effective  level and limits; new when rights or levels change
//! ```
//!
//! Views are shared by all sessions of a role on a core. A change of one role leaves the views of
//! unrelated roles alone.

use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cql::ast::Permission;
use engine::Error;
use rustc_hash::FxHashMap;
use workload::{Catalogue, Effective};

use crate::access::Shared;
use crate::plan::Actor;
use crate::resource::{PermissionSet, Resource};
use crate::roles::{Role, RoleName, Roles};
use crate::scram::Verifier;
use crate::sight::Sight;

/// Tables whose permissions a role's rights remember on a core. Beyond it, they begin anew.
const TABLES_MAX: usize = 10_000;

/// By the name of a table, its identity and the permissions on it.
type ByTable = FxHashMap<String, (u128, PermissionSet)>;

/// What a role may do, as of the roles it was derived from.
pub(crate) struct Rights {
    /// A number that no other rights have had on this core.
    pub(crate) number: u64,
    pub(crate) is_superuser: bool,
    /// The role and all roles granted to it. None of a session that ended.
    roles: Vec<(RoleName, Arc<Role>)>,
    /// Permissions by keyspace and table, with the identity of the table, as far as they were
    /// needed.
    tables: RefCell<FxHashMap<String, ByTable>>,
}

impl Rights {
    fn new(number: u64, is_superuser: bool, roles: Vec<(RoleName, Arc<Role>)>) -> Rights {
        Rights { number, is_superuser, roles, tables: RefCell::default() }
    }

    pub(crate) fn of(number: u64, role: &str, roles: &Roles) -> Rights {
        let own = roles.with_granted(role).into_iter().map(|(name, role)| (name.clone(), role.clone()));
        Rights::new(number, roles.is_superuser(role), own.collect())
    }

    /// The role and all roles granted to it.
    pub(crate) fn roles(&self) -> &[(RoleName, Arc<Role>)] {
        &self.roles
    }

    /// Whether none of the roles changed that these rights come from.
    fn is_current(&self, roles: &Roles) -> bool {
        let same =
            |(name, role): &(RoleName, Arc<Role>)| roles.get(name).is_some_and(|now| Arc::ptr_eq(now, role));
        self.roles.iter().all(same)
    }

    /// Returns the permissions on a table, of which `roles` are asked once.
    pub(crate) fn on_table(
        &self,
        role: &str,
        (keyspace, table, id): (&str, &str, u128),
        roles: impl FnOnce() -> Arc<crate::Snapshot>,
    ) -> PermissionSet {
        let known = self.tables.borrow().get(keyspace).and_then(|tables| tables.get(table)).copied();
        if let Some((_, permissions)) = known.filter(|(of, _)| *of == id) {
            return permissions;
        }
        let resource = Resource::Table(keyspace.to_owned(), table.to_owned(), id);
        let permissions = roles().roles.permissions(role, &resource);
        let mut known = self.tables.borrow_mut();
        if known.values().map(FxHashMap::len).sum::<usize>() >= TABLES_MAX {
            known.clear();
        }
        known.entry(keyspace.to_owned()).or_default().insert(table.to_owned(), (id, permissions));
        permissions
    }

    /// Whether a permission on a table is among these rights.
    pub(crate) fn may(
        &self,
        role: &str,
        permission: Permission,
        table: (&str, &str, u128),
        roles: impl FnOnce() -> Arc<crate::Snapshot>,
    ) -> bool {
        self.is_superuser || self.on_table(role, table, roles).contains(permission)
    }
}

/// What holds for a role's sessions on a core.
pub(crate) struct View {
    pub(crate) effective: Rc<Effective>,
    pub(crate) rights: Rc<Rights>,
    levels: Arc<Catalogue>,
    /// What the role is shown; made when it is first needed.
    sight: OnceCell<Arc<Sight>>,
}

impl View {
    /// The view of a role that can be given to its sessions.
    pub(crate) fn of(role: &str, rights: Rc<Rights>, roles: &Roles, levels: &Arc<Catalogue>) -> View {
        let effective = roles.effective(role, levels);
        let effective = Rc::new(effective.unwrap_or_else(|| Effective::of(levels.default_level())));
        View { effective, rights, levels: levels.clone(), sight: OnceCell::new() }
    }

    /// The view of a session without a role: of all rights where nobody has to log in, of none
    /// where it ended.
    pub(crate) fn without_role(number: u64, may_everything: bool, levels: &Arc<Catalogue>) -> View {
        let rights = Rc::new(Rights::new(number, may_everything, Vec::new()));
        let effective = Rc::new(Effective::of(levels.default_level()));
        View { effective, rights, levels: levels.clone(), sight: OnceCell::new() }
    }

    /// What the role is shown.
    pub(crate) fn sight(&self) -> Arc<Sight> {
        let sight = || Arc::new(Sight::of(&self.rights, self.effective.level.name()));
        self.sight.get_or_init(sight).clone()
    }

    /// Whether its rights still hold.
    pub(crate) fn has_current_rights(&self, roles: &Roles) -> bool {
        self.rights.is_current(roles)
    }

    /// Whether its level still holds, if its rights do.
    pub(crate) fn has_current_level(&self, levels: &Arc<Catalogue>) -> bool {
        Arc::ptr_eq(&self.levels, levels)
    }
}

/// Who a session was when it began.
pub(crate) struct Identity {
    pub(crate) actor: Actor,
    verifier: Option<Arc<Verifier>>,
    /// Runs once, when the session may not go on.
    on_end: RefCell<Option<Box<dyn FnOnce()>>>,
}

impl Identity {
    /// Whether the role is the one that logged in, may still log in, and has the same password.
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

    /// Tells the listener that the session ends.
    pub(crate) fn end(&self) {
        if let Some(on_end) = self.on_end.take() {
            on_end();
        }
    }
}

/// A session's role. It stays on its core; cheap to clone.
#[derive(Clone)]
pub struct Login {
    pub(crate) identity: Rc<Identity>,
    shared: Arc<Shared>,
    /// Whether the session may go on, and the version as of which that is known.
    current: Cell<(u64, bool)>,
    /// What was looked up last, and the version it holds for.
    pub(crate) seen: RefCell<(u64, Rc<View>)>,
}

impl Login {
    pub(crate) fn new(
        actor: Actor,
        verifier: Option<Arc<Verifier>>,
        shared: Arc<Shared>,
        seen: (u64, Rc<View>),
    ) -> Login {
        let identity = Rc::new(Identity { actor, verifier, on_end: RefCell::default() });
        Login { identity, shared, current: Cell::new((0, true)), seen: RefCell::new(seen) }
    }

    /// The role.
    #[must_use]
    pub fn role(&self) -> &RoleName {
        &self.identity.actor.role
    }

    pub(crate) fn actor(&self) -> &Actor {
        &self.identity.actor
    }

    /// Whether the session may go on: its role still exists, is not another one of the same name,
    /// may log in, and has the password that the session gave. One atomic load while nothing
    /// changed anywhere.
    #[must_use]
    pub fn is_current(&self) -> bool {
        let version = self.shared.version.load(Ordering::Acquire);
        let (known, is_current) = self.current.get();
        if known == version || !is_current {
            return is_current;
        }
        let is_current = self.identity.is_current(&self.shared.current.load().roles);
        self.current.set((version, is_current));
        is_current
    }

    /// Calls `end` once, on this core, soon after [`Login::is_current`] turned false, so that idle
    /// sessions end too. A later call replaces an earlier one.
    pub fn on_end(&self, end: impl FnOnce() + 'static) {
        *self.identity.on_end.borrow_mut() = Some(Box::new(end));
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({})", self.role())
    }
}

/// The error for a session that may not go on.
pub(crate) fn ended(role: &str) -> Error {
    Error::Unauthorized(format!("Role {role} was dropped, lost LOGIN or got another password: log in again"))
}
