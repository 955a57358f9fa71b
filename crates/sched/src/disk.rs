//! Cost of a request in disk time, and the time at which the disk can take it. A disk has four
//! maxima: bytes and operations a second, for reads and for writes. The model is additive. The disk
//! can serve a mix as long as
//!
//! ```text
//!   Σ bytes ÷ bandwidth_max  +  Σ operations ÷ ops_max   ≤  1      (each kind by its own maxima, per second)
//! ```
//!
//! So a request costs `bytes ÷ bandwidth_max + 1 ÷ ops_max` seconds of *disk time*. (Charging the
//! larger of the two instead under-charges a mixed load by up to half.) One bucket for the disk,
//! shared by all cores, is filled with one second of disk time a second. It is the one `u64` of
//! [`crate::gcra`], on which each core has a [`Claim`].
//!
//! A rate bounds the queue inside the disk only while the disk is as fast as its model. So disk
//! time in flight is bounded too ([`DiskModel::window_ns`]). A disk that has become slower is sent
//! no more than it completes, and a new request finds a short queue all the same. (Seastar's
//! `fair_group` does both as well: only completions give tokens back.)

use crate::io_claim::{Budget, Claim};

/// Disk time by which requests may run ahead of the model, ns. It bounds the queue inside the
/// device, and so the wait of a new request there, if the maxima are right. A core's timer may be
/// late by as much without loss.
pub const BURST_NS: u64 = 500_000;
/// Disk time that a core takes from the bucket at once while the disk is busy, ns. It bounds the
/// wait for the next core's lease, and sets the interval of the timer that sends the next requests.
/// Sending some tens of small requests takes one system call. One by one they would take twice the
/// CPU.
pub const LEASE_NS: u64 = 250_000;
const _: () = assert!(LEASE_NS * 2 <= BURST_NS, "the device stays busy during the lease of one core");
/// Length of a lease of a group's own limit, ns of wall time.
pub const LIMIT_LEASE_NS: u64 = 1_000_000;

const SECOND_NS: u128 = 1_000_000_000;

/// Direction of a request. Reads and writes have maxima of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskDirection {
    /// Bytes from the disk.
    Read,
    /// Bytes to the disk. A sync is a write of no bytes.
    Write,
}

/// Measured maxima of a disk. Zero counts as one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskModel {
    /// Bytes a second of large reads.
    pub read_bandwidth_max: u64,
    /// Bytes a second of large writes.
    pub write_bandwidth_max: u64,
    /// Small reads a second.
    pub read_ops_max: u64,
    /// Small writes a second.
    pub write_ops_max: u64,
    /// Latency of a small read with nothing else in flight, ns.
    pub latency_ns: u64,
}

/// Requests in flight, in ns of disk time. A request counts as at most a second.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct InFlight {
    /// Requests of this core.
    pub own_ns: u64,
    /// Requests of all cores.
    pub all_ns: u64,
}

/// Requests in flight on each core while operations are measured. By Little's law each request then
/// took this number divided by operations a second. That is longer than a lone request takes, and
/// is used as the latency where that was not measured.
pub const RANDOM_DEPTH: u64 = 64;

/// Size of the requests that a disk's bandwidth is measured with, bytes.
pub const SEQUENTIAL_BYTES: u64 = 128 << 10;
/// Size of the requests that a disk's operations are measured with, bytes.
pub const RANDOM_BYTES: u64 = 4 << 10;

/// Measured speed of a disk, with as many requests in flight as it takes. Zero counts as one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskSpeed {
    /// Bytes a second of sequential reads of [`SEQUENTIAL_BYTES`].
    pub read_bandwidth: u64,
    /// Bytes a second of sequential writes of [`SEQUENTIAL_BYTES`].
    pub write_bandwidth: u64,
    /// Random reads of [`RANDOM_BYTES`] a second.
    pub read_ops: u64,
    /// Random writes of [`RANDOM_BYTES`] a second.
    pub write_ops: u64,
    /// Latency of a random read of [`RANDOM_BYTES`] with nothing else in flight, ns. Zero: not
    /// measured.
    pub read_latency_ns: u64,
}

/// Part of the measured speed that the model allows, in percent. At 100 %, a queue that once forms
/// inside the disk (after a hiccup, or next to another program) never ends. A kernel's I/O
/// scheduler or a hypervisor's throttle then orders it by its own rules: `mq-deadline` lets a
/// single read wait behind a scan for up to half a second.
const USED_PERCENT: u64 = 90;

