//! Items of several flows, in deficit round robin. A flow is what shares a queue with others, such
//! as a connection among those of its level. Flows take turns, not their items, so
//! that a flow with a thousand items delays another one no more than a flow with one does.
//!
//! ```text
//!   turns ──▶ flow 7 │▒▒▒▒▒▒▒▒▒│ balance +50   its turn: items until the balance is used
//!             flow 9 │▒│                       then to the end, behind those that wait
//!             item of no flow
//! ```
//!
//! 1. A flow that gets its turn gets a quantum of work. It keeps the turn until the items taken
//!    have used it, or until it has no item. Unused work is not saved.
//! 2. The cost of an item is known once it has run. What it used beyond the quantum is a debt,
//!    which later turns of the flow repay, also while it has no item.
//! 3. A flow with a debt passes its turn on. Once no flow has an item, debts are forgiven.
//!
//! **Wait.** A flow without debt gets its turn once each flow before it has used at most a quantum
//! and the rest of its last item. **Work.** Among flows that always have items, used work differs
//! by at most a quantum and an item since they began, and by twice as much over any interval.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

/// Number of no flow. Each of its items is a flow of its own.
pub const NO_FLOW: u64 = 0;

/// Largest debt of a flow, in quanta. A longer item is charged this much: it was probably not the
/// flow's own work but a pause of the machine.
const DEBT_QUANTA: i64 = 4;
/// Number of flows from which on those without items are forgotten.
const FLOWS_MIN: usize = 64;
/// Longest empty queue whose memory is kept, items.
const KEPT_ITEMS: usize = 16;

/// The items. The head of this file describes it.
#[derive(Debug)]
pub struct Rounds<T> {
    /// Work of one turn.
    quantum: i64,
    flows: Vec<Flow<T>>,
    /// Places of known flows. A flow stays known for a while after its last item, since adding and
    /// removing it for each item would take most of the time.
    places: FxHashMap<u64, u32>,
    /// Places that no known flow has.
    free: Vec<u32>,
    /// Number of places at which flows without items are forgotten next.
    forget_at: usize,
    turns: VecDeque<Turn<T>>,
    /// Place of the flow that has its turn.
    current: Option<u32>,
    /// Number of items.
    len: usize,
}

#[derive(Debug)]
enum Turn<T> {
    /// Turn of the flow in this place.
    Flow(u32),
    /// An item of no flow.
    Item(T),
}

#[derive(Debug)]
struct Flow<T> {
    /// Its number, or [`NO_FLOW`] if it was forgotten.
    id: u64,
    /// True if it has its turn or is in `turns`.
    in_turn: bool,
    /// Work left of its turn; below zero a debt.
    balance: i64,
    /// First item. Most flows have one at a time, which takes no memory of its own.
    first: Option<T>,
    rest: VecDeque<T>,
}

impl<T> Flow<T> {
    fn new(id: u64) -> Flow<T> {
        Flow { id, in_turn: false, balance: 0, first: None, rest: VecDeque::new() }
    }

    fn push(&mut self, item: T) {
        if self.first.is_none() {
            self.first = Some(item);
        } else {
            self.rest.push_back(item);
        }
    }

    /// Takes its first item if it has work left of its turn.
    #[inline]
    fn take(&mut self) -> Option<T> {
        if !self.may_run() {
            return None;
        }
        // Most flows have one item.
        let next = if self.rest.is_empty() { None } else { self.rest.pop_front() };
        std::mem::replace(&mut self.first, next)
    }

    /// Returns true if it has an item and work left of its turn.
    #[inline]
    fn may_run(&self) -> bool {
        self.first.is_some() && self.balance > 0
    }

    /// Leaves the round, without items.
    #[inline]
    fn leave(&mut self) {
        (self.in_turn, self.balance) = (false, 0);
        if self.rest.capacity() > KEPT_ITEMS {
            self.rest = VecDeque::new();
        }
    }

    /// Charges an item. Each counts as one unit of work at least.
    fn charge(&mut self, cost: u64, quantum: i64) {
        let cost = i64::try_from(cost.max(1)).unwrap_or(i64::MAX);
        self.balance = self.balance.saturating_sub(cost).max(-DEBT_QUANTA * quantum);
    }
}

