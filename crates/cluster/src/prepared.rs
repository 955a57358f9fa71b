//! Statements that clients have prepared at nodes: what is needed to prepare them again.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use rustc_hash::FxHashMap;
use wire::{Envelope, Prepared, Response, ResultKind, Version};

use crate::key::RoutingKey;
use crate::role::Role;

/// Kind of a statement, from its first word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StatementClass {
    /// SELECT.
    Read,
    /// INSERT, UPDATE, DELETE, BATCH.
    Write,
    /// USE.
    Use,
    /// All others.
    Other,
}

impl StatementClass {
    /// Returns the kind of a text. `None`: its first word is not within [`WORD_WITHIN_BYTES`].
    #[must_use]
    pub fn of(text: &str) -> Option<StatementClass> {
        let beginning = &text[..text.floor_char_boundary(WORD_WITHIN_BYTES)];
        let word = first_word(beginning);
        if word.is_empty() && beginning.len() < text.len() {
            return None;
        }
        let is = |other: &str| word.eq_ignore_ascii_case(other);
        Some(match () {
            () if is("SELECT") => StatementClass::Read,
            () if ["INSERT", "UPDATE", "DELETE", "BEGIN"].into_iter().any(is) => StatementClass::Write,
            () if is("USE") => StatementClass::Use,
            () => StatementClass::Other,
        })
    }
}

/// Bytes of white space and comments before the first word of a text, at most.
pub const WORD_WITHIN_BYTES: usize = 2048;

/// Returns the first word of a text, behind white space and comments. A comment of one line ends at
/// either end of a line, as in Cassandra.
fn first_word(text: &str) -> &str {
    let mut rest = text.trim_start();
    loop {
        rest = match rest.get(..2) {
            Some("--" | "//") => rest.find(['\n', '\r']).map_or("", |end| &rest[end..]),
            Some("/*") => rest[2..].split_once("*/").map_or("", |(_, after)| after),
            _ => break,
        };
        rest = rest.trim_start();
    }
    let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
    &rest[..end]
}

/// A statement that a node has prepared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemotePlan {
    /// The node's id.
    pub id: Bytes,
    /// The text.
    pub text: Arc<str>,
    /// Keyspace of the connection on which it was prepared.
    pub connection_keyspace: Option<Arc<str>>,
    /// Keyspace given with PREPARE (v5).
    pub given_keyspace: Option<Arc<str>>,
    /// Its kind.
    pub class: StatementClass,
    /// True for a conditional write.
    pub is_conditional: bool,
    /// Number among the statements that this front has prepared, in order.
    pub number: u32,
    /// Hash of its result columns.
    pub columns: u64,
    /// Markers of the partition key, if it is bound.
    pub routing: Option<RoutingKey>,
}

/// Statements that a front remembers, at most. Clients prepare forgotten ones again.
const PLANS_MAX: usize = 10_000;
/// Bytes of their texts, at most.
const TEXT_BYTES_MAX: usize = 32 << 20;

/// Prepared statements of all cores.
#[derive(Default)]
pub(crate) struct SharedPlans {
    plans: Mutex<Plans>,
    /// Number of statements removed so far: a core then forgets its own.
    removed: AtomicU64,
}

#[derive(Default)]
struct Plans {
    by_id: FxHashMap<Bytes, Arc<RemotePlan>>,
    /// Ids in the order in which they were added.
    order: VecDeque<Bytes>,
    text_bytes: usize,
    next_number: u32,
}

impl SharedPlans {
    /// Returns the number of a statement with this id: that which it has, or a new one.
    pub(crate) fn number_of(&self, id: &[u8]) -> u32 {
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let known = plans.by_id.get(id).map(|plan| plan.number);
        known.unwrap_or_else(|| {
            plans.next_number = plans.next_number.saturating_add(1);
            plans.next_number - 1
        })
    }

    fn add(&self, plan: &Arc<RemotePlan>) {
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = plans.by_id.get_mut(&plan.id) {
            // The last client that prepared it knows keyspaces that exist.
            *known = plan.clone();
            return;
        }
        plans.text_bytes += plan.text.len();
        plans.order.push_back(plan.id.clone());
        plans.by_id.insert(plan.id.clone(), plan.clone());
        while plans.order.len() > PLANS_MAX || plans.text_bytes > TEXT_BYTES_MAX {
            let Some(oldest) = plans.order.pop_front() else { break };
            let removed = plans.by_id.remove(&oldest);
            plans.text_bytes -= removed.map_or(0, |plan| plan.text.len());
            self.removed.fetch_add(1, Relaxed);
        }
    }

    fn get(&self, id: &[u8]) -> Option<Arc<RemotePlan>> {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner).by_id.get(id).cloned()
    }
}

