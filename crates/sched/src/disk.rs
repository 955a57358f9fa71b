//! What a request costs a disk, and when the disk can take it. A disk has four maxima: bytes and operations a second,
//! for reads and for writes. The model is additive: a mix is within the disk's means as long as
//!
//! ```text
//!   Σ bytes ÷ bandwidth_max  +  Σ operations ÷ ops_max   ≤  1      (each kind by its own maxima, per second)
//! ```
//!
//! so one request costs `bytes ÷ bandwidth_max + 1 ÷ ops_max` seconds *of the disk*. (Charging the larger of the two
//! instead under-charges mixed load by up to half.) One bucket for the disk, shared by all cores, is filled with one
//! second of disk for each second of time: the one `u64` of [`crate::gcra`], on which each core has a [`Claim`].

use crate::io_claim::{Budget, Claim};

/// How far ahead of the model requests may be sent, ns of disk: the queue that may build up inside the device, and so
/// what a request that comes next waits there at most, if the maxima are right.
pub const BURST_NS: u64 = 1_000_000;
/// Disk time that a core takes at once while others wait as well, ns: so long it is, at most, before the next one's turn. Some tens
/// of small requests of a fast disk, so that the state all cores share changes hands rarely.
pub const PIECE_NS: u64 = 100_000;
const _: () =
    assert!(PIECE_NS * 10 <= BURST_NS, "ten cores in line are no longer than the queue inside the device");
/// A group's own limit is handed to cores in pieces of so much time, ns.
pub const LIMIT_PIECE_NS: u64 = 1_000_000;

const SECOND_NS: u128 = 1_000_000_000;

/// Reads and writes have maxima of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Bytes from the disk.
    Read,
    /// Bytes to the disk; a sync is a write of no bytes.
    Write,
}

/// A disk's measured maxima. Zero counts as one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskModel {
    /// Bytes a second, reading in large requests.
    pub read_bandwidth_max: u64,
    /// Bytes a second, writing in large requests.
    pub write_bandwidth_max: u64,
    /// Operations a second, reading in small requests.
    pub read_ops_max: u64,
    /// Operations a second, writing in small requests.
    pub write_ops_max: u64,
}

impl DiskModel {
    /// What a request of `bytes` costs, ns of disk, rounded up, at least 1.
    #[must_use]
    pub fn cost_ns(&self, kind: Kind, bytes: u64) -> u64 {
        let (bandwidth, ops) = match kind {
            Kind::Read => (self.read_bandwidth_max, self.read_ops_max),
            Kind::Write => (self.write_bandwidth_max, self.write_ops_max),
        };
        let transfer = (u128::from(bytes) * SECOND_NS).div_ceil(u128::from(bandwidth.max(1)));
        let operation = SECOND_NS.div_ceil(u128::from(ops.max(1)));
        u64::try_from(transfer + operation).unwrap_or(u64::MAX)
    }
}

/// Asks the disk's bucket to take a request of `cost_ns`, for the core that has this claim on it. `in_flight` is the number of
/// requests the disk is working on, of all cores.
///
/// With nothing in flight the answer is always yes, and earlier debt is forgotten: the disk has evidently done
/// everything it was given, whatever the model thinks. (Two cores that both see nothing in flight send one request
/// each, and those who were in line keep their pieces; that is all the harm.)
///
/// # Errors
/// The disk has enough to do: when to ask again, ns. A completion that leaves nothing in flight is reason to ask earlier.
pub fn ask(
    claim: &mut Claim,
    now_ns: u64,
    cost_ns: u64,
    in_flight: u32,
    bucket: &impl Budget,
) -> Result<(), u64> {
    if in_flight == 0 {
        claim.start_afresh(now_ns, cost_ns, bucket);
        return Ok(());
    }
    claim.ask(now_ns, cost_ns, PIECE_NS, BURST_NS, bucket)
}

/// What `bytes` cost a group that may move `bytes_per_second`, ns of time.
#[must_use]
pub fn limit_cost_ns(bytes: u64, bytes_per_second: u64) -> u64 {
    let cost = (u128::from(bytes) * SECOND_NS).div_ceil(u128::from(bytes_per_second.max(1)));
    u64::try_from(cost).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: DiskModel = DiskModel {
        read_bandwidth_max: 2_000_000_000,
        write_bandwidth_max: 1_000_000_000,
        read_ops_max: 400_000,
        write_ops_max: 100_000,
    };

    #[test]
    fn cost_adds_bandwidth_and_operations() {
        assert_eq!(DISK.cost_ns(Kind::Read, 4096), 2_048 + 2_500);
        assert_eq!(DISK.cost_ns(Kind::Write, 4096), 4_096 + 10_000);
        assert_eq!(DISK.cost_ns(Kind::Write, 0), 10_000, "a sync");
        assert_eq!(DISK.cost_ns(Kind::Read, 1 << 20), 524_288 + 2_500);
        assert_eq!(DISK.cost_ns(Kind::Read, u64::MAX), 9_223_372_036_854_775_808 + 2_500);
        let unmeasured = DiskModel { read_bandwidth_max: 0, ..DISK };
        assert_eq!(unmeasured.cost_ns(Kind::Read, u64::MAX), u64::MAX);
    }

    #[test]
    fn a_limit_costs_the_time_it_takes() {
        assert_eq!(limit_cost_ns(65_536, 10_000_000), 6_553_600);
        assert_eq!(limit_cost_ns(1, 3_000_000_000), 1, "rounded up: never above the limit");
        assert_eq!(limit_cost_ns(0, 1), 0);
        assert_eq!(limit_cost_ns(u64::MAX, 0), u64::MAX);
    }
}
