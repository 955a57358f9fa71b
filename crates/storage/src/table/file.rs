//! An open table file: its filter and index in memory, its blocks read on demand.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use bytes::Bytes;

use crate::env::{BoxFuture, Env, File, Mode};
use crate::error::StorageError;
use crate::manifest::{FileEntry, Identity, Owner};
use crate::model::codec::Malformed;
use crate::table::bloom;
use crate::table::file_statistics::FileStatistics;
use crate::table::large_rows::LargeRows;
use crate::table::owners::may_own;
use crate::table::part::Block;
use crate::table::shared::Opened;
use crate::table::{self, BlockStart, FOOTER_BYTES, IndexEntry, Unreadable};

/// A table file.
#[derive(Clone, Debug)]
pub(crate) struct TableFile {
    pub(crate) id: u64,
    /// The file's entry in the manifest.
    pub(crate) entry: FileEntry,
    pub(crate) bytes: u64,
    /// Checksum of the footer.
    footer_crc: u32,
    pub(crate) path: PathBuf,
    file: Arc<dyn File>,
    filter: Bytes,
    pub(crate) index: Arc<[IndexEntry]>,
    /// `None` if the file cannot be opened.
    pub(crate) statistics: Option<FileStatistics>,
    /// Number of partitions.
    pub(crate) partitions: u64,
    /// One reference for each state of this file that a reader may hold: see [`TableFile::cut`].
    users: Arc<()>,
    /// The reason why the file cannot be opened, if so.
    damage: Option<StorageError>,
    /// True if compactions leave the file out. Shared by all states of this file.
    excluded: Arc<AtomicBool>,
    /// True once a read has found a damaged block. Shared by all states of this file.
    found_damaged: Arc<AtomicBool>,
    /// Cached rows with at least this sequence cover the file. Shared by all states of this file.
    sequence: Arc<AtomicU64>,
    /// The first and the last token that the file may contain.
    range: (i64, i64),
    /// Memory of the filter and the index while the file is open, bytes. Only this shard's part if
    /// the file is shared.
    pub(crate) resident_bytes: usize,
    /// The parts that other shards share, if the file belongs to several.
    shared: Option<Arc<Opened>>,
    /// Rows that were noted when the file was written, unless that was before this start.
    pub(crate) large_rows: LargeRows,
}

/// Returns the name of a table file.
pub(crate) fn table_name(file: u64) -> String {
    format!("{file:016x}.table")
}

/// The handle of a file that cannot be opened: every operation fails.
#[derive(Debug)]
struct Unopened;

impl File for Unopened {
    fn read(&self, _: u64, _: usize) -> BoxFuture<std::io::Result<Bytes>> {
        Box::pin(async { Err(std::io::ErrorKind::InvalidData.into()) })
    }

    fn write(&self, _: u64, _: Bytes) -> BoxFuture<std::io::Result<()>> {
        Box::pin(async { Err(std::io::ErrorKind::InvalidData.into()) })
    }

    fn write_durable(&self, _: u64, _: &[u8]) -> BoxFuture<std::io::Result<()>> {
        Box::pin(async { Err(std::io::ErrorKind::InvalidData.into()) })
    }

    fn allocate(&self, _: u64) -> BoxFuture<std::io::Result<()>> {
        Box::pin(async { Err(std::io::ErrorKind::InvalidData.into()) })
    }

    fn sync(&self) -> BoxFuture<std::io::Result<()>> {
        Box::pin(async { Err(std::io::ErrorKind::InvalidData.into()) })
    }

    fn len(&self) -> BoxFuture<std::io::Result<u64>> {
        Box::pin(async { Ok(0) })
    }
}

fn unreadable(path: &Path, Unreadable(what): Unreadable) -> StorageError {
    StorageError::corrupt(path, what)
}

fn unreadable_at(path: &Path, offset: u64, Unreadable(what): Unreadable) -> StorageError {
    StorageError::corrupt(path, format!("{what}, at byte {offset}"))
}

async fn read_sections(
    file: Arc<dyn File>,
    bytes: u64,
    footer: table::Footer,
    path: &Path,
    seal: u64,
    with_filter: bool,
) -> Result<Opened, StorageError> {
    let io = |error| StorageError::io("read the table file", path, error);
    let filter = match with_filter {
        true => file.read(footer.filter.offset, footer.filter.bytes as usize).await.map_err(io)?,
        false => Bytes::new(),
    };
    let index = file.read(footer.index.offset, footer.index.bytes as usize).await.map_err(io)?;
    let checked = [(&footer.filter, &filter), (&footer.index, &index)];
    for (section, bytes) in checked.into_iter().skip(usize::from(!with_filter)) {
        table::check_section(section, seal, bytes).map_err(|why| unreadable_at(path, section.offset, why))?;
    }
    let sections = filter.len() + index.len();
    let index: Arc<[IndexEntry]> = table::read_index(index)
        .map_err(|_| StorageError::corrupt(path, "its index cannot be decoded"))?
        .into();
    // Keys and zone maps of entries are slices of the index as it was read.
    let resident_bytes = sections + size_of::<IndexEntry>() * index.len();
    Ok(Opened { file, bytes, filter, index, footer, resident_bytes })
}

