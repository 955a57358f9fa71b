//! epoll with a timer of nanosecond resolution: epoll's own timeout counts milliseconds on older kernels and
//! is stretched by the timer slack on all, while a `timerfd` fires when it is told to.

use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

use crate::clock::SECOND_NS;

/// The timer's place among the connections' numbers.
const TIMER: u64 = u64::MAX;

/// What happened to a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub(crate) connection: usize,
    pub(crate) readable: bool,
}

pub(crate) struct Poller {
    epoll: OwnedFd,
    timer: OwnedFd,
    /// When the timer fires, nanoseconds since the run began; zero when it is not set.
    armed_ns: u64,
    events: Vec<epoll::Event>,
}

impl Poller {
    pub(crate) fn new() -> Result<Poller, io::Error> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN)?;
        Ok(Poller { epoll, timer, armed_ns: 0, events: Vec::with_capacity(256) })
    }

    pub(crate) fn add(&self, stream: &TcpStream, connection: usize) -> Result<(), io::Error> {
        Ok(epoll::add(&self.epoll, stream, EventData::new_u64(connection as u64), EventFlags::IN)?)
    }

    /// Asks (or no longer asks) to be told when the socket can be written.
    pub(crate) fn set_writable(
        &self,
        stream: &TcpStream,
        connection: usize,
        on: bool,
    ) -> Result<(), io::Error> {
        let flags = if on { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        Ok(epoll::modify(&self.epoll, stream, EventData::new_u64(connection as u64), flags)?)
    }

    pub(crate) fn remove(&self, stream: &TcpStream) {
        // Closing the socket removes it as well; this only comes first.
        let _ = epoll::delete(&self.epoll, stream);
    }

    /// Waits for something to happen, at most until `wake_ns`; not at all when that has passed. It may return
    /// early: a timer set for an earlier time is left alone, because setting one costs a virtual machine an
    /// exit to its host.
    pub(crate) fn wait(
        &mut self,
        now_ns: u64,
        wake_ns: u64,
        ready: &mut Vec<Ready>,
    ) -> Result<(), io::Error> {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let timeout = if wake_ns <= now_ns {
            Some(zero)
        } else if now_ns < self.armed_ns && self.armed_ns <= wake_ns {
            None
        } else {
            let ns = wake_ns - now_ns;
            let value = Timespec { tv_sec: (ns / SECOND_NS) as i64, tv_nsec: (ns % SECOND_NS) as _ };
            // Setting it anew also clears an earlier expiry, so the timer is never read.
            let once = Itimerspec { it_interval: zero, it_value: value };
            rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
            self.armed_ns = wake_ns;
            None
        };
        self.events.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in &self.events {
            let connection = event.data.u64();
            if connection != TIMER {
                let flags = event.flags;
                // Errors and hang-ups are found out by reading.
                let readable = flags.intersects(EventFlags::IN | EventFlags::ERR | EventFlags::HUP);
                ready.push(Ready { connection: connection as usize, readable });
            }
        }
        Ok(())
    }
}
