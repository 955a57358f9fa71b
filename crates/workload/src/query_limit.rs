//! Limits on the resources of a statement, and the action beyond them. Pure: the executor of a
//! statement reports its progress from time to time.

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
}

impl Action {
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

/// Monitor of one statement. Reports an exceeded limit once.
#[derive(Clone, Debug)]
pub struct Watch {
    level: Arc<str>,
    limit: QueryLimit,
    reported: bool,
}

impl Watch {
    /// Creates the monitor of a statement in this level.
    #[must_use]
    pub fn new(level: Arc<str>, limit: QueryLimit) -> Watch {
        Watch { level, limit, reported: false }
    }

    /// Returns the longest execution time. `None`: no limit, or already reported.
    #[must_use]
    pub fn elapsed_max(&self) -> Option<Duration> {
        self.limit.elapsed.filter(|_| !self.reported)
    }

    /// Checks a statement after `elapsed`, with `rows` and `bytes` read so far.
    pub fn check(&mut self, elapsed: Duration, rows: u64, bytes: u64) -> Option<Exceeded> {
        let exceeded = |limit: Option<u64>, is: u64| limit.filter(|max| is > *max).map(|max| max.to_string());
        let late =
            self.limit.elapsed.filter(|max| elapsed >= *max).map(|max| format!("{} ms", max.as_millis()));
        let (what, limit) = [
            ("elapsed", late),
            ("rows", exceeded(self.limit.rows, rows)),
            ("bytes", exceeded(self.limit.bytes, bytes)),
        ]
        .into_iter()
        .find_map(|(what, limit)| Some((what, limit?)))
        .filter(|_| !self.reported)?;
        self.reported = true;
        Some(Exceeded { level: self.level.clone(), what, limit, action: self.limit.action.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceeded_limit_is_reported_once() {
        let limit = QueryLimit {
            elapsed: Some(Duration::from_secs(30)),
            rows: Some(10),
            bytes: None,
            action: Action::Demote("slow".into()),
        };
        let check = |seconds: u64, rows: u64, expected: Option<&str>| {
            let mut watch = Watch::new("olap".into(), limit.clone());
            let reported = watch.check(Duration::from_secs(seconds), rows, u64::MAX);
            let text = reported.as_ref().map(ToString::to_string);
            let expected = expected.map(|what| {
                format!("The statement went beyond the query_limit of service level 'olap': {what}")
            });
            assert_eq!(text, expected);
            assert_eq!(watch.elapsed_max().is_none(), reported.is_some());
            assert_eq!(reported.map(|reported| reported.action), text.map(|_| Action::Demote("slow".into())));
            let again = watch.check(Duration::from_secs(seconds), rows, 0);
            assert_eq!(again, None);
        };
        check(29, 10, None);
        check(30, 0, Some("elapsed 30000 ms"));
        check(1, 11, Some("rows 10"));
        check(31, 11, Some("elapsed 30000 ms"));
    }

    #[test]
    fn actions_parse_from_their_names() {
        for text in ["cancel", "log", "demote:x"] {
            assert_eq!(Action::parse(text).expect(text).to_string(), text);
        }
        assert_eq!(Action::parse("demote:"), None);
        assert_eq!(Action::parse("kill"), None);
    }
}
