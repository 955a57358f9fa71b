//! Guardrails: one table of the limits that a client can exceed. As in Cassandra 4.1, each has a
//! threshold that warns and one that fails. Both listeners, the engine, the settings, `/metrics`
//! and `system.guardrails` read this table.
//!
//! A check costs one or two atomic loads. Thresholds are settings and may change while the server
//! runs. The value 0 disables a threshold.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::{Error, Warnings};

/// A guardrail: one limit of the table [`GUARDRAILS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Guardrail {
    /// Bytes of the text of one statement, after decompression.
    StatementBytes,
    /// Terms (literals and bind markers) in the text of one statement.
    StatementTerms,
    /// Columns and terms that one statement restricts or sets.
    StatementRelations,
    /// Values on the right of one `IN`.
    InValues,
    /// Combinations of the values of all `IN`s of a statement: partitions or rows that it names.
    InProduct,
    /// Bytes of the keys of all these combinations.
    InProductBytes,
    /// Bytes of values that one statement writes, over all partitions and rows that it names.
    WriteBytes,
    /// Statements in one batch.
    BatchStatements,
    /// Bytes of values in one batch.
    BatchBytes,
    /// Elements of one collection in a request.
    CollectionElements,
    /// Rows of one page.
    PageRows,
    /// Bytes of one answer without pages.
    UnpagedBytes,
    /// Tombstones and dead rows read for one page.
    Tombstones,
    /// Tables of all keyspaces.
    Tables,
    /// Keyspaces.
    Keyspaces,
    /// Columns of one table.
    Columns,
    /// User types of one keyspace.
    UserTypes,
    /// Dimensions of one vector type in a definition.
    VectorDimensions,
    /// Bytes of the comment of one table.
    CommentBytes,
    /// Depth of one SQL expression or query.
    SqlDepth,
    /// Nodes of one SQL statement's syntax tree.
    SqlNodes,
    /// Bytes that one call of a SQL function returns for one row.
    FunctionBytes,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct GuardrailSpec {
    /// The guardrail.
    pub guardrail: Guardrail,
    /// Its name in settings, metrics and messages: lower case with underscores.
    pub name: &'static str,
    /// The limited quantity in messages, as in "expected at most 100 *values in one IN*".
    pub counts: &'static str,
    /// Default of the warn threshold. 0: never warns.
    pub warn: u64,
    /// Default of the fail threshold. 0: never fails.
    pub fail: u64,
    /// The remedy, as a sentence without a full stop.
    pub remedy: &'static str,
}

const fn spec(
    guardrail: Guardrail,
    name: &'static str,
    counts: &'static str,
    warn: u64,
    fail: u64,
    remedy: &'static str,
) -> GuardrailSpec {
    GuardrailSpec { guardrail, name, counts, warn, fail, remedy }
}

const MIB: u64 = 1 << 20;

/// All guardrails, in the order of the enum.
#[rustfmt::skip]
pub const GUARDRAILS: [GuardrailSpec; 22] = [
    spec(Guardrail::StatementBytes, "statement_bytes", "bytes of statement text", 64 << 10, 16 * MIB,
        "send values as bind markers, or several statements"),
    spec(Guardrail::StatementTerms, "statement_terms", "terms in one statement", 10_000, 66_000,
        "send several statements, or one bound list"),
    spec(Guardrail::StatementRelations, "statement_relations", "relations or assignments in one statement",
        1_000, 4_000, "name each column once"),
    spec(Guardrail::InValues, "in_values", "values in one IN", 1_000, 10_000,
        "send several statements"),
    spec(Guardrail::InProduct, "in_product", "combinations of IN values", 1_000, 10_000,
        "send several statements"),
    spec(Guardrail::InProductBytes, "in_product_bytes", "bytes of combinations of IN values", MIB, 16 * MIB,
        "send several statements"),
    spec(Guardrail::WriteBytes, "write_bytes", "bytes written by one statement", MIB, 16 * MIB,
        "write fewer partitions or rows at once"),
    spec(Guardrail::BatchStatements, "batch_statements", "statements in one batch", 1_000, 65_535,
        "send several batches"),
    // Warns as Cassandra does, which refuses from 50 KiB on: it keeps batches for its replicas.
    spec(Guardrail::BatchBytes, "batch_bytes", "bytes of values in one batch", 5 << 10, 512 << 10,
        "send several batches"),
    spec(Guardrail::CollectionElements, "collection_elements", "elements of one collection", 10_000, 65_535,
        "use a clustering column instead"),
    spec(Guardrail::PageRows, "page_rows", "rows of one page", 50_000, 0,
        "ask for smaller pages"),
    spec(Guardrail::UnpagedBytes, "unpaged_bytes", "bytes of one answer without pages", 16 * MIB, 128 * MIB,
        "read by pages: set a page size"),
    spec(Guardrail::Tombstones, "tombstones", "tombstones and dead rows read for one page", 1_000, 100_000,
        "delete whole partitions, or read a smaller range"),
    spec(Guardrail::Tables, "tables", "tables of all keyspaces", 500, 10_000,
        "drop tables that are not used"),
    spec(Guardrail::Keyspaces, "keyspaces", "keyspaces", 200, 2_000,
        "drop keyspaces that are not used"),
    spec(Guardrail::Columns, "columns", "columns of one table", 200, 2_000,
        "use several tables, or a map"),
    spec(Guardrail::UserTypes, "user_types", "user types of one keyspace", 200, 2_000,
        "drop types that are not used"),
    spec(Guardrail::VectorDimensions, "vector_dimensions", "dimensions of one vector", 0, 0,
        "use shorter vectors"),
    spec(Guardrail::CommentBytes, "comment_bytes", "bytes of a comment", 4 << 10, 64 << 10,
        "shorten the comment"),
    spec(Guardrail::SqlDepth, "sql_depth", "levels of nesting in one SQL statement", 200, 500,
        "split the statement, or use IN (...) instead of chains of OR"),
    spec(Guardrail::SqlNodes, "sql_nodes", "nodes in the syntax tree of one SQL statement", 20_000, 100_000,
        "split the statement"),
    spec(Guardrail::FunctionBytes, "function_bytes", "bytes returned by one call of a function", MIB, 16 * MIB,
        "build shorter values"),
];