impl<T> Rounds<T> {
    /// Creates an empty queue with the work of one turn, in the unit of [`Rounds::charge`].
    #[must_use]
    pub fn new(quantum: u32) -> Rounds<T> {
        Rounds {
            quantum: i64::from(quantum.max(1)),
            flows: Vec::new(),
            places: FxHashMap::default(),
            free: Vec::new(),
            forget_at: FLOWS_MIN,
            turns: VecDeque::new(),
            current: None,
            len: 0,
        }
    }

    /// Adds an item of a flow.
    pub fn push(&mut self, flow: u64, item: T) {
        if flow == NO_FLOW {
            self.len += 1;
            return self.turns.push_back(Turn::Item(item));
        }
        let place = self.place_of(flow, 0);
        self.push_to(place, item);
    }

    /// Returns the place of a flow, for [`Rounds::push_to`]. `before` is any number. If it is what
    /// this returned for the flow before, the flow is mostly found without a search.
    #[inline]
    pub fn place_of(&mut self, flow: u64, before: u32) -> u32 {
        match self.flows.get(before as usize) {
            Some(found) if found.id == flow => before,
            _ => self.search(flow),
        }
    }

    /// Adds an item of the flow in `place`, which [`Rounds::place_of`] has just returned.
    #[inline]
    pub fn push_to(&mut self, place: u32, item: T) {
        self.len += 1;
        let flow = &mut self.flows[place as usize];
        flow.push(item);
        if !flow.in_turn {
            flow.in_turn = true;
            self.turns.push_back(Turn::Flow(place));
        }
    }

    /// Returns the place of a flow.
    fn search(&mut self, flow: u64) -> u32 {
        debug_assert!(flow != NO_FLOW, "an item of no flow has no place");
        match self.places.get(&flow) {
            Some(&place) => place,
            None => self.place(flow),
        }
    }

    /// Returns a place for a new flow.
    #[cold]
    fn place(&mut self, id: u64) -> u32 {
        if self.free.is_empty() && self.flows.len() >= self.forget_at {
            self.forget();
        }
        let place = match self.free.pop() {
            Some(place) => {
                self.flows[place as usize] = Flow::new(id);
                place
            }
            None => {
                self.flows.push(Flow::new(id));
                u32::try_from(self.flows.len() - 1).expect("fewer flows than 2^32")
            }
        };
        self.places.insert(id, place);
        place
    }

    /// Forgets flows outside of the round. Takes one step for each place, at most once for as many
    /// new flows as stay known.
    fn forget(&mut self) {
        let Rounds { flows, places, free, .. } = self;
        places.retain(|_, place| {
            let flow = &mut flows[*place as usize];
            if !flow.in_turn {
                flow.id = NO_FLOW;
                free.push(*place);
            }
            flow.in_turn
        });
        self.forget_at = (2 * self.places.len()).max(FLOWS_MIN);
    }

    /// Returns the item that [`Rounds::pop`] takes next.
    pub fn front(&mut self) -> Option<&T> {
        self.advance();
        match (self.current, self.turns.front()) {
            (Some(place), _) => self.flows[place as usize].first.as_ref(),
            (None, Some(Turn::Item(item))) => Some(item),
            (None, _) => None,
        }
    }

