//! epoll with a timer of nanosecond resolution. The timeout of epoll has milliseconds on older
//! kernels, and timer slack delays it on all. A `timerfd` fires on time.

use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

use crate::clock::SECOND_NS;

/// Event number of the timer. Connections have smaller ones.
const TIMER: u64 = u64::MAX;

/// Event of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub(crate) connection: usize,
    pub(crate) readable: bool,
}

pub(crate) struct Poller {
    epoll: OwnedFd,
    timer: OwnedFd,
    /// Time at which the timer fires, nanoseconds since the run began. Zero: not set.
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

    /// Starts or stops reporting when the socket becomes writable.
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
        // Closing the socket would remove it too.
        let _ = epoll::delete(&self.epoll, stream);
    }

    /// Waits for events until `wake_ns`. Does not wait if that time has passed. May return early: a
    /// timer set for an earlier time is kept, since setting one costs a virtual machine an exit to
    /// its host.
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
            // Setting the timer also clears an earlier expiry, so that it need not be read.
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
                // A read reports errors and hang-ups.
                let readable = flags.intersects(EventFlags::IN | EventFlags::ERR | EventFlags::HUP);
                ready.push(Ready { connection: connection as usize, readable });
            }
        }
        Ok(())
    }
}
