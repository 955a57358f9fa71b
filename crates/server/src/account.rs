//! Memory charge for an answer that grows.

use std::sync::Arc;

use engine::{AnswerGrant, Error};
use frontdoor::{Account, Charge, Full};

/// A memory charge for an answer, which the engine grows while it produces rows.
#[derive(Debug)]
pub(crate) struct AnswerCharge(Charge);

impl AnswerCharge {
    /// Creates an empty charge.
    pub(crate) fn new(account: &Arc<Account>) -> AnswerCharge {
        AnswerCharge(account.charge(0).expect("a charge of 0 bytes always fits"))
    }
}

impl AnswerGrant for AnswerCharge {
    fn grow(&self, bytes: u64) -> Result<(), Error> {
        let more = bytes.saturating_sub(self.0.bytes());
        self.0.grow(more).map_err(|full| match full.never_holds(bytes) {
            true => Error::Invalid(format!(
                "expected an answer of at most {} bytes, the memory of {}, got {bytes} or more: \
                 select fewer columns, or read smaller pages",
                full.limit_bytes(),
                full.name(),
            )),
            false => Error::Overloaded(overloaded(full)),
        })
    }
}

/// Returns the error message for a refused charge.
pub(crate) fn overloaded(full: Full) -> String {
    format!("Overloaded: {full}; send smaller requests, or fewer at once, and retry later")
}

#[cfg(test)]
mod tests {
    use super::*;
    use frontdoor::Accounts;

    #[test]
    fn answer_is_charged_as_it_grows() {
        let accounts = Accounts::new(100, 100);
        let answer = AnswerCharge::new(&accounts.connection("ann"));
        assert!(answer.grow(60).is_ok() && answer.grow(90).is_ok() && answer.grow(70).is_ok());
        assert_eq!(accounts.all().used_bytes(), 90);
        let other = AnswerCharge::new(&accounts.connection("bob"));
        assert!(matches!(other.grow(11), Err(Error::Overloaded(_))));
        assert!(matches!(answer.grow(101), Err(Error::Invalid(_))), "it never fits");
        assert_eq!(accounts.all().used_bytes(), 90, "the earlier charge remains");
        drop(answer);
        assert_eq!(accounts.all().used_bytes(), 0);
    }
}
