//! Accounts of the memory that clients make the server hold: large or waiting requests, growing
//! answers, and state kept between statements. There is one account for all clients of all
//! listeners. Below it each role has one, and each connection of a role.
//!
//! A charge counts in its account and in those above it. If one of these would exceed its limit,
//! the charge is refused and counts in none.
//!
//! Small requests that are answered at once are bounded by the read buffer and are not charged.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustc_hash::FxHashMap;

/// Number of roles from which on roles without connections are removed.
const ROLES_MIN: usize = 64;

/// Accounts of all clients. Clones are cheap and share the same accounts.
#[derive(Clone)]
pub struct Accounts(Arc<SharedAccounts>);

struct SharedAccounts {
    all: Arc<Account>,
    role_bytes_max: u64,
    connection_bytes_max: u64,
    roles: Mutex<Roles>,
}

/// Accounts of the roles that have connections.
struct Roles {
    by_name: FxHashMap<Arc<str>, Weak<Account>>,
    /// Number of roles at which roles without connections are removed next.
    prune_at: usize,
}

impl fmt::Debug for Accounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Accounts").field(&self.0.all).finish()
    }
}

impl Accounts {
    /// Creates accounts of `bytes_max` in total. A role may use half of it, a connection a quarter.
    /// Each may use at least `request_bytes_max`, the largest request.
    #[must_use]
    pub fn new(bytes_max: u64, request_bytes_max: u64) -> Accounts {
        let at_least = |part: u64| part.max(request_bytes_max).min(bytes_max);
        let roles = Roles { by_name: FxHashMap::default(), prune_at: ROLES_MIN };
        Accounts(Arc::new(SharedAccounts {
            all: Account::new("all clients", bytes_max, None),
            role_bytes_max: at_least(bytes_max / 2),
            connection_bytes_max: at_least(bytes_max / 4),
            roles: Mutex::new(roles),
        }))
    }

    /// Returns the account of all clients.
    #[must_use]
    pub fn all(&self) -> &Arc<Account> {
        &self.0.all
    }

    /// Creates the account of a connection. Connections of a role share the role's account at all
    /// listeners.
    #[must_use]
    pub fn connection(&self, role: &str) -> Arc<Account> {
        Account::new("this connection", self.0.connection_bytes_max, Some(self.role(role)))
    }

    fn role(&self, role: &str) -> Arc<Account> {
        let mut roles = self.0.roles.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = roles.by_name.get(role).and_then(Weak::upgrade) {
            return known;
        }
        if roles.by_name.len() >= roles.prune_at {
            roles.by_name.retain(|_, account| account.strong_count() > 0);
            roles.prune_at = (2 * roles.by_name.len()).max(ROLES_MIN);
        }
        let account =
            Account::new("the connections of this role", self.0.role_bytes_max, Some(self.0.all.clone()));
        roles.by_name.insert(role.into(), Arc::downgrade(&account));
        account
    }
}

/// An account of bytes with a limit.
#[derive(Debug)]
pub struct Account {
    /// Name of the account in messages, for instance "this connection".
    name: &'static str,
    limit_bytes: u64,
    used_bytes: AtomicU64,
    /// Number of refused charges.
    refused: AtomicU64,
    above: Option<Arc<Account>>,
}

/// A charge that would exceed the limit of an account.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full {
    name: &'static str,
    limit_bytes: u64,
}

impl Full {
    /// Returns the name of the account whose limit is exceeded.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the limit of that account, bytes.
    #[must_use]
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Returns true if the account, even empty, cannot hold `bytes`.
    #[must_use]
    pub fn never_holds(&self, bytes: u64) -> bool {
        bytes > self.limit_bytes
    }
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Full { name, limit_bytes } = self;
        write!(f, "memory for requests of {name} is full ({limit_bytes} bytes)")
    }
}

/// A charge. Dropping it releases its bytes.
#[derive(Debug)]
pub struct Charge {
    account: Arc<Account>,
    bytes: AtomicU64,
}

impl Account {
    fn new(name: &'static str, limit_bytes: u64, above: Option<Arc<Account>>) -> Arc<Account> {
        let (used_bytes, refused) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Account { name, limit_bytes, used_bytes, refused, above })
    }

    /// Charges `bytes` to this account and those above it.
    ///
    /// # Errors
    /// [`Full`] with the first account, from here upwards, whose limit is exceeded.
    pub fn charge(self: &Arc<Self>, bytes: u64) -> Result<Charge, Full> {
        self.add(bytes)?;
        Ok(Charge { account: self.clone(), bytes: AtomicU64::new(bytes) })
    }

    /// Charges `bytes` as [`Account::charge`] does, if a quarter of this account and of each above
    /// it stays free: for what may wait, so that others need not.
    #[must_use]
    pub fn charge_spare(self: &Arc<Self>, bytes: u64) -> Option<Charge> {
        self.has_spare(bytes).then(|| self.charge(bytes).ok())?
    }

    fn has_spare(&self, bytes: u64) -> bool {
        self.used_bytes().saturating_add(bytes) <= self.limit_bytes / 4 * 3
            && self.above.as_ref().is_none_or(|above| above.has_spare(bytes))
    }

    /// Counts `bytes` in this account and those above it, or in none.
    fn add(&self, bytes: u64) -> Result<(), Full> {
        if bytes == 0 {
            return Ok(());
        }
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.limit_bytes);
        if self.used_bytes.fetch_update(Relaxed, Relaxed, fits).is_err() {
            self.refused.fetch_add(1, Relaxed);
            return Err(Full { name: self.name, limit_bytes: self.limit_bytes });
        }
        let above = self.above.as_ref().map_or(Ok(()), |above| above.add(bytes));
        above.inspect_err(|_| self.release(bytes))
    }

    /// Returns the bytes charged now.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Relaxed)
    }

    /// Returns the number of charges refused since the start.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    fn release(&self, bytes: u64) {
        self.used_bytes.fetch_sub(bytes, Relaxed);
    }
}

