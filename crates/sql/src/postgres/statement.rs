//! Classifies a statement by its first words: a query for DataFusion, a statement about the
//! session, a statement about roles and levels (executed by the code that CQL uses), or a write,
//! which is refused.

use engine::{Guardrail, Guardrails};

use crate::engine::parse::text::{Word, split, words};
use crate::engine::parse::text_bounds::parser_work;
use crate::failure::{Failure, state};

/// Words examined at most.
const WORDS_MAX: usize = 64;

/// Kind of a statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Statement {
    /// A query for DataFusion.
    Query,
    /// A statement about roles, grants or service levels.
    Access,
    /// A statement about the session.
    Session(SessionCommand),
    /// `SELECT pg_cancel_backend(7)` or `SELECT pg_terminate_backend(7)`.
    Cancel(CancelCall),
}

/// Call of a function that ends a statement or a session of another client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CancelCall {
    /// Name of the function.
    pub(crate) function: &'static str,
    /// The statement that does the same.
    pub(crate) command: String,
}

/// Statements about the session itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SessionCommand {
    Begin,
    Commit,
    Rollback,
    /// Sets a setting, or with `None` resets it.
    Set(String, Option<String>),
    Show(String),
    ShowAll,
    ResetAll,
    /// Resets all state of the session.
    Discard,
    /// Removes a prepared statement, or with `None` all.
    Deallocate(Option<String>),
    /// Ends suspended queries.
    CloseAll,
    /// Accepted without effect. Holds the command tag.
    Nothing(&'static str),
}

impl SessionCommand {
    /// Returns the command tag.
    pub(crate) fn tag(&self) -> &'static str {
        match self {
            SessionCommand::Begin => "BEGIN",
            SessionCommand::Commit => "COMMIT",
            SessionCommand::Rollback => "ROLLBACK",
            SessionCommand::Set(_, Some(_)) => "SET",
            SessionCommand::Set(_, None) | SessionCommand::ResetAll => "RESET",
            SessionCommand::Show(_) | SessionCommand::ShowAll => "SHOW",
            SessionCommand::Discard => "DISCARD ALL",
            SessionCommand::Deallocate(_) => "DEALLOCATE",
            SessionCommand::CloseAll => "CLOSE CURSOR ALL",
            SessionCommand::Nothing(tag) => tag,
        }
    }
}

/// A statement of a client's message.
pub(crate) struct Read {
    pub(crate) text: String,
    pub(crate) kind: Result<Statement, Failure>,
    /// It contains `current_setting`.
    pub(crate) asks_settings: bool,
}

impl Default for Read {
    /// The empty statement.
    fn default() -> Read {
        Read { text: String::new(), kind: Ok(Statement::Query), asks_settings: false }
    }
}

/// Splits a text into statements and classifies them.
///
/// # Errors
/// The text is longer than the guardrail `statement_bytes` allows, or has more statements than
/// `batch_statements` allows.
pub(crate) fn read(text: &str, guardrails: &Guardrails) -> Result<Vec<Read>, Failure> {
    let checked = guardrails.check(Guardrail::StatementBytes, text.len() as u64);
    checked.map_err(|error| Failure::new(state::LIMIT, error.to_string()))?;
    let one = |text: &str| {
        let work = parser_work(text);
        let kind = match work.excess() {
            Some(excess) => Err(Failure::new(state::COMPLEX, excess)),
            None => classify(text),
        };
        Read { text: text.to_owned(), kind, asks_settings: work.asks_settings }
    };
    let max = guardrails.fail_threshold(Guardrail::BatchStatements);
    let max = usize::try_from(max).ok().filter(|max| *max > 0).unwrap_or(usize::MAX - 1);
    let statements = split(text, max);
    let checked = guardrails.check(Guardrail::BatchStatements, statements.len() as u64);
    checked.map_err(|error| Failure::new(state::LIMIT, error.to_string()))?;
    Ok(statements.into_iter().map(one).collect())
}

