//! The namespaces of one lcore, each with a count of its uses: the commands on it that are under
//! way, and the operations posted on its memory.
//!
//! A command holds a [`Use`], which only this file makes, and only of a namespace that is there. A
//! namespace that leaves keeps its place until the last use is given back; then it goes back to
//! those who opened it.

use std::collections::VecDeque;

use crate::lcore_namespace::Space;
use crate::settings::NSID_MAX;

/// Places for namespaces of a stage, one for each number: a number comes again when every stage has
/// given up the namespace that had it before.
pub(crate) const SPACES_MAX: usize = NSID_MAX as usize;

/// One use of a namespace. It is given back to [`Spaces::give_back`]; dropped, it would keep its
/// namespace for ever.
#[derive(Debug)]
#[must_use = "a use is given back"]
pub(crate) struct Use(u16);

impl Use {
    /// The place, for the tag of an operation, which is the use from then on.
    pub(crate) fn into_place(self) -> u16 {
        self.0
    }

    /// The use that an operation was, by the place in its tag.
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
    /// It is nobody's any more, and ends with its last use.
    is_leaving: bool,
}

/// See the top of this file.
pub(crate) struct Spaces {
    all: Vec<Option<Slot>>,
    free: Vec<u16>,
    by_nsid: Vec<Option<u16>>,
    /// Those with something at the store, or on its way there, in turn.
    busy: VecDeque<u16>,
    /// Namespaces on their way out that nothing uses any more.
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

    /// Bytes that the places take, whether or not there are namespaces in them.
    pub(crate) fn bytes() -> u64 {
        let place = size_of::<Option<Slot>>() + 3 * size_of::<u16>();
        (SPACES_MAX * place + (NSID_MAX as usize + 1) * size_of::<Option<u16>>()) as u64
    }

    /// Adds a namespace; it comes back if there is no place, or its number is taken.
    #[allow(
        clippy::result_large_err,
        reason = "the value goes back to its owner; a box would be allocated on an lcore"
    )]
    pub(crate) fn add(&mut self, space: Space) -> Result<(), Space> {
        let number = self.by_nsid.get_mut(space.nsid as usize).filter(|number| number.is_none());
        let (Some(number), Some(place)) = (number, self.free.last()) else { return Err(space) };
        *number = Some(*place);
        self.all[usize::from(*place)] = Some(Slot { space, uses: 0, is_leaving: false });
        self.free.pop();
        Ok(())
    }

    /// Nothing new goes to this namespace from here on. False if it is not there.
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

    /// A namespace that was removed and that nothing uses any more.
    pub(crate) fn take_left(&mut self) -> Option<Space> {
        let place = self.left.pop()?;
        let slot = self.all[usize::from(place)].take()?;
        self.busy.retain(|busy| *busy != place);
        self.free.push(place);
        Some(slot.space)
    }

    /// The namespace of a number.
    #[inline]
    pub(crate) fn find(&self, nsid: u32) -> Option<&Space> {
        let place = (*self.by_nsid.get(nsid as usize)?)?;
        self.at(place)
    }

    /// A use of the namespace of a number.
    #[inline]
    pub(crate) fn begin_use(&mut self, nsid: u32) -> Option<Use> {
        let place = (*self.by_nsid.get(nsid as usize)?)?;
        self.all[usize::from(place)].as_mut()?.uses += 1;
        Some(Use(place))
    }

    /// The namespace that is used.
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

    /// The namespace at this place has something to do.
    pub(crate) fn make_busy(&mut self, place: u16) {
        if let Some(space) = self.at_mut(place)
            && !std::mem::replace(&mut space.is_busy, true)
        {
            self.busy.push_back(place);
        }
    }

    /// How many have something to do.
    pub(crate) fn busy(&self) -> usize {
        self.busy.len()
    }

    /// The next one that has something to do. It has had its turn: [`Spaces::had_turn`] says
    /// whether it has more.
    pub(crate) fn next_busy(&mut self) -> Option<u16> {
        self.busy.pop_front()
    }

    /// True if it has more, and waits behind the others.
    pub(crate) fn had_turn(&mut self, place: u16) -> bool {
        let Some(space) = self.at_mut(place) else { return false };
        space.is_busy = space.has_work();
        let is_busy = space.is_busy;
        if is_busy {
            self.busy.push_back(place);
        }
        is_busy
    }

    /// The first that wait go behind the others.
    pub(crate) fn pass_over(&mut self, count: usize) {
        self.busy.rotate_left(count.min(self.busy.len()));
    }

    /// Those that have something to do.
    pub(crate) fn iter_busy(&self) -> impl Iterator<Item = &Space> {
        self.busy.iter().filter_map(|place| self.at(*place))
    }

    /// Nothing of a queue waits for any store any more.
    pub(crate) fn clear_queue(&mut self, queue: u16) {
        for at in 0..self.busy.len() {
            let place = self.busy[at];
            if let Some(space) = self.at_mut(place) {
                space.waiting.clear(queue);
            }
        }
    }
}
