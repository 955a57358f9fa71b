//! Running parts of a request on the heavy lane, and work that outlives its request.

use engine::{Error, Warnings};

/// Runs a part of the current request on the heavy lane, in its group. Passes the warnings of
/// guardrails on to the request.
pub(crate) async fn heavy<F>(work: F) -> F::Output
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let collecting = Warnings::collect(Warnings::NONE, work);
    let (output, warnings) = lanes::heavy(lanes::current_group(), collecting).await;
    warnings.give();
    output
}

/// Runs work as a task of its own in the current group, so that it completes even if the caller
/// stops waiting.
///
/// # Errors
/// Returns the errors of the work, or an error if the server stops before the work ends.
pub(crate) async fn run_to_completion<T: 'static>(
    work: impl Future<Output = Result<T, Error>> + 'static,
) -> Result<T, Error> {
    let (sender, receiver) = lanes::sync::oneshot::channel();
    let work = async move {
        drop(sender.send(work.await));
    };
    lanes::spawn(lanes::current_group(), work).detach();
    receiver.await.unwrap_or_else(|_| Err(Error::Server("the server is stopping".to_owned())))
}
