//! Client connection to the Postgres listener: log-in, set-up, and one query at a time.

use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio_postgres::config::Host;
use tokio_postgres::{Config, NoTls, SimpleQueryMessage};

use super::accounting::QueryOutcome;
use super::spec::SqlSpec;
use crate::LoadError;
use crate::connector::HANDSHAKE;

/// A connection that is ready for queries.
pub(crate) struct Client {
    client: tokio_postgres::Client,
}

fn config(spec: &SqlSpec, host: &str) -> Result<Config, LoadError> {
    let wrong = || LoadError::Usage(format!("--hosts: expected HOST:PORT, got `{host}`"));
    let (name, port) = host.rsplit_once(':').ok_or_else(wrong)?;
    let mut config = Config::new();
    config.host(name.trim_matches(['[', ']'])).port(port.parse().map_err(|_| wrong())?);
    config.user(&spec.user).dbname(&spec.database).application_name("fairlane load");
    config.connect_timeout(HANDSHAKE);
    if let Some(password) = &spec.password {
        config.password(password);
    }
    debug_assert!(matches!(config.get_hosts(), [Host::Tcp(_)]));
    Ok(config)
}

/// Formats an error with the server's hint, or with all its causes.
pub(crate) fn error_text(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(error) => match error.hint() {
            Some(hint) => format!("{} ({hint})", error.message()),
            None => error.message().to_string(),
        },
        None => {
            let mut text = error.to_string();
            let mut source = std::error::Error::source(error);
            while let Some(cause) = source {
                text = format!("{text}: {cause}");
                source = cause.source();
            }
            text
        }
    }
}

impl Client {
    /// Connects, logs in and runs the statements of the set-up.
    ///
    /// # Errors
    /// [`LoadError::Postgres`], [`LoadError::Credentials`], or [`LoadError::Refused`] for a
    /// statement.
    pub(crate) async fn open(spec: &SqlSpec, host: &str) -> Result<Client, LoadError> {
        let config = config(spec, host)?;
        let address = host.to_string();
        let opened = tokio::time::timeout(HANDSHAKE, config.connect(NoTls)).await;
        let opened = opened.map_err(|_| LoadError::Postgres {
            address: address.clone(),
            reason: "no answer in time".into(),
        })?;
        let (client, connection) = opened.map_err(|error| match error.code() {
            Some(code) if code.code().starts_with("28") => {
                LoadError::Credentials { address: address.clone(), reason: error_text(&error) }
            }
            _ => LoadError::Postgres { address: address.clone(), reason: error_text(&error) },
        })?;
        // Ends with the client. The query in flight reports an error of the connection.
        tokio::task::spawn_local(async move { drop(connection.await) });
        for statement in &spec.setup {
            client.batch_execute(statement).await.map_err(|error| LoadError::Refused {
                statement: statement.clone(),
                reason: error_text(&error),
            })?;
        }
        Ok(Client { client })
    }

    /// Runs a query and counts its rows without storing them.
    pub(crate) async fn run(&self, text: &str) -> QueryOutcome {
        match self.rows(text).await {
            Ok(rows) => QueryOutcome::Done { rows },
            Err(error) => match error.code() {
                // The error ended the session.
                Some(_) if self.client.is_closed() => QueryOutcome::Lost { reason: error_text(&error) },
                Some(code) => {
                    QueryOutcome::Failed { state: code.code().to_string(), message: error_text(&error) }
                }
                None => QueryOutcome::Lost { reason: error_text(&error) },
            },
        }
    }

    async fn rows(&self, text: &str) -> Result<u64, tokio_postgres::Error> {
        let mut stream = pin!(self.client.simple_query_raw(text).await?);
        let mut rows = 0;
        while let Some(message) = stream.next().await {
            rows += u64::from(matches!(message?, SimpleQueryMessage::Row(_)));
        }
        Ok(rows)
    }

    /// Asks the server to cancel the query in flight, so that it does no useless work.
    pub(crate) async fn cancel(&self) {
        let token = self.client.cancel_token();
        // Best effort: the run does not depend on it.
        drop(tokio::time::timeout(Duration::from_secs(1), token.cancel_query(NoTls)).await);
    }
}
