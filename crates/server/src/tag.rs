//! Consistency of requests whose level has a tag with a datacenter. They must not depend on other
//! datacenters, so that load there does not slow them: only consistencies of one datacenter pass.
//!
//! A text that was not prepared is not searched for its keyspace. A conditional BATCH is not
//! recognized. Both pass at ONE, and at a serial consistency that is not given.

use cluster::{Front, StatementClass};
use wire::{Consistency, Envelope, Failure, FailureKind, Request};
use workload::{Effective, Tag};

use crate::relay::is_conditional;

/// Checks the consistency of a request.
///
/// # Errors
/// Invalid, with the consistency to use.
pub(crate) fn check(
    front: &Front,
    effective: &Effective,
    envelope: &Envelope,
    class: StatementClass,
) -> Result<(), Failure> {
    let Some(tag) = &effective.spec.tag else { return Ok(()) };
    if tag.datacenters().next().is_none() || !matches!(class, StatementClass::Read | StatementClass::Write) {
        return Ok(());
    }
    let refused = |given: Consistency, expected: Consistency| {
        let level = effective.tag_from.as_deref().unwrap_or_default();
        let text = format!(
            "the tag '{tag}' of service level '{level}' excludes consistency {given}, which depends on other \
             datacenters: use {expected}"
        );
        Err(Failure::new(FailureKind::Invalid, text))
    };
    let (consistency, serial, is_conditional, keyspace) =
        match envelope.request().map_err(|error| Failure::from(&error))? {
            Request::Query(query) => {
                let is_conditional = class == StatementClass::Write && is_conditional(query.text);
                (query.params.consistency, query.params.serial_consistency, is_conditional, None)
            }
            Request::Execute(execute) => {
                let plan = front.plan(execute.id);
                let keyspace =
                    plan.as_ref().and_then(|plan| Some(plan.routing.as_ref()?.keyspace().to_owned()));
                let is_conditional = plan.is_some_and(|plan| plan.is_conditional);
                let params = &execute.params;
                (params.consistency, params.serial_consistency, is_conditional, keyspace)
            }
            Request::Batch(batch) => (batch.params.consistency, None, false, None),
            _ => return Ok(()),
        };
    if let Some(expected) = local(consistency) {
        return refused(consistency, expected);
    }
    // Nodes take SERIAL if the client gives none.
    let serial = serial.unwrap_or(Consistency::Serial);
    if is_conditional && serial != Consistency::LocalSerial {
        return refused(serial, Consistency::LocalSerial);
    }
    match keyspace {
        Some(keyspace) if consistency == Consistency::One && !is_in_all(front, &keyspace, tag) => {
            refused(consistency, Consistency::LocalOne)
        }
        _ => Ok(()),
    }
}

/// Returns true if a keyspace has replicas in all datacenters of a tag, or is not known.
fn is_in_all(front: &Front, keyspace: &str, tag: &Tag) -> bool {
    let topology = front.shared().topology().snapshot();
    tag.datacenters().all(|datacenter| topology.may_hold(keyspace, datacenter))
}

/// Returns the consistency to use instead. `None`: this one depends on one datacenter.
fn local(consistency: Consistency) -> Option<Consistency> {
    match consistency {
        Consistency::LocalQuorum | Consistency::LocalOne | Consistency::LocalSerial | Consistency::One => {
            None
        }
        Consistency::Any => Some(Consistency::LocalOne),
        Consistency::Serial => Some(Consistency::LocalSerial),
        Consistency::Two
        | Consistency::Three
        | Consistency::Quorum
        | Consistency::All
        | Consistency::EachQuorum => Some(Consistency::LocalQuorum),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_consistency_names_one_that_passes() {
        let mut passing = 0;
        for consistency in Consistency::ALL {
            match local(consistency) {
                Some(expected) => assert_eq!(local(expected), None, "{consistency}"),
                None => passing += 1,
            }
        }
        assert_eq!(passing, 4, "LOCAL_QUORUM, LOCAL_ONE, LOCAL_SERIAL and ONE");
        assert_eq!(local(Consistency::Quorum), Some(Consistency::LocalQuorum));
        assert_eq!(local(Consistency::Serial), Some(Consistency::LocalSerial));
    }
}
