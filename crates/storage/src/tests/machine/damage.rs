//! Bits of table files flip, and flip back.

use super::*;

impl Machine {
    /// Damages a table file. Spares logs and manifests, because a shard with a damaged one does not
    /// open. Spares the marks too, which show the surviving records.
    pub(super) fn damage(&mut self) {
        let mut paths = Vec::new();
        for shard in &self.shards {
            let state = shard.state.borrow();
            for table in self.tables.iter().map(|own| own.0).chain([SYSTEM]) {
                let files = state.tables.get(&table).into_iter().flat_map(|table| table.files.iter());
                paths.extend(files.map(|file| file.path.clone()));
            }
        }
        paths.sort();
        let is_there = |path: &PathBuf| self.sim.disk.files().contains(path);
        paths.retain(|path| is_there(path));
        if paths.is_empty() {
            return;
        }
        let path = paths.swap_remove(self.random.below(paths.len() as u64) as usize);
        let at = self.random.below(self.sim.disk.size(&path));
        let bit = self.random.below(8) as u32;
        self.note(format!("  {} damaged at {at}, bit {bit}", path.display()));
        self.sim.disk.flip(&path, at, bit);
        self.counts.damages += 1;
        self.flips.push((path, at, bit));
        self.was_damaged = true;
    }

    /// Ends the damage. After a start, compactions use files again that they left out.
    pub(super) fn repair(&mut self) {
        for (path, at, bit) in std::mem::take(&mut self.flips) {
            if self.sim.disk.files().contains(&path) {
                self.sim.disk.flip(&path, at, bit);
            }
        }
        self.note("  the damage is undone".to_owned());
    }
}