impl DiskSpeed {
    /// Returns the model with [`USED_PERCENT`] of the measured speed. Each measured request moved
    /// bytes *and* was an operation, so the two costs are separated again (`sequential =
    /// SEQUENTIAL_BYTES·x + y`, `random = RANDOM_BYTES·x + y`).
    #[must_use]
    pub fn model(&self) -> DiskModel {
        let allowed = |seen: u64| (u128::from(seen) * u128::from(USED_PERCENT) / 100) as u64;
        let (read_bandwidth_max, read_ops_max) = maxima(allowed(self.read_bandwidth), allowed(self.read_ops));
        let (write_bandwidth_max, write_ops_max) =
            maxima(allowed(self.write_bandwidth), allowed(self.write_ops));
        let latency_ns = match self.read_latency_ns {
            0 => RANDOM_DEPTH * 1_000_000_000 / self.read_ops.max(1),
            measured => measured,
        };
        DiskModel { read_bandwidth_max, write_bandwidth_max, read_ops_max, write_ops_max, latency_ns }
    }
}

/// Returns the bytes a second and the operations a second that each, on its own, take the whole
/// disk.
fn maxima(bandwidth: u64, ops: u64) -> (u64, u64) {
    /// Attoseconds in a second, so that the time of a byte on a fast disk has enough digits.
    const UNIT: u128 = SECOND_NS * 1_000_000_000;
    let large = u128::from(SEQUENTIAL_BYTES);
    let small = u128::from(RANDOM_BYTES);
    let sequential = large * UNIT / u128::from(bandwidth.max(1));
    let random = UNIT / u128::from(ops.max(1));
    // If a large request takes no longer than a small one (seeks of a hard disk), its time does not
    // show the part of the transfer. The measured bandwidth is used as it is.
    let byte = match sequential.checked_sub(random) {
        Some(longer @ 1..) => longer / (large - small),
        _ => sequential / large,
    };
    let byte = byte.min(random / small).max(1);
    let operation = random.saturating_sub(small * byte);
    let per_second = |time: u128| u64::try_from(UNIT / time.max(SECOND_NS)).unwrap_or(u64::MAX);
    (u64::try_from(UNIT / byte).unwrap_or(u64::MAX), per_second(operation))
}

impl DiskModel {
    /// Returns the cost of a request of `bytes`, ns of disk time, rounded up, at least 1.
    #[must_use]
    pub fn cost_ns(&self, kind: DiskDirection, bytes: u64) -> u64 {
        let (bandwidth, ops) = match kind {
            DiskDirection::Read => (self.read_bandwidth_max, self.read_ops_max),
            DiskDirection::Write => (self.write_bandwidth_max, self.write_ops_max),
        };
        let transfer = (u128::from(bytes) * SECOND_NS).div_ceil(u128::from(bandwidth.max(1)));
        let operation = SECOND_NS.div_ceil(u128::from(ops.max(1)));
        u64::try_from(transfer + operation).unwrap_or(u64::MAX)
    }

    /// Returns the disk time that may be in flight, ns: twice the latency and the burst. By
    /// Little's law one latency keeps the disk busy. The second is for a mix in which some requests
    /// take twice as long. (Measured: docs/decisions/0004-disk-window.md.)
    #[must_use]
    pub fn window_ns(&self) -> u64 {
        self.latency_ns.saturating_mul(2).saturating_add(BURST_NS)
    }

    /// Returns true if one of `cores` cores may send another request. Each core may have its part
    /// of the window in flight, beyond that what the others leave, and always one request. So a
    /// refused core has a request in flight, whose completion wakes it.
    #[must_use]
    pub fn may_send(&self, in_flight: InFlight, cores: usize) -> bool {
        let window_ns = self.window_ns();
        let part_ns = window_ns / (cores as u64).max(1);
        in_flight.own_ns == 0 || in_flight.own_ns < part_ns || in_flight.all_ns < window_ns
    }
}

/// Asks the disk's bucket to take a request of `cost_ns`, for the core that owns `claim`.
///
/// With nothing in flight the request is always granted, and earlier debt is forgiven: the disk has
/// evidently done everything, whatever the model predicts. (Two cores that both see nothing in
/// flight send one request each, and cores that wait keep their leases. No other harm is done.)
///
/// # Errors
/// The disk is busy: the time to ask again, ns. Ask earlier after a completion that leaves nothing
/// in flight.
pub fn ask(
    claim: &mut Claim,
    now_ns: u64,
    cost_ns: u64,
    in_flight: InFlight,
    bucket: &impl Budget,
) -> Result<(), u64> {
    if in_flight.all_ns == 0 {
        claim.reset(now_ns, cost_ns, bucket);
        return Ok(());
    }
    claim.ask(now_ns, cost_ns, LEASE_NS, BURST_NS, bucket)
}

