//! Times at which the bytes of a connection arrived, as far as a server can know them. A socket
//! reports how many bytes wait in it, not since when.
//!
//! ```text
//!   bytes                          ● read 3: all bytes up to here have arrived
//!   arrived               ●───────●
//!                        ╱         the task was woken: nothing had arrived before
//!                ●──────●
//!                read 2  read ended, and more bytes waited in the socket
//!   ───────────────────────▶ time
//! ```
//!
//! 1. After each read, the bytes that were read so far and those that wait in the socket have
//!    arrived.
//! 2. If the task waited for the socket, nothing arrived between the last read and its wake-up.
//! 3. Between two points, bytes are taken to arrive at a constant rate.
//! 4. A message begins to wait when its last byte may have arrived: the time that a slow network
//!    takes for the rest of it is no wait.
//! 5. A refused client pauses, and may come back a little early. What arrives in the first half of
//!    the pause was sent before its client knew. The rest counts from the end of the pause.
//!
//! Under overload a client's requests wait in its socket. A server that counts their age from the
//! read takes the oldest requests for new ones, and answers all of them too late.

/// Points that are kept: enough for 512 KiB in a socket, read in chunks of 32 KiB.
const POINTS: usize = 16;

/// Number of bytes that had arrived at a time, ns of the monotonic clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Point {
    ns: u64,
    arrived: u64,
}

/// A read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    /// Bytes read.
    pub(crate) bytes: usize,
    /// Bytes left in the socket.
    pub(crate) waiting: usize,
    /// Bytes of earlier reads that are left in the buffer.
    pub(crate) unread: usize,
}

/// The arrivals on one connection.
#[derive(Debug)]
pub(crate) struct Arrivals {
    /// Points in the order of time. Neither number ever falls.
    points: [Point; POINTS],
    /// Number of points; at least 1.
    len: usize,
    /// Bytes read.
    read: u64,
}

impl Arrivals {
    /// Creates the arrivals of a connection that opened at `now_ns`.
    pub(crate) fn new(now_ns: u64) -> Arrivals {
        let mut points = [Point::default(); POINTS];
        points[0].ns = now_ns;
        Arrivals { points, len: 1, read: 0 }
    }

    /// Records a read at `now_ns`.
    pub(crate) fn read(&mut self, read: Read, now_ns: u64) {
        self.forget(self.read.saturating_sub(read.unread as u64));
        self.read += read.bytes as u64;
        let arrived = self.read + read.waiting as u64;
        // Encrypted bytes were counted with the overhead of their records.
        self.points[..self.len].iter_mut().for_each(|point| point.arrived = point.arrived.min(arrived));
        self.add(now_ns, arrived);
    }

    /// Records the number of bytes in the socket at `now_ns`.
    pub(crate) fn check(&mut self, waiting: usize, now_ns: u64) {
        self.add(now_ns, self.read + waiting as u64);
    }

    /// Records that no bytes have arrived between the last point and `ns`.
    pub(crate) fn nothing_until(&mut self, ns: u64) {
        self.add(ns, 0);
    }

    /// Returns the time since which a message waits, ns. `unread` bytes were left in the buffer
    /// before it, and `left` are left after it.
    pub(crate) fn since_ns(&self, unread: usize, left: usize) -> u64 {
        let first_ns = self.arrived_ns(self.read.saturating_sub(unread as u64));
        let last = self.read.saturating_sub(left as u64 + 1);
        let points = &self.points[..self.len];
        let before = points.iter().rev().find(|point| point.arrived <= last);
        first_ns.max(before.map_or(0, |point| point.ns))
    }

    /// Returns the time at which a byte arrived, ns.
    fn arrived_ns(&self, byte: u64) -> u64 {
        let points = &self.points[..self.len];
        let Some(next) = points.iter().position(|point| point.arrived > byte) else {
            return points[self.len - 1].ns;
        };
        let Some(before) = next.checked_sub(1) else { return points[0].ns };
        let (before, next) = (points[before], points[next]);
        // Below 2^31 bytes and 2^33 ns between two points in practice; more only loses precision.
        let passed_ns = (next.ns - before.ns).saturating_mul(byte - before.arrived);
        before.ns + passed_ns / (next.arrived - before.arrived)
    }

    /// Adds a point. In a full list it replaces the last one, so that times are less exact.
    fn add(&mut self, ns: u64, arrived: u64) {
        let last = self.points[self.len - 1];
        let point = Point { ns: ns.max(last.ns), arrived: arrived.max(last.arrived) };
        if self.len < POINTS {
            self.len += 1;
        }
        self.points[self.len - 1] = point;
    }

