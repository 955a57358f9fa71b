//! Answers to writes that wait for the disk. The session's connection polls the queue, so that it
//! is woken once for each write to the disk.

use std::rc::Rc;
use std::task::Context;

use engine::{Error, StatementOutcome, Warnings};

use crate::answers::answer_and_record;
use crate::failure;
use crate::request::CqlRequest;
use crate::session::Session;

/// Maximum number of answers before the connection polls other events: a few microseconds of work.
const ANSWERS_MAX: usize = 128;

/// Answers the writes that are acknowledged or late, and registers the connection's waker for the
/// next.
pub(crate) fn answer_acked(session: &Rc<Session>, cx: &mut Context<'_>) {
    if session.requests.unacked.borrow().is_empty() {
        return;
    }
    let mut now_ns = None;
    for _ in 0..ANSWERS_MAX {
        let polled = session.requests.unacked.borrow_mut().poll_oldest(&*session.core.engine, cx);
        let Some(result) = polled else { return answer_expired(session, cx) };
        let now_ns = *now_ns.get_or_insert_with(lanes::time::monotonic_ns);
        let oldest = session.requests.unacked.borrow_mut().take_oldest();
        let (request, warnings) = oldest.expect("polled above");
        answer(session, request, warnings, result.map(|()| StatementOutcome::Void), now_ns);
    }
    cx.waker().wake_by_ref();
}

/// Answers the writes whose deadline has passed, and sets the timer for the next deadline.
fn answer_expired(session: &Rc<Session>, cx: &mut Context<'_>) {
    loop {
        if !session.requests.unacked.borrow_mut().poll_timer(cx) {
            return;
        }
        let now_ns = lanes::time::monotonic_ns();
        let expired = session.requests.unacked.borrow_mut().take_expired(now_ns);
        for (request, warnings) in expired {
            let error = failure::timed_out(request.kind(), request.limit);
            answer(session, request, warnings, Err(error), now_ns);
        }
    }
}

fn answer(
    session: &Rc<Session>,
    mut request: CqlRequest,
    warnings: Warnings,
    result: Result<StatementOutcome, Error>,
    now_ns: u64,
) {
    Warnings::begin();
    warnings.give();
    request.note(|| "The log has ended its wait for the disk".to_owned());
    answer_and_record(session, request, result, now_ns);
    session.end_acked();
}
