//! Result of a read as it grows: rows, the position after the last one, and the memory that is
//! granted for them.

use std::sync::Arc;

use bytes::Bytes;
use engine::{ANSWER_BYTES_MAX, AnswerGrant, Error, Guardrail, Guardrails, ROW_BYTES_MAX, ResultRows};
use schema::TableDef;

use crate::Embedded;
use crate::bind::expression::groups::{Groups, OpenGroup};
use crate::bind::show::RowSource;
use crate::read::paging::Position;
use crate::read::row_answer;
use crate::system::own_tables::is_server_keyspace;

/// Progress of a read.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) rows: ResultRows,
    /// Group whose rows are being read.
    pub(crate) group: Option<OpenGroup>,
    /// Clustering key of the last row taken from the current partition, and the number of its rows
    /// taken.
    pub(crate) last: Option<Bytes>,
    pub(crate) of_partition: u32,
    /// Rows that may still be taken.
    pub(crate) left: u32,
    /// Bytes of cells at which no more rows are taken.
    pub(crate) bytes_max: usize,
    pub(crate) ends: Ends,
    /// Dead rows and partitions skipped for this page, or for this part of a scan.
    pub(crate) dead: u64,
    /// Rows that have passed the filters.
    pub(super) passed: u64,
    /// Rows looked at that are not in the count of the statement yet, and their bytes.
    pub(super) looked_at: (u64, u64),
    /// Clustering key of each row and the end of its cells, if a merge needs them.
    pub(crate) places: Option<Vec<(Bytes, usize)>>,
    pub(crate) grants: Grants,
    /// Limits of an answer without pages. A heavy lane has no engine to get them from.
    pub(crate) guardrails: Option<Arc<Guardrails>>,
    /// Bytes to reserve when the first row arrives. A read that still waits for its rows reserves
    /// nothing.
    pub(crate) room: usize,
}

/// End of a read at its `bytes_max`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ends {
    /// Ends before a large row that does not fit, but has at least one row.
    Page,
    /// Ends before a large row that does not fit, even if it is the first. Its reader then reads
    /// that row alone.
    Portion,
    /// The answer has no pages: it is refused.
    Whole,
}

/// Bytes of a result that are granted at a time. The first ones need no grant, so that short
/// results cost no accounting.
pub(crate) const GRANT_BYTES: usize = 64 << 10;

/// Memory granted to a result as it grows.
#[derive(Debug)]
pub(crate) struct Grants {
    answer: Option<Arc<dyn AnswerGrant>>,
    granted: usize,
    /// Bytes of the answer elsewhere, to which the covered ones are added.
    base: usize,
}

impl Grants {
    /// Returns grants from `answer`; without it every request is granted.
    pub(crate) fn of(answer: Option<Arc<dyn AnswerGrant>>) -> Grants {
        Grants { answer, granted: GRANT_BYTES, base: 0 }
    }

    /// Returns grants for a part of the answer, in addition to its other `base` bytes.
    pub(crate) fn beside(&self, base: usize) -> Grants {
        Grants { answer: self.answer.clone(), granted: self.granted, base }
    }

    /// Requests grants for `bytes` of the result.
    ///
    /// # Errors
    /// Returns an error if there is no memory for them.
    pub(crate) fn cover(&mut self, bytes: usize) -> Result<(), Error> {
        let bytes = self.base + bytes;
        if bytes > self.granted
            && let Some(answer) = &self.answer
        {
            let granted = bytes.next_multiple_of(GRANT_BYTES);
            answer.grow(granted as u64)?;
            self.granted = granted;
        }
        Ok(())
    }
}

impl Chunk {
    /// Returns a chunk without rows, for at most `left` rows.
    pub(crate) fn new(rows: ResultRows, left: u32, bytes_max: usize, ends: Ends) -> Chunk {
        Chunk {
            rows,
            group: None,
            last: None,
            of_partition: 0,
            left,
            bytes_max,
            ends,
            dead: 0,
            passed: 0,
            looked_at: (0, 0),
            places: None,
            grants: Grants::of(None),
            guardrails: None,
            room: 0,
        }
    }

    /// Counts dead rows and partitions of a table.
    ///
    /// # Errors
    /// Returns an error if the count exceeds the guardrail. System tables are exempt: the server
    /// cannot start without reading them.
    pub(crate) fn count_dead(&mut self, def: &TableDef, dead: u64) -> Result<(), Error> {
        if dead == 0 || is_server_keyspace(&def.keyspace) {
            return Ok(());
        }
        self.dead += dead;
        let engine = Embedded::local();
        engine.uses.of(def, || engine.current.schema()).count_dead(dead, self.dead);
        engine.guardrails().check_growth(Guardrail::Tombstones, self.dead - dead, self.dead)
    }

    /// Takes the chunk, to send it to another core. Leaves an empty one until it comes back.
    pub(crate) fn take(&mut self) -> Chunk {
        std::mem::replace(self, Chunk::new(ResultRows::new(Arc::from([])), 0, 0, Ends::Page))
    }

