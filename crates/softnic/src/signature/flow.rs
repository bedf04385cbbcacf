//! Checks and converts one block on its way from one domain to the other.
//!
//! Guarantees: the first fault of a block is reported in T10's order: guard, application tag,
//! reference tag. A faulty block moves all the same, as on devices.

use crate::signature::domain::{APP_TAG_MASK, BlockSignature, Domain, GUARD_MASK, Protection, copied};
use crate::signature::guard::Guard;

/// The faulty part of the protection information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Guard,
    AppTag,
    RefTag,
}

/// The fault of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadBlock {
    pub(crate) part: Part,
    /// The value that the block carries.
    pub(crate) expected: u64,
    /// The value that its data, or the key's configuration, require.
    pub(crate) actual: u64,
}

/// A conversion from one domain to the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub(crate) input: Option<Domain>,
    pub(crate) output: Option<Domain>,
    check_mask: u8,
    /// 0 if the domains differ.
    copy_mask: u8,
}

impl Flow {
    /// From memory to the wire.
    pub(crate) fn to_wire(signature: &BlockSignature) -> Flow {
        Flow::new(signature, signature.memory, signature.wire)
    }

    /// From the wire to memory.
    pub(crate) fn to_memory(signature: &BlockSignature) -> Flow {
        Flow::new(signature, signature.wire, signature.memory)
    }

    fn new(signature: &BlockSignature, input: Option<Domain>, output: Option<Domain>) -> Flow {
        let of_itself = input.zip(output).and_then(|(input, output)| copied(&input, &output));
        let copy_mask = of_itself.map_or(0, |of_itself| signature.copy_mask.unwrap_or(of_itself));
        Flow { input, output, check_mask: signature.check_mask, copy_mask }
    }

    /// Checks block `index` against `field`, its protection information, and returns the new one.
    pub(crate) fn block(&self, index: u64, data: &[u8], field: &[u8]) -> (u64, Option<BadBlock>) {
        let mut guards = Guards { data, last: None };
        let field = self.input.map_or(0, |input| input.read(field));
        let fault = self.input.and_then(|input| self.check(&input, index, field, &mut guards));
        let made = self.output.map_or(0, |output| self.make(&output, index, field, &mut guards));
        (made, fault)
    }

    /// The new protection information of a block, without copied parts.
    pub(crate) fn generate(output: &Domain, index: u64, data: &[u8]) -> u64 {
        output.expected(index, output.guard().of(data))
    }

    /// The fault of a block, among the checked parts.
    pub(crate) fn check_alone(&self, input: &Domain, index: u64, data: &[u8], field: u64) -> Option<BadBlock> {
        self.check(input, index, field, &mut Guards { data, last: None })
    }

    fn check(&self, input: &Domain, index: u64, field: u64, guards: &mut Guards<'_>) -> Option<BadBlock> {
        let checked = input.expand(self.check_mask);
        if checked == 0 || input.escapes(field) {
            return None;
        }
        let guard = if checked & input.guard_bits() != 0 { guards.of(input.guard()) } else { 0 };
        let right = input.expected(index, guard);
        let wrong = (field ^ right) & checked;
        if wrong == 0 {
            return None;
        }
        let Protection::T10(_) = input.protection else {
            return Some(BadBlock { part: Part::Guard, expected: field, actual: right });
        };
        let fault = |part, shift: u32, bits: u64| BadBlock {
            part,
            expected: field >> shift & bits,
            actual: right >> shift & bits,
        };
        Some(if wrong & input.expand(GUARD_MASK) != 0 {
            fault(Part::Guard, 48, 0xffff)
        } else if wrong & input.expand(APP_TAG_MASK) != 0 {
            fault(Part::AppTag, 32, 0xffff)
        } else {
            fault(Part::RefTag, 0, 0xffff_ffff)
        })
    }

    fn make(&self, output: &Domain, index: u64, field: u64, guards: &mut Guards<'_>) -> u64 {
        let copied = output.expand(self.copy_mask);
        let guard = if output.guard_bits() & !copied != 0 { guards.of(output.guard()) } else { 0 };
        (output.expected(index, guard) & !copied) | (field & copied)
    }
}

/// Guards of a block; keeps the last one, since both domains may have the same.
struct Guards<'a> {
    data: &'a [u8],
    last: Option<(Guard, u64)>,
}

impl Guards<'_> {
    fn of(&mut self, guard: Guard) -> u64 {
        match self.last {
            Some((last, value)) if last == guard => value,
            _ => {
                let value = guard.of(self.data);
                self.last = Some((guard, value));
                value
            }
        }
    }
}
