//! Roles, credentials, permissions and the catalog of service levels: who may do what, and in which
//! level. CQL tables of the engine store them, so that one code path serves both engines.
//!
//! ```text
//!   statement ──plan (pure)──▶ edits ──store──▶ tables of the engine       (core 0, one statement at a time)
//!                                └──────publish──▶ Snapshot, Levels ──▶ every core reloads at its next request
//! ```
//!
//! One immutable value in memory mirrors the tables. All cores read it without a lock. The crate
//! stores SCRAM verifiers (`scram`), computed on the heavy lane. It never stores, prints or sends a
//! password.

mod access;
mod attempts;
mod audit;
mod authenticate;
mod authorize;
mod bcrypt;
mod cancel;
mod catalog;
mod change;
mod cluster_login;
mod cluster_roles;
mod describe;
mod exchange;
mod execute;
mod fleet;
mod listing;
mod login;
mod needs;
mod options;
mod plan;
mod published;
mod resource;
mod rights;
mod roles;
mod scram;
mod store;
mod verifier;
mod visibility;

pub use access::{Access, Admin, SharedAccess};
pub use attempts::{Attempt, CHECKS_MAX, Slots};
pub use audit::{AuditEvent, AuditKind, AuditLines, AuditLog, audit_log, beginning};
pub use authenticate::AuthError;
pub use authorize::named;
pub use cancel::{CancelTarget, Cancelled};
pub use cluster_login::ClusterLogin;
pub use describe::{AccessSchema, AccessStatement};
pub use exchange::{Exchange, ScramStart};
pub use login::{Login, ended};
pub use needs::{NEEDS, Need, NeedKind, On, Right, Unless};