/// Classifies a statement.
///
/// # Errors
/// The statement would write, or is not supported.
pub(crate) fn classify(text: &str) -> Result<Statement, Failure> {
    let words = words(text, WORDS_MAX);
    let word = |place: usize| match words.get(place) {
        Some(Word::Plain(word)) => word.as_str(),
        _ => "",
    };
    let (first, second) = (word(0), word(1));
    let command = |command: SessionCommand| Ok(Statement::Session(command));
    match first {
        "begin" | "start" => command(SessionCommand::Begin),
        "commit" | "end" => command(SessionCommand::Commit),
        "rollback" if second == "to" || word(2) == "to" => command(SessionCommand::Nothing("ROLLBACK")),
        "rollback" | "abort" => command(SessionCommand::Rollback),
        "savepoint" => command(SessionCommand::Nothing("SAVEPOINT")),
        "release" => command(SessionCommand::Nothing("RELEASE")),
        "unlisten" => command(SessionCommand::Nothing("UNLISTEN")),
        "select" => Ok(cancel_call(&words[1..]).map_or(Statement::Query, Statement::Cancel)),
        "set" => set(&words[1..]),
        "show" => Ok(show(&words[1..])),
        "reset" if second == "all" => command(SessionCommand::ResetAll),
        "reset" if second == "session" => command(SessionCommand::Nothing("RESET")),
        "reset" => command(SessionCommand::Set(name(&words[1..]).0, None)),
        "discard" => command(SessionCommand::Discard),
        "close" if second == "all" => command(SessionCommand::CloseAll),
        "deallocate" => command(SessionCommand::Deallocate(deallocated(&words[1..]))),
        "create" | "alter" | "drop" if matches!(second, "role" | "user" | "service" | "service_level") => {
            Ok(Statement::Access)
        }
        "grant" | "revoke" | "list" | "attach" | "detach" | "cancel" => Ok(Statement::Access),
        "insert" | "update" | "delete" | "merge" | "truncate" | "copy" | "create" | "alter" | "drop"
        | "vacuum" | "reindex" | "cluster" | "refresh" | "comment" | "lock" | "call" | "do" | "import"
        | "batch" => Err(Failure::read_only(first)),
        "declare" | "fetch" | "move" | "close" | "prepare" | "execute" | "listen" | "notify" => {
            let text = format!("{} is not supported over SQL", first.to_uppercase());
            Err(Failure::new(state::UNSUPPORTED, text).with_hint(
                "Prepared statements and portals of the protocol are: most drivers use those by themselves.",
            ))
        }
        _ => Ok(Statement::Query),
    }
}

/// Functions that end what a session of a number does, with the statement that does the same.
const CANCELLING: [(&str, &str); 2] =
    [("pg_cancel_backend", "CANCEL STATEMENT"), ("pg_terminate_backend", "CANCEL SESSION")];

/// Returns the call that a SELECT consists of. `None` for any other SELECT.
fn cancel_call(words: &[Word]) -> Option<CancelCall> {
    let words = match words {
        [schema, Word::Sign('.'), rest @ ..] if schema.is("pg_catalog") => rest,
        words => words,
    };
    let [function, Word::Sign('('), Word::Plain(number), Word::Sign(')')] = words else { return None };
    let (function, command) = CANCELLING.into_iter().find(|(name, _)| function.is(name))?;
    let number: i32 = number.parse().ok()?;
    Some(CancelCall { function, command: format!("{command} 'sql-{number}'") })
}

/// Returns a setting's name at the start of `words`, and the words after it.
fn name(words: &[Word]) -> (String, &[Word]) {
    if words.len() > 1 && words[0].is("time") && words[1].is("zone") {
        return ("TimeZone".to_owned(), &words[2..]);
    }
    if words.len() > 2 && words[0].is("transaction") && words[1].is("isolation") && words[2].is("level") {
        return ("transaction_isolation".to_owned(), &words[3..]);
    }
    if words.len() > 1 && words[0].is("session") && words[1].is("authorization") {
        return ("session_authorization".to_owned(), &words[2..]);
    }
    match words.split_first() {
        Some((first, rest)) => (first.text(), rest),
        None => (String::new(), words),
    }
}

fn set(words: &[Word]) -> Result<Statement, Failure> {
    let qualified = words.first().is_some_and(|word| word.is("session") || word.is("local"));
    let characteristics = words.get(1).is_some_and(|word| word.is("characteristics"));
    if characteristics || words.first().is_some_and(|word| word.is("transaction")) {
        // Everything is read-only, and each statement has a snapshot of its own, in any kind of
        // transaction.
        return Ok(Statement::Session(SessionCommand::Nothing("SET")));
    }
    let authorization = words.get(1).is_some_and(|word| word.is("authorization"));
    let words = if qualified && !authorization { &words[1..] } else { words };
    if words.first().is_some_and(|word| word.is("names")) {
        let value = words.get(1).map_or_else(String::new, Word::text);
        return Ok(Statement::Session(SessionCommand::Set("client_encoding".to_owned(), Some(value))));
    }
    let (name, rest) = name(words);
    if name == "session_authorization" && !rest.is_empty() && rest.iter().all(|word| word.is("default")) {
        return Ok(Statement::Session(SessionCommand::Nothing("SET"))); // a session has one role
    }
    let rest = match rest.split_first() {
        Some((word, rest)) if word.is("to") || *word == Word::Sign('=') => rest,
        _ => rest,
    };
    if rest.is_empty() {
        return Err(Failure::new(state::SYNTAX, format!("SET {name} needs a value")));
    }
    if rest.len() == 1 && (rest[0].is("default") || (name == "TimeZone" && rest[0].is("local"))) {
        return Ok(Statement::Session(SessionCommand::Set(name, None)));
    }
    Ok(Statement::Session(SessionCommand::Set(name, Some(value(rest)))))
}

