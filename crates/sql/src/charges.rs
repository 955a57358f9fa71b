//! Memory that sessions hold between and ahead of statements: prepared statements, portals, and large messages from their header
//! on. It is bounded for a session, for a role and for the server, and counted on each core's fast lane.
//!
//! A core has an equal part of the server's bound, but no less than one session may have. A role may hold half of that, so that
//! other roles find memory whatever one does.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::failure::{Failure, state};

/// The memory of a core's sessions.
#[derive(Debug)]
pub(crate) struct Charges {
    core_bytes_max: u64,
    session_bytes_max: u64,
    bytes: Cell<u64>,
    roles: RefCell<FxHashMap<String, u64>>,
}

/// What one session holds.
#[derive(Debug)]
pub(crate) struct Holder {
    core: Rc<Charges>,
    role: String,
    bytes: Cell<u64>,
}

/// Memory that is held until this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    holder: Rc<Holder>,
    bytes: u64,
}

impl Charges {
    /// The part of `cores` cores in `server_bytes_max`.
    pub(crate) fn new(session_bytes_max: u64, server_bytes_max: u64, cores: u64) -> Rc<Charges> {
        Rc::new(Charges {
            core_bytes_max: (server_bytes_max / cores.max(1)).max(2 * session_bytes_max),
            session_bytes_max,
            bytes: Cell::new(0),
            roles: RefCell::default(),
        })
    }

    /// Bytes that the core's sessions hold.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    pub(crate) fn holder(self: &Rc<Self>, role: &str) -> Rc<Holder> {
        Rc::new(Holder { core: self.clone(), role: role.to_owned(), bytes: Cell::new(0) })
    }
}

impl Holder {
    /// Bytes that the session holds.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// Takes `bytes` for the session.
    ///
    /// # Errors
    /// 53200: the session, its role, or all sessions would hold too much.
    pub(crate) fn take(self: &Rc<Self>, bytes: u64) -> Result<Charge, Failure> {
        let mut roles = self.core.roles.borrow_mut();
        let of_role = roles.get(&self.role).copied().unwrap_or(0);
        let role_bytes_max = self.core.core_bytes_max / 2;
        for (held, max, of) in [
            (self.bytes.get(), self.core.session_bytes_max, "this session"),
            (of_role, role_bytes_max, "the sessions of its role on this core"),
            (self.core.bytes.get(), self.core.core_bytes_max, "all sessions on this core"),
        ] {
            let after = held.saturating_add(bytes);
            if after > max {
                let text = format!(
                    "expected prepared statements, portals and messages of at most {max} bytes for {of}, got {after}"
                );
                let hint = "Close what is not used, or send shorter statements.";
                return Err(Failure::new(state::MEMORY, text).with_hint(hint));
            }
        }
        self.bytes.set(self.bytes.get() + bytes);
        self.core.bytes.set(self.core.bytes.get() + bytes);
        *roles.entry(self.role.clone()).or_default() += bytes;
        Ok(Charge { holder: self.clone(), bytes })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let Holder { core, role, bytes } = &*self.holder;
        bytes.set(bytes.get() - self.bytes);
        core.bytes.set(core.bytes.get() - self.bytes);
        let mut roles = core.roles.borrow_mut();
        if let Some(of_role) = roles.get_mut(role) {
            *of_role -= self.bytes;
            if *of_role == 0 {
                roles.remove(role);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_role_and_server_are_bounded() {
        let charges = Charges::new(100, 800, 2);
        let sessions: Vec<Rc<Holder>> = (0..6).map(|n| charges.holder(["a", "b"][n / 4])).collect();
        let whole: Vec<Charge> = sessions[..2].iter().map(|session| session.take(100).unwrap()).collect();
        let of_session = sessions[0].take(1).unwrap_err();
        assert!(
            of_session.code == state::MEMORY && of_session.message.contains("this session"),
            "{of_session}"
        );
        let of_role = sessions[2].take(1).unwrap_err();
        assert!(of_role.message.contains("role"), "{of_role}");
        let others: Vec<Charge> = sessions[4..].iter().map(|session| session.take(100).unwrap()).collect();
        assert_eq!(charges.bytes(), 400);
        assert!(charges.holder("c").take(1).unwrap_err().message.contains("all sessions"));
        drop(whole);
        assert_eq!(charges.bytes(), 200);
        assert!(sessions[2].take(100).is_ok());
        drop(others);
        assert_eq!((charges.bytes(), charges.roles.borrow().len()), (0, 0));
    }

    #[test]
    fn a_refused_charge_takes_nothing() {
        let charges = Charges::new(10, 10, 64);
        let session = charges.holder("a");
        assert!(session.take(u64::MAX).is_err());
        assert_eq!((charges.bytes(), session.bytes.get()), (0, 0));
        assert!(session.take(10).is_ok(), "one session has its maximum on any core");
    }
}
