//! State machine of the disk: operations are in flight, wait for their polls, and take effect one
//! at a time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::OpenOptions;
use super::fault::{Effect, Fault, FaultKind, RecordedStep};
use super::inode::{self, Inode};
use super::names::{self, FileNames, Node};
use crate::Random;

/// Number of steps kept for printing.
const RECORD_MAX: usize = 200;

/// Most polls that an operation waits when nothing stalls it.
const WAIT_MAX: u64 = 2;

/// Request of an operation.
#[derive(Clone, Debug)]
pub(super) enum Request {
    Open { path: PathBuf, options: OpenOptions },
    Read { inode: u64, offset: u64, len: usize },
    Write { inode: u64, offset: u64, data: Bytes, durable: bool },
    Allocate { inode: u64, len: u64 },
    Truncate { inode: u64, len: u64 },
    Length { inode: u64 },
    Sync { inode: u64 },
    SyncFolder { path: PathBuf },
    MakeFolder { path: PathBuf },
    Remove { path: PathBuf },
    RemoveFolder { path: PathBuf },
    Rename { from: PathBuf, to: PathBuf },
    Link { from: PathBuf, to: PathBuf },
    List { path: PathBuf },
    Lock { path: PathBuf },
}

/// Answer to an operation.
#[derive(Debug)]
pub(super) enum DiskAnswer {
    Done,
    Opened(u64),
    Bytes(Bytes),
    Length(u64),
    Names(Vec<String>),
}

impl Request {
    fn kind(&self) -> FaultKind {
        match self {
            Request::Read { .. } => FaultKind::Read,
            Request::Write { .. } | Request::Allocate { .. } | Request::Truncate { .. } => FaultKind::Write,
            Request::Sync { .. } | Request::SyncFolder { .. } => FaultKind::Sync,
            _ => FaultKind::Names,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Request::Open { .. } => "open",
            Request::Read { .. } => "read",
            Request::Write { durable: true, .. } => "write durably",
            Request::Write { .. } => "write",
            Request::Allocate { .. } => "allocate",
            Request::Truncate { .. } => "truncate",
            Request::Length { .. } => "get the length of",
            Request::Sync { .. } => "sync",
            Request::SyncFolder { .. } => "sync the folder",
            Request::MakeFolder { .. } => "make the folder",
            Request::Remove { .. } => "remove",
            Request::RemoveFolder { .. } => "remove the folder",
            Request::Rename { .. } => "rename",
            Request::Link { .. } => "link",
            Request::List { .. } => "list",
            Request::Lock { .. } => "lock",
        }
    }

    fn inode(&self) -> Option<u64> {
        match self {
            Request::Read { inode, .. }
            | Request::Write { inode, .. }
            | Request::Allocate { inode, .. }
            | Request::Truncate { inode, .. }
            | Request::Length { inode }
            | Request::Sync { inode } => Some(*inode),
            _ => None,
        }
    }

    fn range(&self) -> Option<(u64, u64)> {
        match self {
            Request::Read { offset, len, .. } => Some((*offset, *len as u64)),
            Request::Write { offset, data, .. } => Some((*offset, data.len() as u64)),
            Request::Allocate { len, .. } | Request::Truncate { len, .. } => Some((0, *len)),
            _ => None,
        }
    }

    /// Returns the change that it makes to a file's contents.
    fn contents(&self) -> Option<(u64, inode::Change)> {
        match self {
            Request::Write { inode, offset, data, .. } => {
                Some((*inode, inode::Change::Write { offset: *offset, data: data.clone() }))
            }
            Request::Allocate { inode, len } | Request::Truncate { inode, len } => {
                Some((*inode, inode::Change::Length(*len)))
            }
            _ => None,
        }
    }
}

/// Operation in flight.
#[derive(Debug)]
struct Flight {
    request: Request,
    polls: u64,
    fails: Option<Effect>,
    /// Start of the operation: a sync covers earlier changes.
    moment: u64,
}