/// Prepared statements that one core has used: at most those that all cores share.
#[derive(Default)]
pub(crate) struct CorePlans {
    by_id: RefCell<FxHashMap<Bytes, CorePlan>>,
    /// Number of removed statements that this core has seen.
    removed: Cell<u64>,
}

/// A prepared statement with its use on one core.
struct CorePlan {
    /// A copy of its own: cores would write to one count of references.
    plan: Rc<RemotePlan>,
    /// Uses, halved by [`CorePlans::age`].
    uses: Cell<u32>,
    /// A role with sessions that has prepared it, or used it.
    user: RefCell<Weak<Role>>,
    /// The version with which it did.
    version: Cell<Version>,
}

/// A statement that a core uses, with what is needed to prepare it.
pub(crate) struct UsedPlan {
    pub(crate) plan: Rc<RemotePlan>,
    /// A role that may prepare it.
    pub(crate) role: Weak<Role>,
    /// The version with which that role has used it.
    pub(crate) version: Version,
}

impl CorePlan {
    fn new(plan: &RemotePlan) -> CorePlan {
        let (plan, version) = (Rc::new(plan.clone()), Cell::new(Version::V5));
        CorePlan { plan, uses: Cell::new(0), user: RefCell::default(), version }
    }

    /// Counts a use by a role. The role is kept until its sessions have ended.
    fn count_use(&self, role: &Rc<Role>, version: Version) {
        self.uses.set(self.uses.get().saturating_add(1));
        if self.user.borrow().strong_count() == 0 {
            self.set_user(role, version);
        }
    }

    fn set_user(&self, role: &Rc<Role>, version: Version) {
        *self.user.borrow_mut() = Rc::downgrade(role);
        self.version.set(version);
    }
}

impl CorePlans {
    /// Adds a statement that `role` has prepared.
    pub(crate) fn add(
        &self,
        shared: &SharedPlans,
        plan: RemotePlan,
        role: Option<&Rc<Role>>,
        version: Version,
    ) {
        let plan = Arc::new(plan);
        shared.add(&plan);
        self.forget_removed(shared);
        let added = CorePlan::new(&plan);
        role.iter().for_each(|role| added.set_user(role, version));
        let mut by_id = self.by_id.borrow_mut();
        let known = by_id.get(&plan.id).map_or(0, |known| known.uses.get());
        added.uses.set(known);
        by_id.insert(plan.id.clone(), added);
    }

    /// Returns a statement, and counts its use by `role`.
    pub(crate) fn get(
        &self,
        shared: &SharedPlans,
        id: &[u8],
        role: Option<&Rc<Role>>,
        version: Version,
    ) -> Option<Rc<RemotePlan>> {
        self.forget_removed(shared);
        if let Some(found) = self.by_id.borrow().get(id) {
            role.iter().for_each(|role| found.count_use(role, version));
            return Some(found.plan.clone());
        }
        let found = CorePlan::new(&*shared.get(id)?);
        role.iter().for_each(|role| found.count_use(role, version));
        let plan = found.plan.clone();
        self.by_id.borrow_mut().insert(plan.id.clone(), found);
        Some(plan)
    }

    /// Halves the counts of uses, so that statements which are not used any more drop out.
    pub(crate) fn age(&self) {
        self.by_id.borrow().values().for_each(|plan| plan.uses.set(plan.uses.get() / 2));
    }

    /// Returns the statements that roles with sessions use most on this core, at most `max`, the
    /// most used ones first.
    pub(crate) fn most_used(&self, max: usize) -> Rc<[UsedPlan]> {
        let by_id = self.by_id.borrow();
        let is_used = |plan: &&CorePlan| plan.uses.get() > 0 && plan.user.borrow().strong_count() > 0;
        let mut used: Vec<&CorePlan> = by_id.values().filter(is_used).collect();
        used.sort_unstable_by_key(|plan| Reverse(plan.uses.get()));
        let used_plan = |of: &&CorePlan| UsedPlan {
            plan: of.plan.clone(),
            role: of.user.borrow().clone(),
            version: of.version.get(),
        };
        used.iter().take(max).map(used_plan).collect()
    }

    fn forget_removed(&self, shared: &SharedPlans) {
        let removed = shared.removed.load(Relaxed);
        if self.removed.replace(removed) != removed {
            self.by_id.borrow_mut().clear();
        }
    }
}

