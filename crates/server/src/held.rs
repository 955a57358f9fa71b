//! Memory of a connection's requests in flight: their tasks, and their bodies and values. It is
//! charged in steps, so that a request costs an addition. Where less than a quarter of the
//! account's memory would stay free, the connection reads no further request until some are
//! answered: requests in flight may wait, and those of an administrator need not.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use frontdoor::{Account, Charge};

/// Bytes that are not charged: about 16 requests.
const UNCHARGED_BYTES: usize = 32 << 10;

/// Estimated memory of a request in flight without its body, bytes: its task, and the state of its
/// statement in the engine.
pub(crate) const REQUEST_BYTES: usize = 2 << 10;

/// The requests in flight of a connection.
pub(crate) struct Held {
    bytes: Cell<usize>,
    /// Bytes that need no further charge.
    room_bytes: Cell<usize>,
    charge: RefCell<Option<Charge>>,
    /// True from a refused charge until the requests fit again.
    is_refused: Cell<bool>,
}

impl Default for Held {
    fn default() -> Held {
        Held {
            bytes: Cell::new(0),
            room_bytes: Cell::new(UNCHARGED_BYTES),
            charge: RefCell::default(),
            is_refused: Cell::new(false),
        }
    }
}

impl Held {
    /// Counts a request of these bytes until the result is dropped.
    pub(crate) fn hold(self: &Rc<Held>, bytes: usize) -> Holding {
        self.bytes.set(self.bytes.get() + bytes);
        Holding { held: self.clone(), bytes }
    }

    /// Returns true if the requests exceed what is charged, and the account has no more.
    #[inline(always)]
    pub(crate) fn is_full(&self, account: &RefCell<Arc<Account>>) -> bool {
        self.bytes.get() > self.room_bytes.get() && !self.grow(account)
    }

    /// Charges as much as is held, a step of [`UNCHARGED_BYTES`] or more.
    #[cold]
    fn grow(&self, account: &RefCell<Arc<Account>>) -> bool {
        if self.is_refused.get() {
            return false;
        }
        let step = self.bytes.get() + UNCHARGED_BYTES - self.room_bytes.get();
        let mut charge = self.charge.borrow_mut();
        let grown = match &*charge {
            Some(charge) => charge.grow_spare(step as u64),
            None => {
                *charge = account.borrow().charge_spare(step as u64);
                charge.is_some()
            }
        };
        match grown {
            true => self.room_bytes.set(self.room_bytes.get() + step),
            false => self.is_refused.set(true),
        }
        grown
    }

    fn release(&self, bytes: usize) {
        let left = self.bytes.get() - bytes;
        self.bytes.set(left);
        let room = self.room_bytes.get();
        if left <= room && (room > UNCHARGED_BYTES || self.is_refused.get()) {
            self.released(left);
        }
    }

    /// Lets a refused charge be tried again, and gives back the charge once no request is in
    /// flight.
    #[cold]
    fn released(&self, left: usize) {
        self.is_refused.set(false);
        if left == 0 {
            self.room_bytes.set(UNCHARGED_BYTES);
            self.charge.take();
        }
    }
}

/// Bytes of a request in flight.
pub(crate) struct Holding {
    held: Rc<Held>,
    bytes: usize,
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.held.release(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use frontdoor::Accounts;

    use super::*;

    #[test]
    fn requests_beyond_the_account_wait_for_earlier_ones() {
        let accounts = Accounts::new(4 * 100_000, 0);
        let account = RefCell::new(accounts.connection("ann"));
        let held = Rc::new(Held::default());
        let is_full = || held.is_full(&account);
        let account = account.borrow().clone();
        let mut holding = Vec::new();
        while !is_full() {
            holding.push(held.hold(1_000));
        }
        let most = holding.len();
        assert!((60..=110).contains(&most), "{most} requests");
        assert!(account.used_bytes() > 40_000 && account.used_bytes() <= 75_000);
        assert!(is_full(), "until some are answered");
        holding.truncate(most / 2);
        assert!(!is_full());
        holding.clear();
        assert_eq!(accounts.all().used_bytes(), 0);
    }

    #[test]
    fn refused_charge_is_tried_again() {
        let accounts = Accounts::new(100_000, 100_000);
        let other = accounts.connection("bob").charge(100_000).expect("all of it");
        let account = RefCell::new(accounts.connection("ann"));
        let held = Rc::new(Held::default());
        let mut holding: Vec<_> = (0..40).map(|_| held.hold(1_000)).collect();
        assert!(held.is_full(&account));
        drop(other);
        assert!(held.is_full(&account), "until some are answered");
        holding.truncate(30);
        holding.extend((0..40).map(|_| held.hold(1_000)));
        assert!(!held.is_full(&account));
    }

    #[test]
    fn few_requests_are_not_charged() {
        let accounts = Accounts::new(100, 0);
        let held = Rc::new(Held::default());
        let _holding: Vec<_> = (0..16).map(|_| held.hold(REQUEST_BYTES)).collect();
        assert!(!held.is_full(&RefCell::new(accounts.connection("ann"))));
    }
}
