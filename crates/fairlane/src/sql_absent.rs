//! Replaces `sql_listener.rs` in a program that is built without the feature `sql`: it refuses the
//! settings that would open a SQL listener.

use std::net::SocketAddr;
use std::sync::Arc;

use access::AuditLog;
use frontdoor::{Accounts, Limits, Tls};
use lanes::Lanes;
use server::logging::Logger;

use crate::settings::Settings;

/// Has no value: there is no configuration of a SQL listener.
pub(crate) enum SqlConfig {}

/// Returns `None`: there is no listener.
///
/// # Errors
/// `sql_listen` specifies an address.
pub(crate) fn config(
    settings: &Settings,
    _tls: Option<Tls>,
    _accounts: &Accounts,
    _audit: Option<Arc<AuditLog>>,
) -> Result<Option<SqlConfig>, String> {
    match settings.sql_listen {
        None => Ok(None),
        Some(address) => Err(format!(
            "SQL cannot listen on {address}: this program was built without SQL. Build it with the cargo feature \
             `sql`, or leave --sql-listen off."
        )),
    }
}

/// Is never called: there is no configuration.
pub(crate) fn limits(config: &mut SqlConfig) -> &mut Limits {
    match *config {}
}

/// Has no value: there is no SQL listener.
pub(crate) struct SqlListener {
    never: SqlConfig,
    pub(crate) address: SocketAddr,
}

impl SqlListener {
    pub(crate) fn open(_lanes: &Lanes, config: SqlConfig, _logger: Logger) -> Result<SqlListener, String> {
        match config {}
    }

    pub(crate) async fn stop(self) -> bool {
        match self.never {}
    }
}