/// State of the disk. The head of this file describes it.
#[derive(Debug)]
pub(super) struct DiskState {
    pub(super) random: Random,
    /// Number of crashes. Handles opened in an earlier life never answer.
    pub(super) life: u64,
    pub(super) steps: u64,
    pub(super) crash_at: Option<u64>,
    /// The machine has crashed, and nothing answers until it is restarted.
    pub(super) down: bool,
    pub(super) faults: Vec<Fault>,
    pub(super) capacity: u64,
    pub(super) inodes: BTreeMap<u64, Inode>,
    pub(super) names: FileNames,
    locked: BTreeSet<PathBuf>,
    next_inode: u64,
    moment: u64,
    flights: BTreeMap<u64, Flight>,
    record: VecDeque<RecordedStep>,
}

impl DiskState {
    pub(super) fn new(seed: u64) -> DiskState {
        DiskState {
            random: Random::new(seed),
            life: 0,
            steps: 0,
            crash_at: None,
            down: false,
            faults: Vec::new(),
            capacity: u64::MAX,
            inodes: BTreeMap::new(),
            names: FileNames::default(),
            locked: BTreeSet::new(),
            next_inode: 1,
            moment: 0,
            flights: BTreeMap::new(),
            record: VecDeque::new(),
        }
    }

    /// Starts an operation. Returns its ticket.
    pub(super) fn begin(&mut self, request: Request) -> u64 {
        let (kind, path) = (request.kind(), self.path_of(&request));
        let mut polls = self.random.below(WAIT_MAX + 1);
        let mut fails = None;
        for fault in &mut self.faults {
            if fault.is_about(kind, &path) && self.random.one_in(fault.one_in) {
                fault.times -= 1;
                match fault.effect {
                    Effect::Stalled(more) => polls = polls.saturating_add(more),
                    effect => fails = Some(effect),
                }
            }
        }
        self.moment += 1;
        self.flights.insert(self.moment, Flight { request, polls, fails, moment: self.moment });
        self.moment
    }

    /// Polls an operation. Returns its answer if that was the last poll it waited for.
    pub(super) fn poll(&mut self, ticket: u64) -> Option<io::Result<DiskAnswer>> {
        if self.down {
            return None;
        }
        let flight = self.flights.get_mut(&ticket).expect("an operation ends once");
        if flight.polls > 0 {
            flight.polls -= 1;
            return None;
        }
        self.finish(ticket)
    }

    /// Lets an operation take effect, unless the machine crashes at this very step.
    pub(super) fn finish(&mut self, ticket: u64) -> Option<io::Result<DiskAnswer>> {
        self.steps += 1;
        let step = self.steps;
        if self.crash_at.is_some_and(|at| step >= at) {
            self.down = true;
            return None;
        }
        let flight = self.flights.remove(&ticket).expect("an operation ends once");
        let (what, range) = (flight.request.name(), flight.request.range());
        let path = self.path_of(&flight.request);
        self.moment += 1;
        let result = match flight.fails.and_then(Effect::error) {
            Some(error) => {
                self.apply_partly(&flight);
                Err(error)
            }
            None => self.perform(&flight),
        };
        if self.record.len() == RECORD_MAX {
            self.record.pop_front();
        }
        let error = result.as_ref().err().map(io::Error::kind);
        self.record.push_back(RecordedStep { number: step, what, path, range, error });
        Some(result)
    }

    /// Resumes stalled operations.
    pub(super) fn resume(&mut self) {
        self.flights.values_mut().for_each(|flight| flight.polls = flight.polls.min(WAIT_MAX));
    }

    /// Crashes and restarts the machine.
    pub(super) fn crash(&mut self) {
        let (mut contents, mut renamed) = (BTreeMap::<u64, Vec<inode::Change>>::new(), Vec::new());
        for flight in std::mem::take(&mut self.flights).into_values() {
            if let Some((inode, change)) = flight.request.contents() {
                contents.entry(inode).or_default().push(change);
            }
            renamed.extend(self.renaming(&flight.request).ok().flatten());
        }
        for (id, inode) in &mut self.inodes {
            inode.crash(contents.remove(id).unwrap_or_default(), &mut self.random);
        }
        self.names.crash(renamed, &mut self.random);
        self.locked.clear();
        self.forget_files();
        self.life += 1;
        (self.down, self.crash_at) = (false, None);
    }