/// Returns the statement that a node has prepared.
pub(crate) fn prepared_of(answer: &Envelope) -> Option<Prepared<'_>> {
    if answer.result_kind() != Some(ResultKind::Prepared) {
        return None;
    }
    match answer.response().ok()? {
        Response::Prepared(prepared) => Some(prepared),
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::rc::Rc;

    use super::*;
    use crate::connection::Reading;

    /// Returns a statement with a number as its id, and a text of `bytes`.
    pub(crate) fn plan(n: usize, bytes: usize) -> RemotePlan {
        RemotePlan {
            id: Bytes::from(n.to_be_bytes().to_vec()),
            text: "x".repeat(bytes).into(),
            connection_keyspace: None,
            given_keyspace: None,
            class: StatementClass::Other,
            is_conditional: false,
            number: 0,
            columns: 0,
            routing: None,
        }
    }

    #[test]
    fn class_is_that_of_the_first_word() {
        let check = |text, class| assert_eq!(StatementClass::of(text), Some(class), "{text}");
        check("select * from t", StatementClass::Read);
        check("  -- reads\n /* all */ SELECT JSON a FROM t", StatementClass::Read);
        check("BEGIN UNLOGGED BATCH", StatementClass::Write);
        check("use \"Ks\"", StatementClass::Use);
        check("USER", StatementClass::Other);
        check("", StatementClass::Other);
        check("/* never ends", StatementClass::Other);
        check("-- a comment of one line\rUSE ks", StatementClass::Use);
        let padded = format!("{}USE ks", " ".repeat(WORD_WITHIN_BYTES));
        assert_eq!(StatementClass::of(&padded), None, "the first word is too far away");
    }

    #[test]
    fn plans_are_bounded_by_number_and_bytes() {
        let (shared, core) = (SharedPlans::default(), CorePlans::default());
        for n in 0..=PLANS_MAX {
            core.add(&shared, plan(n, 1), None, Version::V5);
        }
        assert!(
            core.get(&shared, &0_usize.to_be_bytes(), None, Version::V5).is_none(),
            "the oldest is forgotten"
        );
        assert!(core.get(&shared, &PLANS_MAX.to_be_bytes(), None, Version::V5).is_some());
        for n in 0..3 {
            core.add(&shared, plan(PLANS_MAX + 1 + n, TEXT_BYTES_MAX / 2), None, Version::V5);
        }
        let plans = shared.plans.lock().expect("no panic");
        assert!(plans.text_bytes <= TEXT_BYTES_MAX && plans.by_id.len() == plans.order.len());
    }

    #[test]
    fn core_keeps_no_more_than_all_cores_share() {
        let (shared, one, other) = (SharedPlans::default(), CorePlans::default(), CorePlans::default());
        // Clients prepare on one core, and execute on another.
        for n in 0..2 * PLANS_MAX {
            one.add(&shared, plan(n, 1), None, Version::V5);
            assert!(other.get(&shared, &n.to_be_bytes(), None, Version::V5).is_some());
        }
        assert!(other.by_id.borrow().len() <= PLANS_MAX, "{}", other.by_id.borrow().len());
    }

    #[test]
    fn most_used_are_those_of_roles_with_sessions_and_old_uses_count_less() {
        let lanes = testkit::start_lanes(1);
        lanes.block_on(0, lanes::Group::CONTROL, || async {
            let role = |name: &str| {
                let group = Rc::new(Cell::new(lanes::Group::CONTROL));
                let reading = Reading { group, memory: Arc::default(), tls: None };
                Rc::new(Role::new(name.into(), None, reading, Rc::default()))
            };
            let (shared, core) = (SharedPlans::default(), CorePlans::default());
            let [ann, bob] = ["ann", "bob"].map(role);
            (0..5).for_each(|n| core.add(&shared, plan(n, 1), Some(&ann), Version::V5));
            let uses = |role: &Rc<Role>, uses: &[usize]| {
                for n in uses {
                    core.get(&shared, &n.to_be_bytes(), Some(role), Version::V4).expect("known");
                }
            };
            let most_used = |max| {
                let used = core.most_used(max);
                let name = |used: &UsedPlan| used.role.upgrade().expect("a session").name().to_string();
                used.iter().map(|used| (used.plan.id[7], name(used), used.version)).collect::<Vec<_>>()
            };
            let of = |n, name: &str, version| (n, name.to_owned(), version);
            uses(&ann, &[1, 2, 2, 3, 3, 3]);
            uses(&bob, &[2, 2]);
            // The role that has prepared it may do so again.
            let [two, three] = [2, 3].map(|n| of(n, "ann", Version::V5));
            assert_eq!(most_used(2), [two.clone(), three.clone()]);
            core.age();
            uses(&bob, &[3, 3]);
            assert_eq!(most_used(9), [three, two], "once is too rarely, and never is no use");
            drop(ann);
            assert!(most_used(9).is_empty(), "no session of a role that may");
            uses(&bob, &[3]);
            assert_eq!(most_used(9), [of(3, "bob", Version::V4)]);
        });
        lanes.shutdown();
    }
}
