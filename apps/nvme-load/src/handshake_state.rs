//! The state of the handshake.

use verbline::prelude::*;
use verbline_nvme::auth::Message;

use crate::blocks::Shape;

/// Entries of an admin queue: as the Linux host has it.
pub(crate) const ADMIN_ENTRIES: u16 = 32;

/// A step of an authentication: what the host does on a queue, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuthStep {
    Negotiate,
    Challenge,
    Reply,
    Verdict,
}

/// What the host waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Step {
    #[default]
    Nothing,
    Connect,
    /// The host proves who it is, if it has to.
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
    /// The I/O queues are connected, or work.
    Done,
    /// The discovery controller is left.
    Leaving,
}

/// How far the admin queue is, and what was learned.
#[derive(Debug, Default)]
pub(crate) struct Handshake {
    pub(crate) step: Step,
    pub(crate) cid: u16,
    /// The discovery controller has been asked.
    pub(crate) is_discovered: bool,
    pub(crate) asks_discovery: bool,
    pub(crate) timer: Option<TimerId>,
    /// Keep-alives that are not answered.
    pub(crate) keep_alives: u32,
    pub(crate) cntlid: u16,
    /// The message of authentication that is sent next, or was.
    pub(crate) message: Option<Message>,
    /// How the data of a command lies on the wire.
    pub(crate) shape: Shape,
    /// Bytes of a capsule that the controller takes.
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

    /// Its connection is over.
    pub(crate) fn stop(&mut self, out: &mut Outputs<'_>) {
        self.timer.take().map(|timer| out.cancel_timer(timer));
        self.keep_alives = 0;
        self.step = Step::Nothing;
    }
}
