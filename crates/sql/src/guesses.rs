//! Cancel requests with a wrong secret. They come without a login, so a session looks at few of them: after a number of wrong ones
//! in a row it ignores requests for a while, right ones too. `CANCEL STATEMENT` needs no secret and goes on working.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Wrong requests that are looked at one after the other.
const BURST: u32 = 10;
/// One more is looked at for each of these: a secret of 32 bits is found in 68 years on average.
const EVERY: Duration = Duration::from_secs(1);

/// Wrong requests for one session.
#[derive(Debug, Default)]
pub(crate) struct Guesses {
    /// Wrong requests that are not forgotten yet, and the time up to which others were.
    wrong: Cell<u32>,
    since: Cell<Option<Instant>>,
}

impl Guesses {
    /// Returns whether a request at `now` is looked at and shows the secret.
    pub(crate) fn admit(&self, secret: &[u8], shown: &[u8], now: Instant) -> bool {
        let since = self.since.get().unwrap_or(now);
        let forgotten = now.saturating_duration_since(since).as_secs() / EVERY.as_secs();
        let forgotten = u32::try_from(forgotten).unwrap_or(u32::MAX).min(self.wrong.get());
        self.wrong.set(self.wrong.get() - forgotten);
        self.since.set(if self.wrong.get() == 0 { None } else { Some(since + EVERY * forgotten) });
        if self.wrong.get() >= BURST {
            return false;
        }
        if is_same(secret, shown) {
            return true;
        }
        self.wrong.set(self.wrong.get() + 1);
        self.since.set(self.since.get().or(Some(now)));
        false
    }
}

/// Compares in a time that does not depend on where the difference is.
fn is_same(secret: &[u8], shown: &[u8]) -> bool {
    let differences = secret.iter().zip(shown).fold(0, |all, (one, other)| all | (one ^ other));
    secret.len() == shown.len() && differences == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_requests_are_limited() {
        let (guesses, start) = (Guesses::default(), lanes::time::now());
        let admit =
            |shown: &[u8], seconds| guesses.admit(b"secret", shown, start + Duration::from_secs(seconds));
        assert!(admit(b"secret", 0));
        assert!(!admit(b"Secret", 0) && !admit(b"", 0));
        assert!(admit(b"secret", 200), "a few wrong ones are forgotten");
        for _ in 0..BURST {
            assert!(!admit(b"guess!", 200));
        }
        assert!(!admit(b"secret", 200), "no request is looked at any more");
        assert!(!admit(b"secret2", 201), "one more is, a second later");
        assert!(!admit(b"secret", 201));
        assert!(admit(b"secret", 202));
        assert!(admit(b"secret", 10_000));
    }

    #[test]
    fn secrets_are_compared_whole() {
        assert!(is_same(b"abcd", b"abcd") && is_same(b"", b""));
        for shown in [&b"abc"[..], b"abcde", b"abce", b"bbcd", b""] {
            assert!(!is_same(b"abcd", shown), "{shown:?}");
        }
    }
}
