//! The listeners of a running server: CQL, HTTP and SQL. They open on all cores after the state of
//! the cores, and stop at the same time, within one deadline.

use std::net::SocketAddr;

use frontdoor::check_address;
use lanes::{Group, Lanes};
use server::logging::Logger;
use server::{Listening, PerCore, Server, ServerConfig};

use crate::cores::{access, engine, front};
use crate::settings::Settings;
use crate::sql_listener::{SqlConfig, SqlListener};
use crate::stop::DRAIN;

/// Settings of the addresses of CQL and HTTP, for errors.
const CQL_FLAGS: &str =
    "(--listen, --shard-aware-port, --http-listen, --tls-certificate, --allow-plaintext).";
/// The same for SQL.
pub(crate) const SQL_FLAGS: &str = "(--sql-listen, --tls-certificate, --allow-plaintext).";

/// Checks that the addresses of all listeners can be listened on. A start that would fail there
/// then fails before it changes the data folder.
///
/// # Errors
/// One sentence with the remedy.
pub(crate) fn check(settings: &Settings) -> Result<(), String> {
    let may_be_plain = settings.allow_plaintext || settings.tls_certificate.is_some();
    let shard_aware = settings.shard_aware_port.map(|port| SocketAddr::new(settings.listen.ip(), port));
    let of_cql = [Some(settings.listen), shard_aware, settings.http_listen].map(|at| (at, CQL_FLAGS));
    for (address, flags) in of_cql.into_iter().chain([(settings.sql_listen, SQL_FLAGS)]) {
        let checked = address.map(|address| check_address(address, may_be_plain)).transpose();
        checked.map_err(|error| format!("{error} {flags}"))?;
    }
    Ok(())
}

/// Open listeners.
pub(crate) struct Listeners {
    server: Server,
    listening: Listening,
    sql: Option<SqlListener>,
}

impl Listeners {
    /// Joins every core to the server and opens the ports.
    ///
    /// # Errors
    /// One sentence with the remedy. Nothing is open then.
    pub(crate) fn open(
        lanes: &Lanes,
        config: ServerConfig,
        sql: Option<SqlConfig>,
        logger: Logger,
    ) -> Result<Listeners, String> {
        let server = Server::new(config, logger.clone(), lanes.cores());
        for core in 0..lanes.cores() {
            let server = server.clone();
            lanes.block_on(core, Group::CONTROL, move || async move {
                server.join(PerCore { engine: engine(), access: access(), front: front() });
            });
        }
        let listening = server.open_on(lanes).map_err(|error| {
            let opened = server.clone();
            lanes.block_on(0, Group::CONTROL, move || async move { opened.stop(DRAIN).await });
            format!("{error} {CQL_FLAGS}")
        })?;
        let mut listeners = Listeners { server, listening, sql: None };
        match sql.map(|config| SqlListener::open(lanes, config, logger)).transpose() {
            Ok(sql) => listeners.sql = sql,
            Err(reason) => {
                listeners.close(lanes);
                return Err(reason);
            }
        }
        Ok(listeners)
    }

    /// Returns the addresses: `CQL 127.0.0.1:9042, HTTP 127.0.0.1:9180`.
    pub(crate) fn describe(&self) -> String {
        let mut text = format!("CQL {}", self.listening.cql);
        if let Some(http) = self.listening.http {
            text.push_str(&format!(", HTTP {http}"));
        }
        if let Some(shard_aware) = self.listening.shard_aware {
            text.push_str(&format!(", shard-aware CQL {shard_aware}"));
        }
        if let Some(sql) = &self.sql {
            text.push_str(&format!(", SQL {}", sql.address));
        }
        text
    }

    /// Stops all listeners: they accept no connection, let running statements finish within
    /// [`DRAIN`], and close the rest. Returns true if all finished.
    pub(crate) fn close(self, lanes: &Lanes) -> bool {
        let (server, sql) = (self.server, self.sql);
        lanes.block_on(0, Group::CONTROL, move || async move {
            let sql = sql.map(|sql| lanes::spawn(Group::CONTROL, sql.stop()));
            let stopped = server.stop(DRAIN).await;
            match sql {
                Some(sql) => sql.await & stopped,
                None => stopped,
            }
        })
    }
}