impl Guardrail {
    /// Returns the row of the guardrail in the table.
    pub fn spec(self) -> &'static GuardrailSpec {
        &GUARDRAILS[self as usize]
    }
}

/// Thresholds and counts of one guardrail.
#[derive(Debug)]
struct GuardrailState {
    warn: AtomicU64,
    fail: AtomicU64,
    warned: AtomicU64,
    failed: AtomicU64,
}

/// The outcome of a check that passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "a warning is for the client"]
pub enum Passed {
    /// Within both thresholds.
    Quietly,
    /// Above the warn threshold. [`Guardrails::warning`] returns the text.
    Warned,
}

/// The thresholds of one server, shared by its cores.
#[derive(Debug)]
pub struct Guardrails([GuardrailState; GUARDRAILS.len()]);

impl Default for Guardrails {
    fn default() -> Guardrails {
        Guardrails(GUARDRAILS.map(|spec| GuardrailState {
            warn: AtomicU64::new(spec.warn),
            fail: AtomicU64::new(spec.fail),
            warned: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }))
    }
}

impl Guardrails {
    fn state(&self, guardrail: Guardrail) -> &GuardrailState {
        &self.0[guardrail as usize]
    }

    /// Records a warning for the client if `value` exceeds the warn threshold. For values that
    /// another core has checked and counted.
    #[inline]
    pub fn note(&self, guardrail: Guardrail, value: u64) {
        let threshold = self.warn_threshold(guardrail);
        if threshold != 0 && value > threshold {
            Warnings::note(guardrail, value);
        }
    }

    /// Checks a value and counts the outcome. Records a warning for the client ([`Warnings`]).
    ///
    /// # Errors
    /// [`Error::Invalid`] above the fail threshold, with a message that names limit, value and
    /// remedy.
    #[inline]
    pub fn check(&self, guardrail: Guardrail, value: u64) -> Result<(), Error> {
        self.passes(guardrail, value).map(drop)
    }

    /// Does the same as [`Guardrails::check`], for callers that can pass a warning on to the
    /// client.
    ///
    /// # Errors
    /// As [`Guardrails::check`].
    #[inline]
    pub fn passes(&self, guardrail: Guardrail, value: u64) -> Result<Passed, Error> {
        let state = self.state(guardrail);
        let beyond = |threshold: &AtomicU64| {
            let threshold = threshold.load(Relaxed);
            threshold != 0 && value > threshold
        };
        if beyond(&state.fail) {
            state.failed.fetch_add(1, Relaxed);
            return Err(Error::Invalid(self.refusal(guardrail, value)));
        }
        if beyond(&state.warn) {
            state.warned.fetch_add(1, Relaxed);
            Warnings::note(guardrail, value);
            return Ok(Passed::Warned);
        }
        Ok(Passed::Quietly)
    }

    /// Checks a value that grew from `before` to `value`. It warns and counts once, although the
    /// caller checks repeatedly.
    ///
    /// # Errors
    /// As [`Guardrails::check`].
    #[inline]
    pub fn check_growth(&self, guardrail: Guardrail, before: u64, value: u64) -> Result<(), Error> {
        let state = self.state(guardrail);
        let crossed = |threshold: &AtomicU64| {
            let threshold = threshold.load(Relaxed);
            threshold != 0 && before <= threshold && value > threshold
        };
        match crossed(&state.warn) || crossed(&state.fail) {
            true => self.check(guardrail, value),
            false => Ok(()),
        }
    }

    /// Returns the message of a refused value.
    #[cold]
    pub fn refusal(&self, guardrail: Guardrail, value: u64) -> String {
        let spec = guardrail.spec();
        let limit = self.fail_threshold(guardrail);
        let text = Exceeds { spec, limit, value };
        let known = if guardrail == Guardrail::BatchBytes { "Batch too large. " } else { "" };
        format!("{known}Guardrail {} violated: {text}", spec.name)
    }

