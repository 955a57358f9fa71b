//! Parameters after a statement in QUERY and EXECUTE, and the shorter list after a BATCH. Flags
//! mark the parameters that are present: one byte in v4, four bytes in v5.

use crate::body::Body;
use crate::read::{Reader, out_of_range};
use crate::{Consistency, Error, Values, Version};

const VALUES: u32 = 0x01;
const SKIP_METADATA: u32 = 0x02;
const PAGE_SIZE: u32 = 0x04;
const PAGING_STATE: u32 = 0x08;
const SERIAL_CONSISTENCY: u32 = 0x10;
const TIMESTAMP: u32 = 0x20;
const NAMES: u32 = 0x40;
const KEYSPACE: u32 = 0x80;
const NOW_IN_SECONDS: u32 = 0x100;

/// Parameters of a QUERY or EXECUTE.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueryParams<'a> {
    /// Consistency level.
    pub consistency: Consistency,
    /// Bound values.
    pub values: Values<'a>,
    /// True if the result may omit its metadata.
    pub skip_metadata: bool,
    /// Rows per page. Zero and negative numbers mean all rows.
    pub page_size: Option<i32>,
    /// End of the previous page, as returned with it.
    pub paging_state: Option<&'a [u8]>,
    /// `Serial` or `LocalSerial`, for conditional updates.
    pub serial_consistency: Option<Consistency>,
    /// Default timestamp of writes, microseconds since 1970.
    pub timestamp: Option<i64>,
    /// v5: the keyspace of this statement.
    pub keyspace: Option<&'a str>,
    /// v5: the current time for this statement, in seconds since 1970.
    pub now_in_seconds: Option<i32>,
}

/// Parameters of a BATCH.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BatchParams<'a> {
    /// Consistency level.
    pub consistency: Consistency,
    /// `Serial` or `LocalSerial`, for conditional updates.
    pub serial_consistency: Option<Consistency>,
    /// Default timestamp of writes, microseconds since 1970.
    pub timestamp: Option<i64>,
    /// v5: the keyspace of these statements.
    pub keyspace: Option<&'a str>,
    /// v5: the current time for these statements, in seconds since 1970.
    pub now_in_seconds: Option<i32>,
}

fn read_flags(reader: &mut Reader<'_>, version: Version) -> Result<u32, Error> {
    match version {
        // The flags of v5 do not exist in v4. 0x80 is unused there and ignored.
        Version::V4 => Ok(u32::from(reader.byte("flags")?) & !KEYSPACE),
        Version::V5 => Ok(reader.int("flags")? as u32),
    }
}

fn write_flags(body: &mut Body<'_>, flags: u32) {
    match body.version() {
        Version::V4 => body.byte(flags as u8),
        Version::V5 => body.int(flags as i32),
    }
}

impl<'a> QueryParams<'a> {
    pub(crate) fn read(reader: &mut Reader<'a>, version: Version) -> Result<QueryParams<'a>, Error> {
        let consistency = Consistency::read(reader, "consistency")?;
        let flags = read_flags(reader, version)?;
        let has = |flag| flags & flag != 0;
        let mut params = QueryParams { consistency, skip_metadata: has(SKIP_METADATA), ..Default::default() };
        if has(VALUES) {
            params.values = Values::read(reader, has(NAMES))?;
        }
        if has(PAGE_SIZE) {
            params.page_size = Some(reader.int("page size")?);
        }
        if has(PAGING_STATE) {
            params.paging_state = reader.bytes("paging state")?;
        }
        let tail = BatchParams::read_tail(reader, flags, consistency)?;
        params.serial_consistency = tail.serial_consistency;
        params.timestamp = tail.timestamp;
        params.keyspace = tail.keyspace;
        params.now_in_seconds = tail.now_in_seconds;
        Ok(params)
    }

    pub(crate) fn write(&self, body: &mut Body<'_>) {
        let tail = BatchParams {
            consistency: self.consistency,
            serial_consistency: self.serial_consistency,
            timestamp: self.timestamp,
            keyspace: self.keyspace,
            now_in_seconds: self.now_in_seconds,
        };
        let flag = |present: bool, flag: u32| if present { flag } else { 0 };
        let flags = flag(!self.values.is_empty(), VALUES)
            | flag(self.values.is_named() && !self.values.is_empty(), NAMES)
            | flag(self.skip_metadata, SKIP_METADATA)
            | flag(self.page_size.is_some(), PAGE_SIZE)
            | flag(self.paging_state.is_some(), PAGING_STATE)
            | tail.flags(body.version());
        body.short(self.consistency.number());
        write_flags(body, flags);
        if !self.values.is_empty() {
            self.values.write(body);
        }
        if let Some(rows) = self.page_size {
            body.int(rows);
        }
        if let Some(state) = self.paging_state {
            body.bytes(Some(state));
        }
        tail.write_tail(body);
    }
}

impl<'a> BatchParams<'a> {
    pub(crate) fn read(reader: &mut Reader<'a>, version: Version) -> Result<BatchParams<'a>, Error> {
        let consistency = Consistency::read(reader, "consistency")?;
        let flags = read_flags(reader, version)?;
        if flags & NAMES != 0 {
            return Err(Error::NamedBatchValues);
        }
        BatchParams::read_tail(reader, flags, consistency)
    }

    fn read_tail(
        reader: &mut Reader<'a>,
        flags: u32,
        consistency: Consistency,
    ) -> Result<BatchParams<'a>, Error> {
        let has = |flag| flags & flag != 0;
        let mut params = BatchParams { consistency, ..Default::default() };
        if has(SERIAL_CONSISTENCY) {
            let level = Consistency::read(reader, "serial consistency")?;
            if !level.is_serial() {
                return Err(out_of_range("serial consistency", level.number()));
            }
            params.serial_consistency = Some(level);
        }
        if has(TIMESTAMP) {
            let timestamp = reader.long("timestamp")?;
            if timestamp == i64::MIN {
                return Err(out_of_range("timestamp", timestamp));
            }
            params.timestamp = Some(timestamp);
        }
        if has(KEYSPACE) {
            params.keyspace = Some(reader.string("keyspace")?);
        }
        if has(NOW_IN_SECONDS) {
            params.now_in_seconds = Some(reader.int("now in seconds")?);
        }
        Ok(params)
    }

    pub(crate) fn write(&self, body: &mut Body<'_>) {
        body.short(self.consistency.number());
        write_flags(body, self.flags(body.version()));
        self.write_tail(body);
    }

    fn flags(&self, version: Version) -> u32 {
        let flag = |present: bool, flag: u32| if present { flag } else { 0 };
        let both = flag(self.serial_consistency.is_some(), SERIAL_CONSISTENCY)
            | flag(self.timestamp.is_some(), TIMESTAMP);
        match version {
            Version::V4 => both,
            Version::V5 => {
                both | flag(self.keyspace.is_some(), KEYSPACE)
                    | flag(self.now_in_seconds.is_some(), NOW_IN_SECONDS)
            }
        }
    }

    fn write_tail(&self, body: &mut Body<'_>) {
        if let Some(level) = self.serial_consistency {
            body.short(level.number());
        }
        if let Some(timestamp) = self.timestamp {
            body.long(timestamp);
        }
        if body.version() >= Version::V5 {
            if let Some(keyspace) = self.keyspace {
                body.string(keyspace);
            }
            if let Some(now) = self.now_in_seconds {
                body.int(now);
            }
        }
    }
}
