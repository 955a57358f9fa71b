//! A connection to the Postgres door: opened, prepared for its load, and asked one query at a time.

use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio_postgres::config::Host;
use tokio_postgres::{Config, NoTls, SimpleQueryMessage};

use super::book::Outcome;
use super::spec::SqlSpec;
use crate::LoadError;
use crate::connector::HANDSHAKE;

/// A connection that is ready for queries.
pub(crate) struct Client {
    client: tokio_postgres::Client,
}

fn config(spec: &SqlSpec, host: &str) -> Result<Config, LoadError> {
    let wrong = || LoadError::Usage(format!("--hosts: `{host}` is not HOST:PORT."));
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

/// An error with everything the server said of it.
pub(crate) fn told(error: &tokio_postgres::Error) -> String {
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
    /// Connects, logs in and runs the statements that every connection begins with.
    ///
    /// # Errors
    /// [`LoadError::Connect`], [`LoadError::Credentials`]; [`LoadError::Refused`] for a statement.
    pub(crate) async fn open(spec: &SqlSpec, host: &str) -> Result<Client, LoadError> {
        let config = config(spec, host)?;
        let address = host.to_string();
        let opened = tokio::time::timeout(HANDSHAKE, config.connect(NoTls)).await;
        let opened = opened.map_err(|_| LoadError::Postgres {
            address: address.clone(),
            reason: "it does not answer".into(),
        })?;
        let (client, connection) = opened.map_err(|error| match error.code() {
            Some(code) if code.code().starts_with("28") => {
                LoadError::Credentials { address: address.clone(), reason: told(&error) }
            }
            _ => LoadError::Postgres { address: address.clone(), reason: told(&error) },
        })?;
        // Ends with the client; what breaks it is told by the query under way.
        tokio::task::spawn_local(async move { drop(connection.await) });
        for statement in &spec.setup {
            client
                .batch_execute(statement)
                .await
                .map_err(|error| LoadError::Refused { statement: statement.clone(), reason: told(&error) })?;
        }
        Ok(Client { client })
    }

    /// Runs a query and counts its rows as they come.
    pub(crate) async fn run(&self, text: &str) -> Outcome {
        match self.rows(text).await {
            Ok(rows) => Outcome::Done { rows },
            Err(error) => match error.code() {
                // An error of the session as a whole ends it.
                Some(_) if self.client.is_closed() => Outcome::Lost { why: told(&error) },
                Some(code) => Outcome::Failed { state: code.code().to_string(), message: told(&error) },
                None => Outcome::Lost { why: told(&error) },
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

    /// Asks the server to cancel what is under way, so that it does not work on for nobody.
    pub(crate) async fn cancel(&self) {
        let token = self.client.cancel_token();
        // It is a courtesy; whether it arrives changes nothing here.
        drop(tokio::time::timeout(Duration::from_secs(1), token.cancel_query(NoTls)).await);
    }
}