async fn read_footer(
    file: &dyn File,
    path: &Path,
    entry: &FileEntry,
) -> Result<(u64, table::Footer), StorageError> {
    let (bytes, footer) = read_any_footer(file, path, entry.identity).await?;
    let found = Identity { bytes, footer: footer.crc };
    if let Some(expected) = entry.identity.filter(|expected| *expected != found) {
        let what = format!(
            "it is another file than the one that was written: expected {} bytes and the checksum {:08x} of the \
             footer, got {} and {:08x}",
            expected.bytes, expected.footer, found.bytes, found.footer
        );
        return Err(StorageError::corrupt(path, what));
    }
    match footer.file == entry.seal {
        true => Ok((bytes, footer)),
        false => Err(StorageError::corrupt(path, "it is a table file with another number")),
    }
}

/// Reads the footer of a file that no entry describes. Returns the seal in it; `None` if the file
/// has no valid footer, so that it was never completed.
///
/// # Errors
/// The file cannot be read, or another version of the program wrote it.
pub(crate) async fn seal_in(env: &dyn Env, path: &Path) -> Result<Option<u64>, StorageError> {
    let opened = env.open(path, Mode::Read).await;
    let file = opened.map_err(|error| StorageError::io("read the table file", path, error))?;
    match read_any_footer(&*file, path, None).await {
        Ok((_, footer)) => Ok(Some(footer.file)),
        Err(StorageError::Corrupt { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads a valid footer, of the file with this identity if there is one. Returns the length of the
/// file, too. A footer of another version is no damage: to scrub the file would lose its rows.
async fn read_any_footer(
    file: &dyn File,
    path: &Path,
    expected: Option<Identity>,
) -> Result<(u64, table::Footer), StorageError> {
    let io = |error| StorageError::io("read the table file", path, error);
    let bytes = file.len().await.map_err(io)?;
    let tail = bytes.min(FOOTER_BYTES as u64);
    let footer = file.read(bytes - tail, tail as usize).await.map_err(io)?;
    if let Some((found, crc)) = table::other_version(&footer)
        && expected.is_none_or(|expected| expected == Identity { bytes, footer: crc })
    {
        return Err(StorageError::UnknownFormat { path: path.into(), found, known: table::VERSION });
    }
    let footer = table::read_footer(&footer, bytes).map_err(|why| unreadable(path, why))?;
    Ok((bytes, footer))
}

/// Opens a table file for reading.
async fn open_table(env: &dyn Env, path: &Path) -> Result<Arc<dyn File>, StorageError> {
    env.open(path, Mode::ReadTable).await.map_err(|error| match error.kind() {
        ErrorKind::NotFound => StorageError::corrupt(path, "it is missing"),
        _ => StorageError::io("read the table file", path, error),
    })
}

/// Reads the first and the last token of a file that is not open.
pub(crate) async fn tokens_of(
    env: &dyn Env,
    path: &Path,
    entry: &FileEntry,
) -> Result<(i64, i64), StorageError> {
    let file = open_table(env, path).await?;
    let (_, footer) = read_footer(&*file, path, entry).await?;
    let (first, last) = footer.statistics.tokens;
    Ok((first.unwrap_or(i64::MIN), last.unwrap_or(i64::MAX)))
}

fn range_of(index: &[IndexEntry], statistics: Option<&FileStatistics>, from: i64) -> (i64, i64) {
    let (first, last) = statistics.map_or((None, None), |statistics| statistics.tokens);
    let first = first.or(index.first().map(|entry| entry.start.token)).unwrap_or(i64::MIN);
    (first.max(from), last.unwrap_or(i64::MAX))
}

impl TableFile {
    pub(crate) async fn open(
        env: &dyn Env,
        path: PathBuf,
        entry: FileEntry,
    ) -> Result<TableFile, StorageError> {
        TableFile::open_as(env, path, entry, true).await
    }

    /// Opens a file that was just written, and adds its identity to the entry.
    pub(crate) async fn open_new(
        env: &dyn Env,
        path: PathBuf,
        entry: FileEntry,
    ) -> Result<TableFile, StorageError> {
        let mut file = TableFile::open(env, path, entry).await?;
        file.entry.identity = file.identity();
        Ok(file)
    }

    /// Opens a file without its filter, which may be damaged. `may_contain` then never excludes a
    /// token.
    pub(crate) async fn open_without_filter(
        env: &dyn Env,
        path: PathBuf,
        entry: FileEntry,
    ) -> Result<TableFile, StorageError> {
        TableFile::open_as(env, path, entry, false).await
    }

    /// Stands for a file that cannot be opened. It may contain any token, and every read of it
    /// fails with `damage`.
    pub(crate) fn damaged(path: PathBuf, entry: FileEntry, damage: StorageError) -> TableFile {
        let start = BlockStart { token: i64::MIN, key: Bytes::new(), clustering: None };
        let block = IndexEntry {
            start,
            plain: false,
            offset: 0,
            stored: 0,
            rows: 0,
            directory: 0,
            zone_map: Bytes::new(),
            crc: 0,
        };
        let range = (entry.from, i64::MAX);
        TableFile {
            id: entry.id,
            entry,
            bytes: 0,
            footer_crc: 0,
            path,
            file: Arc::new(Unopened),
            filter: Bytes::new(),
            index: [block].into(),
            statistics: None,
            partitions: 0,
            users: Arc::default(),
            range,
            resident_bytes: 0,
            shared: None,
            damage: Some(damage),
            excluded: Arc::new(AtomicBool::new(true)),
            found_damaged: Arc::default(),
            sequence: Arc::default(),
            large_rows: LargeRows::default(),
        }
    }

    /// Returns the identity of the file; `None` if it cannot be opened.
    pub(crate) fn identity(&self) -> Option<Identity> {
        let identity = Identity { bytes: self.bytes, footer: self.footer_crc };
        self.damage.is_none().then_some(identity)
    }

    /// Returns the reason why the file cannot be opened, if so.
    pub(crate) fn damage(&self) -> Option<&StorageError> {
        self.damage.as_ref()
    }

    /// Makes compactions leave the file out. Only `Files::exclude` calls it, because that counts.
    pub(crate) fn exclude(&self) {
        self.excluded.store(true, Relaxed);
    }

    pub(crate) fn is_excluded(&self) -> bool {
        self.excluded.load(Relaxed)
    }

    /// Returns true if the file cannot be opened, compactions leave it out, or a read has found a
    /// damaged block.
    pub(crate) fn is_damaged(&self) -> bool {
        self.is_excluded() || self.found_damaged.load(Relaxed)
    }

    /// Returns the error for a failed read.
    pub(crate) fn unread(&self, error: std::io::Error) -> StorageError {
        let io = || StorageError::io("read the table file", &self.path, error);
        self.damage.clone().unwrap_or_else(io)
    }

    async fn open_as(
        env: &dyn Env,
        path: PathBuf,
        entry: FileEntry,
        with_filter: bool,
    ) -> Result<TableFile, StorageError> {
        let file = open_table(env, &path).await?;
        let (bytes, footer) = read_footer(&*file, &path, &entry).await?;
        let opened = read_sections(file, bytes, footer, &path, entry.seal, with_filter).await?;
        Ok(TableFile::of(opened, path, entry))
    }

    /// Opens a file like [`TableFile::open`], but shares what another shard of the same database
    /// has open. `folder` identifies the database's folder.
    pub(crate) async fn open_shared(
        env: &dyn Env,
        path: PathBuf,
        entry: FileEntry,
        folder: u64,
    ) -> Result<TableFile, StorageError> {
        let Some(origin) = entry.origin else { return TableFile::open(env, path, entry).await };
        let file = open_table(env, &path).await?;
        let (bytes, footer) = read_footer(&*file, &path, &entry).await?;
        let opened = match env.shared_files().find(folder, origin, &footer) {
            Some(opened) => opened,
            None => {
                let opened = read_sections(file, bytes, footer, &path, entry.seal, true).await?;
                env.shared_files().keep(folder, origin, opened)
            }
        };
        let mut file = TableFile::of(Opened::clone(&opened), path, entry);
        file.resident_bytes /= file.sharers();
        file.shared = Some(opened);
        Ok(file)
    }

    fn of(opened: Opened, path: PathBuf, entry: FileEntry) -> TableFile {
        let Opened { file, bytes, filter, index, footer, resident_bytes } = opened;
        let statistics = Some(footer.statistics);
        let range = range_of(&index, statistics.as_ref(), entry.from);
        TableFile {
            id: entry.id,
            entry,
            bytes,
            footer_crc: footer.crc,
            path,
            file,
            filter,
            index,
            statistics,
            partitions: footer.partitions,
            users: Arc::default(),
            range,
            resident_bytes,
            shared: None,
            damage: None,
            excluded: Arc::default(),
            found_damaged: Arc::default(),
            sequence: Arc::default(),
            large_rows: LargeRows::default(),
        }
    }

    /// Returns the number of shards of the newest sharding that may own a part of the file.
    fn sharers(&self) -> usize {
        let Some((newest, others)) = self.entry.owners.split_last() else { return 1 };
        let shares = |shard: &u32| {
            let mut owners = others.to_vec();
            owners.push(Owner { sharding: newest.sharding, shard: *shard });
            may_own(&owners, self.range.0, self.range.1)
        };
        (0..newest.sharding.shards).filter(shares).count().max(1)
    }

    /// Returns a view of the file without the tokens below `from`.
    pub(crate) fn cut(&self, from: i64) -> TableFile {
        let range = range_of(&self.index, self.statistics.as_ref(), from);
        TableFile { entry: FileEntry { from, ..self.entry.clone() }, range, ..self.clone() }
    }

    /// Returns a file with the same content and another token range.
    #[cfg(test)]
    pub(crate) fn spanning(&self, id: u64, run: u64, first: i64, last: i64) -> TableFile {
        TableFile { id, entry: FileEntry::new(id, run, id), range: (first, last), ..self.clone() }
    }

    /// Returns true if `this` is the only reference to the file, in any of its states.
    pub(crate) fn is_unused(this: &Arc<TableFile>) -> bool {
        Arc::strong_count(this) == 1 && Arc::strong_count(&this.users) == 1
    }

    /// Returns the first and the last token that the file may contain.
    #[inline]
    pub(crate) fn tokens(&self) -> (i64, i64) {
        self.range
    }

    /// Returns true if the file may contain a partition with this token that this shard owns.
    #[inline]
    pub(crate) fn may_contain(&self, token: i64) -> bool {
        self.spans(token) && self.entry.owns(token) && self.filter_has(token)
    }

    /// Returns the greatest timestamp of a cell or deletion; `i64::MAX` if it is not known, because
    /// the file cannot be opened.
    #[inline]
    pub(crate) fn greatest_timestamp(&self) -> i64 {
        self.statistics.as_ref().map_or(i64::MAX, |statistics| statistics.timestamps.1)
    }

    /// Returns the sequence, see `read/cached_row.rs`.
    #[inline]
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence.load(Relaxed)
    }

    pub(crate) fn set_sequence(&self, sequence: u64) {
        self.sequence.store(sequence, Relaxed);
    }

    #[inline]
    fn spans(&self, token: i64) -> bool {
        let (first, last) = self.tokens();
        (first..=last).contains(&token)
    }

    /// Returns true if the filter may contain a token.
    #[inline]
    pub(crate) fn filter_has(&self, token: i64) -> bool {
        bloom::may_contain(&self.filter, token)
    }

    /// Reads a block from disk.
    pub(crate) async fn read_block(&self, index: usize) -> Result<Block, StorageError> {
        let entry = &self.index[index];
        let stored = self.begin_read(entry.offset, entry.stored as usize).await;
        let stored = stored.map_err(|error| self.unread(error))?;
        self.open_block(index, stored)
    }

    /// Starts a read of stored bytes.
    pub(crate) fn begin_read(&self, offset: u64, bytes: usize) -> BoxFuture<std::io::Result<Bytes>> {
        self.file.read(offset, bytes)
    }

    /// Checks a block's stored bytes and opens it.
    pub(crate) fn open_block(&self, index: usize, stored: Bytes) -> Result<Block, StorageError> {
        let entry = &self.index[index];
        table::read_block(entry, self.entry.seal, stored).map_err(|why| {
            self.found_damaged.store(true, Relaxed);
            unreadable_at(&self.path, entry.offset, why)
        })
    }

    /// Returns the last block that starts at or before `place`.
    pub(crate) fn block_at(&self, place: &BlockStart) -> usize {
        self.index.partition_point(|entry| entry.start <= *place).saturating_sub(1)
    }

    /// Returns the block in which a partition ends, or would end.
    pub(crate) fn last_block_of(&self, token: i64, key: &Bytes) -> usize {
        let place = (token, key);
        self.index.partition_point(|entry| (entry.start.token, &entry.start.key) <= place).saturating_sub(1)
    }

    pub(crate) fn malformed(&self, index: usize) -> impl Fn(Malformed) -> StorageError {
        let offset = self.index.get(index).map_or(self.bytes, |entry| entry.offset);
        move |Malformed| {
            self.found_damaged.store(true, Relaxed);
            let what =
                format!("the block at byte {offset} does not match its checksums or cannot be decoded");
            StorageError::corrupt(&self.path, what)
        }
    }
}
