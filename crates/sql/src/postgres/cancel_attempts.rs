//! Limits cancel requests with a wrong secret. They need no login, so a client could guess secrets.
//! After [`BURST`] wrong requests a session checks only one request a second and ignores others,
//! even correct ones. `CANCEL STATEMENT` needs no secret and is not affected.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Wrong requests after which requests are ignored.
const BURST: u32 = 10;
/// Time after which a wrong request is forgotten. At this rate, a secret of 32 bits is guessed in
/// 68 years on average.
const FORGET_AFTER: Duration = Duration::from_secs(1);

/// Wrong requests for one session.
#[derive(Debug, Default)]
pub(crate) struct CancelAttempts {
    /// Wrong requests that are not forgotten yet.
    wrong: Cell<u32>,
    /// Time up to which requests were forgotten. `None` if `wrong` is 0.
    since: Cell<Option<Instant>>,
}

impl CancelAttempts {
    /// Returns true if a request at `now` is checked and contains the secret.
    pub(crate) fn admit(&self, secret: &[u8], shown: &[u8], now: Instant) -> bool {
        let since = self.since.get().unwrap_or(now);
        let forgotten = now.saturating_duration_since(since).as_secs() / FORGET_AFTER.as_secs();
        let forgotten = u32::try_from(forgotten).unwrap_or(u32::MAX).min(self.wrong.get());
        self.wrong.set(self.wrong.get() - forgotten);
        self.since.set(if self.wrong.get() == 0 { None } else { Some(since + FORGET_AFTER * forgotten) });
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

/// Compares in constant time, so that response times do not reveal a part of the secret.
fn is_same(secret: &[u8], shown: &[u8]) -> bool {
    let differences = secret.iter().zip(shown).fold(0, |all, (one, other)| all | (one ^ other));
    secret.len() == shown.len() && differences == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_requests_are_limited() {
        let (attempts, start) = (CancelAttempts::default(), lanes::time::now());
        let admit =
            |shown: &[u8], seconds| attempts.admit(b"secret", shown, start + Duration::from_secs(seconds));
        assert!(admit(b"secret", 0));
        assert!(!admit(b"Secret", 0) && !admit(b"", 0));
        assert!(admit(b"secret", 200), "a few wrong ones are forgotten");
        for _ in 0..BURST {
            assert!(!admit(b"guess!", 200));
        }
        assert!(!admit(b"secret", 200), "requests are ignored");
        assert!(!admit(b"secret2", 201), "one more is checked, a second later");
        assert!(!admit(b"secret", 201));
        assert!(admit(b"secret", 202));
        assert!(admit(b"secret", 10_000));
    }

    #[test]
    fn secrets_are_compared_completely() {
        assert!(is_same(b"abcd", b"abcd") && is_same(b"", b""));
        for shown in [&b"abc"[..], b"abcde", b"abce", b"bbcd", b""] {
            assert!(!is_same(b"abcd", shown), "{shown:?}");
        }
    }
}
