//! Consistency of requests whose level has a tag with a datacenter. They must not depend on other
//! datacenters, so that load there does not slow them: only consistencies of one datacenter pass,
//! and ONE if the tables of the request have replicas there.
//!
//! A keyspace whose replicas are not known counts as there: those of `system` tables are at each
//! node, and a node refuses one that does not exist.

use access::named;
use cluster::{Front, StatementClass};
use cql::ast::Statement as Tree;
use wire::{Consistency, Envelope, Failure, FailureKind, Request, Statement};
use workload::Tag;

use crate::failure;
use crate::relay::Target;
use crate::request::CqlRequest;
use crate::statement::INLINE_TEXT_BYTES;

/// Statements of a BATCH at ONE whose keyspaces are looked up, at most: 0.2 ms [estimate].
const LOOKED_UP_MAX: usize = 1_000;

/// Reason to exclude a consistency.
const ELSEWHERE: &str = ", which depends on other datacenters";

/// Checks the consistency of a request.
///
/// # Errors
/// Invalid, with the consistency to use.
pub(crate) fn check(
    front: &Front,
    envelope: &Envelope,
    request: &CqlRequest,
    target: &Target,
) -> Result<(), Failure> {
    let effective = &request.effective;
    let Some(tag) = &effective.spec.tag else { return Ok(()) };
    let is_of_rows = matches!(target.class, StatementClass::Read | StatementClass::Write);
    if !tag.has_datacenter() || !is_of_rows {
        return Ok(());
    }
    let refused = |given: Consistency, reason: &str, expected: Consistency| {
        let level = effective.tag_from.as_deref().unwrap_or_default();
        let text = format!(
            "the tag '{tag}' of service level '{level}' excludes consistency {given}{reason}: use {expected}"
        );
        Failure::new(FailureKind::Invalid, text)
    };
    let consistency = target.consistency;
    if let Some(expected) = consistency.in_one_datacenter() {
        return Err(refused(consistency, ELSEWHERE, expected));
    }
    let serial = target.serial.unwrap_or(Consistency::Serial);
    if target.is_conditional && serial != Consistency::LocalSerial {
        return Err(refused(serial, ELSEWHERE, Consistency::LocalSerial));
    }
    if consistency != Consistency::One {
        return Ok(());
    }
    let local_one = |reason| refused(consistency, reason, Consistency::LocalOne);
    let unknown = || local_one(" for a text whose tables are not known here");
    match is_in_all(front, tag, envelope, request.keyspace.as_deref(), unknown)? {
        true => Ok(()),
        false => Err(local_one(ELSEWHERE)),
    }
}

/// Returns true if the tables of a request have replicas in all datacenters of a tag. `keyspace`:
/// that of the session.
///
/// # Errors
/// Texts that are too long or that this server does not parse, and too many statements: `unknown`.
/// Ids that it has forgotten: unprepared.
fn is_in_all(
    front: &Front,
    tag: &Tag,
    envelope: &Envelope,
    keyspace: Option<&str>,
    unknown: impl Fn() -> Failure,
) -> Result<bool, Failure> {
    let topology = front.shared().topology().snapshot();
    let holds = |keyspace: &str| tag.datacenters().all(|datacenter| topology.may_hold(keyspace, datacenter));
    let of_tree =
        |tree: &Tree, keyspace: Option<&str>| named(tree, keyspace).map(|(keyspace, _)| holds(keyspace));
    let mut bytes_left = INLINE_TEXT_BYTES;
    let mut of_text = |text: &str, keyspace: Option<&str>| {
        bytes_left = bytes_left.checked_sub(text.len())?;
        match cql::parse(text).ok()? {
            Tree::Batch(batch) => {
                let mut parts = batch.statements.iter().map(|tree| of_tree(tree, keyspace));
                parts.try_fold(true, |all, part| Some(part? && all))
            }
            tree => of_tree(&tree, keyspace),
        }
    };
    let mut of_statement = |statement: Statement<'_>, keyspace: Option<&str>| {
        let found = match statement {
            Statement::Text(text) => of_text(text, keyspace),
            Statement::Prepared(id) => {
                let plan = front.plan(id, None, envelope.version).ok_or_else(|| failure::unprepared(id))?;
                let given = plan.given_keyspace.as_deref().or(plan.connection_keyspace.as_deref());
                plan.routing.as_ref().map(|key| holds(key.keyspace())).or_else(|| of_text(&plan.text, given))
            }
        };
        found.ok_or_else(&unknown)
    };
    match envelope.request().map_err(|error| Failure::from(&error))? {
        Request::Query(query) => {
            of_statement(Statement::Text(query.text), query.params.keyspace.or(keyspace))
        }
        Request::Execute(execute) => of_statement(Statement::Prepared(execute.id), None),
        Request::Batch(batch) if batch.len() <= LOOKED_UP_MAX => {
            let keyspace = batch.params.keyspace.or(keyspace);
            batch.iter().try_fold(true, |all, entry| Ok(of_statement(entry.statement, keyspace)? && all))
        }
        _ => Err(unknown()),
    }
}