    /// Takes the next item. [`Rounds::charge`] then charges its cost.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if let Some(place) = self.current
            && let Some(item) = self.flows[place as usize].take()
        {
            self.len -= 1;
            return Some(item);
        }
        self.pop_of_next()
    }

    /// Takes the first item of the next turn, as [`Rounds::advance`] finds it.
    fn pop_of_next(&mut self) -> Option<T> {
        if self.len == 0 {
            self.forgive();
            return None;
        }
        if let Some(place) = self.current.take() {
            self.end_turn(place);
        }
        loop {
            match self.turns.pop_front()? {
                Turn::Item(item) => {
                    self.len -= 1;
                    return Some(item);
                }
                Turn::Flow(place) => {
                    let flow = &mut self.flows[place as usize];
                    flow.balance += self.quantum;
                    if let Some(item) = flow.take() {
                        self.current = Some(place);
                        self.len -= 1;
                        return Some(item);
                    }
                    self.end_turn(place);
                }
            }
        }
    }

    /// Charges the cost of the item that was taken last to its flow.
    pub fn charge(&mut self, cost: u64) {
        if let Some(place) = self.current {
            self.flows[place as usize].charge(cost, self.quantum);
        }
    }

    /// Charges the cost of an item that was taken earlier. Does nothing if its flow has neither an
    /// item nor its turn.
    pub fn charge_flow(&mut self, flow: u64, cost: u64) {
        let Some(&place) = self.places.get(&flow) else { return };
        let flow = &mut self.flows[place as usize];
        if flow.in_turn {
            flow.charge(cost, self.quantum);
        }
    }

    /// Ends turns and begins others until the next item is that of the current flow, or an item of
    /// no flow at the head of `turns`. Takes one step for each quantum of debt that it repays.
    fn advance(&mut self) {
        if self.len == 0 {
            return self.forgive();
        }
        if let Some(place) = self.current {
            if self.flows[place as usize].may_run() {
                return;
            }
            self.current = None;
            self.end_turn(place);
        }
        while let Some(&Turn::Flow(place)) = self.turns.front() {
            self.turns.pop_front();
            let flow = &mut self.flows[place as usize];
            flow.balance += self.quantum;
            if flow.may_run() {
                self.current = Some(place);
                return;
            }
            self.end_turn(place);
        }
    }

    /// Ends the turn of a flow. It goes behind the others if it has items or a debt.
    #[inline]
    fn end_turn(&mut self, place: u32) {
        let flow = &mut self.flows[place as usize];
        if flow.first.is_none() && flow.balance >= 0 {
            return flow.leave();
        }
        self.wait_for_turn(place);
    }

    /// Puts a flow that has had its turn behind the others.
    fn wait_for_turn(&mut self, place: u32) {
        let flow = &mut self.flows[place as usize];
        flow.balance = flow.balance.min(0);
        self.turns.push_back(Turn::Flow(place));
    }

    /// Ends all turns and forgives all debts, when no flow has an item.
    fn forgive(&mut self) {
        if let Some(place) = self.current.take() {
            self.flows[place as usize].leave();
        }
        while let Some(Turn::Flow(place)) = self.turns.pop_front() {
            self.flows[place as usize].leave();
        }
    }

    /// Takes all items, in the order of turns.
    pub fn take_all(&mut self) -> Vec<T> {
        let mut items = Vec::with_capacity(self.len);
        let current = self.current.take().map(Turn::Flow);
        for turn in current.into_iter().chain(self.turns.drain(..)) {
            match turn {
                Turn::Item(item) => items.push(item),
                Turn::Flow(place) => {
                    let flow = &mut self.flows[place as usize];
                    items.extend(flow.first.take().into_iter().chain(flow.rest.drain(..)));
                    flow.leave();
                }
            }
        }
        self.len = 0;
        items
    }

    /// Returns true if the flow has an item here.
    #[must_use]
    pub fn has(&self, flow: u64) -> bool {
        self.places.get(&flow).is_some_and(|&place| self.flows[place as usize].first.is_some())
    }

    /// Returns true if another flow waits for the turn of the current one.
    #[must_use]
    pub fn is_contended(&self) -> bool {
        !self.turns.is_empty()
    }

    /// Returns the number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there is no item.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of flows that it knows.
    #[cfg(test)]
    fn known(&self) -> usize {
        self.places.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_without_items_are_forgotten() {
        let mut rounds = Rounds::new(50);
        for flow in 1..=10_000 {
            rounds.push(flow, flow);
            if flow > 100 {
                assert!(rounds.pop().is_some());
                rounds.charge(flow % 70);
            }
            assert!(rounds.known() <= 2 * 200 && rounds.flows.len() <= 2 * 200, "{}", rounds.known());
        }
        let left = rounds.take_all();
        assert_eq!(left.len(), 100);
        assert!(rounds.flows.iter().all(|flow| !flow.in_turn && flow.balance == 0));
    }
}
