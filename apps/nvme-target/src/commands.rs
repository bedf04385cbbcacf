//! Commands under way: those that are not answered in the call that received them.

use verbline::mem::Packet;
use verbline_nvme::{Command, Status};

/// A command under way.
#[derive(Debug)]
pub(crate) struct Pending {
    /// The place of its queue.
    pub(crate) queue: u16,
    pub(crate) command: Command,
    /// The capsule, in which the response goes back.
    pub(crate) capsule: Option<Packet>,
    /// The place of its namespace; of an admin command any.
    pub(crate) space: u16,
    /// Its data.
    pub(crate) data: Option<Packet>,
    pub(crate) step: Step,
    /// Of what is done in parts: which is next, and how many are left.
    pub(crate) cursor: u64,
    pub(crate) left: u64,
    /// Blocks of the part that is at the store.
    pub(crate) part: u64,
    pub(crate) result: u64,
    /// The block that is wrong, where it is known.
    pub(crate) wrong_lba: Option<u64>,
}

/// What is to be done next, or is being waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The host's data is to be read.
    Fetch,
    /// It is being read.
    Fetching,
    /// The store is to be asked.
    Store,
    /// The store is asked.
    Storing,
    /// It is a read whose blocks the device is to check.
    Pipeline,
    /// It is to be answered.
    Answer(Status),
    /// It waits for an event.
    Held,
}

/// The commands, by places that are good until they are removed.
#[derive(Debug)]
pub(crate) struct Commands {
    all: Vec<Option<Pending>>,
    free: Vec<u32>,
}

impl Commands {
    pub(crate) fn new(most: usize) -> Commands {
        Commands { all: (0..most).map(|_| None).collect(), free: (0..most as u32).rev().collect() }
    }

    /// Adds one. `None`, and it is dropped, if there is no place: the acceptor lets in no more
    /// commands than there are places.
    pub(crate) fn add(&mut self, pending: Pending) -> Option<u32> {
        let at = self.free.pop()?;
        self.all[at as usize] = Some(pending);
        Some(at)
    }

    pub(crate) fn get_mut(&mut self, at: u32) -> Option<&mut Pending> {
        self.all.get_mut(at as usize)?.as_mut()
    }

    pub(crate) fn remove(&mut self, at: u32) -> Option<Pending> {
        let pending = self.all.get_mut(at as usize)?.take()?;
        self.free.push(at);
        Some(pending)
    }

    /// Whether any is about the namespace at this place.
    pub(crate) fn use_space(&self, space: u16) -> bool {
        self.all.iter().flatten().any(|pending| pending.space == space && pending.step != Step::Held)
    }

    /// The places of those of a queue.
    pub(crate) fn of_queue(&self, queue: u16) -> impl Iterator<Item = (u32, &Pending)> {
        let numbered = self.all.iter().enumerate();
        let used = numbered.filter_map(|(at, pending)| Some((at as u32, pending.as_ref()?)));
        used.filter(move |(_, pending)| pending.queue == queue)
    }
}

impl Pending {
    /// A command that has just come.
    pub(crate) fn new(queue: u16, command: Command) -> Pending {
        Pending {
            queue,
            command,
            capsule: None,
            space: 0,
            data: None,
            step: Step::Held,
            cursor: 0,
            left: 0,
            part: 0,
            result: 0,
            wrong_lba: None,
        }
    }
}
