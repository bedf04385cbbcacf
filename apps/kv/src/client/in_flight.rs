//! The operations in flight: a bounded table, each with an id that is never reused.

/// The operations in flight, up to a fixed number.
#[derive(Debug)]
pub(crate) struct InFlight<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    /// How often the slot was taken: the upper half of an id.
    taken: u32,
    operation: Option<T>,
}

impl<T> InFlight<T> {
    pub(crate) fn new(operations: usize) -> InFlight<T> {
        let slots = (0..operations).map(|_| Slot { taken: 0, operation: None }).collect();
        InFlight { slots, free: (0..operations as u32).rev().collect() }
    }

    /// Memory that [`InFlight::new`] allocates, in bytes.
    pub(crate) fn memory_bytes(operations: u64) -> u64 {
        operations * (size_of::<Slot<T>>() + size_of::<u32>()) as u64
    }

    /// Adds an operation and returns its id; gives the operation back if there is no room.
    pub(crate) fn add(&mut self, operation: T) -> Result<u64, T> {
        let Some(index) = self.free.pop() else { return Err(operation) };
        let slot = &mut self.slots[index as usize];
        // Never 0, so that no id is below 1 << 32.
        slot.taken = slot.taken.wrapping_add(1).max(1);
        slot.operation = Some(operation);
        Ok(u64::from(slot.taken) << 32 | u64::from(index))
    }

    /// The operation with this id, if it is in flight.
    pub(crate) fn get_mut(&mut self, id: u64) -> Option<&mut T> {
        let slot = self.slots.get_mut(id as u32 as usize)?;
        if slot.taken == (id >> 32) as u32 { slot.operation.as_mut() } else { None }
    }

    /// Removes the operation with this id.
    pub(crate) fn take(&mut self, id: u64) -> Option<T> {
        self.get_mut(id)?;
        self.free.push(id as u32);
        self.slots[id as u32 as usize].operation.take()
    }

    /// Whether no operation is in flight.
    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// The id of the next operation that matches `which`, behind the one with the id `after`. So a
    /// search for all of them examines each once.
    pub(crate) fn find(&self, after: Option<u64>, mut which: impl FnMut(&T) -> bool) -> Option<u64> {
        let from = after.map_or(0, |id| id as u32 as usize + 1);
        let found = |slot: &Slot<T>| slot.operation.as_ref().is_some_and(&mut which);
        let index = from + self.slots.get(from..)?.iter().position(found)?;
        Some(u64::from(self.slots[index].taken) << 32 | index as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_good_until_it_is_taken() {
        let mut table = InFlight::new(2);
        let (first, second) = (table.add('a').expect("room"), table.add('b').expect("room"));
        assert_eq!(table.add('c'), Err('c'));
        assert_eq!(table.find(None, |operation| *operation == 'b'), Some(second));
        assert_eq!(table.take(first), Some('a'));
        let third = table.add('c').expect("room");
        assert_eq!((table.take(first), table.get_mut(third).copied()), (None, Some('c')), "the same slot, another id");
        assert_eq!(table.take(7), None);
        assert_eq!((table.take(second), table.take(third)), (Some('b'), Some('c')));
    }

    #[test]
    fn all_of_a_kind_are_taken_out_in_one_pass() {
        let mut table = InFlight::new(100);
        (0..100).for_each(|number| _ = table.add(number % 2).expect("room"));
        let (mut looks, mut taken, mut last) = (0, 0, None);
        loop {
            last = table.find(last, |kind| {
                looks += 1;
                *kind == 1
            });
            let Some(id) = last else { break };
            taken += usize::from(table.take(id) == Some(1));
        }
        assert_eq!((taken, looks), (50, 100));
    }
}
