//! Configuring a key: the requested changes, and the objects kept until the change is known to be
//! done.

use std::sync::Arc;

use rdma_sys::ibv_sge;

use crate::block_signature::BlockSignature;
use crate::cq::completion::Status;
use crate::memory::mr::Access;
use crate::signature::builder::{Asked, Change, Place};
use crate::signature::key::{KeyInner, SignatureKey};
use crate::signature::layout::KeyLayout;

/// The changes to a key by a work request. Properties not set stay as they are.
#[derive(Clone, Debug, Default)]
pub struct KeyConfig {
    access: Option<Access>,
    layout: Option<KeyLayout>,
    signature: Change,
}

impl KeyConfig {
    /// Changes nothing, but makes a key usable again after a reported fault.
    pub fn new() -> KeyConfig {
        KeyConfig::default()
    }

    /// Sets the permitted access through the key. Local reads are always allowed.
    #[must_use]
    pub fn access(self, access: Access) -> KeyConfig {
        KeyConfig { access: Some(access), ..self }
    }

    /// Sets the key's memory.
    #[must_use]
    pub fn layout(self, layout: KeyLayout) -> KeyConfig {
        KeyConfig { layout: Some(layout), ..self }
    }

    /// Sets the signature of the blocks.
    #[must_use]
    pub fn signature(self, signature: BlockSignature) -> KeyConfig {
        KeyConfig { signature: Change::Set(signature), ..self }
    }

    /// Removes the signature of the blocks.
    #[must_use]
    pub fn without_signature(self) -> KeyConfig {
        KeyConfig { signature: Change::Reset, ..self }
    }
}

/// Why a configuration cannot be written as a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotBuilt {
    /// The layout has memory of another PD than the key.
    OtherPd {
        /// The layout's PD.
        layout_pd: u64,
        /// The key's PD.
        key_pd: u64,
    },
    /// The reason in words.
    Because(&'static str),
}

/// A posted configuration or invalidation. It keeps the key until its completion.
#[derive(Debug)]
pub(crate) struct PostedConfiguration {
    key: Arc<KeyInner>,
    number: u64,
    /// Whether it replaces earlier layouts.
    replaces: bool,
}

impl PostedConfiguration {
    /// Handles the completion. Returns a layout that was replaced.
    pub(crate) fn done(self, status: Status) -> Option<KeyLayout> {
        if status != Status::SUCCESS {
            // The earlier layout stays in force.
            return None;
        }
        self.key.carried_out(self.number, self.replaces)
    }

    /// Records a posted invalidation.
    pub(crate) fn of_invalidation(key: &Arc<KeyInner>) -> PostedConfiguration {
        PostedConfiguration { number: key.posted(None), key: key.clone(), replaces: true }
    }
}

impl SignatureKey {
    /// The inline data, or the reason why it cannot be built. The key must not move until that is
    /// posted.
    pub(crate) fn build(&mut self, config: &KeyConfig) -> Result<ibv_sge, NotBuilt> {
        let KeyConfig { access, layout, signature } = config;
        if let Some(theirs) = layout.as_ref().and_then(|layout| layout.foreign_pd(self.inner.pd.id)) {
            return Err(NotBuilt::OtherPd { layout_pd: theirs, key_pd: self.inner.pd.id });
        }
        let entries = layout.as_ref().map_or(0, KeyLayout::entries);
        if entries > usize::from(self.spec.max_entries) {
            return Err(NotBuilt::Because("the layout has more entries than KeySpec::max_entries"));
        }
        if !self.spec.signs_blocks && !matches!(signature, Change::Keep) {
            return Err(NotBuilt::Because("the key was made without KeySpec::signs_blocks"));
        }
        let (layout, access) = (layout.as_ref().map(Place::Layout), access.map(Access::bits));
        let asked = Asked { access, layout, signature: *signature };
        self.builder.build(self.inner.as_ptr(), &asked).map_err(NotBuilt::Because)
    }

    /// The inline data of a configuration to one part of a region that the QP keeps.
    pub(super) fn build_list(&mut self, part: ibv_sge, blocks: &BlockSignature) -> Result<ibv_sge, NotBuilt> {
        if part.length == 0 {
            return Err(NotBuilt::Because("it would stand for no bytes"));
        }
        let (layout, signature) = (Some(Place::Part(part)), Change::Set(*blocks));
        let asked = Asked { access: None, layout, signature };
        self.builder.build(self.inner.as_ptr(), &asked).map_err(NotBuilt::Because)
    }

    /// Called when the device refused the last built configuration.
    pub(crate) fn refused(&mut self) {
        self.builder.refused();
    }

    /// Records that the configuration was posted.
    pub(crate) fn posted(&self, config: KeyConfig) -> PostedConfiguration {
        let replaces = config.layout.is_some();
        PostedConfiguration { number: self.inner.posted(config.layout), key: self.inner.clone(), replaces }
    }
}
