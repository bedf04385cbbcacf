//! The namespaces of one lcore, each with a count of its uses: its commands in flight, and the
//! operations posted on its memory.
//!
//! A command holds a [`Use`], which only this file makes, and only of an attached namespace. A
//! namespace that leaves keeps its place until the last use is given back; then its store is
//! flushed, and it returns to the thread that opened it.

use std::collections::VecDeque;

use crate::lcore_namespace::Space;
use crate::settings::NSID_MAX;

/// A stage's places for namespaces, one for each number. A number is used again only when every
/// stage has given up the namespace that had it before.
pub(crate) const SPACES_MAX: usize = NSID_MAX as usize;

/// One use of a namespace, to be given back by [`Spaces::give_back`]. Dropping it would keep the
/// namespace for ever.
#[derive(Debug)]
#[must_use = "a use is given back"]
pub(crate) struct Use(u16);

impl Use {
    /// Turns the use into its place, for the tag of an operation. The operation is the use from
    /// then on.
    pub(crate) fn into_place(self) -> u16 {
        self.0
    }

    /// Restores the use from the place in the tag of a done operation.
    pub(crate) fn of_done(place: u16) -> Use {
        Use(place)
    }

    pub(crate) fn place(&self) -> u16 {
        self.0
    }
}

struct Slot {
    space: Space,
    uses: u32,
    /// Hosts no longer have it; it ends with its last use.
    is_leaving: bool,
    /// Its last use is a flush, begun or done.
    has_flushed: bool,
}

/// A removed namespace whose last use has ended.
#[allow(clippy::large_enum_variant, reason = "the value goes to its owner; a box would be allocated on an lcore")]
pub(crate) enum Left {
    /// Its store has a cache: this use is for its last flush.
    Cached(Use),
    /// It is to be closed.
    Done(Space),
}

/// See the top of this file.
pub(crate) struct Spaces {
    all: Vec<Option<Slot>>,
    free: Vec<u16>,
    by_nsid: Vec<Option<u16>>,
    /// Namespaces with requests at the store, or waiting for it, in turn.
    busy: VecDeque<u16>,
    /// Removed namespaces whose last use has ended.
    left: Vec<u16>,
}

impl Spaces {
    pub(crate) fn new() -> Spaces {
        Spaces {
            all: (0..SPACES_MAX).map(|_| None).collect(),
            free: (0..SPACES_MAX as u16).rev().collect(),
            by_nsid: vec![None; NSID_MAX as usize + 1],
            busy: VecDeque::with_capacity(SPACES_MAX),
            left: Vec::with_capacity(SPACES_MAX),
        }
    }

    /// Bytes of all places, used or not.
    pub(crate) fn bytes() -> u64 {
        let place = size_of::<Option<Slot>>() + 3 * size_of::<u16>();
        (SPACES_MAX * place + (NSID_MAX as usize + 1) * size_of::<Option<u16>>()) as u64
    }

