//! A region as a plan has it, and what may be done with one.

use std::ops::BitOr;

use crate::choices::Pages;
use crate::ids::{DeviceId, RegionId, StageId};
use crate::source::Span;

/// `[region.NAME]`: memory that one stage owns, registered with one device, which work requests of
/// this end and of its peers reach by a key.
#[derive(Debug, Clone)]
pub struct Region {
    /// Its own id.
    pub id: RegionId,
    /// The name in the plan.
    pub name: String,
    /// Where it is declared.
    pub span: Span,
    /// The device that it is registered with.
    pub device: DeviceId,
    /// Its length.
    pub len_bytes: u32,
    /// The pages to put it on.
    pub pages: Pages,
    /// What may be done with it.
    pub rights: Rights,
    /// The stage that owns it; `None`: nobody does, and it is not made.
    pub owner: Option<StageId>,
}

/// What may be done with a region, besides reading it by work requests of this end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rights(u8);

impl Rights {
    /// None of them.
    pub const NONE: Rights = Rights(0);
    /// Work requests of this end may write it: a READ, or an atomic's answer.
    pub const LOCAL_WRITE: Rights = Rights(1);
    /// Peers may READ it.
    pub const REMOTE_READ: Rights = Rights(2);
    /// Peers may WRITE it.
    pub const REMOTE_WRITE: Rights = Rights(4);
    /// Peers may compare and swap in it, and add.
    pub const REMOTE_ATOMIC: Rights = Rights(8);
    /// Memory windows may be bound to parts of it.
    pub const BIND: Rights = Rights(16);

    pub(crate) const WORDS: [(&'static str, Rights); 5] = [
        ("local-write", Rights::LOCAL_WRITE),
        ("remote-read", Rights::REMOTE_READ),
        ("remote-write", Rights::REMOTE_WRITE),
        ("remote-atomic", Rights::REMOTE_ATOMIC),
        ("bind", Rights::BIND),
    ];

    /// Whether it has all of `other`.
    pub fn contains(self, other: Rights) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether it has any of `other`.
    pub fn has_any_of(self, other: Rights) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for Rights {
    type Output = Rights;

    fn bitor(self, other: Rights) -> Rights {
        Rights(self.0 | other.0)
    }
}
