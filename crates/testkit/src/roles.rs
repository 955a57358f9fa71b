//! Roles and levels over engines.

use std::rc::Rc;
use std::sync::Arc;

use access::{Access, Admin, SharedAccess};
use embedded::Embedded;
use lanes::{Group, Lanes};
use workload::Levels;

/// Name and password of the administrator.
pub const ADMIN: (&str, &str) = ("admin", "secret");

/// Opens roles on core 0, with the administrator [`ADMIN`], and attaches the other cores. Calls
/// `joined` on each core.
pub fn open_roles(
    lanes: &Lanes,
    levels: &Arc<Levels>,
    joined: impl Fn(Rc<Embedded>, Rc<Access>) + Clone + Send + 'static,
) {
    let mut first: Option<Arc<SharedAccess>> = None;
    for core in 0..lanes.cores() {
        let levels = levels.clone();
        let shared = first.take();
        let joined = joined.clone();
        first = Some(lanes.block_on(core, Group::CONTROL, move || async move {
            let engine = crate::engine();
            let access = match shared {
                Some(shared) => Access::attach(engine.clone(), shared),
                None => {
                    let admin = Admin { name: ADMIN.0.into(), password: ADMIN.1.into() };
                    Access::open(engine.clone(), levels, Some(admin)).await.expect("roles open")
                }
            };
            joined(engine, access.clone());
            access.shared()
        }));
    }
}
