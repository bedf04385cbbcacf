//! The steps of an authentication.

/// What the host does on a queue, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuthStep {
    Negotiate,
    Challenge,
    Reply,
    Verdict,
}
