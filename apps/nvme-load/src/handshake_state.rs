//! The state of the handshake.

use verbline::prelude::*;
use verbline_nvme::auth::Message;

use crate::blocks::Shape;

/// Entries of an admin queue, like the Linux host's.
pub(crate) const ADMIN_ENTRIES: u16 = 32;

/// A step of an authentication on a queue, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuthStep {
    Negotiate,
    Challenge,
    Reply,
    Verdict,
}

/// The step whose response the host waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Step {
    #[default]
    Nothing,
    Connect,
    /// Authentication, if the controller asks for it.
    Authenticate(AuthStep),
    Capabilities,
    Enable,
    Ready,
    Identify,
    DiscoveryHead,
    DiscoveryLog,
    Queues,
    Namespaces,
    Namespace,
    Descriptors,
    Events,
    /// The I/O queues connect or work.
    Done,
    /// The host leaves the discovery controller.
    Leaving,
}

/// The state of the admin queue, and the facts learned from the controller.
#[derive(Debug, Default)]
pub(crate) struct Handshake {
    pub(crate) step: Step,
    pub(crate) cid: u16,
    /// The discovery controller has been asked.
    pub(crate) is_discovered: bool,
    pub(crate) asks_discovery: bool,
    pub(crate) timer: Option<TimerId>,
    /// When the keep-alive was sent that is not answered.
    pub(crate) keep_alive_ns: Option<Tick>,
    pub(crate) cntlid: u16,
    /// The message of authentication that is sent next, or was sent last.
    pub(crate) message: Option<Message>,
    /// The layout of a command's data on the wire.
    pub(crate) shape: Shape,
    /// The longest capsule that the controller takes, bytes.
    pub(crate) capsule_bytes: u32,
    pub(crate) entries_max: u32,
}

impl Handshake {
    pub(crate) fn is_leaving(&self) -> bool {
        self.step == Step::Leaving
    }

    pub(crate) fn is_done(&self) -> bool {
        self.step == Step::Done
    }

    /// Called when the connection has ended.
    pub(crate) fn stop(&mut self, out: &mut Outputs<'_>) {
        self.timer.take().map(|timer| out.cancel_timer(timer));
        self.keep_alive_ns = None;
        self.step = Step::Nothing;
    }
}
