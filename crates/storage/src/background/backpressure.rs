//! Bounds on memtables and log: full memtables are frozen for a flush, and acknowledgements wait
//! while memtables fill faster than they are flushed.

use std::rc::Rc;

use crate::background::Background;
use crate::env::LocalBoxFuture;
use crate::event::FlushReason;
use crate::state::ShardState;
use crate::state::memory::FROZEN_MAX;

impl Background {
    /// Accounts for a write to a memtable, and freezes full memtables. `record` is the last log
    /// record in them.
    pub(crate) fn applied(&self, state: &mut ShardState, record: u64) {
        let Some(log) = &self.jobs.log else { return };
        let length = log.length();
        let filled = (state.memory.bytes as u64).max(self.log_bound.fill(length - state.memory.log_from));
        let more = filled.saturating_sub(std::mem::replace(&mut state.memory.filled, filled));
        if !state.memory.frozen.is_empty() || self.jobs.pacing.runs_pressure_ppm.get() > 0 {
            self.jobs.pacing.charge_write(state, more, &*self.jobs.env);
        }
        if filled >= self.jobs.options.memtable_bytes_max as u64 && state.memory.frozen.len() < FROZEN_MAX {
            let is_large = state.memory.bytes >= self.jobs.options.memtable_bytes_max;
            let reason = if is_large { FlushReason::MemtableFull } else { FlushReason::LogLong };
            state.freeze(record, length, reason);
            self.bound_log(state);
            self.jobs.work.wake();
        }
    }

    /// Limits the log to a bounded length after the oldest record that is not flushed.
    pub(crate) fn bound_log(&self, state: &ShardState) {
        if let Some(log) = &self.jobs.log {
            let length = log.length();
            log.set_limit(length - state.memory.live_log(length) + self.log_bound.refuse_at());
        }
    }

    /// Returns the wait before an acknowledgement, if there is one.
    pub(crate) fn write_delay(self: &Rc<Self>) -> Option<LocalBoxFuture<()>> {
        let log = self.jobs.log.as_ref()?;
        {
            let state = self.jobs.state.borrow();
            if state.memory.frozen.is_empty() && self.jobs.pacing.runs_pressure_ppm.get() == 0 {
                return None;
            }
            // Only a flush in flight can end the wait.
            let full = state.memory.frozen.len() >= FROZEN_MAX
                && state.memory.filled >= self.jobs.options.memtable_bytes_max as u64;
            let is_long = || state.memory.live_log(log.length()) >= self.log_bound.wait_at();
            if full || (!state.memory.frozen.is_empty() && is_long()) {
                let (own, flushes) = (self.clone(), state.counts.flushes);
                return Some(Box::pin(async move {
                    let flushed = || {
                        let state = own.jobs.state.borrow();
                        let has_flushed = state.counts.flushes > flushes || state.closed;
                        (has_flushed || own.jobs.refuses_writes()).then_some(())
                    };
                    own.jobs.progress.wait(flushed).await;
                }));
            }
        }
        self.jobs.pacing.delay(&*self.jobs.env)
    }
}