/// Joins the words of a value. A list keeps its commas, a signed number its sign.
fn value(words: &[Word]) -> String {
    let mut text = String::new();
    for word in words {
        match word {
            Word::Sign(',') => text.push_str(", "),
            word => text.push_str(&word.text()),
        }
    }
    text
}

fn show(words: &[Word]) -> Statement {
    match name(words).0.as_str() {
        "all" => Statement::Session(SessionCommand::ShowAll),
        "tables" | "columns" => Statement::Query,
        name => Statement::Session(SessionCommand::Show(name.to_owned())),
    }
}

fn deallocated(words: &[Word]) -> Option<String> {
    let words = if words.first().is_some_and(|word| word.is("prepare")) { &words[1..] } else { words };
    words.first().filter(|word| !word.is("all")).map(Word::text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<Statement, &str>) {
        assert_eq!(classify(text).map_err(|failure| failure.code), expected, "{text}");
    }

    #[test]
    fn first_words_classify_a_statement() {
        let command = |command: SessionCommand| Ok(Statement::Session(command));
        let set =
            |name: &str, value: &str| command(SessionCommand::Set(name.to_owned(), Some(value.to_owned())));
        check("SELECT 1", Ok(Statement::Query));
        check("(SELECT 1)", Ok(Statement::Query));
        check("explain analyze select 1", Ok(Statement::Query));
        check("whatever", Ok(Statement::Query));
        let cancel = |function, command: &str| {
            Ok(Statement::Cancel(CancelCall { function, command: command.to_owned() }))
        };
        check("SELECT pg_cancel_backend(7)", cancel("pg_cancel_backend", "CANCEL STATEMENT 'sql-7'"));
        check(
            "select pg_catalog . PG_Terminate_Backend ( 12 )",
            cancel("pg_terminate_backend", "CANCEL SESSION 'sql-12'"),
        );
        for text in ["(7, 1)", "(x)", "('7')", "(-7)", "(99999999999)", "(7), 1", "(7) FROM t", "()"] {
            check(&format!("SELECT pg_cancel_backend{text}"), Ok(Statement::Query));
        }
        check("BEGIN READ ONLY", command(SessionCommand::Begin));
        check("START TRANSACTION", command(SessionCommand::Begin));
        check("rollback to savepoint a", command(SessionCommand::Nothing("ROLLBACK")));
        check("SET service_level = 'olap'", set("service_level", "olap"));
        check("SET SESSION service_level TO olap", set("service_level", "olap"));
        check("SET LOCAL search_path TO shop, public", set("search_path", "shop, public"));
        check("SET TIME ZONE 'Europe/Rome'", set("TimeZone", "Europe/Rome"));
        check("SET extra_float_digits = -1", set("extra_float_digits", "-1"));
        check("SET NAMES 'UTF8'", set("client_encoding", "UTF8"));
        check("SET bypass_cache TO DEFAULT", command(SessionCommand::Set("bypass_cache".to_owned(), None)));
        check(
            "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
            command(SessionCommand::Nothing("SET")),
        );
        check("SET x", Err(state::SYNTAX));
        check(
            "SHOW TRANSACTION ISOLATION LEVEL",
            command(SessionCommand::Show("transaction_isolation".to_owned())),
        );
        check("SHOW ALL", command(SessionCommand::ShowAll));
        check("SHOW TABLES", Ok(Statement::Query));
        check("DEALLOCATE PREPARE a", command(SessionCommand::Deallocate(Some("a".to_owned()))));
        check("DEALLOCATE ALL", command(SessionCommand::Deallocate(None)));
        check("CREATE SERVICE LEVEL a WITH shares = 1", Ok(Statement::Access));
        check("LIST ALL SERVICE LEVELS", Ok(Statement::Access));
        check("DROP TABLE a", Err(state::READ_ONLY));
        check("insert into a values (1)", Err(state::READ_ONLY));
        check("FETCH ALL FROM c", Err(state::UNSUPPORTED));
    }
}
