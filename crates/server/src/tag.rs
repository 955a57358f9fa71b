//! Consistency of requests whose level has a tag with a datacenter. They must not depend on other
//! datacenters, so that load there does not slow them: only consistencies of one datacenter pass.
//!
//! A text that was not prepared, and a BATCH, are not searched for their keyspace: both pass at
//! ONE.

use cluster::{Front, StatementClass};
use wire::{Consistency, Failure, FailureKind};
use workload::{Effective, Tag};

use crate::relay::Target;

/// Checks the consistency of a request.
///
/// # Errors
/// Invalid, with the consistency to use.
pub(crate) fn check(front: &Front, effective: &Effective, target: &Target) -> Result<(), Failure> {
    let Some(tag) = &effective.spec.tag else { return Ok(()) };
    let is_of_rows = matches!(target.class, StatementClass::Read | StatementClass::Write);
    if tag.datacenters().next().is_none() || !is_of_rows {
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
    let consistency = target.consistency;
    if let Some(expected) = consistency.in_one_datacenter() {
        return refused(consistency, expected);
    }
    let serial = target.serial.unwrap_or(Consistency::Serial);
    if target.is_conditional && serial != Consistency::LocalSerial {
        return refused(serial, Consistency::LocalSerial);
    }
    match target.keyspace() {
        Some(keyspace) if consistency == Consistency::One && !is_in_all(front, keyspace, tag) => {
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
