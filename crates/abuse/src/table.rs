//! The table of attacks. An attack's accepted answers are its entry in the test; a change of what the server
//! should answer is a change of one line here.

use crate::answers::Answer;
use crate::attack::{Attack, Listener, Run};
use crate::attacks::{
    control, cql_frames, cql_load, cql_login, cql_statements, http, sql_login, sql_sessions, sql_statements,
    together,
};
use crate::target::Role;

/// Answers to an SQL statement that may run, or may be refused for its size, depth, time or memory:
/// statement too complex, limit exceeded, out of memory, spill limit, cancelled, invalid argument, number out
/// of range, syntax, unsupported, unknown function.
const RUNS_OR_IS_REFUSED: &[&str] = &[
    "complete",
    "error 54001",
    "error 54000",
    "error 53200",
    "error 53400",
    "error 53100",
    "error 57014",
    "error 22023",
    "error 22003",
    "error 42601",
    "error 0A000",
    "error 42883",
];

/// One row of the table.
const fn attack(
    name: &'static str,
    (listener, needs): (Listener, Role),
    sends: &'static str,
    expected: &'static [&'static str],
    (rounds, holds): (u64, bool),
    run: fn(&Run) -> Result<(), Answer>,
) -> Attack {
    Attack { name, listener, needs, sends, expected, rounds, holds, run }
}

/// The attack goes on by itself for its time or its rounds.
const SENDS: bool = false;
/// The attack puts something in place and keeps it.
const HOLDS: bool = true;

