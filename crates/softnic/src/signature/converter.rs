//! A stream of blocks on its way from one domain to the other.
//!
//! Guarantees: exactly the checked bytes are passed on: they are copied here first, since the owner
//! of the memory may write it meanwhile. The first fault of the stream is kept.

use crate::copy::copy;
use crate::signature::domain::BLOCK_BYTES_MAX;
use crate::signature::flow::{BadBlock, Flow};
use std::mem::MaybeUninit;

/// See the [module](self).
pub(crate) struct Converter {
    flow: Flow,
    /// The number of the next block in the input domain, and in the output domain.
    input_index: u64,
    output_index: u64,
    /// The first block's number.
    first_index: u64,
    /// The first fault, with the offset of its block in the transfer: bytes of the input domain.
    fault: Option<(BadBlock, u64)>,
}

/// Room for incomplete blocks, lent to one converter after the other: it is too large to be made or
/// moved for each.
pub(crate) struct Stages {
    input: Stage,
    /// Used if the domains' blocks differ in size.
    output: Stage,
}

impl Stages {
    pub(crate) fn new() -> Stages {
        Stages { input: Stage::new(), output: Stage::new() }
    }

    /// Empties both, for another converter.
    pub(crate) fn clear(&mut self) {
        (self.input.len, self.output.len) = (0, 0);
    }
}

impl Converter {
    /// Starts at `data_offset`, which is a block's start in both domains.
    pub(crate) fn new(flow: Flow, data_offset: u64) -> Converter {
        let index = |domain: Option<crate::signature::domain::Domain>| {
            domain.map_or(0, |domain| data_offset / domain.block_bytes)
        };
        let (input_index, output_index) = (index(flow.input), index(flow.output));
        Converter { flow, input_index, output_index, first_index: input_index, fault: None }
    }

    /// The first fault.
    pub(crate) fn fault(&self) -> Option<(BadBlock, u64)> {
        self.fault
    }

    /// Takes `len` bytes of the input domain at `from`, and passes on the blocks that they
    /// complete. The stages are the same each time, and were cleared before the first.
    ///
    /// # Safety
    /// `len` bytes can be read there.
    pub(crate) unsafe fn feed(
        &mut self,
        stages: &mut Stages,
        mut from: *const u8,
        mut len: usize,
        sink: &mut impl FnMut(&[u8]),
    ) {
        let block_bytes = self.block_bytes();
        while len > 0 {
            let step = len.min(block_bytes - stages.input.len);
            // SAFETY: `step` is no more than `len`, the bytes of the contract.
            unsafe {
                stages.input.add(from, step);
                from = from.add(step);
            }
            len -= step;
            if stages.input.len == block_bytes {
                self.block(stages, sink);
                stages.input.len = 0;
            }
        }
    }

    /// Bytes per incoming block: of the other domain, if there is no input domain.
    fn block_bytes(&self) -> usize {
        let domain = self.flow.input.map(|domain| domain.total_bytes());
        let other = self.flow.output.map(|domain| domain.block_bytes);
        // One of the two exists, and is no longer than a stage.
        (domain.or(other).unwrap_or(BLOCK_BYTES_MAX as u64) as usize).min(BLOCK_BYTES_MAX)
    }

    /// Converts a complete block of the input domain.
    fn block(&mut self, stages: &mut Stages, sink: &mut impl FnMut(&[u8])) {
        let Stages { input: whole, output: staged } = stages;
        let all = whole.bytes();
        let data_bytes = self.flow.input.map_or(all.len(), |domain| domain.block_bytes as usize);
        let (data, field) = all.split_at(data_bytes.min(all.len()));
        let index = self.input_index;
        let fault = match (self.flow.input, self.flow.output) {
            (Some(input), Some(output)) if input.block_bytes != output.block_bytes => {
                let fault = self.flow.check_alone(&input, index, data, input.read(field));
                let mut data = data;
                while !data.is_empty() {
                    let step = data.len().min(output.block_bytes as usize - staged.len);
                    // SAFETY: a slice's bytes can be read.
                    unsafe { staged.add(data.as_ptr(), step) };
                    data = &data[step..];
                    if staged.len == output.block_bytes as usize {
                        let block = staged.bytes();
                        sink(block);
                        let made = Flow::generate(&output, self.output_index, block);
                        sink(&output.write(made)[..output.protection_bytes() as usize]);
                        staged.len = 0;
                        self.output_index += 1;
                    }
                }
                fault
            }
            (input, output) => {
                // With one domain only, its blocks are counted.
                let index = if input.is_some() { index } else { self.output_index };
                let (made, fault) = self.flow.block(index, data, field);
                sink(data);
                if let Some(output) = output {
                    sink(&output.write(made)[..output.protection_bytes() as usize]);
                    self.output_index += 1;
                }
                fault
            }
        };
        if let (Some(fault), None) = (fault, self.fault) {
            self.fault = Some((fault, (index - self.first_index) * self.block_bytes() as u64));
        }
        self.input_index += 1;
    }
}

/// Bytes of an incomplete block.
struct Stage {
    bytes: [MaybeUninit<u8>; BLOCK_BYTES_MAX],
    len: usize,
}

impl Stage {
    fn new() -> Stage {
        Stage { bytes: [const { MaybeUninit::uninit() }; _], len: 0 }
    }

    /// # Safety
    /// `len` bytes can be read at `from`.
    unsafe fn add(&mut self, from: *const u8, len: usize) {
        let room = &mut self.bytes[self.len..][..len];
        // SAFETY: there is room for `len` bytes, which can be read by the contract.
        unsafe { copy(room.as_mut_ptr().cast(), from, len) };
        self.len += len;
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: `add` has written the first `len` bytes.
        unsafe { std::slice::from_raw_parts(self.bytes.as_ptr().cast(), self.len) }
    }
}

#[cfg(test)]
mod tests;