    /// Adds a namespace. Returns it if there is no place, or its number is taken.
    #[allow(
        clippy::result_large_err,
        reason = "the value goes back to its owner; a box would be allocated on an lcore"
    )]
    pub(crate) fn add(&mut self, space: Space) -> Result<(), Space> {
        let number = self.by_nsid.get_mut(space.nsid as usize).filter(|number| number.is_none());
        let (Some(number), Some(place)) = (number, self.free.last()) else { return Err(space) };
        *number = Some(*place);
        self.all[usize::from(*place)] = Some(Slot { space, uses: 0, is_leaving: false, has_flushed: false });
        self.free.pop();
        Ok(())
    }

    /// Removes a namespace from hosts: no new use begins. False if it does not exist.
    pub(crate) fn remove(&mut self, nsid: u32) -> bool {
        let Some(place) = self.by_nsid.get_mut(nsid as usize).and_then(Option::take) else { return false };
        if let Some(slot) = &mut self.all[usize::from(place)] {
            slot.is_leaving = true;
            if slot.uses == 0 {
                self.left.push(place);
            }
        }
        true
    }

    /// Takes out a removed namespace whose last use has ended. One whose store has a cache is to be
    /// flushed first, once.
    pub(crate) fn take_left(&mut self) -> Option<Left> {
        let place = self.left.pop()?;
        let slot = self.all[usize::from(place)].as_mut()?;
        if slot.space.store.geometry().volatile_cache && !std::mem::replace(&mut slot.has_flushed, true) {
            slot.uses += 1;
            return Some(Left::Cached(Use(place)));
        }
        let slot = self.all[usize::from(place)].take()?;
        self.busy.retain(|busy| *busy != place);
        self.free.push(place);
        Some(Left::Done(slot.space))
    }

    /// The namespace of this number.
    #[inline]
    pub(crate) fn find(&self, nsid: u32) -> Option<&Space> {
        let place = (*self.by_nsid.get(nsid as usize)?)?;
        self.at(place)
    }

    /// Begins a use of the namespace of this number.
    #[inline]
    pub(crate) fn begin_use(&mut self, nsid: u32) -> Option<Use> {
        let place = (*self.by_nsid.get(nsid as usize)?)?;
        self.all[usize::from(place)].as_mut()?.uses += 1;
        Some(Use(place))
    }

    /// The namespace that this use is of.
    #[inline]
    pub(crate) fn get(&self, of: &Use) -> &Space {
        self.at(of.0).expect("a namespace that is used is there")
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, of: &Use) -> &mut Space {
        self.at_mut(of.0).expect("a namespace that is used is there")
    }

    #[inline]
    pub(crate) fn give_back(&mut self, of: Use) {
        let Some(slot) = &mut self.all[usize::from(of.0)] else { return };
        slot.uses -= 1;
        if slot.uses == 0 && slot.is_leaving {
            self.left.push(of.0);
        }
    }

    /// The namespaces that hosts have.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Space> {
        self.all.iter().flatten().filter(|slot| !slot.is_leaving).map(|slot| &slot.space)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Space> {
        self.all.iter_mut().flatten().filter(|slot| !slot.is_leaving).map(|slot| &mut slot.space)
    }

    /// The namespace at a place.
    pub(crate) fn at(&self, place: u16) -> Option<&Space> {
        Some(&self.all.get(usize::from(place))?.as_ref()?.space)
    }

    pub(crate) fn at_mut(&mut self, place: u16) -> Option<&mut Space> {
        Some(&mut self.all.get_mut(usize::from(place))?.as_mut()?.space)
    }

    /// Queues the namespace at this place for its turn.
    pub(crate) fn make_busy(&mut self, place: u16) {
        if let Some(space) = self.at_mut(place)
            && !std::mem::replace(&mut space.is_busy, true)
        {
            self.busy.push_back(place);
        }
    }

    /// The number of busy namespaces.
    pub(crate) fn busy(&self) -> usize {
        self.busy.len()
    }

    /// Takes the busy namespace whose turn it is. Call [`Spaces::had_turn`] after the turn: it
    /// re-queues a namespace that has more to do.
    pub(crate) fn next_busy(&mut self) -> Option<u16> {
        self.busy.pop_front()
    }

    /// Re-queues the namespace behind the others if it has more to do, and returns true then.
    pub(crate) fn had_turn(&mut self, place: u16) -> bool {
        let Some(space) = self.at_mut(place) else { return false };
        space.is_busy = space.has_work();
        let is_busy = space.is_busy;
        if is_busy {
            self.busy.push_back(place);
        }
        is_busy
    }

    /// Moves the first `count` busy namespaces behind the others.
    pub(crate) fn pass_over(&mut self, count: usize) {
        self.busy.rotate_left(count.min(self.busy.len()));
    }

    /// The busy namespaces.
    pub(crate) fn iter_busy(&self) -> impl Iterator<Item = &Space> {
        self.busy.iter().filter_map(|place| self.at(*place))
    }

    /// Withdraws the waiting commands of a queue from all stores.
    pub(crate) fn clear_queue(&mut self, queue: u16) {
        for at in 0..self.busy.len() {
            let place = self.busy[at];
            if let Some(space) = self.at_mut(place) {
                space.waiting.clear(queue);
            }
        }
    }
}
