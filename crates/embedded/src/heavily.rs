//! Parts of a request on the heavy lane, and work that goes on without its request.

use engine::{Error, Warnings};

/// Does a part of the current request on the heavy lane, in its group. What guardrails warn of there is noted for the request.
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

/// Does work as a task of its own, in the current group: it comes to its end also if the caller does
/// not wait for it.
///
/// # Errors
/// Those of the work; the server stops before its end.
pub(crate) async fn to_its_end<T: 'static>(
    work: impl Future<Output = Result<T, Error>> + 'static,
) -> Result<T, Error> {
    let (sender, receiver) = lanes::sync::oneshot::channel();
    let work = async move {
        drop(sender.send(work.await));
    };
    lanes::spawn(lanes::current_group(), work).detach();
    receiver.await.unwrap_or_else(|_| Err(Error::Server("the server is stopping".to_owned())))
}
