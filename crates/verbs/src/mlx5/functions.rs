//! The functions of libmlx5, looked up in the library that libibverbs has loaded for its cards.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;

use rdma_sys::{ibv_qp, ibv_qp_ex};

use super::ffi::exported::*;

/// The library's name in distributions.
const LIBRARY: &CStr = c"libmlx5.so.1";

/// Declares [`Functions`] and its look-up.
macro_rules! functions {
    ($($name:ident: $type:ty = $symbol:literal, $version:literal;)*) => {
        /// The functions of libmlx5 that signature offload uses.
        #[derive(Clone, Copy)]
        pub(crate) struct Functions {
            $(pub(crate) $name: $type,)*
            /// Exported by libibverbs itself.
            pub(crate) qp_to_qp_ex: unsafe extern "C" fn(*mut ibv_qp) -> *mut ibv_qp_ex,
        }

        impl Functions {
            /// # Safety
            /// `look_up` returns functions of the types in mlx5dv.h.
            unsafe fn look_up(
                look_up: impl Fn(&'static CStr, &'static CStr) -> Result<NonNull<c_void>, String>,
            ) -> Result<Functions, String> {
                $(
                    let found = look_up($symbol, $version)?;
                    // SAFETY: the caller's promise: it is a function of this type, which is a
                    // pointer that is not null.
                    let $name = unsafe { std::mem::transmute::<NonNull<c_void>, $type>(found) };
                )*
                Ok(Functions { $($name,)* qp_to_qp_ex: rdma_sys::ibv_qp_to_qp_ex })
            }
        }

        /// Each function as C would declare it, with its symbol.
        #[cfg(test)]
        pub(super) fn declared() -> Vec<(&'static CStr, super::header::Prototype)> {
            vec![$(($symbol, <$type as super::header::Function>::prototype())),*]
        }
    };
}

functions! {
    is_supported: IsSupported = c"mlx5dv_is_supported", c"MLX5_1.8";
    query_device: QueryDevice = c"mlx5dv_query_device", c"MLX5_1.0";
    create_mkey: CreateMkey = c"mlx5dv_create_mkey", c"MLX5_1.10";
    destroy_mkey: DestroyMkey = c"mlx5dv_destroy_mkey", c"MLX5_1.10";
    mkey_check: MkeyCheck = c"_mlx5dv_mkey_check", c"MLX5_1.20";
    create_qp: CreateQp = c"mlx5dv_create_qp", c"MLX5_1.3";
    qp_ex_from_ibv_qp_ex: QpExFromIbvQpEx = c"mlx5dv_qp_ex_from_ibv_qp_ex", c"MLX5_1.10";
    qp_cancel_posted_send_wrs: QpCancelPostedSendWrs = c"mlx5dv_qp_cancel_posted_send_wrs", c"MLX5_1.20";
}

impl Functions {
    /// The functions of the installed library, which stays open from the first call on; or the
    /// reason why there are none.
    pub(crate) fn installed() -> Result<&'static Functions, String> {
        static INSTALLED: OnceLock<Result<Functions, String>> = OnceLock::new();
        INSTALLED.get_or_init(|| Functions::of(LIBRARY)).as_ref().map_err(Clone::clone)
    }

    /// The functions of the library of that name.
    fn of(library: &CStr) -> Result<Functions, String> {
        // SAFETY: a string that ends. libibverbs opens the same library where there is a card, and
        // one that is opened twice is there once.
        let handle = unsafe { libc::dlopen(library.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let handle = NonNull::new(handle).ok_or_else(|| format!("no libmlx5 can be opened ({})", last_error()))?;
        // SAFETY: `handle` is open and is never closed, and a symbol of this version has the type
        // in mlx5dv.h, since rdma-core changes no type without a new version.
        unsafe {
            Functions::look_up(|symbol, version| {
                let found = libc::dlvsym(handle.as_ptr(), symbol.as_ptr(), version.as_ptr());
                NonNull::new(found).ok_or_else(|| {
                    let (symbol, version) = (symbol.to_string_lossy(), version.to_string_lossy());
                    format!("its libmlx5 is too old: {symbol} of {version} is not in it")
                })
            })
        }
    }
}

/// Why the last `dlopen` failed.
fn last_error() -> String {
    // SAFETY: null, or a string that stays until this thread's next call of the kind.
    let said = unsafe { libc::dlerror().cast_const().as_ref().map(|first| CStr::from_ptr(first)) };
    said.map_or_else(|| "it doesn't say why".into(), |said| said.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use rdma_sys::ibv_device;

    use super::*;
    use crate::mlx5::header::skipped;

    /// The installed library, where there is one.
    fn installed() -> Option<&'static Functions> {
        match Functions::installed() {
            Ok(functions) => Some(functions),
            Err(why) => {
                skipped(&format!("{why}; it is in ibverbs-providers"));
                None
            }
        }
    }

    #[test]
    fn the_installed_library_has_every_function_in_its_version() {
        let Some(functions) = installed() else { return };
        // Looked up twice, they are the same: the library is loaded once.
        let again = Functions::of(LIBRARY).unwrap();
        assert_eq!(again.create_mkey as usize, functions.create_mkey as usize);
        assert_ne!(functions.mkey_check as usize, functions.query_device as usize);
    }

    #[test]
    fn the_library_tells_a_device_of_another_driver_from_its_own() {
        let Some(functions) = installed() else { return };
        // Larger than libibverbs' own struct around an `ibv_device`, and without a driver's
        // functions.
        let mut device = [0u64; 512];
        // SAFETY: the function compares a pointer in it, which is null here, with its own.
        assert!(!unsafe { (functions.is_supported)(device.as_mut_ptr().cast::<ibv_device>()) });
    }

    #[test]
    fn a_library_that_is_missing_or_is_another_is_named() {
        let missing = Functions::of(c"libmlx5-verbline-has-none.so.1").err().unwrap();
        assert!(missing.starts_with("no libmlx5 can be opened (libmlx5-verbline-has-none.so.1: "), "{missing}");
        let other = Functions::of(c"libc.so.6").err().unwrap();
        assert_eq!(other, "its libmlx5 is too old: mlx5dv_is_supported of MLX5_1.8 is not in it");
    }
}
