//! Who may do what, and in which lane: roles, credentials, grants and the service-level catalogue, kept as CQL tables of
//! the engine, so that one code path serves both engines.
//!
//! ```text
//!   statement ──plan (pure)──▶ edits ──store──▶ tables of the engine         (core 0, one statement at a time)
//!                                └──────publish──▶ Snapshot, Levels ──▶ every core looks again at its next request
//! ```
//!
//! What the tables say is held in memory as one immutable value, which all cores read without a lock. No password is
//! kept, printed or sent anywhere: only verifiers (`scram`), made on the heavy lane.

mod access;
mod attempts;
mod audit;
mod authenticate;
mod authorize;
mod cancel;
mod change;
mod exchange;
mod listing;
mod login;
mod needs;
mod options;
mod plan;
mod resource;
mod roles;
mod scram;
mod sight;
mod store;

pub use access::{Access, Admin, Shared};
pub use attempts::CHECKS_MAX;
pub use audit::{AuditEvent, AuditKind, AuditLines, AuditLog, audit_log, beginning};
pub use authenticate::AuthError;
pub use cancel::{Cancelled, Target as CancelTarget};
pub use exchange::{Exchange, ScramStart};
pub use login::Login;
pub use needs::{Kind, NEEDS, Need, On, Right, Unless};

/// What the tables say about roles, at one time.
struct Snapshot {
    roles: roles::Roles,
}
