//! Log lines with level and rate limit, as text or JSON, in UTC. A lane must not block on a full
//! pipe. A line therefore goes into a bounded queue, and a thread outside the lanes writes it.
//! Lines that do not fit are counted, and the next line reports the count.

use std::fmt::Write as _;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

pub use units::FieldValue;

/// Severity of a line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// A failure.
    Error,
    /// A condition that needs attention.
    Warn,
    /// A normal event.
    Info,
    /// A normal event, in detail.
    Debug,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
            Level::Debug => "debug",
        }
    }

    /// Returns the level of that name.
    pub fn from_name(name: &str) -> Option<Level> {
        [Level::Error, Level::Warn, Level::Info, Level::Debug].into_iter().find(|level| level.name() == name)
    }
}

/// Format of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// `2026-01-31T12:00:00.000000Z info message key=value`
    Text,
    /// One JSON object a line.
    Json,
}

/// Maximum number of queued lines. Lines beyond it are counted as lost.
const QUEUE_LINES_MAX: usize = 1024;

/// Maximum number of lines below `Error` in one second.
const LINES_PER_SECOND_MAX: u64 = 200;

/// Writes log lines from any thread, without waiting. Cheap to clone.
#[derive(Clone)]
pub struct Logger(Arc<Inner>);

struct Inner {
    level: Level,
    format: Format,
    queue: SyncSender<String>,
    /// Second of the rate limit, since 1970. `lines` counts the lines in it.
    second: AtomicU64,
    lines: AtomicU64,
    lost: AtomicU64,
}

/// Queue of lines, for the writing thread outside the lanes.
pub struct Lines(Receiver<String>);

impl Lines {
    /// Writes lines to `out` until the last [`Logger`] is dropped. Ignores errors of `out`, because
    /// there is no place to report them.
    pub fn write_to(self, mut out: impl Write) {
        for line in self.0 {
            let _ = out.write_all(line.as_bytes());
        }
        let _ = out.flush();
    }

    /// Removes and returns the queued lines.
    pub fn take(&self) -> Vec<String> {
        self.0.try_iter().collect()
    }
}

/// Creates a logger for lines of `level` and above, and the queue of its lines.
pub fn logger(level: Level, format: Format) -> (Logger, Lines) {
    let (queue, lines) = sync_channel(QUEUE_LINES_MAX);
    let (second, count, lost) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    (Logger(Arc::new(Inner { level, format, queue, second, lines: count, lost })), Lines(lines))
}

impl Logger {
    /// Creates a logger that writes nothing.
    pub fn silent() -> Logger {
        logger(Level::Error, Format::Text).0
    }

    /// Returns true if lines of that level are written.
    pub fn enabled(&self, level: Level) -> bool {
        level <= self.0.level
    }

    /// Writes a line, unless its level is off or the rate limit is reached.
    pub fn log(&self, level: Level, message: &str, fields: &[(&str, FieldValue)]) {
        if !self.enabled(level) {
            return;
        }
        let now_us = lanes::time::unix_micros();
        if !self.within_rate(level, now_us) {
            self.0.lost.fetch_add(1, Relaxed);
            return;
        }
        let lost = self.0.lost.swap(0, Relaxed);
        let mut line = line(self.0.format, level, now_us, message, fields, lost);
        line.push('\n');
        if self.0.queue.try_send(line).is_err() {
            self.0.lost.fetch_add(1 + lost, Relaxed);
        }
    }

    /// Returns true if the rate limit permits a line. Errors always pass: the queue bounds them.
    fn within_rate(&self, level: Level, now_us: i64) -> bool {
        let second = (now_us / 1_000_000) as u64;
        if self.0.second.swap(second, Relaxed) != second {
            self.0.lines.store(0, Relaxed);
        }
        self.0.lines.fetch_add(1, Relaxed) < LINES_PER_SECOND_MAX || level == Level::Error
    }
}