    /// Returns the bytes that files take.
    pub(super) fn used(&self) -> u64 {
        let named = self.names.files();
        let takes = |(id, inode): &(&u64, &Inode)| inode.handles > 0 || named.contains(id);
        self.inodes.iter().filter(takes).map(|(_, inode)| inode.now.len() as u64).sum()
    }

    /// Drops a handle.
    pub(super) fn close(&mut self, inode: u64) {
        if let Some(inode) = self.inodes.get_mut(&inode) {
            inode.handles -= 1;
        }
    }

    pub(super) fn unlock(&mut self, path: &Path) {
        self.locked.remove(path);
    }

    pub(super) fn record(&self) -> String {
        self.record.iter().map(|step| format!("{step}\n")).collect()
    }

    fn path_of(&self, request: &Request) -> PathBuf {
        let of_file = |inode: u64| {
            let named = self.names.now.iter().find(|(_, node)| **node == Node::File(inode));
            named.map_or_else(|| PathBuf::from("(removed)"), |(path, _)| path.clone())
        };
        match request {
            Request::Open { path, .. }
            | Request::SyncFolder { path }
            | Request::MakeFolder { path }
            | Request::Remove { path }
            | Request::RemoveFolder { path }
            | Request::List { path }
            | Request::Lock { path } => path.clone(),
            Request::Rename { to, .. } | Request::Link { to, .. } => to.clone(),
            _ => request.inode().map(of_file).unwrap_or_default(),
        }
    }

    /// Applies the partial effect of a failed operation.
    fn apply_partly(&mut self, flight: &Flight) {
        match &flight.request {
            Request::Sync { inode } => {
                let inode = self.inodes.get_mut(inode).expect("an open file");
                inode.sync_torn(flight.moment, &mut self.random);
            }
            Request::SyncFolder { path } => self.names.sync_torn(path, flight.moment, &mut self.random),
            request => {
                if let Some((inode, change)) = request.contents() {
                    let inode = self.inodes.get_mut(&inode).expect("an open file");
                    inode.change_torn(&change, &mut self.random);
                }
            }
        }
    }