    /// Returns the position after the last row taken from the partition, or after the partition if
    /// none was taken.
    pub(crate) fn inside(&self, token: i64, key: Bytes) -> Position {
        Position { of_partition: self.of_partition, row: self.last.clone(), ..Position::after(token, key) }
    }

    /// Records the place of the row taken last.
    pub(super) fn place(&mut self) {
        if self.places.is_some() {
            self.place_at(self.last.clone().unwrap_or_default());
        }
    }

    /// Records the place of a row with this clustering key.
    fn place_at(&mut self, clustering: Bytes) {
        if let Some(places) = &mut self.places {
            places.push((clustering, self.rows.cells.len()));
        }
    }

    /// Adds a row to its group, or opens one. Returns `None` if it was added. Returns `Some` if it
    /// begins a group that is not wanted: true if all requested groups of the partition were taken.
    ///
    /// # Errors
    /// Returns an error if a group is too large, or if there is no memory for it.
    pub(super) fn add_to_group(
        &mut self,
        groups: &Groups,
        source: &RowSource<'_>,
        per_partition: u32,
    ) -> Result<Option<bool>, Error> {
        self.passed += 1;
        let clustering = source.clustering();
        if let Some(group) = self.group.as_mut().filter(|group| groups.begins_with(group, clustering)) {
            return groups.add(group, source).map(|()| None);
        }
        let identity = groups.identity(source.def, clustering, source)?;
        if let Some(group) = self.group.as_mut().filter(|group| group.is(&identity)) {
            return groups.add(group, source).map(|()| None);
        }
        self.close_group(groups)?;
        let is_limited = groups.by.is_some();
        if is_limited && self.left == 0 {
            return Ok(Some(false));
        }
        if is_limited && self.of_partition >= per_partition {
            return Ok(Some(true));
        }
        let partition = (source.token, Bytes::copy_from_slice(source.key));
        let group = groups.open(partition, Bytes::copy_from_slice(clustering), identity, source)?;
        if is_limited {
            if !self.admits(group.bytes(), group.bytes())? {
                return Ok(Some(false));
            }
            self.of_partition += 1;
            self.left -= 1;
        }
        self.group = Some(group);
        Ok(None)
    }

    /// Closes the group at the end of its partition, and adds its row.
    ///
    /// # Errors
    /// Returns an error if a function fails, or if there is no memory for the row.
    pub(super) fn close_group(&mut self, groups: &Groups) -> Result<(), Error> {
        let Some(group) = self.group.take_if(|_| groups.by.is_some()) else { return Ok(()) };
        let clustering = group.clustering.clone();
        for value in groups.close(group)? {
            self.rows.push(value.as_deref());
        }
        self.rows.count += 1;
        self.place_at(clustering);
        self.bound()
    }

    /// Takes no more rows once there are `bytes_max` bytes of cells.
    ///
    /// # Errors
    /// Returns an error if there is no memory for a larger result.
    pub(crate) fn bound(&mut self) -> Result<(), Error> {
        let bytes = self.rows.cells.len();
        if bytes >= self.bytes_max {
            self.left = 0;
        }
        if bytes > ANSWER_BYTES_MAX {
            return Err(answer_too_large(bytes));
        }
        self.grants.cover(bytes)
    }

    /// Returns true if a row of `bytes` fits, and requests grants for it and for `beside` bytes
    /// more. Otherwise takes no more rows.
    ///
    /// # Errors
    /// Returns an error if the row fits into no page, or if there is no memory for it.
    pub(crate) fn admits(&mut self, bytes: usize, beside: usize) -> Result<bool, Error> {
        if bytes > ROW_BYTES_MAX {
            return Err(row_answer::too_large(bytes));
        }
        let after = self.rows.cells.len() + bytes;
        if after > self.bytes_max {
            let is_over = match self.ends {
                Ends::Page => self.rows.count > 0,
                Ends::Portion => true,
                Ends::Whole => {
                    let check =
                        |limits: &Arc<Guardrails>| limits.check(Guardrail::UnpagedBytes, after as u64);
                    self.guardrails.as_ref().map_or(Ok(()), check)?;
                    false
                }
            };
            if is_over {
                self.left = 0;
                return Ok(false);
            }
        }
        if after > ANSWER_BYTES_MAX {
            return Err(answer_too_large(after));
        }
        match self.grants.cover(after + beside) {
            // The rows so far are a page.
            Err(Error::Overloaded(_)) if self.ends == Ends::Page && self.rows.count > 0 => {
                self.left = 0;
                Ok(false)
            }
            granted => granted.map(|()| true),
        }
    }

    /// Counts a row whose cells follow.
    pub(crate) fn begin_row(&mut self) {
        self.passed += 1;
        self.of_partition += 1;
        self.left -= 1;
        self.rows.count += 1;
        self.rows.cells.reserve(std::mem::take(&mut self.room));
    }
}

/// Returns the error for an answer without pages that is larger than the protocol allows.
pub(crate) fn answer_too_large(bytes: usize) -> Error {
    Error::Invalid(format!(
        "expected at most {ANSWER_BYTES_MAX} bytes in one answer, got {bytes} or more: \
         read it in pages, or select fewer rows and columns"
    ))
}
