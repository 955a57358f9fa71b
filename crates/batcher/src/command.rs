//! Commands, the slots they declare, and the view in which they run.

use std::collections::BTreeMap;

/// Slots that a command reads and writes. A slot is one row: its partition key and its clustering
/// key. A slot may stand in both lists. Duplicates are allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint<S> {
    /// Slots whose values the command needs.
    pub reads: Vec<S>,
    /// Slots that the command may write or delete. If it leaves one out, and a later command reads
    /// it, that one waits for the store: declare such a slot as read, too.
    pub writes: Vec<S>,
}

impl<S> Footprint<S> {
    /// Returns a footprint without slots.
    pub fn new() -> Footprint<S> {
        Footprint { reads: Vec::new(), writes: Vec::new() }
    }

    /// Returns the number of reads and writes.
    pub(crate) fn slots(&self) -> usize {
        self.reads.len() + self.writes.len()
    }
}

impl<S: Ord> Footprint<S> {
    /// Returns the footprint of a command, sorted and without duplicates.
    pub(crate) fn of<V>(command: &impl Command<S, V>) -> Footprint<S> {
        let mut footprint = Footprint::new();
        command.footprint(&mut footprint);
        for slots in [&mut footprint.reads, &mut footprint.writes] {
            slots.sort_unstable();
            slots.dedup();
        }
        footprint
    }
}

/// An atomic unit of work over slots `S` with values `V`.
pub trait Command<S, V> {
    /// Result for the caller.
    type Out;

    /// Adds the slots that [`Command::apply`] will use. They must not depend on values.
    fn footprint(&self, footprint: &mut Footprint<S>);

    /// Runs the command: reads and writes through the view. It must be a pure function of what it
    /// reads, and must not block.
    fn apply(self, view: &mut View<'_, S, V>) -> Self::Out;
}

/// A slot's value while commands run.
#[derive(Clone, Debug)]
pub(crate) struct Current<V> {
    /// `None` if the slot is empty.
    pub(crate) value: Option<V>,
    /// True if a command has written it.
    pub(crate) is_written: bool,
}

/// Values of slots by slot, while the commands of a batch run.
pub(crate) type Overlay<S, V> = BTreeMap<S, Current<V>>;

/// The slots of one command, with the effects of all earlier commands.
#[derive(Debug)]
pub struct View<'a, S, V> {
    overlay: &'a mut Overlay<S, V>,
    /// Sorted lists of slots.
    footprint: &'a Footprint<S>,
    /// For each slot of the footprint's writes: true if this command has written it. Empty before
    /// the first write.
    wrote: Vec<bool>,
}

impl<'a, S: Ord + Clone, V> View<'a, S, V> {
    /// Creates the view of a command. The overlay contains all slots that the footprint declares as
    /// read, and the footprint is that of [`Footprint::of`].
    pub(crate) fn new(overlay: &'a mut Overlay<S, V>, footprint: &'a Footprint<S>) -> View<'a, S, V> {
        View { overlay, footprint, wrote: Vec::new() }
    }

    /// Returns the value of a slot, or `None` if it is empty.
    ///
    /// # Panics
    /// The command declared no read of the slot, and has not written it.
    pub fn get(&self, slot: &S) -> Option<&V> {
        let is_read = || self.footprint.reads.binary_search(slot).is_ok();
        let is_written = || {
            let index = self.footprint.writes.binary_search(slot);
            index.is_ok_and(|index| self.wrote.get(index) == Some(&true))
        };
        assert!(is_read() || is_written(), "a command reads only slots that its footprint declares as read");
        let current = self.overlay.get(slot).expect("declared reads are read before the command runs");
        current.value.as_ref()
    }

    /// Writes a slot.
    ///
    /// # Panics
    /// The command declared no write of the slot.
    pub fn set(&mut self, slot: &S, value: V) {
        self.write(slot, Some(value));
    }

    /// Empties a slot.
    ///
    /// # Panics
    /// The command declared no write of the slot.
    pub fn delete(&mut self, slot: &S) {
        self.write(slot, None);
    }

    fn write(&mut self, slot: &S, value: Option<V>) {
        let index = self.footprint.writes.binary_search(slot).ok();
        let index = index.expect("a command writes only slots that its footprint declares as written");
        self.wrote.resize(self.footprint.writes.len(), false);
        self.wrote[index] = true;
        let written = Current { value, is_written: true };
        match self.overlay.get_mut(slot) {
            Some(current) => *current = written,
            None => drop(self.overlay.insert(slot.clone(), written)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view_of(reads: &[u8], writes: &[u8], f: impl FnOnce(&mut View<'_, u8, u8>)) -> Overlay<u8, u8> {
        let mut overlay = Overlay::new();
        for &slot in reads {
            overlay.insert(slot, Current { value: Some(slot), is_written: false });
        }
        let footprint = Footprint { reads: reads.to_vec(), writes: writes.to_vec() };
        f(&mut View::new(&mut overlay, &footprint));
        overlay
    }

    #[test]
    fn command_sees_its_own_write() {
        let overlay = view_of(&[1], &[1, 2], |view| {
            view.set(&1, 9);
            view.delete(&2);
            assert_eq!((view.get(&1), view.get(&2)), (Some(&9), None));
        });
        assert!(overlay[&1].is_written && overlay[&2].is_written);
    }

    #[test]
    #[should_panic(expected = "declares as read")]
    fn undeclared_read_panics() {
        view_of(&[1], &[], |view| assert_eq!(view.get(&2), None));
    }

    #[test]
    #[should_panic(expected = "declares as read")]
    fn slot_declared_as_written_cannot_be_read_first() {
        view_of(&[], &[1], |view| assert_eq!(view.get(&1), None));
    }

    #[test]
    #[should_panic(expected = "declares as read")]
    fn earlier_write_is_not_visible_without_a_declared_read() {
        let mut overlay = Overlay::from([(1, Current { value: Some(7), is_written: true })]);
        let footprint = Footprint { reads: vec![], writes: vec![1] };
        View::new(&mut overlay, &footprint).get(&1);
    }

    #[test]
    #[should_panic(expected = "declares as written")]
    fn undeclared_write_panics() {
        view_of(&[1], &[], |view| view.set(&1, 2));
    }
}
