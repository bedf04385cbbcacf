//! The verbs' objects: their parts, creation, modification and retirement. `data_path` carries out
//! the work requests posted to them; changes of a queue pair need the data path, and are in
//! `control`.

pub(crate) mod ah;
pub(crate) mod comp_channel;
pub(crate) mod context;
pub(crate) mod cq;
pub(crate) mod device;
pub(crate) mod fabric;
pub(crate) mod guards;
pub(crate) mod mcast;
pub(crate) mod mr;
pub(crate) mod mw;
pub(crate) mod pd;
pub(crate) mod qp;
pub mod qp_table;
pub(crate) mod srq;
pub(crate) mod srq_entries;

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

/// A count of the objects that refer to an object, which isn't destroyed before them.
#[derive(Debug, Default)]
pub(crate) struct Users(AtomicU32);

impl Users {
    /// Counts an object that refers to it.
    pub(crate) fn adopt(&self) {
        // Relaxed: a count; a `retire` comes after, by contract.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an object that no longer does.
    pub(crate) fn release(&self) {
        // Relaxed: as in `adopt`.
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// `EBUSY` while there are any.
    pub(crate) fn gone(&self) -> Result<(), c_int> {
        // Relaxed: as in `adopt`.
        if self.0.load(Ordering::Relaxed) == 0 { Ok(()) } else { Err(libc::EBUSY) }
    }
}

/// An object that programs hold by pointer: `Raw` is libibverbs' struct, and lies in `Self`.
///
/// # Safety
/// `Raw` lies `RAW_AT_BYTES` behind the beginning of `Self`, which is `repr(C)`.
pub(crate) unsafe trait Object: Sized {
    type Raw;
    const RAW_AT_BYTES: usize = 0;

    /// Hands the object to the program.
    fn into_raw(self) -> *mut Self::Raw {
        Box::into_raw(Box::new(self)).cast::<u8>().wrapping_add(Self::RAW_AT_BYTES).cast()
    }

    /// The object behind a program's pointer.
    ///
    /// # Safety
    /// `raw` came from [`into_raw`](Self::into_raw), and [`free`](Self::free) doesn't take it back
    /// during `'a`.
    #[inline(always)]
    unsafe fn from_raw<'a>(raw: *mut Self::Raw) -> &'a Self {
        // SAFETY: the object is alive by the contract, and `Raw` lies where the implementation of
        // this trait promises.
        unsafe { &*raw.byte_sub(Self::RAW_AT_BYTES).cast::<Self>() }
    }

    /// Takes the object back from the program, and frees it.
    ///
    /// # Safety
    /// The contract of [`from_raw`](Self::from_raw), and nobody uses the object any more.
    unsafe fn free(raw: *mut Self::Raw) {
        // SAFETY: by the contract, the box that `into_raw` made.
        drop(unsafe { Box::from_raw(raw.byte_sub(Self::RAW_AT_BYTES).cast::<Self>()) });
    }
}

/// The object behind a pointer that may be null.
///
/// # Safety
/// The contract of [`Object::from_raw`], unless `raw` is null.
pub(crate) unsafe fn object<'a, T: Object>(raw: *mut T::Raw) -> Option<&'a T> {
    // SAFETY: not null, so the contract holds.
    (!raw.is_null()).then(|| unsafe { T::from_raw(raw) })
}
