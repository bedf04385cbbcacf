//! The extended verbs, which verbs.h reaches through the table around a context (`struct
//! verbs_context`).
//!
//! Before an operation is read, its presence is checked: the table grows at its front, and `sz` is
//! the size of this library's table. rdma-sys' own functions for it compare `abi_compat` with 2^32
//! - 1 instead of verbs.h's UINTPTR_MAX, and so never find the table on 64 bit.

use std::mem::offset_of;

use rdma_sys::{ibv_context, verbs_context};

/// The operation of that name, if the library and the driver have it: `extended!(context,
/// alloc_td)`, with a pointer to an open context. Unsafe, like [`op`].
macro_rules! extended {
    ($context:expr, $op:ident) => {
        $crate::device::extended::op($context, std::mem::offset_of!(rdma_sys::verbs_context, $op), |table| &table.$op)
    };
}
pub(crate) use extended;

/// The operation at `offset` of the table. `_its_type` is never called.
///
/// # Safety
/// The context is open, and `offset` is that of the field that `_its_type` names.
pub(crate) unsafe fn op<F: Copy>(
    context: *mut ibv_context,
    offset: usize,
    _its_type: fn(&verbs_context) -> &Option<F>,
) -> Option<F> {
    // The context is the table's last part.
    let before = |offset| offset_of!(verbs_context, context) - offset;
    // SAFETY: a context with this `abi_compat` is the last part of a table (verbs.h). `sz` is right
    // before it, and the fields that fit `sz` are there.
    unsafe {
        if (*context).abi_compat.addr() != usize::MAX {
            return None;
        }
        let sz = *context.byte_sub(before(offset_of!(verbs_context, sz))).cast::<usize>();
        if sz < size_of::<verbs_context>() - offset {
            return None;
        }
        *context.byte_sub(before(offset)).cast::<Option<F>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdma_sys::ibv_td;

    unsafe extern "C" fn no_dealloc(_: *mut ibv_td) -> libc::c_int {
        0
    }

    #[test]
    fn a_table_that_is_too_short_has_no_operation() {
        // SAFETY: integers, pointers and optional functions: all zeros is a value.
        let mut table: verbs_context = unsafe { std::mem::zeroed() };
        table.dealloc_td = Some(no_dealloc);
        let whole = size_of::<verbs_context>();
        let needed = whole - offset_of!(verbs_context, dealloc_td);
        for (sz, abi_compat, found) in
            [(whole, usize::MAX, true), (needed, usize::MAX, true), (needed - 1, usize::MAX, false), (whole, 0, false)]
        {
            table.sz = sz;
            table.context.abi_compat = std::ptr::without_provenance_mut(abi_compat);
            let raw = &raw mut table;
            // SAFETY: the table is live, and its last part is a context.
            let op = unsafe { extended!(raw.byte_add(offset_of!(verbs_context, context)).cast(), dealloc_td) };
            assert_eq!(op.is_some(), found, "{sz} bytes, abi_compat {abi_compat:#x}");
        }
        let context = (&raw mut table).wrapping_byte_add(offset_of!(verbs_context, context)).cast();
        // SAFETY: `table` is live, and `context` points to the context in it.
        let absent = unsafe { extended!(context, alloc_td) };
        assert!(absent.is_none());
    }
}
