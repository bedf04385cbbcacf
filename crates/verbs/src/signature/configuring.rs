//! Configuring a key: what is to change, and what is kept until that is known to be done.

use std::sync::Arc;

use rdma_sys::ibv_sge;
use verbline_softnic::mlx5dv::{mkey_conf_flags, mlx5dv_mkey_conf_attr, mlx5dv_sig_block_attr, sig_block_attr_flags};

use crate::cq::completion::Status;
use crate::memory::mr::Access;
use crate::signature::domain::{BlockSignature, Domain};
use crate::signature::key::{KeyInner, SignatureKey};
use crate::signature::layout::KeyLayout;
use crate::wr::post::PostStop;

/// What a work request changes of a key. What isn't named stays as it is.
#[derive(Clone, Debug, Default)]
pub struct KeyConfig {
    access: Option<Access>,
    layout: Option<KeyLayout>,
    signature: Change,
}

#[derive(Clone, Copy, Debug, Default)]
enum Change {
    #[default]
    Keep,
    Reset,
    Set(BlockSignature),
}

impl KeyConfig {
    /// Changes nothing, but makes a key that has told a fault usable again.
    pub fn new() -> KeyConfig {
        KeyConfig::default()
    }

    /// What may be done through the key. Reading by this side always may.
    #[must_use]
    pub fn access(self, access: Access) -> KeyConfig {
        KeyConfig { access: Some(access), ..self }
    }

    /// What it stands for.
    #[must_use]
    pub fn layout(self, layout: KeyLayout) -> KeyConfig {
        KeyConfig { layout: Some(layout), ..self }
    }

    /// What blocks carry.
    #[must_use]
    pub fn signature(self, signature: BlockSignature) -> KeyConfig {
        KeyConfig { signature: Change::Set(signature), ..self }
    }

    /// Blocks carry nothing any more.
    #[must_use]
    pub fn without_signature(self) -> KeyConfig {
        KeyConfig { signature: Change::Reset, ..self }
    }
}

/// A configuration that was not posted; it comes back.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct RefusedKey {
    /// What was to be configured.
    pub config: KeyConfig,
    /// Why it was not.
    pub reason: PostStop,
}

/// A configuration, or an invalidation, that was posted: until its completion it keeps the key.
#[derive(Debug)]
pub struct PostedConfiguration {
    key: Arc<KeyInner>,
    number: u64,
    /// Whether what came before is replaced by it.
    replaces: bool,
}

impl PostedConfiguration {
    /// Its completion has come. Gives a layout that was replaced.
    pub(crate) fn done(self, status: Status) -> Option<KeyLayout> {
        if status != Status::SUCCESS {
            // What it was to replace stays in force.
            return None;
        }
        self.key.carried_out(self.number, self.replaces)
    }

    /// Of an invalidation that was posted.
    pub(crate) fn of_invalidation(key: &Arc<KeyInner>) -> PostedConfiguration {
        PostedConfiguration { number: key.posted(None), key: key.clone(), replaces: true }
    }
}

impl SignatureKey {
    /// What goes inline, in whole words, or why it can't.
    pub(crate) fn build(&mut self, config: &KeyConfig) -> Result<&[u64], PostStop> {
        let KeyConfig { access, layout, signature } = config;
        if let Some(theirs) = layout.as_ref().and_then(|layout| layout.foreign_pd(self.inner.pd.id)) {
            return Err(PostStop::NotRegistered { packet_pd: theirs, qp_pd: self.inner.pd.id });
        }
        let entries = layout.as_ref().map_or(0, KeyLayout::entries);
        if entries > usize::from(self.spec.max_entries) {
            return Err(PostStop::NotKey("the layout has more entries than KeySpec::max_entries"));
        }
        if !self.spec.signs_blocks && !matches!(signature, Change::Keep) {
            return Err(PostStop::NotKey("the key was made without KeySpec::signs_blocks"));
        }
        let signs = matches!(signature, Change::Set(_));
        let setters = u8::from(access.is_some()) + u8::from(layout.is_some()) + u8::from(signs);
        let conf_flags = if matches!(signature, Change::Reset) { mkey_conf_flags::RESET_SIG_ATTR } else { 0 };
        let wr = &mut self.builder;
        wr.start(self.inner.as_ptr(), setters, &mlx5dv_mkey_conf_attr { conf_flags, comp_mask: 0 });
        if let Some(access) = access {
            wr.set_access_flags(access.bits());
        }
        if let Some(layout) = layout {
            layout.write(wr);
        }
        if let Change::Set(signature) = signature {
            with_attr(signature, |attr| {
                // SAFETY: what the attributes lead to is borrowed during the call.
                unsafe { wr.set_sig_block(attr) }
            });
        }
        wr.complete().map_err(|_| PostStop::NotKey("its values don't go together"))
    }

    /// What goes inline of a configuration to one part of a region that the QP keeps.
    pub(super) fn build_list(&mut self, part: ibv_sge, blocks: &BlockSignature) -> Result<&[u64], PostStop> {
        if part.length == 0 {
            return Err(PostStop::NotKey("it would stand for no bytes"));
        }
        let wr = &mut self.builder;
        wr.start(self.inner.as_ptr(), 2, &mlx5dv_mkey_conf_attr { conf_flags: 0, comp_mask: 0 });
        wr.set_layout_list([part]);
        with_attr(blocks, |attr| {
            // SAFETY: what the attributes lead to is borrowed during the call.
            unsafe { wr.set_sig_block(attr) }
        });
        wr.complete().map_err(|_| PostStop::NotKey("its values don't go together"))
    }

    /// Notes that it was posted.
    pub(crate) fn posted(&self, config: KeyConfig) -> PostedConfiguration {
        let replaces = config.layout.is_some();
        PostedConfiguration { number: self.inner.posted(config.layout), key: self.inner.clone(), replaces }
    }
}

/// Calls `f` with what a device is told.
fn with_attr(signature: &BlockSignature, f: impl FnOnce(&mlx5dv_sig_block_attr)) {
    with_domain(signature.memory, |mem| {
        with_domain(signature.wire, |wire| {
            let flags = if signature.copy.is_some() { sig_block_attr_flags::COPY_MASK } else { 0 };
            let copy_mask = signature.copy.map_or(0, |mask| mask.0);
            f(&mlx5dv_sig_block_attr { mem, wire, flags, check_mask: signature.check.0, copy_mask, comp_mask: 0 });
        });
    });
}

fn with_domain(domain: Option<Domain>, f: impl FnOnce(*const verbline_softnic::mlx5dv::mlx5dv_sig_block_domain)) {
    match domain {
        None => f(std::ptr::null()),
        Some(domain) => domain.with_raw(|raw| f(std::ptr::from_ref(raw))),
    }
}
