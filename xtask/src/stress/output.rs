//! Output of cassandra-stress: the rows that it prints each second, and the block of results that
//! it prints in the end.

/// The block `Results:` of a load.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Results {
    pub(super) operations_per_s: f64,
    pub(super) mean_ms: f64,
    pub(super) median_ms: f64,
    pub(super) p95_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) p999_ms: f64,
    pub(super) max_ms: f64,
    pub(super) errors: f64,
}

impl Results {
    /// Parses the block in the output of a load that has ended.
    ///
    /// # Errors
    /// The block or one of its lines is missing or is not a number.
    pub(super) fn parse(text: &str) -> Result<Results, String> {
        let (_, block) = text.rsplit_once("\nResults:").ok_or("expected a line `Results:`, got none.")?;
        let value = |key: &str| {
            let mut lines = block.lines().filter_map(|line| line.split_once(':'));
            let found = lines.find(|(name, _)| name.trim() == key).map(|(_, value)| value);
            let number = found.and_then(|value| value.split_whitespace().next()).unwrap_or_default();
            let expected = || format!("expected `{key} : NUMBER` in the results, got `{number}`.");
            number.replace(',', "").parse::<f64>().map_err(|_| expected())
        };
        Ok(Results {
            operations_per_s: value("Op rate")?,
            mean_ms: value("Latency mean")?,
            median_ms: value("Latency median")?,
            p95_ms: value("Latency 95th percentile")?,
            p99_ms: value("Latency 99th percentile")?,
            p999_ms: value("Latency 99.9th percentile")?,
            max_ms: value("Latency max")?,
            errors: value("Total errors")?,
        })
    }
}

/// State of a load at one of its rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LoadProgress {
    pub(super) operations: f64,
    /// Time since the load's first operation, seconds.
    pub(super) seconds: f64,
}

impl LoadProgress {
    /// Index of the operations in a row, and of the time.
    const OPERATIONS: usize = 1;
    const TIME: usize = 11;

    /// Returns the last complete row of all operations together. `None`: the load prints none yet.
    pub(super) fn last(text: &str) -> Option<LoadProgress> {
        let complete = &text[..=text.rfind('\n')?];
        let row = complete.lines().rfind(|line| line.starts_with("total,"))?;
        let cells: Vec<&str> = row.split(',').map(str::trim).collect();
        let number = |index: usize| cells.get(index)?.parse().ok();
        Some(LoadProgress { operations: number(Self::OPERATIONS)?, seconds: number(Self::TIME)? })
    }

    /// Returns the operations a second from an earlier row to this one. `None`: it is the same row.
    pub(super) fn rate_since(&self, earlier: LoadProgress) -> Option<f64> {
        let seconds = self.seconds - earlier.seconds;
        (seconds > 0.0).then(|| (self.operations - earlier.operations) / seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded from cassandra-stress of Apache Cassandra 4.0-alpha2.
    const RECORDED: &str = include_str!("recorded.txt");

    #[test]
    fn recorded_block_is_parsed() {
        let expected = Results {
            operations_per_s: 4192.0,
            mean_ms: 160.8,
            median_ms: 112.5,
            p95_ms: 478.4,
            p99_ms: 784.3,
            p999_ms: 903.3,
            max_ms: 1956.3,
            errors: 0.0,
        };
        assert_eq!(Results::parse(RECORDED), Ok(expected));
    }

    #[test]
    fn block_without_a_line_is_refused() {
        let missing = Results::parse(&RECORDED.replace("Latency max", "Latency")).unwrap_err();
        assert!(missing.contains("`Latency max : NUMBER`"), "{missing}");
        let (rows, _) = RECORDED.split_once("Results:").unwrap();
        assert!(Results::parse(rows).unwrap_err().contains("`Results:`"));
    }

    #[test]
    fn last_complete_row_is_the_progress() {
        let last = LoadProgress { operations: 26811.0, seconds: 6.4 };
        assert_eq!(LoadProgress::last(RECORDED), Some(last));
        let (rows, _) = RECORDED.split_once("\n\nResults:").unwrap();
        let earlier = LoadProgress { operations: 23680.0, seconds: 6.0 };
        assert_eq!(LoadProgress::last(rows.trim_end()), Some(earlier), "the last row has no end yet");
        assert_eq!(LoadProgress::last("type, total ops\n"), None);
        assert!((last.rate_since(earlier).unwrap() - 7827.5).abs() < 1.0);
        assert_eq!(last.rate_since(last), None);
    }
}