/// Every attack, by listener and by the rights it takes.
#[rustfmt::skip]
pub(crate) const ATTACKS: &[Attack] = &[
    attack("cql-control", (Listener::Cql, Role::Stranger),
        "nothing: 16 busy client threads, to compare with",
        &[], (1, SENDS), control),
    attack("cql-register", (Listener::Cql, Role::Stranger),
        "REGISTER frames of 290 bytes that inflate to 64 KiB, before login",
        &["error 0x000A", "error 0x0100", "closed"], (2000, SENDS), cql_login::register),
    attack("cql-options-unread", (Listener::Cql, Role::Stranger),
        "32 KiB of OPTIONS on 256 connections, answers never read",
        &[], (256, HOLDS), cql_login::options_unread),
    attack("cql-idle", (Listener::Cql, Role::Stranger),
        "1,024 silent connections",
        &["refused", "closed"], (1024, HOLDS), cql_login::idle),
    attack("cql-half-frames", (Listener::Cql, Role::Stranger),
        "256 frames that never end, a byte now and then",
        &["closed"], (256, HOLDS), cql_login::half_frames),
    attack("cql-garbage", (Listener::Cql, Role::Stranger),
        "HTTP, TLS, impossible versions, lengths and opcodes",
        &["error 0x000A", "closed"], (70, SENDS), cql_login::garbage),
    attack("cql-bombs", (Listener::Cql, Role::Stranger),
        "LZ4 and Snappy bodies that claim what they do not hold",
        &["error 0x000A", "error 0x0100", "closed"], (20, SENDS), cql_login::bombs),
    attack("cql-login-storm", (Listener::Cql, Role::Stranger),
        "failing logins on 16 connections at once",
        &["error 0x0100", "error 0x1001", "closed", "refused"], (200, SENDS), cql_login::login_storm),
    attack("cql-connect-storm", (Listener::Cql, Role::Stranger),
        "connections that are reset at once",
        &[], (2000, SENDS), cql_login::connect_storm),
    attack("cql-verifier", (Listener::Cql, Role::Forger),
        "a verifier of 1,000,000 iterations for itself, then failing logins",
        &["error 0x2200", "error 0x0100", "error 0x1001", "closed"], (300, SENDS), cql_login::verifier),
    attack("cql-many-bounds", (Listener::Cql, Role::Nobody),
        "78,000 and 60,000 bounds on one column of a table without rights, 1.25 MB",
        &["error 0x2100", "error 0x2200", "error 0x2000"], (2, SENDS), cql_frames::many_bounds),
    attack("cql-named-values", (Listener::Cql, Role::Nobody),
        "65,535 markers and as many named values",
        &["rows", "error 0x2200", "error 0x2000"], (2, SENDS), cql_frames::named_values),
    attack("cql-in-values", (Listener::Cql, Role::Nobody),
        "a bound list of 2 million empty texts after IN, 8 MB",
        &["error 0x2200"], (1, SENDS), cql_frames::in_values),
    attack("cql-in-text", (Listener::Cql, Role::Nobody),
        "5 million terms after IN as text, 15 MiB in 64 KB of LZ4",
        &["error 0x2200", "error 0x2000"], (2, SENDS), cql_frames::in_text),
    attack("cql-prepare-comments", (Listener::Cql, Role::Nobody),
        "PREPARE with another comment of 15 MiB each time",
        &["error 0x2200", "error 0x1001"], (20, SENDS), cql_frames::prepare_comments),
    attack("cql-prepare-terms", (Listener::Cql, Role::Nobody),
        "PREPARE of 5 million terms",
        &["error 0x2200", "error 0x2000"], (2, SENDS), cql_frames::prepare_terms),
    attack("cql-prepare-flood", (Listener::Cql, Role::Nobody),
        "PREPARE of other short texts, 256 at once",
        &["prepared", "error 0x1001"], (12000, SENDS), cql_statements::prepare_flood),
    attack("cql-deep", (Listener::Cql, Role::Rude),
        "literals, calls, types and signs 100,000 deep",
        &["error 0x2000", "error 0x2200"], (5, SENDS), cql_frames::deep),
    attack("cql-unknown-ids", (Listener::Cql, Role::Nobody),
        "EXECUTE of ids that were never prepared",
        &["error 0x2500"], (200, SENDS), cql_statements::unknown_ids),
    attack("cql-alter-role", (Listener::Cql, Role::Forger),
        "ALTER ROLE of its own password, 64 at once",
        &["void", "error 0x1001"], (300, SENDS), cql_statements::alter_role),
    attack("cql-answers-unread", (Listener::Cql, Role::Nobody),
        "2,048 reads of system_schema.columns on each of 8 connections, never read",
        &[], (8, HOLDS), cql_load::answers_unread),
    attack("cql-batches", (Listener::Cql, Role::Rude),
        "batches of 60,000 and 6,000 INSERTs as text",
        &["void", "error 0x2200", "error 0x1001"], (4, SENDS), cql_frames::batches),
    attack("cql-conditional-batches", (Listener::Cql, Role::Rude),
        "batches of 60,000 and 6,000 INSERTs IF NOT EXISTS",
        &["error 0x2200", "error 0x1001"], (2, SENDS), cql_frames::conditional_batches),
    attack("cql-absent-keys", (Listener::Cql, Role::Rude),
        "10,000 absent keys after IN, on 4 connections",
        &["rows", "error 0x2200"], (40, SENDS), cql_statements::absent_keys),
    attack("cql-delete-product", (Listener::Cql, Role::Rude),
        "DELETE of 10,000 × 10,000 rows by two lists",
        &["error 0x2200"], (1, SENDS), cql_statements::delete_product),
    attack("cql-update-many", (Listener::Cql, Role::Rude),
        "UPDATE of 10,000 partitions with 1 MB each",
        &["error 0x2200"], (1, SENDS), cql_statements::update_many),
    attack("cql-map-append", (Listener::Cql, Role::Rude),
        "1,000 more elements of one map each time",
        &["void", "error 0x2200", "error 0x1001"], (100, SENDS), cql_statements::map_append),
    attack("cql-tombstones", (Listener::Cql, Role::Rude),
        "reads of one partition with 60,000 deleted rows",
        &["rows", "error 0x2200", "error 0x1300"], (8, SENDS), cql_statements::tombstones),
    attack("cql-wide-scan", (Listener::Cql, Role::Rude),
        "SELECT … LIMIT 1 over a partition of 20 MB",
        &["rows"], (8, SENDS), cql_statements::wide_scan),
    attack("cql-unpaged", (Listener::Cql, Role::Rude),
        "unpaged answers of 20 MB on 4 connections",
        &["rows", "error 0x2200", "error 0x1001"], (8, SENDS), cql_statements::unpaged),
    attack("cql-ddl", (Listener::Cql, Role::Rude),
        "CREATE, ALTER and DROP of tables with comments of 1 MB",
        &["schema changed", "error 0x2200", "void", "error 0x1001"], (16, SENDS), cql_statements::ddl),
    attack("cql-closed-loop", (Listener::Cql, Role::Rude),
        "reads with 8,192 requests in flight",
        &["rows", "error 0x1001"], (40000, SENDS), cql_load::closed_loop),
    attack("cql-big-answers-unread", (Listener::Cql, Role::Rude),
        "2,048 answers of 20 MB on each of 8 connections, never read",
        &[], (8, HOLDS), cql_load::big_answers_unread),
    attack("cql-slow-reader", (Listener::Cql, Role::Rude),
        "16 answers of 20 MB read 64 bytes at a time",
        &[], (16, HOLDS), cql_load::slow_reader),
    attack("cql-queued-comments", (Listener::Cql, Role::Narrow),
        "1,024 statements with comments of 15 MiB behind one slot",
        &["error 0x2200", "error 0x1001", "rows"], (1024, SENDS), cql_load::queued_comments),
    attack("sql-gssenc", (Listener::Sql, Role::Stranger),
        "requests for GSSAPI encryption without end",
        &["FATAL", "closed"], (50, SENDS), sql_login::gssenc),
    attack("sql-ssl", (Listener::Sql, Role::Stranger),
        "requests for TLS without end",
        &["FATAL", "closed"], (50, SENDS), sql_login::tls),
    attack("sql-early-messages", (Listener::Sql, Role::Stranger),
        "messages of a session before login, without a body",
        &["error 08P01"], (30, SENDS), sql_login::early_messages),
    attack("sql-idle", (Listener::Sql, Role::Stranger),
        "1,024 silent connections",
        &["refused", "closed"], (1024, HOLDS), sql_login::idle),
    attack("sql-half-startup", (Listener::Sql, Role::Stranger),
        "256 startup messages a byte at a time",
        &["closed"], (256, HOLDS), sql_login::half_startup),
    attack("sql-login-storm", (Listener::Sql, Role::Stranger),
        "failing logins on 16 connections at once",
        &["error 28P01", "error 53300", "closed", "refused"], (200, SENDS), sql_login::login_storm),
    attack("sql-cancel-storm", (Listener::Sql, Role::Stranger),
        "cancel requests with guessed secrets",
        &["closed", "refused"], (500, SENDS), sql_login::cancel_storm),
    attack("sql-or-chain", (Listener::Sql, Role::Nobody),
        "chains of 2,000 to 200,000 OR and AND",
        RUNS_OR_IS_REFUSED, (6, SENDS), sql_statements::or_chain),
    attack("sql-plus-chain", (Listener::Sql, Role::Nobody),
        "chains of 2,000 to 200,000 + and ||",
        RUNS_OR_IS_REFUSED, (6, SENDS), sql_statements::plus_chain),
    attack("sql-cast-chain", (Listener::Sql, Role::Nobody),
        "chains of 2,000 to 200,000 ::int, NOT and -",
        RUNS_OR_IS_REFUSED, (9, SENDS), sql_statements::cast_chain),
    attack("sql-union-chain", (Listener::Sql, Role::Nobody),
        "chains of 2,000 to 200,000 UNION ALL",
        RUNS_OR_IS_REFUSED, (3, SENDS), sql_statements::union_chain),
    attack("sql-nested", (Listener::Sql, Role::Nobody),
        "parentheses, subqueries, CASE, calls and arrays up to 20,000 deep",
        RUNS_OR_IS_REFUSED, (18, SENDS), sql_statements::nested),
    attack("sql-long-results", (Listener::Sql, Role::Nobody),
        "repeat, lpad, range and array_repeat of billions",
        RUNS_OR_IS_REFUSED, (11, SENDS), sql_statements::long_results),
    attack("sql-wide-values", (Listener::Sql, Role::Nobody),
        "constants, joined values and types of fixed size, a megabyte in each row",
        RUNS_OR_IS_REFUSED, (6, SENDS), sql_statements::wide_values),
    attack("sql-long-functions", (Listener::Sql, Role::Nobody),
        "levenshtein, regexp_replace and array_distinct of long values",
        RUNS_OR_IS_REFUSED, (3, SENDS), sql_statements::long_functions),
    attack("sql-long-text", (Listener::Sql, Role::Nobody),
        "queries of 16 MiB of text",
        RUNS_OR_IS_REFUSED, (6, SENDS), sql_statements::long_text),
    attack("sql-sorted-union", (Listener::Sql, Role::Nobody),
        "UNION ALL of 50 to 3,000 sorted subqueries",
        RUNS_OR_IS_REFUSED, (3, SENDS), sql_statements::sorted_union),
    attack("sql-endless", (Listener::Sql, Role::Nobody),
        "recursion and products that do not end, with a time limit of 1 s",
        RUNS_OR_IS_REFUSED, (3, SENDS), sql_statements::endless),
    attack("sql-answers-unread", (Listener::Sql, Role::Nobody),
        "answers of 1 TB on 32 sessions, never read",
        &[], (32, HOLDS), sql_statements::answers_unread),
    attack("sql-long-parses", (Listener::Sql, Role::Nobody),
        "Parse of 15 MiB texts, kept",
        &["parsed", "error 53200", "error 54000", "error 54001"], (32, HOLDS), sql_sessions::long_parses),
    attack("sql-open-portals", (Listener::Sql, Role::Nobody),
        "256 open portals on each of 16 sessions",
        &["suspended", "error 53200", "error 54000", "error 54001", "error 53400"], (32, HOLDS), sql_sessions::open_portals),
    attack("sql-small-messages", (Listener::Sql, Role::Nobody),
        "Sync, Flush, Close, SHOW and empty queries without end",
        &["complete", "empty"], (20, SENDS), sql_sessions::small_messages),
    attack("sql-idle-sessions", (Listener::Sql, Role::Nobody),
        "1,024 sessions that do nothing",
        &["error 53300", "closed", "refused"], (1024, HOLDS), sql_sessions::idle_sessions),
    attack("sql-odd-messages", (Listener::Sql, Role::Nobody),
        "Bind, Parse and Describe with lengths that lie",
        &["error 08P01", "error 26000", "error 34000", "error 22P02", "closed", "complete"], (12, SENDS), sql_sessions::odd_messages),
    attack("http-slow-header", (Listener::Http, Role::Stranger),
        "64 requests whose header never ends",
        &["closed"], (64, HOLDS), http::slow_header),
    attack("http-metrics", (Listener::Http, Role::Stranger),
        "GET /metrics on 64 connections without pause",
        &["200", "429", "503", "closed"], (256, SENDS), http::metrics),
    attack("all-memory", (Listener::All, Role::Rude),
        "all attacks on memory together",
        &[together::ACCEPTED], (20, HOLDS), together::memory),
];

/// The attack of this name.
pub(crate) fn find(name: &str) -> Option<&'static Attack> {
    ATTACKS.iter().find(|attack| attack.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_say_the_listener() {
        for (index, attack) in ATTACKS.iter().enumerate() {
            let listener = attack.listener.name().to_lowercase();
            assert!(attack.name.starts_with(&format!("{listener}-")), "{}", attack.name);
            assert!(ATTACKS[..index].iter().all(|other| other.name != attack.name), "{}", attack.name);
            assert!(attack.rounds > 0, "{}", attack.name);
        }
        assert!(find("cql-idle").is_some() && find("nothing").is_none());
    }
}
