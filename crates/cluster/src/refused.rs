//! Sentences for an operator whose service account the cluster refuses, each with the remedy.

use frontdoor::handshake_failure;
use schema::names::always_quoted;
use scylla::errors::{
    ConnectionError, ConnectionPoolError, ConnectionSetupRequestErrorKind, DbError, MetadataError,
    MetadataFetchErrorKind, NewSessionError, NextPageError, NextRowError, RequestAttemptError, RequestError,
};

/// Returns a message of the driver in one line: some of them have several.
pub(crate) fn one_line(error: &dyn std::fmt::Display) -> String {
    error.to_string().split_whitespace().collect::<Vec<&str>>().join(" ")
}

/// Returns the sentence for a session that could not be opened. `user`: the service account.
pub(crate) fn unopened(error: &NewSessionError, user: Option<&str>) -> String {
    match error {
        NewSessionError::MetadataError(error) => unread(error, user),
        other => unreached(other),
    }
}

/// Returns the sentence for a connection that was lost.
fn disconnected(error: &ConnectionError) -> String {
    match error {
        ConnectionError::IoError(io) => match handshake_failure(io) {
            Some(reason) => format!(
                "the TLS handshake with the cluster failed: {reason} (--cluster-ca, --cluster-tls-name)"
            ),
            None => unreached(error),
        },
        other => unreached(other),
    }
}

fn unreached(error: &dyn std::fmt::Display) -> String {
    format!("the cluster cannot be reached: {} (--contact)", one_line(error))
}

/// Returns the sentence for tokens and keyspaces that could not be read.
pub(crate) fn unread(error: &MetadataError, user: Option<&str>) -> String {
    match error {
        MetadataError::ConnectionPoolError(ConnectionPoolError::Broken {
            last_connection_error: ConnectionError::ConnectionSetupRequestError(error),
        }) => unconnected(error.get_error(), user),
        MetadataError::ConnectionPoolError(ConnectionPoolError::Broken { last_connection_error }) => {
            disconnected(last_connection_error)
        }
        MetadataError::FetchError(fetch) => match attempt(&fetch.error) {
            Some(RequestAttemptError::DbError(DbError::Unauthorized, text)) => {
                let keyspace = fetch.table.split('.').next().unwrap_or(fetch.table);
                forbidden(text, keyspace, user)
            }
            _ => format!("the cluster does not show its schema: {}", one_line(error)),
        },
        other => format!("the cluster does not show its nodes and schema: {}", one_line(other)),
    }
}

/// Returns the sentence for a role without a right.
pub(crate) fn forbidden(text: &str, keyspace: &str, user: Option<&str>) -> String {
    let role = user.unwrap_or("anonymous");
    let name = always_quoted(role);
    format!(
        "the role `{role}` of this front may not read the keyspace {keyspace} ({text}): run GRANT SELECT ON \
         KEYSPACE {keyspace} TO {name}"
    )
}

fn unconnected(error: &ConnectionSetupRequestErrorKind, user: Option<&str>) -> String {
    match error {
        ConnectionSetupRequestErrorKind::DbError(DbError::AuthenticationError, text) => format!(
            "the cluster refuses the role `{}` of this front ({text}): give its name and password \
             (--cluster-user, FAIRLANE_CLUSTER_PASSWORD)",
            user.unwrap_or("anonymous")
        ),
        ConnectionSetupRequestErrorKind::MissingAuthentication => {
            "the cluster asks for a password: give a role of this front (--cluster-user, \
             FAIRLANE_CLUSTER_PASSWORD)"
                .to_owned()
        }
        ConnectionSetupRequestErrorKind::DbError(_, text) => format!("the cluster refuses to start: {text}"),
        other => unreached(other),
    }
}

/// Returns the answer of a node in an error of the driver, if there is one.
fn attempt(error: &MetadataFetchErrorKind) -> Option<&RequestAttemptError> {
    match error {
        MetadataFetchErrorKind::PrepareError(attempt) => Some(attempt),
        MetadataFetchErrorKind::NextRowError(NextRowError::NextPageError(NextPageError::RequestFailure(
            RequestError::LastAttemptError(attempt),
        ))) => Some(attempt),
        _ => None,
    }
}