    /// Returns the message of a warning.
    #[cold]
    pub fn warning(&self, guardrail: Guardrail, value: u64) -> String {
        let spec = guardrail.spec();
        let limit = self.warn_threshold(guardrail);
        if guardrail == Guardrail::BatchBytes {
            // Clients and their tests know this text of Cassandra.
            let over = value.saturating_sub(limit);
            return format!("Batch is of size {value}, exceeding specified threshold of {limit} by {over}.");
        }
        let text = Exceeds { spec, limit, value };
        format!("Guardrail {} warning: {text}", spec.name)
    }

    /// Returns the threshold above which values are refused. 0: none.
    pub fn fail_threshold(&self, guardrail: Guardrail) -> u64 {
        self.state(guardrail).fail.load(Relaxed)
    }

    /// Returns the threshold above which values cause a warning. 0: none.
    pub fn warn_threshold(&self, guardrail: Guardrail) -> u64 {
        self.state(guardrail).warn.load(Relaxed)
    }

    /// Sets both thresholds. A warn threshold above the fail threshold never warns.
    pub fn set(&self, guardrail: Guardrail, warn: u64, fail: u64) {
        self.state(guardrail).warn.store(warn, Relaxed);
        self.state(guardrail).fail.store(fail, Relaxed);
    }

    /// Sets thresholds from a text such as `in_values=100:1000, columns=0:500`: the warn and fail
    /// threshold of each guardrail.
    ///
    /// # Errors
    /// The invalid part and the expected form. No threshold is changed then.
    pub fn set_all(&self, text: &str) -> Result<(), String> {
        let one = |part: &str| -> Option<(Guardrail, u64, u64)> {
            let (name, thresholds) = part.split_once('=')?;
            let (warn, fail) = thresholds.split_once(':')?;
            let spec = GUARDRAILS.iter().find(|spec| spec.name == name.trim())?;
            Some((spec.guardrail, warn.trim().parse().ok()?, fail.trim().parse().ok()?))
        };
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let read = |part: &str| {
            let names = || GUARDRAILS.map(|spec| spec.name).join(", ");
            one(part).ok_or_else(|| {
                format!("expected NAME=WARN:FAIL, where NAME is one of {}, got `{part}`", names())
            })
        };
        let all = parts.map(read).collect::<Result<Vec<_>, _>>()?;
        all.into_iter().for_each(|(guardrail, warn, fail)| self.set(guardrail, warn, fail));
        Ok(())
    }

    /// Returns the numbers of checks that warned and that failed since the start.
    pub fn counts(&self, guardrail: Guardrail) -> (u64, u64) {
        let state = self.state(guardrail);
        (state.warned.load(Relaxed), state.failed.load(Relaxed))
    }
}

/// "expected at most …, got …".
struct Exceeds {
    spec: &'static GuardrailSpec,
    limit: u64,
    value: u64,
}

impl fmt::Display for Exceeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Exceeds { spec, limit, value } = self;
        write!(f, "expected at most {limit} {}, got {value}: {}", spec.counts, spec.remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_has_the_order_of_the_enum() {
        for (at, spec) in GUARDRAILS.iter().enumerate() {
            assert_eq!(spec.guardrail as usize, at, "{}", spec.name);
            assert!(spec.fail == 0 || spec.warn <= spec.fail, "{} warns after it fails", spec.name);
            assert!(spec.name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{}", spec.name);
        }
    }

    #[test]
    fn thresholds_parse_from_text() {
        let guardrails = Guardrails::default();
        let check = |text: &str, expected: Result<(u64, u64), &str>| {
            let set = guardrails.set_all(text).map(|()| {
                (
                    guardrails.warn_threshold(Guardrail::InValues),
                    guardrails.fail_threshold(Guardrail::Columns),
                )
            });
            match expected {
                Ok(thresholds) => assert_eq!(set, Ok(thresholds), "{text}"),
                Err(part) => assert!(set.as_ref().is_err_and(|e| e.contains(part)), "{text}: {set:?}"),
            }
        };
        check("", Ok((1_000, 2_000)));
        check("in_values=5:10, columns = 0 : 7", Ok((5, 7)));
        check("in_values=1:2, nothing=1:2", Err("got `nothing=1:2`"));
        check("in_values=1", Err("expected NAME=WARN:FAIL, where NAME is one of statement_bytes, "));
        check("", Ok((5, 7)));
    }

    #[test]
    fn exceeded_thresholds_warn_fail_and_are_counted() {
        let guardrails = Guardrails::default();
        guardrails.set(Guardrail::InValues, 2, 4);
        let check = |value| guardrails.passes(Guardrail::InValues, value);
        assert_eq!(
            [check(2), check(3), check(4)].map(Result::unwrap),
            [Passed::Quietly, Passed::Warned, Passed::Warned]
        );
        let error = check(5).unwrap_err().to_string();
        assert_eq!(
            error,
            "Guardrail in_values violated: expected at most 4 values in one IN, got 5: send several statements"
        );
        assert_eq!(guardrails.counts(Guardrail::InValues), (2, 1));
        guardrails.set(Guardrail::InValues, 0, 0);
        assert_eq!(check(u64::MAX).unwrap(), Passed::Quietly, "0 disables a threshold");
    }
}
