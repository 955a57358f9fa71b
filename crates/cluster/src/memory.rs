//! Memory of large answers, of all cores: from the first bytes that arrive until the answer is
//! copied for its client. Smaller ones are bounded by the requests in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;

/// Most bytes of large answers, unless the caller sets them.
const BYTES_MAX: u64 = 64 << 20;

/// Memory for large answers.
#[derive(Debug)]
pub(crate) struct AnswerMemory {
    used_bytes: AtomicU64,
    bytes_max: AtomicU64,
}

impl Default for AnswerMemory {
    fn default() -> AnswerMemory {
        AnswerMemory { used_bytes: AtomicU64::new(0), bytes_max: AtomicU64::new(BYTES_MAX) }
    }
}

/// Charge of one answer. Dropping it releases its bytes.
pub(crate) struct AnswerCharge {
    memory: Arc<AnswerMemory>,
    bytes: u64,
}

impl AnswerMemory {
    pub(crate) fn set_max(&self, bytes_max: u64) {
        self.bytes_max.store(bytes_max, Relaxed);
    }

    /// Returns the most bytes of all large answers.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max.load(Relaxed)
    }

    /// Charges an answer. `None`: it does not fit.
    pub(crate) fn charge(self: &Arc<Self>, bytes: u64) -> Option<AnswerCharge> {
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.bytes_max());
        self.used_bytes.fetch_update(Relaxed, Relaxed, fits).ok()?;
        Some(AnswerCharge { memory: self.clone(), bytes })
    }
}

impl AnswerCharge {
    /// Returns a body that holds the charge as long as a part of it is in use.
    pub(crate) fn attach(self, body: Bytes) -> Bytes {
        struct Charged(Bytes, #[expect(dead_code, reason = "held until dropped, never read")] AnswerCharge);
        impl AsRef<[u8]> for Charged {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }
        Bytes::from_owner(Charged(body, self))
    }
}

impl Drop for AnswerCharge {
    fn drop(&mut self) {
        self.memory.used_bytes.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charge_is_held_as_long_as_the_body() {
        let memory = Arc::new(AnswerMemory::default());
        memory.set_max(100);
        let charge = memory.charge(60).expect("fits");
        assert!(memory.charge(41).is_none() && memory.charge(u64::MAX).is_none());
        let body = charge.attach(Bytes::from_static(b"body"));
        let part = body.slice(1..2);
        drop(body);
        assert_eq!((&part[..], memory.used_bytes.load(Relaxed)), (&b"o"[..], 60));
        drop(part);
        assert_eq!(memory.used_bytes.load(Relaxed), 0);
    }
}
