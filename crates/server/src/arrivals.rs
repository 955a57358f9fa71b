//! Times at which the bytes of a connection arrived, as far as a server can know them. A socket
//! tells how many bytes wait in it, not since when.
//!
//! ```text
//!   bytes                          ● read 3: all bytes up to here have arrived
//!   arrived               ●───────●
//!                        ╱         the task was woken: nothing had arrived before
//!                ●──────●
//!                read 2  read ended, and more bytes waited in the socket
//!   ────────────────────────────────────▶ time
//! ```
//!
//! 1. After each read, the bytes that were read so far and those that wait in the socket have
//!    arrived.
//! 2. If the task waited for the socket, nothing arrived between the last read and its wake-up.
//! 3. Between two points, bytes are taken to arrive at a constant rate.
//! 4. A refused client pauses, and may come back a little early. What arrives in the first half of
//!    the pause was sent before its client knew. The rest counts from the end of the pause.
//!
//! Under overload a client's requests wait in its socket. A server that counts their age from the
//! read takes the oldest requests for new ones, and answers all of them too late.

/// Points that are kept: enough for 512 KiB in a socket, read in pieces of 32 KiB.
const POINTS: usize = 16;

/// Number of bytes that had arrived at a time, ns of the monotonic clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Point {
    ns: u64,
    arrived: u64,
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

    /// Takes a read of `bytes` at `now_ns` that left `waiting` bytes in the socket, and `unread`
    /// earlier ones in the buffer. If the task had waited for the socket, `woken_ns` is the time of
    /// its wake-up.
    pub(crate) fn read(
        &mut self,
        (bytes, waiting, unread): (usize, usize, usize),
        woken_ns: Option<u64>,
        now_ns: u64,
    ) {
        self.forget(self.read - (unread as u64).min(self.read));
        if let Some(woken_ns) = woken_ns {
            self.nothing_until(woken_ns);
        }
        self.read += bytes as u64;
        self.add(now_ns, self.read + waiting as u64);
    }

    /// Takes a look at the socket at `now_ns`, in which `waiting` bytes wait.
    pub(crate) fn look(&mut self, waiting: usize, now_ns: u64) {
        self.add(now_ns, self.read + waiting as u64);
    }

    /// Takes all bytes that have not been seen so far as arriving after `ns`.
    pub(crate) fn nothing_until(&mut self, ns: u64) {
        self.add(ns, 0);
    }

    /// Returns the time at which the first of the last `unread` bytes of the buffer arrived, ns.
    pub(crate) fn since_ns(&self, unread: usize) -> u64 {
        let byte = self.read.saturating_sub(unread as u64);
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

    #[test]
    fn bytes_arrive_after_the_wake_up() {
        let mut arrivals = Arrivals::new(MS);
        arrivals.read((100, 0, 0), Some(5 * MS), 7 * MS);
        for (unread, expected_ns) in [(100, 5 * MS), (50, 6 * MS), (0, 7 * MS)] {
            assert_eq!(arrivals.since_ns(unread), expected_ns, "{unread}");
        }
        // The next request comes alone.
        arrivals.read((100, 0, 0), Some(20 * MS), 21 * MS);
        assert_eq!(arrivals.since_ns(100), 20 * MS);
    }

    #[test]
    fn bytes_of_a_busy_connection_arrive_since_the_last_read() {
        let mut arrivals = Arrivals::new(0);
        arrivals.read((100, 0, 0), Some(MS), MS);
        arrivals.read((100, 0, 0), None, 101 * MS);
        assert_eq!([100, 50, 1].map(|unread| arrivals.since_ns(unread) / MS), [1, 51, 100]);
    }

    #[test]
    fn bytes_that_waited_in_the_socket_keep_their_time() {
        let mut arrivals = Arrivals::new(0);
        arrivals.read((100, 300, 0), Some(MS), MS);
        // Nothing came for 10 ms, then 400 bytes.
        arrivals.read((100, 200, 0), None, 11 * MS);
        arrivals.read((100, 500, 0), None, 12 * MS);
        assert_eq!(arrivals.since_ns(100), MS);
        arrivals.read((100, 400, 0), None, 13 * MS);
        assert_eq!(arrivals.since_ns(100), MS, "the last of the first 400");
        arrivals.read((200, 200, 50), None, 14 * MS);
        assert_eq!(arrivals.since_ns(250), MS, "a part of it was left in the buffer");
        assert_eq!([200, 100].map(|unread| arrivals.since_ns(unread)), [11 * MS, 11 * MS + MS / 4]);
    }

    #[test]
    fn bytes_late_in_a_pause_count_from_its_end() {
        let mut arrivals = Arrivals::new(0);
        arrivals.read((100, 50, 0), Some(MS), MS);
        arrivals.look(150, 11 * MS);
        arrivals.nothing_until(21 * MS);
        arrivals.read((250, 0, 0), None, 21 * MS);
        let since_ms = [250, 200, 150, 100].map(|unread| arrivals.since_ns(unread) / MS);
        assert_eq!(since_ms, [1, 1, 6, 21]);
    }

    #[test]
    fn times_are_between_the_reads_around_the_arrival() {
        let mut random = testkit::Random::new(7);
        let (mut arrivals, mut now_ns, mut read) = (Arrivals::new(0), 0, 0_u64);
        // Bytes that had been sent at a time, and the times of reads.
        let (mut sent, mut reads_ns): (Vec<(u64, u64)>, Vec<u64>) = (vec![(0, 0)], vec![0]);
        for _ in 0..20_000 {
            now_ns += random.within(1, MS);
            sent.push((sent[sent.len() - 1].0 + random.below(4000), now_ns));
            if random.one_in(2) {
                continue;
            }
            let there = sent[sent.len() - 1].0 - read;
            let bytes = there.min(6000);
            let is_exact = arrivals.len < POINTS;
            arrivals.read((bytes as usize, (there - bytes) as usize, 0), None, now_ns);
            reads_ns.push(now_ns);
            if bytes > 0 && is_exact {
                let true_ns = sent[sent.partition_point(|(bytes, _)| *bytes <= read)].1;
                let next = reads_ns.partition_point(|ns| *ns < true_ns);
                let since_ns = arrivals.since_ns(bytes as usize);
                assert!((reads_ns[next - 1]..=reads_ns[next]).contains(&since_ns), "{since_ns} {true_ns}");
            }
            read += bytes;
        }
    }
}
