//! The oracle: the write that each block must hold.
//!
//! A block has either reads or one write in flight, so that a read has one right answer. A write
//! without a known outcome leaves a block in any state: the block is written again before it is
//! read.

/// A block.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    /// The last write that was begun.
    generation: u32,
    readers: u16,
    is_written: bool,
    /// Whether the write that it holds is known.
    is_sure: bool,
}

/// The first write of a block: by these the namespace is filled.
pub(crate) const FIRST: u32 = 1;

/// What may begin at a block now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum May {
    /// The read finds this generation.
    Read(u32),
    /// The write is of this generation.
    Write(u32),
}

/// The blocks of one initiator, by number.
#[derive(Debug)]
pub(crate) struct Oracle {
    blocks: Vec<Block>,
}

impl Oracle {
    pub(crate) fn new(blocks: usize) -> Oracle {
        Oracle { blocks: vec![Block::default(); blocks] }
    }

    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Begins a read if the block's content is known, and else a write. `None` if commands in
    /// flight allow neither.
    pub(crate) fn begin_read(&mut self, at: usize) -> Option<May> {
        let block = self.blocks.get_mut(at)?;
        if block.is_written {
            return None;
        }
        if !block.is_sure {
            return self.begin_write(at);
        }
        block.readers += 1;
        Some(May::Read(block.generation))
    }

    /// Begins a write.
    pub(crate) fn begin_write(&mut self, at: usize) -> Option<May> {
        let block = self.blocks.get_mut(at).filter(|block| !block.is_written && block.readers == 0)?;
        block.is_written = true;
        block.generation += 1;
        Some(May::Write(block.generation))
    }

    /// Ends a read, answered or not.
    pub(crate) fn end_read(&mut self, at: usize) {
        self.blocks[at].readers -= 1;
    }

    /// Ends a write: answered with success, or with an unknown outcome.
    pub(crate) fn end_write(&mut self, at: usize, is_sure: bool) {
        let block = &mut self.blocks[at];
        (block.is_written, block.is_sure) = (false, is_sure);
    }

    /// Undoes a write that was never sent: the block holds what it held before.
    pub(crate) fn undo_write(&mut self, at: usize) {
        let block = &mut self.blocks[at];
        (block.is_written, block.generation) = (false, block.generation - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_has_one_right_answer() {
        let mut oracle = Oracle::new(1);
        assert_eq!(oracle.begin_read(0), Some(May::Write(1)), "nothing is known of it");
        assert_eq!((oracle.begin_read(0), oracle.begin_write(0)), (None, None), "it is being written");
        oracle.end_write(0, true);
        assert_eq!((oracle.begin_read(0), oracle.begin_read(0)), (Some(May::Read(1)), Some(May::Read(1))));
        assert_eq!(oracle.begin_write(0), None, "it is being read");
        oracle.end_read(0);
        oracle.end_read(0);
        assert_eq!(oracle.begin_write(0), Some(May::Write(2)));
        oracle.undo_write(0);
        assert_eq!(oracle.begin_read(0), Some(May::Read(1)));
        oracle.end_read(0);
        assert_eq!(oracle.begin_write(0), Some(May::Write(2)));
        oracle.end_write(0, false);
        assert_eq!(oracle.begin_read(0), Some(May::Write(3)), "the second may be there, or not");
    }
}
