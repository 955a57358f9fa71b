//! Many attacks at once, each as specified by its entry of the table.

use std::time::Duration;

use crate::answers::{REFUSED, ServerAnswer};
use crate::attack::AttackRun;
use crate::table::find;

/// Attacks on memory.
const MEMORY: [&str; 20] = [
    "cql-register",
    "cql-options-unread",
    "cql-in-values",
    "cql-in-text",
    "cql-prepare-comments",
    "cql-prepare-terms",
    "cql-answers-unread",
    "cql-batches",
    "cql-update-many",
    "cql-unpaged",
    "cql-big-answers-unread",
    "cql-slow-reader",
    "cql-queued-comments",
    "sql-nested",
    "sql-long-results",
    "sql-long-text",
    "sql-sorted-union",
    "sql-answers-unread",
    "sql-long-parses",
    "sql-open-portals",
];
/// Rejections by a full server, which each attack may get because of the others: overloaded, out of
/// memory, too many connections, limit exceeded, time limit.
const FULL: [&str; 5] = ["error 0x1001", "error 53200", "error 53300", "error 53400", "error 57014"];
/// Longest duration of one attack. Some attacks end only with their time.
const TIME_MAX: Duration = Duration::from_secs(8);
/// Time between the start of the attacks and the administrator's round.
const BEFORE_READY: Duration = Duration::from_secs(3);
/// Label of an answer that the attack's entry accepts, and of a rejection by a full server.
pub(crate) const ACCEPTED: &str = "accepted";

/// Runs all attacks on memory at once, each repeatedly with the rounds of its short form. Any other
/// answer is counted under the attack's name.
pub(crate) fn memory(run: &AttackRun) -> Result<(), ServerAnswer> {
    std::thread::scope(|scope| {
        for name in MEMORY {
            scope.spawn(move || {
                let attack = find(name).expect("a test checks the names");
                let time = run.time_left().min(TIME_MAX);
                while run.round() && run.has_time() {
                    let one = AttackRun::quiet(attack, run.target, time.min(run.time_left()), attack.rounds);
                    let gave_up = (attack.run)(&one).err();
                    let accepted = |label: &str| {
                        attack.expected.contains(&label) || FULL.contains(&label) || label == REFUSED
                    };
                    one.answers().each(|answer| run.record(renamed(name, accepted(&answer.label), answer)));
                    if let Some(answer) = gave_up {
                        // Without a login there is nothing to attack with.
                        run.record(renamed(name, accepted(&answer.label), answer));
                    }
                }
            });
        }
        std::thread::sleep(BEFORE_READY);
        run.hold(|| {});
    });
    Ok(())
}

fn renamed(name: &str, is_accepted: bool, answer: ServerAnswer) -> ServerAnswer {
    if is_accepted {
        return ServerAnswer::new(ACCEPTED);
    }
    ServerAnswer { label: format!("{name}: {}", answer.label), text: answer.text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attacks_on_memory_are_in_the_table() {
        assert!(MEMORY.iter().all(|name| find(name).is_some()));
    }

    #[test]
    fn unexpected_answer_keeps_the_name_of_its_attack() {
        assert_eq!(renamed("sql-x", true, ServerAnswer::error("53200", "full")), ServerAnswer::new(ACCEPTED));
        assert_eq!(renamed("sql-x", false, ServerAnswer::new("closed")).label, "sql-x: closed");
    }
}
