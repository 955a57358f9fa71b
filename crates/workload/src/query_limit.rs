//! Statements that go too far: how far is too far, and what becomes of them. Pure: whoever runs a statement says now and then how
//! far it has come.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What becomes of a statement that has gone too far.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// It ends with an error.
    Cancel,
    /// It goes on in the level of that name.
    Demote(Arc<str>),
    /// It goes on, and the log says so.
    Log,
}

impl Action {
    /// `cancel`, `log` or `demote:LEVEL`.
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

/// A level's `query_limit`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueryLimit {
    /// Longest time it may run.
    pub elapsed: Option<Duration>,
    /// Most rows it may read.
    pub rows: Option<u64>,
    /// Most bytes it may read.
    pub bytes: Option<u64>,
    /// What becomes of it then.
    pub action: Action,
}

/// How far a statement has come that has gone too far. Its text is for the client, or the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exceeded {
    /// The level whose limit it was.
    pub level: Arc<str>,
    /// Which limit: `elapsed`, `rows` or `bytes`.
    pub what: &'static str,
    /// What the limit is.
    pub limit: String,
    /// What to do.
    pub action: Action,
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Exceeded { level, what, limit, .. } = self;
        write!(f, "The statement went beyond the query_limit of service level '{level}': {what} {limit}")
    }
}

/// Looks after one statement. It says once that the statement has gone too far.
#[derive(Clone, Debug)]
pub struct Watch {
    level: Arc<str>,
    limit: QueryLimit,
    said: bool,
}

impl Watch {
    /// For a statement of a level with that limit.
    #[must_use]
    pub fn new(level: Arc<str>, limit: QueryLimit) -> Watch {
        Watch { level, limit, said: false }
    }

    /// How long it may run, if there is a limit to that which was not reached yet.
    #[must_use]
    pub fn elapsed_max(&self) -> Option<Duration> {
        self.limit.elapsed.filter(|_| !self.said)
    }

    /// Looks at a statement that has run for so long, and read so much.
    pub fn look(&mut self, elapsed: Duration, rows: u64, bytes: u64) -> Option<Exceeded> {
        let over = |limit: Option<u64>, is: u64| limit.filter(|max| is > *max).map(|max| max.to_string());
        let late =
            self.limit.elapsed.filter(|max| elapsed >= *max).map(|max| format!("{} ms", max.as_millis()));
        let (what, limit) = [
            ("elapsed", late),
            ("rows", over(self.limit.rows, rows)),
            ("bytes", over(self.limit.bytes, bytes)),
        ]
        .into_iter()
        .find_map(|(what, limit)| Some((what, limit?)))
        .filter(|_| !self.said)?;
        self.said = true;
        Some(Exceeded { level: self.level.clone(), what, limit, action: self.limit.action.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_that_goes_too_far_is_told_of_once() {
        let limit = QueryLimit {
            elapsed: Some(Duration::from_secs(30)),
            rows: Some(10),
            bytes: None,
            action: Action::Demote("slow".into()),
        };
        let check = |seconds: u64, rows: u64, expected: Option<&str>| {
            let mut watch = Watch::new("olap".into(), limit.clone());
            let said = watch.look(Duration::from_secs(seconds), rows, u64::MAX);
            let text = said.as_ref().map(ToString::to_string);
            let expected = expected.map(|what| {
                format!("The statement went beyond the query_limit of service level 'olap': {what}")
            });
            assert_eq!(text, expected);
            assert_eq!(watch.elapsed_max().is_none(), said.is_some());
            assert_eq!(said.map(|said| said.action), text.map(|_| Action::Demote("slow".into())));
            let again = watch.look(Duration::from_secs(seconds), rows, 0);
            assert_eq!(again, None);
        };
        check(29, 10, None);
        check(30, 0, Some("elapsed 30000 ms"));
        check(1, 11, Some("rows 10"));
        check(31, 11, Some("elapsed 30000 ms"));
    }

    #[test]
    fn actions_have_names() {
        for text in ["cancel", "log", "demote:x"] {
            assert_eq!(Action::parse(text).expect(text).to_string(), text);
        }
        assert_eq!(Action::parse("demote:"), None);
        assert_eq!(Action::parse("kill"), None);
    }
}