/// Returns the cost of `bytes` for a group with a limit of `bytes_per_second`, ns of wall time.
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
        latency_ns: 100_000,
    };

    #[test]
    fn cost_adds_bandwidth_and_operations() {
        assert_eq!(DISK.cost_ns(DiskDirection::Read, 4096), 2_048 + 2_500);
        assert_eq!(DISK.cost_ns(DiskDirection::Write, 4096), 4_096 + 10_000);
        assert_eq!(DISK.cost_ns(DiskDirection::Write, 0), 10_000, "a sync");
        assert_eq!(DISK.cost_ns(DiskDirection::Read, 1 << 20), 524_288 + 2_500);
        assert_eq!(DISK.cost_ns(DiskDirection::Read, u64::MAX), 9_223_372_036_854_775_808 + 2_500);
        let unmeasured = DiskModel { read_bandwidth_max: 0, ..DISK };
        assert_eq!(unmeasured.cost_ns(DiskDirection::Read, u64::MAX), u64::MAX);
    }

    /// Compares with a tolerance of half a percent and 2 ns of rounding.
    fn close(found: u64, expected: u64) -> bool {
        found.abs_diff(expected) <= expected / 200 + 2
    }

    #[test]
    fn model_allows_nine_tenths_of_the_measured_speed() {
        for (bandwidth, ops) in
            [(2_000_000_000, 150_000), (7_000_000_000, 1_200_000), (300_000_000, 3_000), (1 << 20, 200)]
        {
            let (write_bandwidth, write_ops) = (bandwidth / 2, ops / 2);
            let read_latency_ns = ops / 7;
            let speed = DiskSpeed {
                read_bandwidth: bandwidth,
                read_ops: ops,
                write_bandwidth,
                write_ops,
                read_latency_ns,
            };
            let model = speed.model();
            let [large_ns, small_ns] =
                [SEQUENTIAL_BYTES, RANDOM_BYTES].map(|bytes| model.cost_ns(DiskDirection::Read, bytes));
            let measured_ns =
                [SEQUENTIAL_BYTES * 1_000_000_000 / bandwidth, 1_000_000_000 / ops].map(|ns| ns * 10 / 9);
            assert!(
                close(large_ns, measured_ns[0]) && close(small_ns, measured_ns[1]),
                "{bandwidth} {ops}: {model:?}"
            );
            assert!(close(model.cost_ns(DiskDirection::Write, RANDOM_BYTES), 2 * measured_ns[1]));
            assert_eq!(model.latency_ns, read_latency_ns);
            let unmeasured = DiskSpeed { read_latency_ns: 0, ..speed }.model();
            assert_eq!(
                unmeasured.latency_ns,
                64_000_000_000 / ops,
                "too long rather than too short: more requests are in flight"
            );
        }
    }

    #[test]
    fn implausible_measurements_give_a_model() {
        let seen = |bandwidth, ops| {
            let (read_bandwidth, write_bandwidth) = (bandwidth, bandwidth);
            DiskSpeed { read_bandwidth, read_ops: ops, write_bandwidth, write_ops: ops, read_latency_ns: 1 }
                .model()
        };
        // A hard disk: sequential large requests are cheaper than random small ones.
        let hard_disk = seen(200_000_000, 120);
        assert!(
            close(hard_disk.cost_ns(DiskDirection::Read, RANDOM_BYTES), 1_000_000_000 / 108),
            "{hard_disk:?}"
        );
        assert!(close(hard_disk.read_bandwidth_max, 180_000_000));
        // Small requests move more bytes a second than large ones.
        let inverted = seen(1_000_000, 1_000_000);
        assert!(close(inverted.cost_ns(DiskDirection::Read, RANDOM_BYTES), 1_111), "{inverted:?}");
        for (bandwidth, ops) in [(0, 0), (0, u64::MAX), (u64::MAX, 0), (u64::MAX, u64::MAX)] {
            assert!(seen(bandwidth, ops).cost_ns(DiskDirection::Write, RANDOM_BYTES) > 0);
        }
    }

    #[test]
    fn each_core_has_its_part_of_the_window_and_free_space() {
        assert_eq!(DISK.window_ns(), 700_000);
        let may_send = |own_ns, all_ns| DISK.may_send(InFlight { own_ns, all_ns }, 4);
        assert!(may_send(0, 0) && may_send(699_999, 699_999), "alone it may use all of it");
        assert!(!may_send(700_000, 700_000));
        assert!(may_send(174_999, 5_000_000), "its part, although others exceed theirs");
        assert!(!may_send(175_000, 700_000));
        let endless_latency = DiskModel { latency_ns: u64::MAX, ..DISK };
        assert!(endless_latency.may_send(InFlight { own_ns: 1 << 60, all_ns: 1 << 62 }, 0));
        assert!(
            DiskModel { latency_ns: 0, ..DISK }.may_send(InFlight { own_ns: 0, all_ns: 1 << 62 }, 1 << 40)
        );
    }

    #[test]
    fn limit_cost_is_bytes_over_the_rate_rounded_up() {
        assert_eq!(limit_cost_ns(65_536, 10_000_000), 6_553_600);
        assert_eq!(limit_cost_ns(1, 3_000_000_000), 1, "rounded up: never above the limit");
        assert_eq!(limit_cost_ns(0, 1), 0);
        assert_eq!(limit_cost_ns(u64::MAX, 0), u64::MAX);
    }
}
