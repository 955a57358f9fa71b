//! Monitor of a statement's `query_limit`. The executor of the statement reports its progress from
//! time to time, and carries out the action that the monitor returns.

use std::sync::Arc;
use std::time::Duration;

use crate::candidates::Candidate;
use crate::{Action, Effective, Exceeded, LevelEntry, QueryLimit};

/// Levels whose `query_limit` a statement may take on by moving. Levels that demote to each other
/// would otherwise move it at every check.
const MOVES_MAX: u32 = 8;

/// Monitor of one statement. Reports an exceeded limit once, and each action for overload once.
#[derive(Clone, Debug)]
pub struct Watch {
    level: Arc<str>,
    limit: QueryLimit,
    reported: bool,
    /// `None` without actions for overload.
    candidate: Option<Arc<Candidate>>,
    /// Actions for overload that were reported.
    acted: u32,
    /// Number of levels that it has moved to.
    moves: u32,
}

/// Progress of a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StatementProgress {
    /// Time since it began.
    pub elapsed: Duration,
    /// Rows read so far.
    pub rows: u64,
    /// Bytes read so far.
    pub bytes: u64,
    /// Memory in use now, bytes.
    pub memory: u64,
}

impl Watch {
    /// Creates the monitor of a statement with these options. `None` without a `query_limit`.
    #[must_use]
    pub fn of(effective: &Effective) -> Option<Watch> {
        let limit = effective.spec.query_limit.clone()?;
        let candidate = (!limit.overload.is_empty()).then(|| effective.level.candidate(limit.overload.len()));
        let level = effective.level.name().clone();
        Some(Watch { level, limit, reported: false, candidate, acted: 0, moves: 0 })
    }

    /// Moves the statement to another level. The `query_limit` of that level holds from now on. If
    /// it has none, the statement keeps the limits and actions that are left of its own.
    pub fn move_to(&mut self, entry: &LevelEntry) {
        self.moves += 1;
        let moves = self.moves;
        let other = Watch::of(&Effective::of(entry)).filter(|_| moves <= MOVES_MAX);
        match (other, &self.candidate) {
            (Some(other), _) => *self = Watch { moves, ..other },
            (None, Some(candidate)) => candidate.move_to(entry.level.id()),
            (None, None) => {}
        }
    }

    /// Returns the longest execution time. `None`: no limit, or already reported.
    #[must_use]
    pub fn elapsed_max(&self) -> Option<Duration> {
        self.limit.elapsed.filter(|_| !self.reported)
    }

    /// Returns true if the statement must be checked while it runs, for the overload of the server.
    #[must_use]
    pub fn heeds_overload(&self) -> bool {
        self.candidate.is_some()
    }

    /// Returns true if the rows or bytes that the statement reads are limited.
    #[must_use]
    pub fn limits_reads(&self) -> bool {
        !self.reported && (self.limit.rows.is_some() || self.limit.bytes.is_some())
    }

