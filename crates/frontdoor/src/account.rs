//! Accounts of bytes that clients make the server hold: requests that are large or wait, answers
//! that grow, what sessions keep between statements. There is one for all clients of all listeners,
//! below it one for each role, and below that one for each connection. A charge counts in its
//! account and in those above it; one that any of them has no room for is refused and counts in
//! none.
//!
//! Small requests that are answered at once are bounded by the read buffer and cost no accounting.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustc_hash::FxHashMap;

/// Least number of roles at which those without connections are removed.
const ROLES_MIN: usize = 64;

/// The accounts of all clients. Cheap to clone; all clones are the same accounts.
#[derive(Clone)]
pub struct Accounts(Arc<Shared>);

struct Shared {
    all: Arc<Account>,
    role_bytes_max: u64,
    connection_bytes_max: u64,
    roles: Mutex<Roles>,
}

/// Accounts of the roles that have connections.
struct Roles {
    by_name: FxHashMap<Arc<str>, Weak<Account>>,
    /// Those without connections are removed when there are so many.
    prune_at: usize,
}

impl fmt::Debug for Accounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Accounts").field(&self.0.all).finish()
    }
}

impl Accounts {
    /// Accounts of `bytes_max` altogether. A role may hold half of it and a connection a quarter,
    /// but as much as one request of the largest kind, `request_bytes_max`, in any case.
    #[must_use]
    pub fn new(bytes_max: u64, request_bytes_max: u64) -> Accounts {
        let at_least = |part: u64| part.max(request_bytes_max).min(bytes_max);
        let roles = Roles { by_name: FxHashMap::default(), prune_at: ROLES_MIN };
        Accounts(Arc::new(Shared {
            all: Account::new("all clients", bytes_max, None),
            role_bytes_max: at_least(bytes_max / 2),
            connection_bytes_max: at_least(bytes_max / 4),
            roles: Mutex::new(roles),
        }))
    }

    /// The account of all clients.
    #[must_use]
    pub fn all(&self) -> &Arc<Account> {
        &self.0.all
    }

    /// An account for a connection of a role. The role's is the same at all listeners.
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
    /// Name of the holder in messages, as in "this connection".
    name: &'static str,
    limit_bytes: u64,
    used_bytes: AtomicU64,
    /// Charges that this account had no room for.
    refused: AtomicU64,
    above: Option<Arc<Account>>,
}

/// A charge that an account had no room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full {
    name: &'static str,
    limit_bytes: u64,
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Full { name, limit_bytes } = self;
        write!(f, "memory for requests of {name} is full ({limit_bytes} bytes)")
    }
}

/// Bytes that are counted until this is dropped.
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

    /// Charges `bytes` here and above.
    ///
    /// # Errors
    /// The first account on the way up that has no room for them.
    pub fn charge(self: &Arc<Self>, bytes: u64) -> Result<Charge, Full> {
        self.add(bytes)?;
        Ok(Charge { account: self.clone(), bytes: AtomicU64::new(bytes) })
    }

    /// Counts `bytes` here and above, or nowhere.
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
        above.inspect_err(|_| self.give_back(bytes))
    }

    /// Bytes charged now.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Relaxed)
    }

    /// Charges refused since the start.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    fn give_back(&self, bytes: u64) {
        self.used_bytes.fetch_sub(bytes, Relaxed);
    }
}

impl Charge {
    /// Charges `bytes` more. To be called by one task at a time.
    ///
    /// # Errors
    /// There is no room; the charge stays as it is.
    pub fn grow(&self, bytes: u64) -> Result<(), Full> {
        self.account.add(bytes)?;
        self.bytes.fetch_add(bytes, Relaxed);
        Ok(())
    }

    /// Bytes charged.
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
            account.give_back(bytes);
            next = account.above.as_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charge_counts_in_every_account_above_or_in_none() {
        let accounts = Accounts::new(100, 0);
        let [a, b, c] = ["ann", "bob", "bob"].map(|role| accounts.connection(role));
        let used = || [accounts.all(), &a, &b, &c].map(|account| account.used_bytes());
        let first = a.charge(25).expect("a quarter");
        assert_eq!(used(), [25, 25, 0, 0]);
        assert_eq!(a.charge(1).expect_err("a connection has a quarter").name, "this connection");
        let others = [b.charge(25).expect("room"), c.charge(25).expect("room")];
        let full = accounts.connection("bob").charge(1).expect_err("a role has half");
        assert_eq!((full.name, full.limit_bytes), ("the connections of this role", 50));
        let last = accounts.connection("cid").charge(25).expect("the last quarter");
        assert_eq!(accounts.connection("dan").charge(1).expect_err("nothing is left").name, "all clients");
        assert_eq!(used(), [100, 25, 25, 25], "a refused charge leaves nothing");
        drop((first, last));
        assert_eq!(used(), [50, 0, 25, 25]);
        drop(others);
        assert_eq!(used(), [0, 0, 0, 0]);
        assert!(a.charge(u64::MAX).is_err(), "no overflow");
        assert_eq!([accounts.all().refused(), a.refused(), b.refused()], [1, 2, 0]);
    }

    #[test]
    fn charge_that_grows_is_given_back_as_a_whole() {
        let accounts = Accounts::new(100, 60);
        let account = accounts.connection("ann");
        let charge = account.charge(0).expect("nothing");
        assert!(charge.grow(40).is_ok() && charge.grow(20).is_ok());
        assert!(charge.grow(1).is_err(), "one request of the largest kind fits, and no more");
        assert_eq!((charge.bytes(), accounts.all().used_bytes()), (60, 60));
        drop(charge);
        assert_eq!(accounts.all().used_bytes(), 0);
        assert_eq!(Arc::strong_count(&account), 1, "nothing keeps the account");
    }

    #[test]
    fn roles_without_connections_are_forgotten() {
        let accounts = Accounts::new(100, 0);
        let kept: Vec<_> = (0..10).map(|role| accounts.connection(&format!("kept {role}"))).collect();
        for role in 0..10 * ROLES_MIN {
            drop(accounts.connection(&format!("gone {role}")));
        }
        let known = accounts.0.roles.lock().expect("no panic").by_name.len();
        assert!((kept.len()..=ROLES_MIN).contains(&known), "{known}");
        let _held = kept[0].charge(25).expect("room");
        let again = accounts.connection("kept 0");
        assert!(again.charge(25).is_ok() && again.charge(26).is_err(), "still the same account");
    }
}
