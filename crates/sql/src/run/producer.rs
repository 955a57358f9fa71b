//! Producers of batches on another lane: a bounded channel, and the stream that a consumer reads.
//! Scans and lane exchanges are producers. A batch is charged from when it is made until its
//! consumer asks for the next one.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use tokio::sync::mpsc;

use crate::run::memory::{Held, StatementMemory};
use crate::run::query::QueryRun;
use crate::run::sizes::batch_bytes;
use crate::run::tasks::{self, Handles};

/// Maximum number of batches in a channel between two lanes: one in use, one ready. The channel's
/// short lock is shared by heavy lanes only.
const BATCHES_MAX: usize = 2;

/// A batch in a channel, with its charge.
type Sent = Result<(RecordBatch, Held)>;

/// Producer's end of a channel of batches.
pub(crate) struct Sender {
    sender: mpsc::Sender<Sent>,
    memory: Option<Arc<StatementMemory>>,
}

impl Sender {
    /// Charges a batch, and waits for a place in the channel. Returns false if the producer must
    /// end: the consumer is gone, or this was an error.
    pub(crate) async fn send(&self, batch: Result<RecordBatch>) -> bool {
        let sent = batch.and_then(|batch| {
            let mut held = Held::of(self.memory.clone());
            held.grow(batch_bytes(&batch))?;
            Ok((batch, held))
        });
        let failed = sent.is_err();
        self.sender.send(sent).await.is_ok() && !failed
    }
}

/// A started producer: the consumer's end of its channel, and its task.
pub(crate) type Started = (mpsc::Receiver<Sent>, lanes::Task<Result<(), tasks::Panicked>>);

/// Returns a channel of [`BATCHES_MAX`] batches of a run between lanes.
pub(crate) fn channel(run: Option<&Arc<QueryRun>>) -> (Sender, mpsc::Receiver<Sent>) {
    let (sender, receiver) = mpsc::channel(BATCHES_MAX);
    (Sender { sender, memory: run.map(|run| run.statement_memory()) }, receiver)
}

/// Returns the batches of a producer. `make` starts it, on any lane, when the stream is first
/// polled. Dropping the stream cancels it.
pub(crate) fn elsewhere<M, Fut>(
    schema: SchemaRef,
    run: Option<Arc<QueryRun>>,
    make: M,
) -> SendableRecordBatchStream
where
    M: FnOnce(&'static Handles) -> Fut + Send + 'static,
    Fut: Future<Output = Result<Started>> + Send + 'static,
{
    enum ProducerState<M> {
        New(M),
        /// The charge is that of the batch that the consumer has.
        Running(Started, #[expect(dead_code, reason = "released when dropped")] Held),
        Ended,
    }
    let batches = futures::stream::unfold((ProducerState::New(make), run), |(state, run)| async move {
        if let Some(run) = &run {
            run.follow().await;
        }
        let (mut receiver, task) = match state {
            ProducerState::New(make) => {
                let Some(handles) = tasks::handles() else {
                    let error = DataFusionError::Internal("a plan is run outside of heavy lanes".to_owned());
                    return Some((Err(error), (ProducerState::Ended, run)));
                };
                match make(handles).await {
                    Ok(started) => started,
                    Err(error) => return Some((Err(error), (ProducerState::Ended, run))),
                }
            }
            ProducerState::Running(started, _) => started,
            ProducerState::Ended => return None,
        };
        match receiver.recv().await {
            Some(Ok((batch, held))) => {
                Some((Ok(batch), (ProducerState::Running((receiver, task), held), run)))
            }
            Some(Err(error)) => Some((Err(error), (ProducerState::Ended, run))),
            None => match task.await {
                Ok(()) => None,
                Err(tasks::Panicked) => {
                    let error = DataFusionError::Internal("a part of the query panicked".to_owned());
                    Some((Err(error), (ProducerState::Ended, run)))
                }
            },
        }
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, batches))
}
