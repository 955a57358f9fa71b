//! Answers that a client received, counted by label. A label is short and stable, so that the table
//! of attacks can list accepted ones: `rows`, `error 0x2100` (CQL), `error 54001` (SQLSTATE),
//! `closed`, `silence`.

use std::collections::BTreeMap;

/// The peer closed or reset the connection.
pub(crate) const CLOSED: &str = "closed";
/// No answer came within the client's time limit.
pub(crate) const SILENCE: &str = "silence";
/// The connection was refused, or not accepted in time.
pub(crate) const REFUSED: &str = "refused";

/// Longest error text that is kept, characters.
const TEXT_MAX: usize = 160;

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerAnswer {
    pub(crate) label: String,
    /// Text of an error. Empty for other answers.
    pub(crate) text: String,
}

impl ServerAnswer {
    pub(crate) fn new(label: impl Into<String>) -> ServerAnswer {
        ServerAnswer { label: label.into(), text: String::new() }
    }

    pub(crate) fn error(code: &str, text: &str) -> ServerAnswer {
        ServerAnswer { label: format!("error {code}"), text: text.chars().take(TEXT_MAX).collect() }
    }

    /// Returns true if the connection can no longer be used.
    pub(crate) fn ends(&self) -> bool {
        [CLOSED, SILENCE, REFUSED].contains(&self.label.as_str())
    }

    pub(crate) fn is_error(&self) -> bool {
        self.label.starts_with("error ") || self.ends()
    }
}

/// Count of each answer, with one text for each label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answers(BTreeMap<String, (u64, String)>);

impl Answers {
    pub(crate) fn add(&mut self, answer: ServerAnswer) {
        let entry = self.0.entry(answer.label).or_default();
        entry.0 += 1;
        if entry.1.is_empty() {
            entry.1 = answer.text;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn labels(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Formats the counts, such as `rows ×12, error 0x2100 ×3`.
    pub(crate) fn summary(&self) -> String {
        let parts: Vec<String> =
            self.0.iter().map(|(label, (count, _))| format!("{label} ×{count}")).collect();
        if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
    }

    /// Calls `each` once for every counted answer.
    pub(crate) fn each(self, mut each: impl FnMut(ServerAnswer)) {
        for (label, (count, text)) in self.0 {
            (0..count).for_each(|_| each(ServerAnswer { label: label.clone(), text: text.clone() }));
        }
    }

    /// Returns the text of an answer with this label.
    pub(crate) fn text(&self, label: &str) -> &str {
        self.0.get(label).map_or("", |(_, text)| text)
    }

    /// Formats one line for each label, for [`Answers::parse`] in another process.
    pub(crate) fn lines(&self) -> String {
        let line = |(label, (count, text)): (&String, &(u64, String))| {
            format!("answer\t{count}\t{label}\t{}\n", text.replace(['\t', '\n', '\r'], " "))
        };
        self.0.iter().map(line).collect()
    }

    /// Adds a line of [`Answers::lines`]. Ignores any other.
    pub(crate) fn parse(&mut self, line: &str) {
        let mut fields = line.splitn(4, '\t');
        if fields.next() != Some("answer") {
            return;
        }
        let count = fields.next().and_then(|count| count.parse().ok());
        if let (Some(count), Some(label), Some(text)) = (count, fields.next(), fields.next()) {
            self.0.insert(label.to_owned(), (count, text.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_survive_the_way_to_another_process() {
        let mut sent = Answers::default();
        sent.add(ServerAnswer::new("rows"));
        sent.add(ServerAnswer::error("0x2100", "no\tright\nat all"));
        sent.add(ServerAnswer::error("0x2100", "another"));
        let mut received = Answers::default();
        sent.lines().lines().for_each(|line| received.parse(line));
        received.parse("something else");
        assert_eq!(received.summary(), "error 0x2100 ×2, rows ×1");
        assert_eq!(received.text("error 0x2100"), "no right at all");
    }
}
