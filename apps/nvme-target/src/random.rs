//! Random bytes of the system, for challenges and for names that must not be guessed.

use rustix::rand::{GetRandomFlags, getrandom};

/// Returns `N` random bytes. `None` if the system gives none.
pub(crate) fn bytes<const N: usize>() -> Option<[u8; N]> {
    let mut random = [0; N];
    let got = getrandom(&mut random, GetRandomFlags::empty()).ok()?;
    (got == N).then_some(random)
}
