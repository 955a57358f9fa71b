//! Memory of a connection's requests in flight: their tasks, and their bodies and values. It is
//! charged in steps, so that a request costs an addition. Without free memory the connection reads
//! no further request until some are answered.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use frontdoor::{Account, Charge};

/// Bytes that are not charged: about 16 requests.
const UNCHARGED_BYTES: usize = 32 << 10;

/// Estimated memory of a request in flight beside its body, bytes: its task, and the state of its
/// statement in the engine.
pub(crate) const REQUEST_BYTES: usize = 2 << 10;

/// The requests in flight of a connection.
#[derive(Default)]
pub(crate) struct Held {
    bytes: Cell<usize>,
    charge: RefCell<Option<Charge>>,
    charged_bytes: Cell<usize>,
    /// True from a refused charge until the requests fit again.
    is_refused: Cell<bool>,
}

impl Held {
    /// Counts a request of these bytes until the result is dropped.
    pub(crate) fn hold(self: &Rc<Held>, bytes: usize) -> Holding {
        self.bytes.set(self.bytes.get() + bytes);
        Holding { held: self.clone(), bytes }
    }

    /// Returns true if the requests exceed what is charged, and the account has no more.
    pub(crate) fn is_full(&self, account: impl FnOnce() -> Arc<Account>) -> bool {
        if self.bytes.get() <= UNCHARGED_BYTES + self.charged_bytes.get() {
            return false;
        }
        if !self.is_refused.get() {
            self.is_refused.set(!self.grow(account));
        }
        self.is_refused.get()
    }

    /// Charges as much as is held, a step of [`UNCHARGED_BYTES`] or more.
    #[cold]
    fn grow(&self, account: impl FnOnce() -> Arc<Account>) -> bool {
        let step = self.bytes.get() - self.charged_bytes.get();
        let mut charge = self.charge.borrow_mut();
        let grown = match &*charge {
            Some(charge) => charge.grow(step as u64).is_ok(),
            None => {
                *charge = account().charge(step as u64).ok();
                charge.is_some()
            }
        };
        if grown {
            self.charged_bytes.set(self.charged_bytes.get() + step);
        }
        grown
    }

    fn release(&self, bytes: usize) {
        let left = self.bytes.get() - bytes;
        self.bytes.set(left);
        let charged = self.charged_bytes.get();
        if left <= UNCHARGED_BYTES + charged {
            self.is_refused.set(false);
        }
        if left == 0 && charged > 0 {
            self.charged_bytes.set(0);
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
        let account = accounts.connection("ann");
        let held = Rc::new(Held::default());
        let is_full = || held.is_full(|| account.clone());
        let mut holding = Vec::new();
        while !is_full() {
            holding.push(held.hold(1_000));
        }
        let most = holding.len();
        assert!((90..=140).contains(&most), "{most} requests");
        assert!(account.used_bytes() > 60_000 && account.refused() == 1);
        assert!(is_full() && account.refused() == 1, "it is asked once");
        holding.truncate(most / 2);
        assert!(!is_full());
        holding.clear();
        assert_eq!(accounts.all().used_bytes(), 0);
    }

    #[test]
    fn few_requests_are_not_charged() {
        let accounts = Accounts::new(100, 0);
        let held = Rc::new(Held::default());
        let _holding: Vec<_> = (0..16).map(|_| held.hold(REQUEST_BYTES)).collect();
        assert!(!held.is_full(|| accounts.connection("ann")));
    }
}
