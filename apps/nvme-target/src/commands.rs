//! Commands under way: those that are not answered in the call that received them.
//!
//! A command holds all that is needed to go on with it: what waits to be sent or fetched is parked
//! as it is, with the use of its namespace. Nothing is looked up again when its turn comes.

use verbline::engine::{Local, Part};
use verbline::mem::Packet;
use verbline::verbs::rdma::Remote;
use verbline_nvme::io::ReadWrite;
use verbline_nvme::protection::Wrong;
use verbline_nvme::{Command, Status};

use crate::namespace_table::Use;

/// A command under way.
#[derive(Debug)]
pub(crate) struct Pending {
    /// The place of its queue.
    pub(crate) queue: u16,
    pub(crate) command: Command,
    /// The capsule, in which the response goes back.
    pub(crate) capsule: Packet,
    /// Packets of the stage's pool that it needs at once, and those that its queue holds for it.
    pub(crate) wants: u8,
    pub(crate) holds: u8,
    pub(crate) work: Work,
}

/// What is to be done next, or is being waited for, with what that takes.
#[derive(Debug)]
pub(crate) enum Work {
    /// It is an Asynchronous Event Request.
    Event,
    /// The host's data is to be read into a packet, which it does not have yet.
    Place(Purpose),
    /// The host's data is to be read.
    Fetch(Purpose, Local),
    /// It is being read.
    Fetching(Purpose),
    /// The host's data is in the capsule, and is to be copied into a packet.
    Copy(Io),
    /// The store is to be asked.
    Store(Io),
    /// The store is asked.
    Storing(Io),
    /// Blocks of a Read that are not its last are to be sent, in a packet.
    Piece(Io),
    /// The device is to check the blocks of a read.
    Pipeline(Use),
    /// It is to be answered.
    Answer(Answer),
}

/// What the data of a host is fetched for.
#[derive(Debug)]
pub(crate) enum Purpose {
    Connect,
    Authentication,
    /// It lies where it stays: the write is done with it.
    Blocks(Use),
    /// The store gets it.
    Io(Io),
}

/// A command that goes by the store of its namespace.
#[derive(Debug)]
pub(crate) struct Io {
    pub(crate) of: Use,
    /// The data of the part: the host's, or what a Read is to send.
    pub(crate) data: Option<Packet>,
    /// The first block of the part that is being moved, or of the next; and how many blocks are
    /// left from there on. Of Dataset Management: of its range.
    pub(crate) cursor: u64,
    pub(crate) left: u64,
    /// Blocks of the part.
    pub(crate) part: u64,
    /// Ranges of a Dataset Management that were begun.
    pub(crate) ranges: usize,
    /// What the store held was made durable for it.
    pub(crate) is_flushed: bool,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) result: u64,
    pub(crate) status: Status,
    pub(crate) data: Data,
}

/// What goes to the host in front of a response.
#[derive(Debug)]
pub(crate) enum Data {
    Nothing,
    Packet(Packet, Remote),
    /// Blocks where they lie, which stay their namespace's until they have gone.
    Blocks(Part, Use, Remote),
}

impl Answer {
    /// Without data.
    pub(crate) fn of(status: Status) -> Answer {
        Answer { result: 0, status, data: Data::Nothing }
    }

    /// A good one, with data: of a command that brings some there is no other.
    pub(crate) fn with(data: Data) -> Answer {
        Answer { result: 0, status: Status::SUCCESS, data }
    }

    /// Operations that it takes.
    pub(crate) fn operations(&self) -> u32 {
        match self.data {
            Data::Nothing => 1,
            Data::Packet(..) | Data::Blocks(..) => 2,
        }
    }
}

impl Data {
    /// The use of its namespace, as it is given up.
    pub(crate) fn into_use(self) -> Option<Use> {
        match self {
            Data::Blocks(_, of, _) => Some(of),
            Data::Nothing | Data::Packet(..) => None,
        }
    }
}

impl Io {
    pub(crate) fn new(of: Use, (cursor, left): (u64, u64)) -> Io {
        Io { of, data: None, cursor, left, part: 0, ranges: 0, is_flushed: false }
    }
}

impl Work {
    /// Operations that it takes to go on.
    pub(crate) fn operations(&self) -> u32 {
        match self {
            Work::Fetch(..) | Work::Piece(_) => 1,
            Work::Pipeline(_) => 3,
            Work::Answer(answer) => answer.operations(),
            _ => 0,
        }
    }

    /// The use of its namespace, as it is given up.
    pub(crate) fn into_use(self) -> Option<Use> {
        match self {
            Work::Event => None,
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

    /// Whether something comes back for it, whatever becomes of its queue.
    pub(crate) fn is_out(&self) -> bool {
        matches!(self, Work::Fetching(_) | Work::Storing(_))
    }
}

/// The block that is wrong.
pub(crate) fn wrong_lba(command: &Command, wrong: &Wrong) -> u64 {
    ReadWrite::of(command).slba + u64::from(wrong.index)
}

/// The commands, by places that are good until they are given back.
#[derive(Debug)]
pub(crate) struct Commands {
    all: Vec<Option<Pending>>,
    free: Vec<u32>,
}

impl Commands {
    pub(crate) fn new(most: usize) -> Commands {
        Commands { all: (0..most).map(|_| None).collect(), free: (0..most as u32).rev().collect() }
    }

    /// Bytes that they take.
    pub(crate) fn bytes(most: u64) -> u64 {
        most * (size_of::<Option<Pending>>() + size_of::<u32>()) as u64
    }

    /// Adds one. It comes back if there is no place: the acceptor lets in no more commands than
    /// there are places.
    #[allow(
        clippy::result_large_err,
        reason = "the value goes back to its owner; a box would be allocated on an lcore"
    )]
    pub(crate) fn add(&mut self, pending: Pending) -> Result<u32, Pending> {
        let Some(at) = self.free.pop() else { return Err(pending) };
        self.all[at as usize] = Some(pending);
        Ok(at)
    }

    /// Takes one out, to go on with it. Its place stays its own, until it is put back or given up.
    pub(crate) fn take(&mut self, at: u32) -> Option<Pending> {
        self.all.get_mut(at as usize)?.take()
    }

    /// Puts one back that was taken out.
    pub(crate) fn put(&mut self, at: u32, pending: Pending) {
        self.all[at as usize] = Some(pending);
    }

    /// The place of one that was taken out is free.
    pub(crate) fn give_up(&mut self, at: u32) {
        debug_assert!(self.all[at as usize].is_none(), "it was taken out");
        self.free.push(at);
    }

    /// The places of those of a queue that wait for what may never come.
    pub(crate) fn idle_of(&self, queue: u16) -> impl Iterator<Item = u32> {
        let numbered = self.all.iter().enumerate();
        let used = numbered.filter_map(|(at, pending)| Some((at as u32, pending.as_ref()?)));
        used.filter(move |(_, pending)| pending.queue == queue && !pending.work.is_out()).map(|(at, _)| at)
    }
}