fn line(
    format: Format,
    level: Level,
    now_us: i64,
    message: &str,
    fields: &[(&str, FieldValue)],
    lost: u64,
) -> String {
    let mut out = String::with_capacity(64 + message.len());
    let lost = (lost > 0).then_some(("lines_lost", FieldValue::Count(lost)));
    let fields = fields.iter().chain(&lost);
    match format {
        Format::Text => {
            let _ = write!(out, "{} {} ", utc(now_us), level.name());
            push_printable(&mut out, message);
            for (key, value) in fields {
                let _ = write!(out, " {key}=");
                push_quoted_where_needed(&mut out, &value.to_string());
            }
        }
        Format::Json => {
            let json = |text: &str| serde_json::Value::from(text).to_string();
            let _ = write!(out, "{{\"time\":\"{}\",\"level\":\"{}\"", utc(now_us), level.name());
            let _ = write!(out, ",\"message\":{}", json(message));
            for (key, value) in fields {
                let text = value.to_string();
                let value = if value.is_number() { text } else { json(&text) };
                let _ = write!(out, ",{}:{value}", json(key));
            }
            out.push('}');
        }
    }
    out
}

/// Escapes control characters, so that a client's text cannot forge a second line.
fn push_printable(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
}

fn push_quoted_where_needed(out: &mut String, text: &str) {
    if !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c == '"' || c.is_control()) {
        return out.push_str(text);
    }
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// Formats a time as RFC 3339 in UTC, to the microsecond.
pub(crate) fn utc(unix_us: i64) -> String {
    let (days, us) = (unix_us.div_euclid(86_400_000_000), unix_us.rem_euclid(86_400_000_000));
    let (s, us) = (us / 1_000_000, us % 1_000_000);
    format!("{}T{:02}:{:02}:{:02}.{us:06}Z", units::Day(days), s / 3600, s / 60 % 60, s % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_utc() {
        let check = |unix_us, expected| assert_eq!(utc(unix_us), expected);
        check(0, "1970-01-01T00:00:00.000000Z");
        check(951_782_400_000_001, "2000-02-29T00:00:00.000001Z");
        check(1_735_689_599_999_999, "2024-12-31T23:59:59.999999Z");
        check(-1, "1969-12-31T23:59:59.999999Z");
    }

    #[test]
    fn line_stays_one_line_in_either_format() {
        let fields = [
            ("statement", "SELECT \"a\"\nfake".into()),
            ("ms", 7_u64.into()),
            ("s", FieldValue::Decimal(1.5)),
        ];
        let text = line(Format::Text, Level::Warn, 0, "slow", &fields, 3);
        let expected = r#"warn slow statement="SELECT \"a\"\nfake" ms=7 s=1.500 lines_lost=3"#;
        assert_eq!(text, format!("1970-01-01T00:00:00.000000Z {expected}"));
        let json = line(Format::Json, Level::Warn, 0, "slow", &fields, 3);
        let parsed: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(parsed["statement"], "SELECT \"a\"\nfake");
        assert!(!json.contains('\n'));
        // A number is a number, so that a store of logs can add and compare it.
        assert_eq!((&parsed["ms"], &parsed["s"]), (&7.into(), &1.5.into()));
        assert_eq!(parsed["lines_lost"], 3);
    }

    #[test]
    fn text_of_digits_stays_text() {
        let json = line(Format::Json, Level::Info, 0, "m", &[("table", "7".into())], 0);
        let parsed: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(parsed["table"], "7");
    }

    #[test]
    fn number_without_a_form_in_json_is_text() {
        let json = line(Format::Json, Level::Info, 0, "m", &[("s", FieldValue::Decimal(f64::NAN))], 0);
        let parsed: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(parsed["s"], "NaN");
    }

    #[test]
    fn logger_applies_level_and_queue_bound() {
        let (logger, lines) = logger(Level::Info, Format::Text);
        logger.log(Level::Debug, "off", &[]);
        assert_eq!(lines.take().len(), 0);
        for _ in 0..QUEUE_LINES_MAX + 10 {
            logger.log(Level::Error, "always", &[]);
        }
        assert_eq!(lines.take().len(), QUEUE_LINES_MAX);
        logger.log(Level::Error, "next", &[]);
        assert!(lines.take()[0].contains("lines_lost=10"));
    }
}
