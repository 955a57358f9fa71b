//! The SQL listener: its configuration from the settings, and its start and stop on all cores.
//! `sql_absent.rs` stands in its place where the program is built without the feature `sql`.

use std::net::SocketAddr;
use std::sync::Arc;

use access::AuditLog;
use frontdoor::{Accounts, Limits, Tls};
use lanes::{Group, Lanes};
use server::logging::{FieldValue, Level, Logger};
pub(crate) use sql::SqlConfig;
use sql::{LogEvent, SlowStatement, Sql};

use crate::cores::{access, front, sql_engine};
use crate::listeners::SQL_FLAGS;
use crate::settings::Settings;
use crate::stop::DRAIN;

/// Returns the configuration of the listener; `None` where `sql_listen` is off.
///
/// # Errors
/// None in a program that is built with SQL.
pub(crate) fn config(
    settings: &Settings,
    tls: Option<Tls>,
    accounts: &Accounts,
    audit: Option<Arc<AuditLog>>,
) -> Result<Option<SqlConfig>, String> {
    Ok(settings.sql_listen.map(|listen| SqlConfig {
        listen,
        tls,
        audit,
        accounts: accounts.clone(),
        allow_plaintext: settings.allow_plaintext,
        authenticate: settings.authenticate,
        spill_dir: settings.spill_dir(),
        spill_bytes_max: settings.spill_limit_bytes,
        owner: settings.admin_user.as_str().into(),
        decimal_scale: settings.sql_decimals,
        connections: settings.limits(settings.sql_connections_max),
        idle_timeout: settings.sql_idle_timeout,
        slow_statement: settings.slow_statement,
        ..SqlConfig::default()
    }))
}

/// Returns the limits of its connections.
pub(crate) fn limits(config: &mut SqlConfig) -> &mut Limits {
    &mut config.connections
}

fn log_slow(logger: &Logger, slow: &SlowStatement<'_>) {
    let fields = [
        ("ms", slow.ms.into()),
        ("queue_ms", slow.queue_ms.into()),
        ("rows_read", slow.rows_read.into()),
        ("bytes_read", slow.bytes_read.into()),
        ("level", slow.level.into()),
        ("role", slow.role.into()),
        ("client", FieldValue::text(slow.client)),
        ("statement", FieldValue::text(slow.text)),
    ];
    logger.log(Level::Warn, "slow SQL statement", &fields);
}

/// The open listener.
pub(crate) struct SqlListener {
    sql: Sql,
    /// Its address.
    pub(crate) address: SocketAddr,
}

impl SqlListener {
    /// Opens the listener on every core.
    ///
    /// # Errors
    /// One sentence with the remedy. Nothing is open then.
    pub(crate) fn open(lanes: &Lanes, config: SqlConfig, logger: Logger) -> Result<SqlListener, String> {
        let log = move |event: LogEvent<'_>| match event {
            LogEvent::Warning(text) => logger.log(Level::Warn, text, &[]),
            LogEvent::Slow(slow) => log_slow(&logger, slow),
        };
        let sql = Sql::new(config, log);
        for core in 0..lanes.cores() {
            let sql = sql.clone();
            lanes.block_on(
                core,
                Group::CONTROL,
                move || async move { sql.join(sql_engine(), access(), front()) },
            );
        }
        let opening = sql.clone();
        match lanes.block_on(0, Group::CONTROL, move || async move { opening.open().await }) {
            Ok(address) => Ok(SqlListener { sql, address }),
            Err(error) => {
                lanes.block_on(0, Group::CONTROL, move || async move { sql.stop(DRAIN).await });
                Err(format!("{error} {SQL_FLAGS}"))
            }
        }
    }

    /// Stops the listener: running statements may finish within [`DRAIN`]. Returns true if all did.
    pub(crate) async fn stop(self) -> bool {
        self.sql.stop(DRAIN).await
    }
}
