//! Memory that a device may touch: protection domains, registered regions, memory that peers may
//! write, and windows.

pub(crate) mod mr;
pub(crate) mod pd;
pub(crate) mod peer;
pub(crate) mod span;
pub(crate) mod window;
