//! Names of files and folders: the visible ones, those that certainly survive a crash, and the
//! changes in between.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use crate::Random;

/// Target of a name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Node {
    Folder,
    File(u64),
}

/// Change to names: created (`to`), removed (`from`), or renamed (both).
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) from: Option<PathBuf>,
    pub(super) to: Option<PathBuf>,
    pub(super) node: Node,
}

impl Change {
    fn apply(&self, names: &mut BTreeMap<PathBuf, Node>) {
        if let Some(from) = &self.from
            && names.get(from) == Some(&self.node)
        {
            names.remove(from);
        }
        if let Some(to) = &self.to {
            names.insert(to.clone(), self.node);
        }
    }

    fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.from.iter().chain(&self.to)
    }

    fn is_in(&self, folder: &Path) -> bool {
        self.paths().any(|path| path.parent() == Some(folder))
    }
}

/// Names of files and folders. The root folder always exists.
#[derive(Debug, Default)]
pub(super) struct FileNames {
    pub(super) now: BTreeMap<PathBuf, Node>,
    durable: BTreeMap<PathBuf, Node>,
    /// Changes that are not synced, each with its moment.
    unsynced: Vec<(u64, Change)>,
}

impl FileNames {
    pub(super) fn get(&self, path: &Path) -> Option<Node> {
        self.now.get(path).copied()
    }

    /// Returns the file of a name.
    pub(super) fn file(&self, path: &Path) -> io::Result<u64> {
        match self.get(path) {
            Some(Node::File(inode)) => Ok(inode),
            Some(Node::Folder) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Checks that a folder exists.
    pub(super) fn check_folder(&self, path: &Path) -> io::Result<()> {
        match self.get(path) {
            _ if path.parent().is_none() => Ok(()),
            Some(Node::Folder) => Ok(()),
            Some(Node::File(_)) => Err(io::ErrorKind::NotADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Checks that a file may be created here.
    pub(super) fn check_parent(&self, path: &Path) -> io::Result<()> {
        path.parent().map_or(Ok(()), |parent| self.check_folder(parent))
    }

    pub(super) fn list(&self, folder: &Path) -> Vec<String> {
        let own = self.now.keys().filter(|path| path.parent() == Some(folder));
        own.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect()
    }

    pub(super) fn change(&mut self, moment: u64, change: Change) {
        change.apply(&mut self.now);
        self.unsynced.push((moment, change));
    }

    /// Makes changes in a folder before a moment durable.
    pub(super) fn sync(&mut self, folder: &Path, before: u64) {
        let synced = |(moment, change): &mut (u64, Change)| *moment < before && change.is_in(folder);
        for (_, change) in self.unsynced.extract_if(.., synced) {
            change.apply(&mut self.durable);
        }
    }

    /// Fails a sync: a random part of the changes reaches the disk, and no later sync repairs that.
    pub(super) fn sync_torn(&mut self, folder: &Path, before: u64, random: &mut Random) {
        let synced = |(moment, change): &mut (u64, Change)| *moment < before && change.is_in(folder);
        let changes = self.unsynced.extract_if(.., synced).map(|(_, change)| change).collect();
        self.keep_some(changes, random);
    }

    /// Makes a random part of the changes durable. A change that builds upon another, of the same
    /// file or name, never outlives it. Independent changes may be lost in any combination.
    fn keep_some(&mut self, changes: Vec<Change>, random: &mut Random) {
        let (mut lost_nodes, mut lost_paths) = (BTreeSet::new(), BTreeSet::new());
        for change in changes {
            let file = matches!(change.node, Node::File(_)).then_some(change.node);
            let builds_on_lost = file.is_some_and(|file| lost_nodes.contains(&file))
                || change.paths().any(|path| lost_paths.contains(path));
            if !builds_on_lost && random.one_in(2) {
                change.apply(&mut self.durable);
            } else {
                lost_nodes.extend(file);
                lost_paths.extend(change.paths().cloned());
            }
        }
    }

    /// Crashes the machine while the changes `in_flight` are being made.
    pub(super) fn crash(&mut self, in_flight: Vec<Change>, random: &mut Random) {
        let changes = std::mem::take(&mut self.unsynced).into_iter().map(|(_, change)| change);
        self.keep_some(changes.chain(in_flight).collect(), random);
        // The contents of a lost folder are lost too. Folders sort before their contents.
        self.now.clear();
        for (path, node) in std::mem::take(&mut self.durable) {
            if self.check_parent(&path).is_ok() {
                self.now.insert(path, node);
            }
        }
        self.durable.clone_from(&self.now);
    }

    /// Returns true if the file has a name, or may have one after a crash.
    pub(super) fn may_name(&self, inode: u64) -> bool {
        let node = Node::File(inode);
        self.now.values().chain(self.durable.values()).any(|named| *named == node)
            || self.unsynced.iter().any(|(_, change)| change.node == node)
    }

    /// Returns the files that have a name now.
    pub(super) fn files(&self) -> BTreeSet<u64> {
        let file = |node: &Node| if let Node::File(inode) = node { Some(*inode) } else { None };
        self.now.values().filter_map(file).collect()
    }
}
