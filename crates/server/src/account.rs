//! Accounts of bytes held for clients. A charge counts in its account and in all accounts above it: connection, role on this core,
//! server. A charge that any of them has no room for is refused; nothing is counted then.
//!
//! Charged are requests that are large or that wait, from their header on, and the syntax trees of long statements. Small requests
//! that are answered at once are bounded by the read buffer and cost no accounting.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use engine::{AnswerRoom, Error};

/// An account of bytes with a limit.
#[derive(Debug)]
pub(crate) struct Account {
    /// The account's name in messages, as in "the requests of this connection".
    name: &'static str,
    limit_bytes: u64,
    used_bytes: AtomicU64,
    /// Charges that this account had no room for.
    refused: AtomicU64,
    above: Option<Arc<Account>>,
}

/// A charge that an account had no room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Full {
    name: &'static str,
    limit_bytes: u64,
}

impl std::fmt::Display for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Full { name, limit_bytes } = self;
        write!(
            f,
            "Overloaded: memory for {name} is full ({limit_bytes} bytes); send smaller requests, or fewer at once, and retry later"
        )
    }
}

/// Bytes that are counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    account: Arc<Account>,
    bytes: u64,
}

impl Account {
    /// An empty account below `above`.
    pub(crate) fn new(name: &'static str, limit_bytes: u64, above: Option<Arc<Account>>) -> Arc<Account> {
        let (used_bytes, refused) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Account { name, limit_bytes, used_bytes, refused, above })
    }

    /// Charges `bytes` here and above.
    ///
    /// # Errors
    /// The first account on the way up that has no room for them.
    pub(crate) fn charge(self: &Arc<Self>, bytes: u64) -> Result<Charge, Full> {
        self.add(bytes)?;
        Ok(Charge { account: self.clone(), bytes })
    }

    /// Counts `bytes` here and above, or nowhere.
    fn add(&self, bytes: u64) -> Result<(), Full> {
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.limit_bytes);
        if self.used_bytes.fetch_update(Relaxed, Relaxed, fits).is_err() {
            self.refused.fetch_add(1, Relaxed);
            return Err(Full { name: self.name, limit_bytes: self.limit_bytes });
        }
        let above = self.above.as_ref().map_or(Ok(()), |above| above.add(bytes));
        above.inspect_err(|_| self.give_back(bytes))
    }

    /// Bytes charged now.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Relaxed)
    }

    /// Charges refused since the start.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    fn give_back(&self, bytes: u64) {
        self.used_bytes.fetch_sub(bytes, Relaxed);
    }
}

/// The charge for an answer that grows.
#[derive(Debug)]
pub(crate) struct AnswerCharge {
    account: Arc<Account>,
    bytes: AtomicU64,
}

impl AnswerCharge {
    /// A charge of nothing yet.
    pub(crate) fn new(account: Arc<Account>) -> AnswerCharge {
        AnswerCharge { account, bytes: AtomicU64::new(0) }
    }
}

impl Charge {
    /// Charges `bytes` more.
    ///
    /// # Errors
    /// There is no room; the charge stays as it is.
    pub(crate) fn grow(&mut self, bytes: u64) -> Result<(), Full> {
        self.account.add(bytes)?;
        self.bytes += bytes;
        Ok(())
    }
}

impl AnswerRoom for AnswerCharge {
    fn grow(&self, bytes: u64) -> Result<(), Error> {
        let before = self.bytes.load(Relaxed);
        self.account.add(bytes.saturating_sub(before)).map_err(|full| Error::Overloaded(full.to_string()))?;
        self.bytes.store(bytes.max(before), Relaxed);
        Ok(())
    }
}

impl Drop for AnswerCharge {
    fn drop(&mut self) {
        drop(Charge { account: self.account.clone(), bytes: self.bytes.load(Relaxed) });
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut next = Some(&self.account);
        while let Some(account) = next {
            account.give_back(self.bytes);
            next = account.above.as_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_charged_as_it_grows_and_given_back_as_a_whole() {
        let account = Account::new("requests", 100, None);
        let answer = AnswerCharge::new(account.clone());
        assert!(answer.grow(60).is_ok() && answer.grow(90).is_ok());
        assert_eq!(account.used_bytes(), 90);
        assert!(matches!(answer.grow(101), Err(Error::Overloaded(_))));
        assert_eq!(account.used_bytes(), 90, "what it has stays charged");
        drop(answer);
        assert_eq!(account.used_bytes(), 0);
        assert_eq!(Arc::strong_count(&account), 1, "nothing keeps the account");
    }

    #[test]
    fn a_charge_counts_in_every_account_above_or_in_none() {
        let server = Account::new("all requests", 100, None);
        let [a, b] = [80, 60].map(|limit| Account::new("one connection", limit, Some(server.clone())));
        let used = || [&server, &a, &b].map(|account| account.used_bytes());
        let first = a.charge(70).unwrap();
        assert_eq!(used(), [70, 70, 0]);
        let full = b.charge(31).expect_err("the server's account is full");
        assert_eq!((full.name, full.limit_bytes), ("all requests", 100));
        assert_eq!(a.charge(11).unwrap_err().name, "one connection");
        assert_eq!(used(), [70, 70, 0], "a refused charge leaves nothing");
        let second = b.charge(30).unwrap();
        assert_eq!(used(), [100, 70, 30]);
        let mut growing = a.charge(0).unwrap();
        assert!(growing.grow(1).is_err(), "the server's account is full");
        drop(second);
        growing.grow(5).unwrap();
        assert_eq!(used(), [75, 75, 0]);
        drop((first, growing));
        assert_eq!(used(), [0, 0, 0]);
        assert!(a.charge(u64::MAX).is_err(), "no overflow");
        assert_eq!([server.refused(), a.refused(), b.refused()], [2, 2, 0]);
    }
}
