//! Signature keys of a connection, and what they are used for.

use verbline_nvme::Command;

use crate::namespace_table::Use;

/// The reads of a queue that are answered so, by their keys.
#[derive(Debug)]
pub(crate) struct PipelinedReads {
    commands: Box<[Option<(Command, Use)>]>,
    free: Vec<u16>,
}

impl PipelinedReads {
    /// The pipelined reads of a queue whose connection has `keys` keys.
    pub(crate) fn new(keys: usize) -> PipelinedReads {
        let keys = keys.min(u16::MAX.into()) as u16;
        PipelinedReads { commands: (0..keys).map(|_| None).collect(), free: (0..keys).rev().collect() }
    }

    /// A key, until it is posted or put back.
    pub(crate) fn take(&mut self) -> Option<u16> {
        self.free.pop()
    }

    /// It was not used.
    pub(crate) fn put_back(&mut self, key: u16) {
        self.free.push(key);
    }

    /// Whether a key is free.
    pub(crate) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// A read is answered through it, which uses its namespace until the response is back.
    pub(crate) fn posted(&mut self, key: u16, command: Command, of: Use) {
        self.commands[usize::from(key)] = Some((command, of));
    }

    /// Its response has come back.
    pub(crate) fn give_back(&mut self, key: u16) -> Option<(Command, Use)> {
        let posted = self.commands.get_mut(usize::from(key))?.take()?;
        self.free.push(key);
        Some(posted)
    }
}
