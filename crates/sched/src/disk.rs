//! What a request costs a disk, and when the disk can take it. A disk has four maxima: bytes and
//! operations a second, for reads and for writes. The model is additive: a mix is within the disk's
//! means as long as
//!
//! ```text
//!   Σ bytes ÷ bandwidth_max  +  Σ operations ÷ ops_max   ≤  1      (each kind by its own maxima, per second)
//! ```
//!
//! so one request costs `bytes ÷ bandwidth_max + 1 ÷ ops_max` seconds *of the disk*. (Charging the
//! larger of the two instead under-charges mixed load by up to half.) One bucket for the disk,
//! shared by all cores, is filled with one second of disk for each second of time: the one `u64` of
//! [`crate::gcra`], on which each core has a [`Claim`].
//!
//! A rate bounds what waits inside the disk only while the disk keeps to its model. So what is
//! under way is bounded as well, in disk time ([`DiskModel::window_ns`]): a disk that does less
//! than it once did is sent no more than it has done, and a request that comes next finds a short
//! queue all the same. (Seastar's `fair_group` does both as well: tokens are only given back by
//! completions.)

use crate::io_claim::{Budget, Claim};

/// How far ahead of the model requests may be sent, ns of disk: the queue that may build up inside
/// the device, and so what a request that comes next waits there at most, if the maxima are right.
/// It is also how late a core's timer may be at no loss.
pub const BURST_NS: u64 = 500_000;
/// Disk time that a core takes at once while the disk has enough to do, ns: so long it is, at most,
/// before the next core's turn, and as often a core's timer goes off to send the next lot. A lot of
/// some tens of small requests is sent with one system call; one by one they would take twice the
/// CPU.
pub const PIECE_NS: u64 = 250_000;
const _: () = assert!(PIECE_NS * 2 <= BURST_NS, "while a core's turn passes, the device has something to do");
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
    /// What a small read takes that finds nothing else under way, ns.
    pub latency_ns: u64,
}

/// What the disk is working on, in ns of disk; a request counts as at most a second.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct UnderWay {
    /// This core's requests.
    pub own_ns: u64,
    /// Those of all cores.
    pub all_ns: u64,
}

/// Requests under way while a disk's operations are measured, on one core at least. With so many,
/// by Little's law, each took this many times a second by operations: more than one alone does,
/// which is taken for the latency where that was not measured.
pub const RANDOM_DEPTH: u64 = 64;

/// Size of the requests that a disk's bandwidth is measured with, bytes.
pub const SEQUENTIAL_BYTES: u64 = 128 << 10;
/// Size of the requests that a disk's operations are measured with, bytes.
pub const RANDOM_BYTES: u64 = 4 << 10;

/// What a disk was seen to do, with as many requests in flight as it takes. Zero counts as one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskSpeed {
    /// Bytes a second, reading in order, [`SEQUENTIAL_BYTES`] at a time.
    pub read_bandwidth: u64,
    /// Bytes a second, writing in order, [`SEQUENTIAL_BYTES`] at a time.
    pub write_bandwidth: u64,
    /// Reads a second of [`RANDOM_BYTES`], anywhere.
    pub read_ops: u64,
    /// Writes a second of [`RANDOM_BYTES`], anywhere.
    pub write_ops: u64,
    /// A read of [`RANDOM_BYTES`], anywhere, with nothing else in flight, ns. Zero: not measured.
    pub read_latency_ns: u64,
}

/// The part of what a disk was seen to do that it is given to do, in percent. At all of it,
/// whatever once waits inside it (after a hiccup, or beside another program) waits for good; and a
/// kernel's I/O scheduler or a hypervisor's throttle that has something to choose from chooses by
/// its own rules: `mq-deadline` then lets a single read wait behind a scan for up to half a second.
const USED_PERCENT: u64 = 90;

impl DiskSpeed {
    /// The model in which the disk is given nearly all it was seen to do ([`USED_PERCENT`]). Each
    /// request measured moved bytes *and* was an operation, so the two are told apart again
    /// (`sequential = SEQUENTIAL_BYTES·x + y`, `random = RANDOM_BYTES·x + y`).
    #[must_use]
    pub fn model(&self) -> DiskModel {
        let used = |seen: u64| (u128::from(seen) * u128::from(USED_PERCENT) / 100) as u64;
        let (read_bandwidth_max, read_ops_max) = maxima(used(self.read_bandwidth), used(self.read_ops));
        let (write_bandwidth_max, write_ops_max) = maxima(used(self.write_bandwidth), used(self.write_ops));
        let latency_ns = match self.read_latency_ns {
            0 => RANDOM_DEPTH * 1_000_000_000 / self.read_ops.max(1),
            measured => measured,
        };
        DiskModel { read_bandwidth_max, write_bandwidth_max, read_ops_max, write_ops_max, latency_ns }
    }
}

