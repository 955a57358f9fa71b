//! Leaves that went idle a moment ago and may wake soon: while one of them counts as active, events
//! are looked for often.

/// A group that is no batch group counts as active for this much CPU time used by others after it
/// went idle, ns: one that is asked once a second is still found within
/// [`crate::LATENCY_SLICE_NS`].
pub const RECENTLY_ACTIVE_NS: u64 = 1_000_000_000;

/// Not a leaf: the root.
const NO_LEAF: u32 = 0;

/// A leaf that went idle, and the CPU total until which it counts as active.
#[derive(Clone, Copy, Debug, Default)]
struct WentIdle {
    leaf: u32,
    until_ns: u64,
}

/// The two leaves other than batch leaves that went idle last, latest first. Two suffice to answer
/// "any other than this one?".
#[derive(Debug, Default)]
pub(crate) struct RecentlyActive([WentIdle; 2]);

impl RecentlyActive {
    /// The leaf went idle, at this total of CPU time, and counts as active for `active_ns` more.
    pub(crate) fn idle(&mut self, leaf: u32, charged_ns: u64, active_ns: u64) {
        let until_ns = charged_ns.saturating_add(active_ns);
        if self.0[0].leaf != leaf {
            self.0[1] = self.0[0];
        }
        self.0[0] = WentIdle { leaf, until_ns };
    }

    /// Returns whether a leaf other than this one counts as active.
    pub(crate) fn any_beside(&self, leaf: u32, charged_ns: u64) -> bool {
        self.0.iter().any(|other| other.leaf != leaf && other.until_ns > charged_ns)
    }

    /// The leaf is gone or a batch leaf now. Its slot keeps its time without a name: clearing
    /// it could forget a third leaf that the slot stood for. So what is gone counts as active a
    /// little longer, which costs a few polls.
    pub(crate) fn forget(&mut self, leaf: u32) {
        self.0.iter_mut().filter(|slot| slot.leaf == leaf).for_each(|slot| slot.leaf = NO_LEAF);
    }
}
