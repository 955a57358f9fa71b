//! Limits on the resources of a statement, and the actions beyond them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Action on a statement that exceeds its limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// End the statement with an error.
    Cancel,
    /// Continue the statement in the level of this name.
    Demote(Arc<str>),
    /// Continue the statement and log the event.
    Log,
    /// Stop the statement until the server is no longer overloaded. Only for `'overload'`.
    Suspend,
}

impl Action {
    /// Parses the actions of `'overload'`, separated by commas: `cancel`, `suspend` and
    /// `demote:LEVEL`. `None`: another text, or an action after `cancel`.
    #[must_use]
    pub fn parse_all(text: &str) -> Option<Vec<Action>> {
        let action = |text: &str| match text {
            "suspend" => Some(Action::Suspend),
            text => Action::parse(text).filter(|action| *action != Action::Log),
        };
        let actions: Vec<Action> = text.split(',').map(|text| action(text.trim())).collect::<Option<_>>()?;
        let ends = actions.iter().position(|action| *action == Action::Cancel);
        ends.is_none_or(|at| at + 1 == actions.len()).then_some(actions)
    }

    /// Parses `cancel`, `log` or `demote:LEVEL`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Action> {
        match (text, text.strip_prefix("demote:")) {
            ("cancel", _) => Some(Action::Cancel),
            ("log", _) => Some(Action::Log),
            (_, Some(level)) if !level.is_empty() => Some(Action::Demote(level.into())),
            _ => None,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Cancel => f.write_str("cancel"),
            Action::Demote(level) => write!(f, "demote:{level}"),
            Action::Log => f.write_str("log"),
            Action::Suspend => f.write_str("suspend"),
        }
    }
}

/// The `query_limit` of a level.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueryLimit {
    /// Longest execution time.
    pub elapsed: Option<Duration>,
    /// Most rows read.
    pub rows: Option<u64>,
    /// Most bytes read.
    pub bytes: Option<u64>,
    /// Action beyond any of these limits.
    pub action: Action,
    /// Actions on the heaviest statement while the server is overloaded, one after the other.
    pub overload: Vec<Action>,
}

/// An exceeded limit. Its text is for the client or the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exceeded {
    /// The level with the limit.
    pub level: Arc<str>,
    /// Name of the limit: `elapsed`, `rows` or `bytes`.
    pub what: &'static str,
    /// Value of the limit, with its unit.
    pub limit: String,
    /// Action to take.
    pub action: Action,
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Exceeded { level, what, limit, .. } = self;
        write!(f, "The statement went beyond the query_limit of service level '{level}': {what} {limit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_parse_from_their_names() {
        for text in ["cancel", "log", "demote:x"] {
            assert_eq!(Action::parse(text).expect(text).to_string(), text);
        }
        assert_eq!(Action::parse("demote:"), None);
        assert_eq!(Action::parse("kill"), None);
    }
}