    /// Returns true while the statement must not go on.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.candidate.as_ref().is_some_and(|candidate| candidate.is_suspended())
    }

    /// Checks a statement.
    pub fn check(&mut self, progress: StatementProgress) -> Option<Exceeded> {
        self.check_limits(progress).or_else(|| self.check_overload(progress))
    }

    fn check_limits(&mut self, progress: StatementProgress) -> Option<Exceeded> {
        let StatementProgress { elapsed, rows, bytes, .. } = progress;
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

    fn check_overload(&mut self, progress: StatementProgress) -> Option<Exceeded> {
        let candidate = self.candidate.as_ref()?;
        candidate.report(progress.memory, progress.bytes);
        let (asked, why) = candidate.asked();
        if asked <= self.acted {
            return None;
        }
        let action = self.limit.overload.get(self.acted as usize)?.clone();
        self.acted += 1;
        candidate.set_suspended(action == Action::Suspend);
        let level = self.level.clone();
        let what = "overload";
        let limit = format!("({why}, and it is the heaviest statement of the least entitled level)");
        Some(Exceeded { level, what, limit, action })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Action, Level, LevelEntry, LevelSpec};

    fn watch(limit: &QueryLimit) -> Watch {
        let spec = LevelSpec { query_limit: Some(limit.clone()), ..LevelSpec::new("olap") };
        let levels = (lanes::Group::DEFAULT, 1, &crate::Memory::new(0));
        let level = Arc::new(Level::new(spec.name.clone(), levels.0, levels.1, levels.2));
        Watch::of(&Effective::of(&LevelEntry { level, spec })).expect("it has a limit")
    }

    #[test]
    fn actions_for_overload_are_taken_in_order() {
        let overload = Action::parse_all("demote:slow, suspend,cancel").expect("in order");
        let limit = QueryLimit { elapsed: None, rows: None, bytes: None, action: Action::Log, overload };
        let mut watch = watch(&limit);
        let progress = StatementProgress { memory: 5, ..StatementProgress::default() };
        assert_eq!(watch.check(progress), None);
        let candidate = watch.candidate.clone().expect("it has actions");
        assert_eq!(candidate.memory(), 5);
        for (expected, is_suspended) in
            [(Action::Demote("slow".into()), false), (Action::Suspend, true), (Action::Cancel, false)]
        {
            candidate.ask("query memory is short");
            let exceeded = watch.check(progress).expect("it was asked");
            assert_eq!((&exceeded.action, watch.is_suspended()), (&expected, is_suspended));
            assert!(exceeded.to_string().ends_with(
                "overload (query memory is short, and it is the heaviest statement of the least entitled level)"
            ));
            assert_eq!(watch.check(progress), None);
        }
        assert!(!candidate.can_be_asked());
        for bad in ["", "log", "cancel,suspend", "suspend,", "demote:"] {
            assert_eq!(Action::parse_all(bad), None, "{bad}");
        }
    }

    #[test]
    fn moved_statement_has_the_limits_of_its_new_level_or_those_it_has_left() {
        let demote = || Action::Demote("slow".into());
        let limit = QueryLimit {
            elapsed: None,
            rows: Some(10),
            bytes: None,
            action: demote(),
            overload: Action::parse_all("cancel").expect("in order"),
        };
        let entry = |query_limit| {
            let spec = LevelSpec { query_limit, ..LevelSpec::new("slow") };
            let memory = crate::Memory::new(0);
            LevelEntry {
                level: Arc::new(Level::new(spec.name.clone(), lanes::Group::DEFAULT, 1, &memory)),
                spec,
            }
        };
        let progress = |rows| StatementProgress { rows, ..StatementProgress::default() };
        let acts = |watch: &mut Watch, rows| watch.check(progress(rows)).map(|exceeded| exceeded.action);

        let mut without = watch(&limit);
        assert_eq!(acts(&mut without, 11), Some(demote()));
        let to = entry(None);
        without.move_to(&to);
        assert_eq!(acts(&mut without, 1000), None, "its limit acts once");
        let candidate = without.candidate.clone().expect("it has an action left");
        assert_eq!(candidate.level(), to.level.id(), "its use counts for the new level");
        candidate.ask("query memory is short");
        assert_eq!(acts(&mut without, 1000), Some(Action::Cancel));

        let second = QueryLimit { rows: Some(100), overload: Vec::new(), ..limit.clone() };
        let mut with = watch(&limit);
        let to = entry(Some(second));
        with.move_to(&to);
        assert_eq!((acts(&mut with, 100), acts(&mut with, 101)), (None, Some(demote())));
        assert!(!with.heeds_overload(), "the new level has no actions for it");
        // Two levels that demote to each other.
        let moves = (0..1000).take_while(|_| {
            with.move_to(&to);
            acts(&mut with, 101).is_some()
        });
        assert_eq!(moves.count() as u32, MOVES_MAX - 1);
    }

    #[test]
    fn exceeded_limit_is_reported_once() {
        let limit = QueryLimit {
            elapsed: Some(Duration::from_secs(30)),
            rows: Some(10),
            bytes: None,
            action: Action::Demote("slow".into()),
            overload: Vec::new(),
        };
        let check = |seconds: u64, rows: u64, expected: Option<&str>| {
            let mut watch = watch(&limit);
            let progress =
                |bytes| StatementProgress { elapsed: Duration::from_secs(seconds), rows, bytes, memory: 0 };
            let reported = watch.check(progress(u64::MAX));
            let text = reported.as_ref().map(ToString::to_string);
            let expected = expected.map(|what| {
                format!("The statement went beyond the query_limit of service level 'olap': {what}")
            });
            assert_eq!(text, expected);
            assert_eq!(watch.elapsed_max().is_none(), reported.is_some());
            assert_eq!(reported.map(|reported| reported.action), text.map(|_| Action::Demote("slow".into())));
            let again = watch.check(progress(0));
            assert_eq!(again, None);
        };
        check(29, 10, None);
        check(30, 0, Some("elapsed 30000 ms"));
        check(1, 11, Some("rows 10"));
        check(31, 11, Some("elapsed 30000 ms"));
    }
}