    fn perform(&mut self, flight: &Flight) -> io::Result<DiskAnswer> {
        match &flight.request {
            Request::Open { path, options } => return self.open(path, *options).map(DiskAnswer::Opened),
            Request::Read { inode, offset, len } => {
                let contents = &self.inodes[inode].now;
                let end = usize::try_from(*offset).ok().and_then(|at| Some(at..at.checked_add(*len)?));
                let bytes = end.and_then(|range| contents.get(range)).map(Bytes::copy_from_slice);
                return bytes.map(DiskAnswer::Bytes).ok_or_else(|| io::ErrorKind::UnexpectedEof.into());
            }
            Request::Length { inode } => return Ok(DiskAnswer::Length(self.inodes[inode].now.len() as u64)),
            Request::Write { inode, offset, data, durable } => {
                return self.write(*inode, *offset, data, *durable);
            }
            Request::Allocate { inode, len } => self.allocate(*inode, *len)?,
            Request::Truncate { inode, len } => {
                let file = self.inodes.get_mut(inode).expect("an open file");
                file.change(self.moment, inode::Change::Length(*len));
            }
            Request::Sync { inode } => {
                self.inodes.get_mut(inode).expect("an open file").sync(flight.moment);
            }
            Request::SyncFolder { path } => {
                self.names.check_folder(path)?;
                self.names.sync(path, flight.moment);
                self.forget_files();
            }
            Request::MakeFolder { path } => self.make_folder(path)?,
            Request::List { path } => {
                self.names.check_folder(path)?;
                return Ok(DiskAnswer::Names(self.names.list(path)));
            }
            Request::Lock { path } => {
                if !self.locked.insert(path.clone()) {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
            }
            request @ (Request::Remove { .. }
            | Request::RemoveFolder { .. }
            | Request::Rename { .. }
            | Request::Link { .. }) => {
                if let Some(change) = self.renaming(request)? {
                    self.names.change(self.moment, change);
                }
            }
        }
        Ok(DiskAnswer::Done)
    }

    /// Returns the change of names that an operation makes, if it can.
    fn renaming(&self, request: &Request) -> io::Result<Option<names::Change>> {
        let (from, to) = match request {
            Request::Remove { path } => (Some(path), None),
            Request::RemoveFolder { path } => {
                self.names.check_folder(path)?;
                if !self.names.list(path).is_empty() {
                    return Err(io::ErrorKind::DirectoryNotEmpty.into());
                }
                let from = Some(path.clone());
                return Ok(Some(names::Change { from, to: None, node: Node::Folder }));
            }
            Request::Rename { from, to } => (Some(from), Some(to)),
            Request::Link { from, to } => {
                let node = Node::File(self.names.file(from)?);
                self.names.check_parent(to)?;
                if self.names.get(to).is_some() {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                return Ok(Some(names::Change { from: None, to: Some(to.clone()), node }));
            }
            _ => return Ok(None),
        };
        let node = Node::File(self.names.file(from.expect("set above"))?);
        to.map_or(Ok(()), |to| self.names.check_parent(to))?;
        Ok(Some(names::Change { from: from.cloned(), to: to.cloned(), node }))
    }

    fn open(&mut self, path: &Path, options: OpenOptions) -> io::Result<u64> {
        let id = match self.names.file(path) {
            Ok(_) if options.create_new => return Err(io::ErrorKind::AlreadyExists.into()),
            Ok(id) => id,
            Err(error)
                if error.kind() == io::ErrorKind::NotFound && (options.create || options.create_new) =>
            {
                self.names.check_parent(path)?;
                let id = self.next_inode;
                self.next_inode += 1;
                self.inodes.insert(id, Inode::default());
                let change = names::Change { from: None, to: Some(path.into()), node: Node::File(id) };
                self.names.change(self.moment, change);
                id
            }
            Err(error) => return Err(error),
        };
        let inode = self.inodes.get_mut(&id).expect("a named file exists");
        inode.handles += 1;
        if options.truncate && !inode.now.is_empty() {
            inode.change(self.moment, inode::Change::Length(0));
        }
        Ok(id)
    }

    /// Returns the length up to `len` that a file can grow to in the free space.
    fn length_within_capacity(&self, inode: u64, len: u64) -> u64 {
        let has = self.inodes[&inode].now.len() as u64;
        let free = self.capacity.saturating_sub(self.used());
        len.min(has.saturating_add(free)).max(has.min(len))
    }

    fn write(&mut self, inode: u64, offset: u64, data: &Bytes, durable: bool) -> io::Result<DiskAnswer> {
        let end = offset + data.len() as u64;
        let fits = self.length_within_capacity(inode, end);
        let written = data.slice(..fits.saturating_sub(offset) as usize);
        let file = self.inodes.get_mut(&inode).expect("an open file");
        if !written.is_empty() {
            let change = inode::Change::Write { offset, data: written };
            if durable { file.change_durably(change) } else { file.change(self.moment, change) }
        }
        if fits < end { Err(io::Error::from_raw_os_error(libc::ENOSPC)) } else { Ok(DiskAnswer::Done) }
    }

    /// Allocates durable zeros, as [`lanes::disk::File::allocate`] does.
    fn allocate(&mut self, inode: u64, len: u64) -> io::Result<()> {
        if self.length_within_capacity(inode, len) < len {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        let file = self.inodes.get_mut(&inode).expect("an open file");
        file.change_durably(inode::Change::Length(0));
        file.change_durably(inode::Change::Length(len));
        Ok(())
    }

    fn make_folder(&mut self, path: &Path) -> io::Result<()> {
        let above: Vec<&Path> = path.ancestors().collect();
        for folder in above.into_iter().rev().filter(|folder| folder.parent().is_some()) {
            if self.names.get(folder).is_none() {
                let change = names::Change { from: None, to: Some(folder.into()), node: Node::Folder };
                self.names.change(self.moment, change);
            }
            self.names.check_folder(folder)?;
        }
        Ok(())
    }

    /// Removes files that are neither open nor named, and cannot be named after a crash.
    fn forget_files(&mut self) {
        let names = &self.names;
        self.inodes.retain(|id, inode| inode.handles > 0 || names.may_name(*id));
    }
}