/// Bytes and operations a second that cost the whole disk, each on its own.
fn maxima(bandwidth: u64, ops: u64) -> (u64, u64) {
    /// Times are in attoseconds, so that a byte of a fast disk is a number of some precision.
    const UNIT: u128 = SECOND_NS * 1_000_000_000;
    let (large, small) = (u128::from(SEQUENTIAL_BYTES), u128::from(RANDOM_BYTES));
    let sequential = large * UNIT / u128::from(bandwidth.max(1));
    let random = UNIT / u128::from(ops.max(1));
    // What takes no longer in large pieces (a turning disk's head that has arrived) tells nothing
    // of how much of it is transfer: the bandwidth is taken as it was seen.
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

    /// Disk time that may be under way, ns. By Little's law a disk that is to be busy all the time
    /// needs as much of it under way as a request takes: here twice that, since in a mix some take
    /// twice as long, beside the burst. (Measured: docs/benchmarks.md, "The disk by shares": scans
    /// lose nothing by it.)
    #[must_use]
    pub fn window_ns(&self) -> u64 {
        self.latency_ns.saturating_mul(2).saturating_add(BURST_NS)
    }

    /// Whether one of `cores` cores may send a request more. Nobody waits for others alone: each
    /// may have its part of the window under way, whoever fills the rest, and one request always.
    /// So who is refused hears of it by a completion of its own.
    #[must_use]
    pub fn has_room(&self, under_way: UnderWay, cores: usize) -> bool {
        let window_ns = self.window_ns();
        let part_ns = window_ns / (cores as u64).max(1);
        under_way.own_ns == 0 || under_way.own_ns < part_ns || under_way.all_ns < window_ns
    }
}

/// Asks the disk's bucket to take a request of `cost_ns`, for the core that has this claim on it.
///
/// With nothing under way the answer is always yes, and earlier debt is forgotten: the disk has
/// evidently done everything it was given, whatever the model thinks. (Two cores that both see
/// nothing under way send one request each, and those who were in line keep their pieces; that is
/// all the harm.)
///
/// # Errors
/// The disk has enough to do: when to ask again, ns. A completion that leaves nothing under way is reason to ask earlier.
pub fn ask(
    claim: &mut Claim,
    now_ns: u64,
    cost_ns: u64,
    under_way: UnderWay,
    bucket: &impl Budget,
) -> Result<(), u64> {
    if under_way.all_ns == 0 {
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
        latency_ns: 100_000,
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

    /// Half a percent, or a nanosecond of rounding.
    fn close(found: u64, expected: u64) -> bool {
        found.abs_diff(expected) <= expected / 200 + 2
    }

    #[test]
    fn a_model_gives_nine_tenths_of_what_was_measured() {
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
                [SEQUENTIAL_BYTES, RANDOM_BYTES].map(|bytes| model.cost_ns(Kind::Read, bytes));
            let measured_ns =
                [SEQUENTIAL_BYTES * 1_000_000_000 / bandwidth, 1_000_000_000 / ops].map(|ns| ns * 10 / 9);
            assert!(
                close(large_ns, measured_ns[0]) && close(small_ns, measured_ns[1]),
                "{bandwidth} {ops}: {model:?}"
            );
            assert!(close(model.cost_ns(Kind::Write, RANDOM_BYTES), 2 * measured_ns[1]));
            assert_eq!(model.latency_ns, read_latency_ns);
            let unmeasured = DiskSpeed { read_latency_ns: 0, ..speed }.model();
            assert_eq!(unmeasured.latency_ns, 64_000_000_000 / ops, "rather too much: more is under way");
        }
    }

    #[test]
    fn strange_measurements_give_a_model_all_the_same() {
        let seen = |bandwidth, ops| {
            let (read_bandwidth, write_bandwidth) = (bandwidth, bandwidth);
            DiskSpeed { read_bandwidth, read_ops: ops, write_bandwidth, write_ops: ops, read_latency_ns: 1 }
                .model()
        };
        // A turning disk: large pieces in order are cheaper than small ones anywhere.
        let turning = seen(200_000_000, 120);
        assert!(close(turning.cost_ns(Kind::Read, RANDOM_BYTES), 1_000_000_000 / 108), "{turning:?}");
        assert!(close(turning.read_bandwidth_max, 180_000_000));
        // Small pieces move more bytes than large ones.
        let upside_down = seen(1_000_000, 1_000_000);
        assert!(close(upside_down.cost_ns(Kind::Read, RANDOM_BYTES), 1_111), "{upside_down:?}");
        for (bandwidth, ops) in [(0, 0), (0, u64::MAX), (u64::MAX, 0), (u64::MAX, u64::MAX)] {
            assert!(seen(bandwidth, ops).cost_ns(Kind::Write, RANDOM_BYTES) > 0);
        }
    }

    #[test]
    fn each_core_has_its_part_of_the_window_and_what_others_leave() {
        assert_eq!(DISK.window_ns(), 700_000);
        let has_room = |own_ns, all_ns| DISK.has_room(UnderWay { own_ns, all_ns }, 4);
        assert!(has_room(0, 0) && has_room(699_999, 699_999), "alone it may use all of it");
        assert!(!has_room(700_000, 700_000));
        assert!(has_room(174_999, 5_000_000), "its part, whoever has more than theirs");
        assert!(!has_room(175_000, 700_000));
        let boundless = DiskModel { latency_ns: u64::MAX, ..DISK };
        assert!(boundless.has_room(UnderWay { own_ns: 1 << 60, all_ns: 1 << 62 }, 0));
        assert!(
            DiskModel { latency_ns: 0, ..DISK }.has_room(UnderWay { own_ns: 0, all_ns: 1 << 62 }, 1 << 40)
        );
    }

    #[test]
    fn a_limit_costs_the_time_it_takes() {
        assert_eq!(limit_cost_ns(65_536, 10_000_000), 6_553_600);
        assert_eq!(limit_cost_ns(1, 3_000_000_000), 1, "rounded up: never above the limit");
        assert_eq!(limit_cost_ns(0, 1), 0);
        assert_eq!(limit_cost_ns(u64::MAX, 0), u64::MAX);
    }
}
