//! Signature keys of a connection, and what they are used for.

use verbline::engine::Range;
use verbline::engine::signature::BlockSignature;
use verbline_nvme::Command;

/// Of the tag of a response that waits for its blocks; the rest of it is the key.
pub(crate) const PIPELINED: u64 = 1 << 63;

/// The reads of a queue that are answered so, by their keys.
#[derive(Debug)]
pub(crate) struct PipelinedReads {
    commands: Box<[Option<Command>]>,
    free: Vec<u16>,
}

/// Where the blocks of a read lie, and what the device is to do with them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signed {
    pub(crate) part: Range,
    pub(crate) signature: BlockSignature,
    /// Bytes of the blocks' data.
    pub(crate) data_bytes: u32,
}

impl PipelinedReads {
    /// Of a queue whose connection has so many keys.
    pub(crate) fn new(keys: usize) -> PipelinedReads {
        let keys = keys.min(u16::MAX.into()) as u16;
        PipelinedReads { commands: (0..keys).map(|_| None).collect(), free: (0..keys).rev().collect() }
    }

    /// Whether the connection has any key.
    pub(crate) fn are_possible(&self) -> bool {
        !self.commands.is_empty()
    }

    /// A key, until it is posted or put back.
    pub(crate) fn take(&mut self) -> Option<u16> {
        self.free.pop()
    }

    /// It was not used.
    pub(crate) fn put_back(&mut self, key: u16) {
        self.free.push(key);
    }

    /// A read is answered through it.
    pub(crate) fn posted(&mut self, key: u16, command: Command) {
        self.commands[usize::from(key)] = Some(command);
    }

    /// Its response has come back.
    pub(crate) fn give_back(&mut self, key: u16) -> Option<Command> {
        let command = self.commands.get_mut(usize::from(key))?.take()?;
        self.free.push(key);
        Some(command)
    }
}
