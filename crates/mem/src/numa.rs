//! On which NUMA node memory lies: wished for before the first touch, looked up behind it.
//!
//! A wish is a preference (MPOL_PREFERRED of set_mempolicy(2)) and no binding (MPOL_BIND). A node
//! that has no more memory then costs speed. Memory that is bound to a full node is had by killing
//! processes, and hugepages that are bound to one end the process itself by SIGBUS on kernels
//! before 5.14. Whether the wish came true is looked up and kept with the region.

use std::ffi::{c_int, c_long, c_ulong};
use std::fmt;
use std::io;
use std::ops::Range;

/// The kernel's most (CONFIG_NODES_SHIFT).
const NODES_MAX: u32 = 1024;

const MASK_WORD_BITS: u32 = c_ulong::BITS;

/// Pages that are looked at, spread evenly over a region.
const SAMPLES_MAX: usize = 1024;

/// Tells the kernel where pages are to come from, and asks it where they are. [`KernelNodes`] does;
/// a test may write down what was asked instead.
pub trait NodeControl: fmt::Debug {
    /// Lets the pages of these addresses come from `node` when they are first touched, as long as
    /// the node has any.
    ///
    /// # Errors
    /// The kernel refused: the node is not there, or not for this process; a seccomp filter.
    fn prefer(&self, addresses: Range<usize>, node: u32) -> io::Result<()>;

    /// The nodes of the pages at these addresses; a page that is not there has none.
    ///
    /// # Errors
    /// The kernel refused to tell.
    fn nodes_of(&self, addresses: &[usize]) -> io::Result<Vec<Option<u32>>>;
}

/// The kernel's own answers: mbind(2) and move_pages(2).
#[derive(Debug, Clone, Copy, Default)]
pub struct KernelNodes;

impl NodeControl for KernelNodes {
    fn prefer(&self, addresses: Range<usize>, node: u32) -> io::Result<()> {
        if node >= NODES_MAX {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let mut mask = [0 as c_ulong; (NODES_MAX / MASK_WORD_BITS) as usize];
        mask[(node / MASK_WORD_BITS) as usize] = 1 << (node % MASK_WORD_BITS);
        // The kernel takes the last bit off (get_nodes in mm/mempolicy.c).
        let bits = c_ulong::from(NODES_MAX) + 1;
        let (mode, flags): (c_long, c_long) = (libc::MPOL_PREFERRED.into(), 0);
        // SAFETY: the kernel reads `bits - 1` bits of `mask`, which lives through the call. Without
        // flags it moves no page: it keeps where pages of the range are to come from, and changes
        // no byte, whosever the range is.
        let done = unsafe {
            libc::syscall(libc::SYS_mbind, addresses.start, addresses.len(), mode, mask.as_ptr(), bits, flags)
        };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn nodes_of(&self, addresses: &[usize]) -> io::Result<Vec<Option<u32>>> {
        let mut status = vec![-1 as c_int; addresses.len()];
        let (this_process, flags): (c_long, c_long) = (0, 0);
        let no_nodes = std::ptr::null::<c_int>();
        // SAFETY: both arrays have `addresses.len()` entries and live through the call: the kernel
        // reads addresses, which are as wide as pointers, and writes states. Without nodes to go to
        // it moves no page.
        let done = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                this_process,
                addresses.len(),
                addresses.as_ptr(),
                no_nodes,
                status.as_mut_ptr(),
                flags,
            )
        };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
        // A page that is not there has an error's number, negated.
        Ok(status.into_iter().map(|node| u32::try_from(node).ok()).collect())
    }
}

/// The node that a region is to lie on.
#[derive(Debug, Clone, Copy)]
pub struct NodeWish<'a> {
    /// Its number.
    pub node: u32,
    /// Receives the placement calls.
    pub control: &'a dyn NodeControl,
}

/// The outcome of a [`NodeWish`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeOutcome {
    /// The node that was wished for.
    pub wished: u32,
    /// Where the memory is.
    pub found: NodeFound,
}

/// Where memory lies, other than where it was to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeFound {
    /// Every page that was looked at is on the node that was wished for.
    There,
    /// Some pages are on this other node.
    Elsewhere {
        /// The other node; the first of several.
        node: u32,
    },
    /// The kernel refused to be told, with this error number.
    Refused {
        /// As `errno` has it.
        errno: i32,
    },
    /// Pages come when they are touched, or the kernel does not tell where they are.
    Unknown,
}

impl NodeOutcome {
    /// A node that the memory lies on: another than was wished for, if there is one. `None` where
    /// that is not known.
    #[must_use]
    pub fn node(&self) -> Option<u32> {
        match self.found {
            NodeFound::There => Some(self.wished),
            NodeFound::Elsewhere { node } => Some(node),
            NodeFound::Refused { .. } | NodeFound::Unknown => None,
        }
    }
}

impl NodeWish<'_> {
    /// Tells where the pages of a region are to come from, before one is touched.
    pub(crate) fn tell(&self, addresses: Range<usize>) -> NodeOutcome {
        let refused = |error: io::Error| NodeFound::Refused { errno: error.raw_os_error().unwrap_or(libc::EINVAL) };
        let found = self.control.prefer(addresses, self.node).map_or_else(refused, |()| NodeFound::Unknown);
        NodeOutcome { wished: self.node, found }
    }

    /// Where the pages of a region are, once all are there.
    pub(crate) fn look_up(&self, addresses: Range<usize>, page_bytes: usize) -> NodeFound {
        let step = addresses.len().div_ceil(SAMPLES_MAX).next_multiple_of(page_bytes);
        let samples: Vec<usize> = addresses.step_by(step).collect();
        let Ok(nodes) = self.control.nodes_of(&samples) else { return NodeFound::Unknown };
        if nodes.iter().all(Option::is_none) {
            return NodeFound::Unknown;
        }
        let other = nodes.into_iter().flatten().find(|node| *node != self.node);
        other.map_or(NodeFound::There, |node| NodeFound::Elsewhere { node })
    }
}
