//! Answers of a node by class, on one core.

use crate::log2::log2;

/// Classes of prepared statements of a node.
const STATEMENTS: u16 = 256;
/// Classes of opcodes: those of requests are below 16 (native_protocol_v5.spec, section 2.4).
const OPCODES: u16 = 16;
pub(super) const CLASSES: usize = (STATEMENTS + OPCODES) as usize;

/// Class of requests with similar cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassId(u16);

/// Answers of a class.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Sum {
    pub(super) answers: u64,
    /// Sum of the binary logarithms of their times.
    pub(super) logs: u64,
}

/// Answers of a node since the last tick, and the use of the window, on one core. The core with the
/// [`super::NodeWindow`] takes the samples of all cores. Counting takes a few nanoseconds, and
/// allocates nothing.
#[derive(Clone, Debug)]
pub struct NodeSample {
    classes: Box<[Sum]>,
    /// Classes with answers, so that a tick costs nothing for the others.
    touched: Vec<u16>,
    pub(super) answers: u64,
    pub(super) overloaded: u64,
    pub(super) timeouts: u64,
    full_ns: u64,
    interval_ns: u64,
}

impl ClassId {
    /// Returns the class of a prepared statement with one size of pages. The caller numbers those
    /// pairs from 0. From number 256 on, all with the same opcode are one class.
    #[must_use]
    pub fn of_statement(number: u32, opcode: u8) -> ClassId {
        match u16::try_from(number) {
            Ok(number) if number < STATEMENTS => ClassId(number),
            _ => ClassId::of_opcode(opcode),
        }
    }

    /// Returns the class of the other requests with this opcode.
    #[must_use]
    pub fn of_opcode(opcode: u8) -> ClassId {
        ClassId(STATEMENTS + u16::from(opcode) % OPCODES)
    }
}

impl Sum {
    /// Returns the mean logarithm; 0 without answers.
    pub(super) fn mean(self) -> u64 {
        self.logs.checked_div(self.answers).unwrap_or(0)
    }
}

impl Default for NodeSample {
    fn default() -> NodeSample {
        NodeSample {
            classes: vec![Sum::default(); CLASSES].into(),
            touched: Vec::with_capacity(CLASSES),
            answers: 0,
            overloaded: 0,
            timeouts: 0,
            full_ns: 0,
            interval_ns: 0,
        }
    }
}

impl NodeSample {
    /// Counts an answer that came `time_ns` after the write of its request to the socket.
    pub fn answered(&mut self, class: ClassId, time_ns: u64) {
        self.add(class.0, Sum { answers: 1, logs: log2(time_ns) });
    }

    /// Returns the number of answers whose times are counted.
    #[must_use]
    pub fn answers(&self) -> u64 {
        self.answers
    }

    /// Counts an error Overloaded of the node.
    pub fn overloaded(&mut self) {
        self.overloaded += 1;
    }

    /// Counts a read or write timeout that the node reports as coordinator.
    pub fn coordinator_timeout(&mut self) {
        self.timeouts += 1;
    }

    /// Counts an interval in which the core's part of the window was in use as a whole for
    /// `full_ns`.
    pub fn used(&mut self, full_ns: u64, interval_ns: u64) {
        self.full_ns = self.full_ns.saturating_add(full_ns);
        self.interval_ns = self.interval_ns.saturating_add(interval_ns);
    }

    /// Moves everything from the sample of another core to this one.
    pub fn take(&mut self, other: &mut NodeSample) {
        for (class, sum) in other.sums() {
            self.add(class as u16, sum);
        }
        self.overloaded += other.overloaded;
        self.timeouts += other.timeouts;
        self.used(other.full_ns, other.interval_ns);
        other.clear();
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        for class in self.touched.drain(..) {
            self.classes[usize::from(class)] = Sum::default();
        }
        (self.answers, self.overloaded, self.timeouts, self.full_ns, self.interval_ns) = (0, 0, 0, 0, 0);
    }

    /// Returns true if the window was the limit for half of the time.
    pub(super) fn is_limited(&self) -> bool {
        self.full_ns > 0 && self.full_ns >= self.interval_ns / 2
    }

    /// Returns the classes with answers.
    pub(super) fn sums(&self) -> impl Iterator<Item = (usize, Sum)> {
        self.touched.iter().map(|&class| (usize::from(class), self.classes[usize::from(class)]))
    }

    fn add(&mut self, class: u16, sum: Sum) {
        let known = &mut self.classes[usize::from(class)];
        if known.answers == 0 {
            self.touched.push(class);
        }
        known.answers += sum.answers;
        known.logs += sum.logs;
        self.answers += sum.answers;
    }
}