impl Charge {
    /// Charges `bytes` more. One task may call this at a time.
    ///
    /// # Errors
    /// [`Full`] if a limit is exceeded. The charge is then unchanged.
    pub fn grow(&self, bytes: u64) -> Result<(), Full> {
        self.account.add(bytes)?;
        self.bytes.fetch_add(bytes, Relaxed);
        Ok(())
    }

    /// Charges `bytes` more, as [`Account::charge_spare`] does. Returns false if it does not.
    pub fn grow_spare(&self, bytes: u64) -> bool {
        self.account.has_spare(bytes) && self.grow(bytes).is_ok()
    }

    /// Returns the bytes of the charge.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let bytes = *self.bytes.get_mut();
        let mut next = Some(&self.account).filter(|_| bytes > 0);
        while let Some(account) = next {
            account.release(bytes);
            next = account.above.as_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charge_counts_in_all_accounts_above_or_in_none() {
        let accounts = Accounts::new(100, 0);
        let [a, b, c] = ["ann", "bob", "bob"].map(|role| accounts.connection(role));
        let used = || [accounts.all(), &a, &b, &c].map(|account| account.used_bytes());
        let first = a.charge(25).expect("a quarter");
        assert_eq!(used(), [25, 25, 0, 0]);
        assert_eq!(a.charge(1).expect_err("a connection has a quarter").name, "this connection");
        let others = [b.charge(25).expect("below the limit"), c.charge(25).expect("below the limit")];
        let full = accounts.connection("bob").charge(1).expect_err("a role has half");
        assert_eq!((full.name, full.limit_bytes), ("the connections of this role", 50));
        let last = accounts.connection("cid").charge(25).expect("the last quarter");
        assert_eq!(accounts.connection("dan").charge(1).expect_err("nothing is left").name, "all clients");
        assert_eq!(used(), [100, 25, 25, 25], "a refused charge counts nowhere");
        drop((first, last));
        assert_eq!(used(), [50, 0, 25, 25]);
        drop(others);
        assert_eq!(used(), [0, 0, 0, 0]);
        assert!(a.charge(u64::MAX).is_err(), "no overflow");
        assert_eq!([accounts.all().refused(), a.refused(), b.refused()], [1, 2, 0]);
    }

    #[test]
    fn spare_charges_leave_a_quarter_of_each_account() {
        let accounts = Accounts::new(400, 0);
        let [a, b] = ["ann", "bob"].map(|role| accounts.connection(role));
        let first = a.charge_spare(70).expect("of 100");
        assert!(!first.grow_spare(6) && first.grow_spare(5));
        assert!(a.charge_spare(1).is_none() && a.charge(25).is_ok());
        let others: Vec<_> = ["bob", "bob", "cid"].map(|role| accounts.connection(role).charge(75)).into();
        assert!(others.iter().all(Result::is_ok));
        assert!(b.charge_spare(1).is_none(), "a role has three quarters of its half");
        assert_eq!(accounts.all().used_bytes(), 300);
        assert!(accounts.connection("dan").charge_spare(1).is_none(), "and all have of the whole");
        assert!(accounts.connection("dan").charge(75).is_ok());
    }

    #[test]
    fn dropped_charge_releases_its_grown_size() {
        let accounts = Accounts::new(100, 60);
        let account = accounts.connection("ann");
        let charge = account.charge(0).expect("nothing");
        assert!(charge.grow(40).is_ok() && charge.grow(20).is_ok());
        assert!(charge.grow(1).is_err(), "the largest request fits, one byte more does not");
        assert_eq!((charge.bytes(), accounts.all().used_bytes()), (60, 60));
        drop(charge);
        assert_eq!(accounts.all().used_bytes(), 0);
        assert_eq!(Arc::strong_count(&account), 1, "no charge holds the account");
    }

    #[test]
    fn roles_without_connections_are_removed() {
        let accounts = Accounts::new(100, 0);
        let kept: Vec<_> = (0..10).map(|role| accounts.connection(&format!("kept {role}"))).collect();
        for role in 0..10 * ROLES_MIN {
            drop(accounts.connection(&format!("gone {role}")));
        }
        let known = accounts.0.roles.lock().expect("the lock is not poisoned").by_name.len();
        assert!((kept.len()..=ROLES_MIN).contains(&known), "{known}");
        let _charged = kept[0].charge(25).expect("below the limit");
        let again = accounts.connection("kept 0");
        assert!(again.charge(25).is_ok() && again.charge(26).is_err(), "still the same account");
    }
}
