//! Random bytes of the system, for challenges and for names that nobody is to guess.

use rustix::rand::{GetRandomFlags, getrandom};

/// As many bytes as that. `None`: the system gives none.
pub(crate) fn bytes<const N: usize>() -> Option<[u8; N]> {
    let mut random = [0; N];
    let got = getrandom(&mut random, GetRandomFlags::empty()).ok()?;
    (got == N).then_some(random)
}
