//! Parts of a request on the heavy lane.

use engine::Warnings;

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
