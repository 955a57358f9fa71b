//! The way of a session's answers to its socket. As a rule they are sent when the group pauses (`lanes::at_pause`): the answers of
//! several connections go out one after the other, and the client's thread, once woken, stays awake for all of them. What
//! the socket does not take then, the connection's own task sends, which waits for it.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Buf;
use lanes::AtPause;
use lanes::net::OwnedWriteHalf;
use tokio::io::AsyncWrite;

use crate::connection::Ended;
use crate::counters::add;
use crate::session::Session;

/// Who sends what is in the output buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Sending {
    /// Nobody has been asked to.
    #[default]
    Nobody,
    /// It goes when the group pauses.
    AtPause,
    /// The connection's task, as soon as the socket takes more.
    Connection,
}

impl Session {
    /// Has what is in the output buffer sent in a moment.
    pub(crate) fn send_soon(self: &Rc<Self>) {
        if self.sending.get() == Sending::Nobody && self.encoder.borrow().pending() > 0 {
            self.sending.set(Sending::AtPause);
            lanes::at_pause(self.clone());
        }
    }

    /// Sends what the socket takes now; it wakes the caller once it takes more.
    pub(crate) fn send_now(&self, cx: &mut Context<'_>) -> Result<(), Ended> {
        let sent_all = self.write_out(|output, bytes| Pin::new(output).poll_write(cx, bytes))?;
        match self.sending.get() {
            Sending::AtPause => {}
            _ if sent_all => self.sending.set(Sending::Nobody),
            _ => self.sending.set(Sending::Connection),
        }
        Ok(())
    }

    /// Writes until all is written, which it says, or `write` has to wait.
    fn write_out(
        &self,
        mut write: impl FnMut(&mut OwnedWriteHalf, &[u8]) -> Poll<io::Result<usize>>,
    ) -> Result<bool, Ended> {
        let mut encoder = self.encoder.borrow_mut();
        if encoder.pending() == 0 {
            return Ok(true);
        }
        let mut output = self.output.borrow_mut();
        let output = output.as_mut().ok_or(Ended::Gone)?;
        let out = encoder.finish();
        while !out.is_empty() {
            match write(output, out) {
                Poll::Ready(Ok(0)) | Poll::Ready(Err(_)) => return Err(Ended::Gone),
                Poll::Ready(Ok(n)) => {
                    add(&self.core.counters.bytes_out, n as u64);
                    if n == out.len() {
                        self.core.buffers.give(std::mem::take(out));
                    } else {
                        out.advance(n);
                    }
                }
                Poll::Pending => return Ok(false),
            }
        }
        Ok(true)
    }
}

impl AtPause for Session {
    fn at_pause(self: Rc<Self>) {
        self.sending.set(Sending::Nobody);
        let sent = self.write_out(|output, bytes| match output.try_write(bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Poll::Pending,
            other => Poll::Ready(other),
        });
        match sent {
            Ok(true) => return,
            Ok(false) => self.sending.set(Sending::Connection),
            Err(_) => self.killed.set(true),
        }
        self.wake();
    }
}
