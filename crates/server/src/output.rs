//! Sending of a session's answers. Normally they are sent when the group pauses
//! (`lanes::defer`). The answers of several connections then go out one after the other, and the
//! client's thread stays awake for all of them. The connection's own task sends the rest when the
//! socket was full.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Buf;
use frontdoor::WriteHalf;
use lanes::DeferredWork;
use tokio::io::AsyncWrite;

use crate::counters::add;
use crate::session::{Sending, Session};

/// Reason for the end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// The peer closed, or the socket failed.
    Gone,
    /// The server sent an error and closes.
    Refused,
}

impl Session {
    /// Schedules the output buffer to be sent at the group's next pause.
    pub(crate) fn send_soon(self: &Rc<Self>) {
        if self.outgoing.sending.get() == Sending::None && self.unsent_bytes() > 0 {
            self.outgoing.sending.set(Sending::Deferred);
            lanes::defer(self.clone());
        }
    }

    /// Sends the bytes that the socket takes now. The socket wakes the caller when it takes more.
    pub(crate) fn send_now(&self, cx: &mut Context<'_>) -> Result<(), Ended> {
        let sent = self.write_out(|output, bytes| Pin::new(output).poll_write(cx, bytes))?;
        match self.outgoing.sending.get() {
            Sending::Deferred => {}
            _ if sent == Sent::All => self.outgoing.sending.set(Sending::None),
            _ => self.outgoing.sending.set(Sending::Connection),
        }
        if sent == Sent::Enough {
            cx.waker().wake_by_ref();
        }
        Ok(())
    }

    /// Writes until all bytes are written, `write` is pending, or the limit of a round is reached.
    fn write_out(
        &self,
        mut write: impl FnMut(&mut WriteHalf, &[u8]) -> Poll<io::Result<usize>>,
    ) -> Result<Sent, Ended> {
        let (mut encoder, mut outbox) =
            (self.outgoing.encoder.borrow_mut(), self.outgoing.outbox.borrow_mut());
        if outbox.is_empty() && encoder.pending() == 0 {
            return Ok(Sent::All);
        }
        let mut output = self.outgoing.socket.borrow_mut();
        let output = output.as_mut().ok_or(Ended::Gone)?;
        let mut left = output.round_bytes_max();
        let sent = loop {
            let next: &[u8] = match outbox.front() {
                Some(large) => &large.bytes,
                None => encoder.finish(),
            };
            if next.is_empty() {
                break Sent::All;
            }
            if left == 0 {
                break Sent::Enough;
            }
            let n = match write(output, &next[..next.len().min(left)]) {
                Poll::Ready(Ok(0)) | Poll::Ready(Err(_)) => return Err(Ended::Gone),
                Poll::Ready(Ok(n)) => n,
                Poll::Pending => break Sent::Part,
            };
            left -= n;
            add(&self.core.counters.bytes_out, n as u64);
            if let Some(large) = outbox.front_mut() {
                large.bytes.advance(n);
                if large.bytes.is_empty() {
                    outbox.pop_front();
                }
            } else {
                let out = encoder.finish();
                if n == out.len() {
                    self.core.buffers.give(std::mem::take(out));
                } else {
                    out.advance(n);
                }
            }
        };
        drop((encoder, outbox));
        if sent == Sent::All {
            self.outgoing.charge.take();
        }
        // After `Enough` there is more to send. After `Part` it is the client that does not read.
        if sent != Sent::Enough {
            self.outgoing.answered.borrow_mut().clear();
        }
        if !self.outgoing.paused_reads.borrow().is_empty() && !self.is_output_full() {
            self.wake_paused_reads();
        }
        Ok(sent)
    }
}

/// Outcome of a round of sending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sent {
    /// Everything was sent.
    All,
    /// The socket takes no more bytes for now.
    Part,
    /// The round has reached its limit of bytes.
    Enough,
}

impl DeferredWork for Session {
    fn run_deferred(self: Rc<Self>) {
        self.outgoing.sending.set(Sending::None);
        let sent = self.write_out(|output, bytes| match output.try_write(bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Poll::Pending,
            other => Poll::Ready(other),
        });
        match sent {
            Ok(Sent::All) => return,
            Ok(_) => self.outgoing.sending.set(Sending::Connection),
            Err(_) => self.life.killed.set(true),
        }
        self.wake();
    }
}
