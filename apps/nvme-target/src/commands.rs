//! Commands in flight: commands that were not answered in the call that received them.
//!
//! A command holds all that it needs to go on: data waiting to be sent or fetched stays in it, with
//! the use of its namespace. Nothing is looked up again at its turn.

use verbline::engine::{Local, Part};
use verbline::mem::Packet;
use verbline::verbs::rdma::Remote;
use verbline_nvme::io::ReadWrite;
use verbline_nvme::protection::Wrong;
use verbline_nvme::{Command, Status};

use crate::namespace_table::Use;

/// A command in flight.
#[derive(Debug)]
pub(crate) struct Pending {
    /// The place of its queue.
    pub(crate) queue: u16,
    pub(crate) command: Command,
    /// The capsule, in which the response goes back.
    pub(crate) capsule: Packet,
    /// The packets of the stage's pool that it needs at once, and those already charged to its
    /// queue.
    pub(crate) wants: u8,
    pub(crate) holds: u8,
    pub(crate) work: Work,
}

/// The next step of a command, done or waited for, with its parts.
#[derive(Debug)]
pub(crate) enum Work {
    /// An Asynchronous Event Request, waiting for an event.
    Event,
    /// Read the host's data into a packet, still to be allocated.
    Place(Purpose),
    /// Read the host's data.
    Fetch(Purpose, Local),
    /// The host's data is being read.
    Fetching(Purpose),
    /// Copy the host's data from the capsule into a packet.
    Copy(Io),
    /// Ask the store.
    Store(Io),
    /// The store is working.
    Storing(Io),
    /// Send blocks of a Read, but not its last, in a packet.
    Piece(Io),
    /// Let the device check the blocks of a read.
    Pipeline(Use),
    /// A shutdown that waits for removed namespaces to leave.
    Leaving,
    /// Answer.
    Answer(Answer),
}

/// The purpose of fetching a host's data.
#[derive(Debug)]
pub(crate) enum Purpose {
    Connect,
    Authentication,
    /// A write straight to where the blocks stay: nothing else is left to do.
    Blocks(Use),
    /// Data for the store.
    Io(Io),
}

/// A command that goes through the store of its namespace.
#[derive(Debug)]
pub(crate) struct Io {
    pub(crate) of: Use,
    /// The data of the part: from the host, or to be sent for a Read.
    pub(crate) data: Option<Packet>,
    /// The first block of the current or next part, and the number of blocks left from there on;
    /// for Dataset Management, of its current range.
    pub(crate) cursor: u64,
    pub(crate) left: u64,
    /// The number of blocks of the part.
    pub(crate) part: u64,
    /// Ranges of a Dataset Management already begun.
    pub(crate) ranges: usize,
    /// All its blocks were read, and the store is flushed before they are shown: FUA.
    pub(crate) is_read: bool,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) result: u64,
    pub(crate) status: Status,
    pub(crate) data: Data,
}

/// Data for the host in front of a response.
#[derive(Debug)]
pub(crate) enum Data {
    Nothing,
    Packet(Packet, Remote),
    /// Blocks in place; they belong to their namespace until they are sent.
    Blocks(Part, Use, Remote),
}

impl Answer {
    /// An answer without data.
    pub(crate) fn of(status: Status) -> Answer {
        Answer { result: 0, status, data: Data::Nothing }
    }

    /// A successful answer with data: failed commands send none.
    pub(crate) fn with(data: Data) -> Answer {
        Answer { result: 0, status: Status::SUCCESS, data }
    }

    /// The number of its operations.
    pub(crate) fn operations(&self) -> u32 {
        match self.data {
            Data::Nothing => 1,
            Data::Packet(..) | Data::Blocks(..) => 2,
        }
    }
}

impl Data {
    /// Gives up the use of its namespace.
    pub(crate) fn into_use(self) -> Option<Use> {
        match self {
            Data::Blocks(_, of, _) => Some(of),
            Data::Nothing | Data::Packet(..) => None,
        }
    }
}

impl Io {
    pub(crate) fn new(of: Use, (cursor, left): (u64, u64)) -> Io {
        Io { of, data: None, cursor, left, part: 0, ranges: 0, is_read: false }
    }
}

impl Work {
    /// The number of operations that its next step posts.
    pub(crate) fn operations(&self) -> u32 {
        match self {
            Work::Fetch(..) | Work::Piece(_) => 1,
            Work::Pipeline(_) => 3,
            Work::Answer(answer) => answer.operations(),
            _ => 0,
        }
    }

    /// Gives up the use of its namespace.
    pub(crate) fn into_use(self) -> Option<Use> {
        match self {
            Work::Event | Work::Leaving => None,
            Work::Place(purpose) | Work::Fetch(purpose, _) | Work::Fetching(purpose) => match purpose {
                Purpose::Connect | Purpose::Authentication => None,
                Purpose::Blocks(of) => Some(of),
                Purpose::Io(io) => Some(io.of),
            },
            Work::Copy(io) | Work::Store(io) | Work::Storing(io) | Work::Piece(io) => Some(io.of),
            Work::Pipeline(of) => Some(of),
            Work::Answer(answer) => answer.data.into_use(),
        }
    }

    /// Whether a completion will come for it, even if its queue ends.
    pub(crate) fn is_out(&self) -> bool {
        matches!(self, Work::Fetching(_) | Work::Storing(_))
    }
}

/// The LBA of the wrong block.
pub(crate) fn wrong_lba(command: &Command, wrong: &Wrong) -> u64 {
    ReadWrite::of(command).slba + u64::from(wrong.index)
}

/// The commands, at places that stay valid until given up.
#[derive(Debug)]
pub(crate) struct Commands {
    all: Vec<Option<Pending>>,
    free: Vec<u32>,
}

impl Commands {
    pub(crate) fn new(most: usize) -> Commands {
        Commands { all: (0..most).map(|_| None).collect(), free: (0..most as u32).rev().collect() }
    }

    /// The bytes of the table.
    pub(crate) fn bytes(most: u64) -> u64 {
        most * (size_of::<Option<Pending>>() + size_of::<u32>()) as u64
    }

    /// Adds a command. Returns it if there is no place, which can't happen: the acceptor admits no
    /// more commands than there are places.
    #[allow(
        clippy::result_large_err,
        reason = "the value goes back to its owner; a box would be allocated on an lcore"
    )]
    pub(crate) fn add(&mut self, pending: Pending) -> Result<u32, Pending> {
        let Some(at) = self.free.pop() else { return Err(pending) };
        self.all[at as usize] = Some(pending);
        Ok(at)
    }

    /// Takes a command out, to go on with it. Its place stays reserved until [`put`](Self::put) or
    /// [`give_up`](Self::give_up).
    pub(crate) fn take(&mut self, at: u32) -> Option<Pending> {
        self.all.get_mut(at as usize)?.take()
    }

    /// Puts a command back that was taken out.
    pub(crate) fn put(&mut self, at: u32, pending: Pending) {
        self.all[at as usize] = Some(pending);
    }

    /// Frees the place of a command that was taken out.
    pub(crate) fn give_up(&mut self, at: u32) {
        debug_assert!(self.all[at as usize].is_none(), "it was taken out");
        self.free.push(at);
    }

    /// The places of a queue's commands for which no completion will come.
    pub(crate) fn idle_of(&self, queue: u16) -> impl Iterator<Item = u32> {
        let numbered = self.all.iter().enumerate();
        let used = numbered.filter_map(|(at, pending)| Some((at as u32, pending.as_ref()?)));
        used.filter(move |(_, pending)| pending.queue == queue && !pending.work.is_out()).map(|(at, _)| at)
    }
}
