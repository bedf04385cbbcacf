//! Work requests that configure and invalidate signature keys.

use super::op::{Op, Parts};
use super::{INLINE, Kept, SIGNALED, SendQueue, flags};
use crate::signature::{KeyConfig, PostedConfiguration, SignatureKey};
use crate::wr::buffer::{Buffer, Given, Refused};
use crate::wr::post::{PostStop, SendOptions};
use crate::wr::post_verb::PostSend;
use crate::wr::request::Request;
use crate::wr_id::WrKind;

/// A configuration that was not posted; it comes back.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct RefusedKey {
    /// What was to be configured.
    pub config: KeyConfig,
    /// Why it was not.
    pub reason: PostStop,
}

impl SendQueue {
    /// Configures a key. The slot keeps it until the completion.
    ///
    /// # Safety
    /// `post` is for the live QP whose send queue this is.
    pub(crate) unsafe fn configure_key(
        &mut self,
        post: PostSend,
        key: &mut SignatureKey,
        config: KeyConfig,
        options: SendOptions,
    ) -> Result<(), RefusedKey> {
        // SAFETY: by the contract above, `post` is for the live QP of this queue.
        match unsafe { self.try_configure(post, key, &config, options) } {
            Ok(slot) => {
                self.keep_op(slot, Kept::Configuration(key.posted(config)));
                Ok(())
            }
            Err(reason) => Err(RefusedKey { config, reason }),
        }
    }

    /// # Safety
    /// The contract of [`SendQueue::configure_key`].
    unsafe fn try_configure(
        &mut self,
        post: PostSend,
        key: &mut SignatureKey,
        config: &KeyConfig,
        options: SendOptions,
    ) -> Result<usize, PostStop> {
        if key.inner.pd.id != self.pd_id {
            return Err(PostStop::NotRegistered { packet_pd: key.inner.pd.id, qp_pd: self.pd_id });
        }
        self.check_configures()?;
        self.reserve_one()?;
        let slot = self.packets.slot(self.sequence.next());
        let inline = key.build(config).map_err(PostStop::of_key)?;
        let send_flags = SIGNALED | INLINE | flags(&options);
        // SAFETY: by the contract above, `post` is for the live QP of this queue; what
        // goes inline is copied by the post, and the caller puts the key into the slot.
        let posted = unsafe { self.post_special(post, WrKind::Op, Request::Configure, send_flags, Parts::One(inline)) };
        posted.inspect_err(|_| key.refused()).map(|()| slot)
    }

    /// Invalidates a key. The slot keeps it until the completion.
    ///
    /// # Safety
    /// The contract of [`SendQueue::configure_key`].
    pub(crate) unsafe fn invalidate_key(
        &mut self,
        post: PostSend,
        key: &SignatureKey,
        options: SendOptions,
    ) -> Result<(), Refused> {
        let op = Op::LocalInvalidate { rkey: key.lkey() };
        // SAFETY: by the contract above, `post` is for the live QP of this queue.
        match unsafe { self.try_post_op(post, op, &Given::used(Buffer::Empty), &options) } {
            Ok(slot) => {
                self.keep_op(slot, Kept::Configuration(PostedConfiguration::of_invalidation(&key.inner)));
                Ok(())
            }
            Err(reason) => Err(Refused { buffer: Buffer::Empty, reason }),
        }
    }
}