    /// Drops the points that are needed only for bytes before `byte`.
    fn forget(&mut self, byte: u64) {
        let points = &self.points[..self.len];
        let unneeded = points.iter().skip(1).take_while(|point| point.arrived <= byte).count();
        self.points.copy_within(unneeded..self.len, 0);
        self.len -= unneeded;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn read(bytes: usize, waiting: usize) -> Read {
        Read { bytes, waiting, unread: 0 }
    }

    /// Returns the times of messages of ten bytes, the first one `unread` bytes before the end, ms.
    fn since_ms<const N: usize>(arrivals: &Arrivals, unread: [usize; N]) -> [u64; N] {
        unread.map(|unread| arrivals.since_ns(unread, unread - 10) / MS)
    }

    #[test]
    fn bytes_arrive_after_the_wake_up() {
        let mut arrivals = Arrivals::new(MS);
        arrivals.nothing_until(5 * MS);
        arrivals.read(read(100, 0), 15 * MS);
        assert_eq!(since_ms(&arrivals, [100, 50, 10]), [5, 10, 14]);
        // The next request comes alone.
        arrivals.nothing_until(20 * MS);
        arrivals.read(read(10, 0), 21 * MS);
        assert_eq!(since_ms(&arrivals, [10]), [20]);
    }

    #[test]
    fn bytes_of_a_busy_connection_arrive_since_the_last_read() {
        let mut arrivals = Arrivals::new(0);
        arrivals.nothing_until(MS);
        arrivals.read(read(100, 0), MS);
        arrivals.read(read(100, 0), 101 * MS);
        assert_eq!(since_ms(&arrivals, [100, 50, 10]), [1, 51, 91]);
    }

    #[test]
    fn bytes_that_waited_in_the_socket_keep_their_time() {
        let mut arrivals = Arrivals::new(0);
        arrivals.nothing_until(MS);
        arrivals.read(read(100, 300), MS);
        // Nothing came for 10 ms, then 400 bytes.
        arrivals.read(read(100, 200), 11 * MS);
        arrivals.read(read(100, 500), 15 * MS);
        assert_eq!(since_ms(&arrivals, [100]), [1]);
        arrivals.read(read(100, 400), 16 * MS);
        assert_eq!(since_ms(&arrivals, [100]), [1], "the last of the first 400");
        arrivals.read(Read { bytes: 200, waiting: 200, unread: 50 }, 17 * MS);
        assert_eq!(since_ms(&arrivals, [250]), [1], "a part of it was left in the buffer");
        assert_eq!(since_ms(&arrivals, [200, 100]), [11, 12]);
    }

    #[test]
    fn slow_message_waits_from_its_last_byte_on() {
        let mut arrivals = Arrivals::new(0);
        arrivals.nothing_until(MS);
        arrivals.read(read(100, 0), MS);
        arrivals.nothing_until(200 * MS);
        arrivals.read(Read { bytes: 50, waiting: 0, unread: 40 }, 201 * MS);
        assert_eq!(arrivals.since_ns(90, 20) / MS, 200);
        assert_eq!(since_ms(&arrivals, [20]), [200]);
    }

    #[test]
    fn bytes_late_in_a_pause_count_from_its_end() {
        let mut arrivals = Arrivals::new(0);
        arrivals.nothing_until(MS);
        arrivals.read(read(100, 50), MS);
        arrivals.check(150, 11 * MS);
        arrivals.nothing_until(21 * MS);
        arrivals.read(read(250, 0), 21 * MS);
        assert_eq!(since_ms(&arrivals, [250, 210, 150, 100]), [1, 1, 6, 21]);
    }

    #[test]
    fn overhead_of_encryption_makes_no_later_byte_old() {
        let mut arrivals = Arrivals::new(0);
        arrivals.read(read(100, 322), MS);
        arrivals.read(read(300, 0), 2 * MS);
        arrivals.nothing_until(50 * MS);
        arrivals.read(read(100, 0), 51 * MS);
        assert_eq!(since_ms(&arrivals, [100]), [50]);
    }

    #[test]
    fn times_are_between_the_reads_around_the_arrival() {
        let mut random = testkit::Random::new(7);
        let (mut arrivals, mut now_ns, mut taken) = (Arrivals::new(0), 0, 0_u64);
        // Bytes that had been sent at a time, and the times of reads.
        let (mut sent, mut reads_ns): (Vec<(u64, u64)>, Vec<u64>) = (vec![(0, 0)], vec![0]);
        for _ in 0..20_000 {
            now_ns += random.within(1, MS);
            sent.push((sent[sent.len() - 1].0 + random.below(4000), now_ns));
            if random.one_in(2) {
                continue;
            }
            let there = sent[sent.len() - 1].0 - taken;
            let bytes = there.min(6000);
            let is_exact = arrivals.len < POINTS;
            arrivals.read(read(bytes as usize, (there - bytes) as usize), now_ns);
            reads_ns.push(now_ns);
            if bytes > 0 && is_exact {
                let true_ns = sent[sent.partition_point(|(bytes, _)| *bytes <= taken)].1;
                let next = reads_ns.partition_point(|ns| *ns < true_ns);
                let since_ns = arrivals.since_ns(bytes as usize, bytes as usize - 1);
                assert!((reads_ns[next - 1]..=reads_ns[next]).contains(&since_ns), "{since_ns} {true_ns}");
            }
            taken += bytes;
        }
    }
}
