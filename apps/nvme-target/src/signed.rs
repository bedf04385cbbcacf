//! The signature keys of a connection, and the reads that use them.

use verbline_nvme::Command;

use crate::namespace_table::Use;

/// The pipelined reads of a queue, by their keys.
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

    /// Takes a free key, until it is posted or put back.
    pub(crate) fn take(&mut self) -> Option<u16> {
        self.free.pop()
    }

    /// Puts an unused key back.
    pub(crate) fn put_back(&mut self, key: u16) {
        self.free.push(key);
    }

    /// Whether a key is free.
    pub(crate) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Records the read posted with a key. It uses its namespace until the response is back.
    pub(crate) fn posted(&mut self, key: u16, command: Command, of: Use) {
        self.commands[usize::from(key)] = Some((command, of));
    }

    /// Frees the key of a response that is back.
    pub(crate) fn give_back(&mut self, key: u16) -> Option<(Command, Use)> {
        let posted = self.commands.get_mut(usize::from(key))?.take()?;
        self.free.push(key);
        Some(posted)
    }
}
