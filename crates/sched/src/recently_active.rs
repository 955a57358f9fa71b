//! Leaves that went idle recently and may wake soon. While one of them counts as active, the core
//! polls often.

/// CPU time of others during which a group that went idle counts as active, ns. A group with one
/// request a second is still found within [`crate::LATENCY_SLICE_NS`]. Batch groups never count.
pub const RECENTLY_ACTIVE_NS: u64 = 1_000_000_000;

/// The root, which stands for no leaf.
const NO_LEAF: u32 = 0;

/// Leaf that went idle, and the CPU total until which it counts as active.
#[derive(Clone, Copy, Debug, Default)]
struct WentIdle {
    leaf: u32,
    until_ns: u64,
}

/// Last two leaves that went idle, latest first, without batch leaves. Two suffice to answer "any
/// other than this one?".
#[derive(Debug, Default)]
pub(crate) struct RecentlyActive([WentIdle; 2]);

impl RecentlyActive {
    /// Records that the leaf went idle at the CPU total `charged_ns`.
    pub(crate) fn idle(&mut self, leaf: u32, charged_ns: u64) {
        let until_ns = charged_ns.saturating_add(RECENTLY_ACTIVE_NS);
        if self.0[0].leaf != leaf {
            self.0[1] = self.0[0];
        }
        self.0[0] = WentIdle { leaf, until_ns };
    }

    /// Returns true if a leaf other than this one counts as active.
    pub(crate) fn any_beside(&self, leaf: u32, charged_ns: u64) -> bool {
        self.0.iter().any(|other| other.leaf != leaf && other.until_ns > charged_ns)
    }

    /// Forgets a leaf that was removed or is now a batch leaf. Its slot keeps its time without a
    /// name, because clearing it could forget a third leaf that the slot stood for. So a removed
    /// leaf counts as active a little longer, which costs a few polls.
    pub(crate) fn forget(&mut self, leaf: u32) {
        self.0.iter_mut().filter(|slot| slot.leaf == leaf).for_each(|slot| slot.leaf = NO_LEAF);
    }
}
