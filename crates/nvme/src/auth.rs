//! In-band authentication: the commands that carry its messages, and the messages of DH-HMAC-CHAP
//! (Base 2.0, 8.13). [`secret`](crate::secret) computes the keys and responses in them.
//!
//! Only the null Diffie-Hellman group is known: a Challenge or a Reply with a Diffie-Hellman value
//! is refused.

use crate::bytes::{put, u16_at, u32_at};
use crate::command::Command;
use crate::error::FieldError;
use crate::opcode::fabrics;
use crate::secret::{DIGEST_BYTES_MAX, Digest, Hash};
use crate::sgl::Sgl;
use crate::status::Status;

/// The longest message that either side takes, bytes. The longest message that this crate writes is
/// a Reply of 144.
pub const MESSAGE_BYTES_MAX: usize = 4096;
/// Bytes of a buffer that holds any message of [`Message::write`].
pub const WRITTEN_BYTES_MAX: usize = 144;

/// In dword 0 of the response to Connect: the queue must be authenticated (AUTHREQ.ATR).
pub const AUTHENTICATION_REQUIRED: u64 = 1 << 17;
/// In dword 0 of the response to Connect: the queue must be authenticated, and then use a secure
/// channel (AUTHREQ.ASCR).
pub const SECURE_CHANNEL_REQUIRED: u64 = 1 << 18;

/// SECP E9h, SPSP1 01h, SPSP0 01h: the only security protocol.
const PROTOCOL: u32 = 0xE901_0100;
/// The identifier of DH-HMAC-CHAP among protocols.
const DHCHAP: u8 = 1;
const PROTOCOL_BYTES: usize = 64;
const NEGOTIATE_HEAD_BYTES: usize = 8;
const HEAD_BYTES: usize = 16;
const FAILURE_BYTES: usize = 8;
/// The most identifiers of hashes, or of groups, in the description of a protocol.
const IDENTIFIERS_MAX: usize = 30;
const NULL_GROUP: u8 = 0;

/// The number of bytes that an Authentication Send carries, or that an Authentication Receive has
/// room for.
///
/// # Errors
/// The security protocol is unknown; the length is 0, above [`MESSAGE_BYTES_MAX`], or differs from
/// the SGL's.
pub fn transfer_of(command: &Command) -> Result<usize, FieldError> {
    let [protocol, len, ..] = command.cdw10;
    if protocol & 0xFFFF_FF00 != PROTOCOL {
        return Err(FieldError::new("SECP", 40, protocol, Status::INVALID_FIELD.do_not_retry()));
    }
    if len == 0 || len as usize > MESSAGE_BYTES_MAX {
        return Err(FieldError::new("TL", 44, len, Status::INVALID_FIELD.do_not_retry()));
    }
    if len as usize != command.sgl.len_bytes() {
        return Err(FieldError::new("TL", 44, len, Status::SGL_DATA_LENGTH_INVALID.do_not_retry()));
    }
    Ok(len as usize)
}

/// An Authentication Send of the message at `sgl`.
pub fn send(cid: u16, sgl: Sgl) -> Command {
    of_type(fabrics::AUTHENTICATION_SEND, cid, sgl)
}

/// An Authentication Receive into the buffer at `sgl`.
pub fn receive(cid: u16, sgl: Sgl) -> Command {
    of_type(fabrics::AUTHENTICATION_RECEIVE, cid, sgl)
}

fn of_type(kind: u8, cid: u16, sgl: Sgl) -> Command {
    let dwords = [PROTOCOL, sgl.len_bytes() as u32, 0, 0, 0, 0];
    Command { nsid: kind.into(), ..Command::new(fabrics::OPCODE, cid, sgl).with(dwords) }
}

/// Why an authentication failed: the explanation of Failure1 and Failure2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(u8)]
pub enum Reason {
    /// The response was made with another secret.
    #[error("authentication failed")]
    Failed = 1,
    /// The host does not offer DH-HMAC-CHAP.
    #[error("authentication protocol not usable")]
    ProtocolUnusable = 2,
    /// The host wants a secure channel, and there is none.
    #[error("secure channel concatenation mismatch")]
    ChannelMismatch = 3,
    /// The host offers no hash that is known.
    #[error("hash function not usable")]
    HashUnusable = 4,
    /// The host does not offer the null group.
    #[error("DH group not usable")]
    GroupUnusable = 5,
    /// A message is malformed.
    #[error("incorrect payload")]
    Payload = 6,
    /// The message came out of turn.
    #[error("incorrect protocol message")]
    Message = 7,
}

impl Reason {
    const ALL: [Reason; 7] = [
        Reason::Failed,
        Reason::ProtocolUnusable,
        Reason::ChannelMismatch,
        Reason::HashUnusable,
        Reason::GroupUnusable,
        Reason::Payload,
        Reason::Message,
    ];
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The host's number for the exchange (T_ID).
    pub transaction: u16,
    /// The type of the message, and its fields.
    pub body: Body,
}

/// The type of a [`Message`], and its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// AUTH_Negotiate, from the host: the hashes and groups that it supports.
    Negotiate(Offer),
    /// DH-HMAC-CHAP_Challenge, from the controller.
    Challenge {
        /// The hash of the responses; its digests are as long as `value`.
        hash: Hash,
        /// The number of the challenge (S1).
        sequence: u32,
        /// The challenge (C1).
        value: Digest,
    },
    /// DH-HMAC-CHAP_Reply, from the host.
    Reply {
        /// The response (R1).
        response: Digest,
        /// The host's challenge to the controller, if it wants one authenticated: its number (S2)
        /// and value (C2).
        challenge: Option<(u32, Digest)>,
    },
    /// DH-HMAC-CHAP_Success1, from the controller, with its response (R2) to the host's challenge.
    Success1 {
        /// The hash, whose length the message carries even without a response.
        hash: Hash,
        /// R2; `None` if the host sent no challenge.
        response: Option<Digest>,
    },
    /// DH-HMAC-CHAP_Success2, from the host: the controller's response is right.
    Success2,
    /// AUTH_Failure1, from the controller.
    Failure1(Reason),
    /// AUTH_Failure2, from the host.
    Failure2(Reason),
}

/// The host's offer in an AUTH_Negotiate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The host wants a secure channel (SC_C is not 0).
    pub wants_channel: bool,
    /// The hash to use: the first known one in the host's first DH-HMAC-CHAP descriptor; or the
    /// reason why none can be used.
    pub hash: Result<Hash, Reason>,
}

mod kind {
    pub(super) const NEGOTIATE: u16 = 0x0000;
    pub(super) const CHALLENGE: u16 = 0x0101;
    pub(super) const REPLY: u16 = 0x0201;
    pub(super) const SUCCESS1: u16 = 0x0301;
    pub(super) const SUCCESS2: u16 = 0x0401;
    pub(super) const FAILURE2: u16 = 0xF000;
    pub(super) const FAILURE1: u16 = 0xF100;
}

impl Message {
    /// Reads the transaction of a message that may be malformed otherwise.
    pub fn transaction_of(bytes: &[u8]) -> u16 {
        u16_at(bytes, 4)
    }

    /// Reads a message. Bytes behind it are ignored.
    ///
    /// # Errors
    /// The reason to send in a Failure1 or Failure2.
    pub fn read(bytes: &[u8]) -> Result<Message, Reason> {
        if bytes.len() < FAILURE_BYTES {
            return Err(Reason::Payload);
        }
        let body = match u16_at(bytes, 0) {
            kind::NEGOTIATE => Body::Negotiate(Offer::read(bytes)?),
            kind::CHALLENGE => read_challenge(bytes)?,
            kind::REPLY => read_reply(bytes)?,
            kind::SUCCESS1 => read_success1(bytes)?,
            kind::SUCCESS2 if bytes.len() >= HEAD_BYTES => Body::Success2,
            kind::SUCCESS2 => return Err(Reason::Payload),
            kind::FAILURE1 => Body::Failure1(read_failure(bytes)?),
            kind::FAILURE2 => Body::Failure2(read_failure(bytes)?),
            _ => return Err(Reason::Message),
        };
        Ok(Message { transaction: u16_at(bytes, 4), body })
    }

    /// Writes the message to the front of `bytes` and returns its length.
    pub fn write(&self, bytes: &mut [u8; WRITTEN_BYTES_MAX]) -> usize {
        bytes.fill(0);
        let (kind, len) = match &self.body {
            Body::Negotiate(offer) => (kind::NEGOTIATE, offer.write(bytes)),
            Body::Challenge { hash, sequence, value } => {
                (bytes[6], bytes[8]) = (hash.len_bytes() as u8, *hash as u8);
                put(bytes, 12, &sequence.to_le_bytes());
                put(bytes, HEAD_BYTES, value.as_bytes());
                (kind::CHALLENGE, HEAD_BYTES + value.as_bytes().len())
            }
            Body::Reply { response, challenge } => {
                let len = response.as_bytes().len();
                bytes[6] = len as u8;
                put(bytes, HEAD_BYTES, response.as_bytes());
                if let Some((sequence, value)) = challenge {
                    bytes[8] = 1;
                    put(bytes, 12, &sequence.to_le_bytes());
                    put(bytes, HEAD_BYTES + len, value.as_bytes());
                }
                (kind::REPLY, HEAD_BYTES + 2 * len)
            }
            Body::Success1 { hash, response } => {
                (bytes[6], bytes[8]) = (hash.len_bytes() as u8, response.is_some().into());
                let response = response.as_ref().map_or(&[][..], Digest::as_bytes);
                put(bytes, HEAD_BYTES, response);
                (kind::SUCCESS1, HEAD_BYTES + hash.len_bytes())
            }
            Body::Success2 => (kind::SUCCESS2, HEAD_BYTES),
            Body::Failure1(reason) => (kind::FAILURE1, write_failure(*reason, bytes)),
            Body::Failure2(reason) => (kind::FAILURE2, write_failure(*reason, bytes)),
        };
        put(bytes, 0, &kind.to_le_bytes());
        put(bytes, 4, &self.transaction.to_le_bytes());
        len
    }
}

impl Offer {
    /// Offers all known hashes, `hash` first.
    pub fn of(hash: Hash) -> Offer {
        Offer { wants_channel: false, hash: Ok(hash) }
    }

    fn read(bytes: &[u8]) -> Result<Offer, Reason> {
        let count = usize::from(bytes[7]);
        let protocols = bytes.get(NEGOTIATE_HEAD_BYTES..).and_then(|rest| rest.get(..count * PROTOCOL_BYTES));
        let protocols = protocols.filter(|_| count > 0).ok_or(Reason::Payload)?;
        let mut hash = Err(Reason::ProtocolUnusable);
        if let Some(offered) = protocols.chunks_exact(PROTOCOL_BYTES).find(|protocol| protocol[0] == DHCHAP) {
            let (hashes, groups) = (usize::from(offered[2]), usize::from(offered[3]));
            if hashes == 0 || groups == 0 || hashes > IDENTIFIERS_MAX || groups > IDENTIFIERS_MAX {
                return Err(Reason::Payload);
            }
            let (own_hashes, own_groups) = offered[4..].split_at(IDENTIFIERS_MAX);
            hash = own_hashes[..hashes].iter().find_map(|id| Hash::of(*id)).ok_or(Reason::HashUnusable);
            if !own_groups[..groups].contains(&NULL_GROUP) {
                hash = hash.and(Err(Reason::GroupUnusable));
            }
        }
        Ok(Offer { wants_channel: bytes[6] != 0, hash })
    }

    fn write(&self, bytes: &mut [u8; WRITTEN_BYTES_MAX]) -> usize {
        let first = self.hash.unwrap_or(Hash::Sha256);
        (bytes[6], bytes[7], bytes[8]) = (self.wants_channel.into(), 1, DHCHAP);
        (bytes[10], bytes[11]) = (Hash::ALL.len() as u8, 1);
        let others = Hash::ALL.into_iter().filter(|hash| *hash != first);
        for (at, hash) in std::iter::once(first).chain(others).enumerate() {
            bytes[12 + at] = hash as u8;
        }
        NEGOTIATE_HEAD_BYTES + PROTOCOL_BYTES
    }
}

/// Reads a digest of `len` bytes at `at`.
fn digest_at(bytes: &[u8], at: usize, len: usize) -> Result<Digest, Reason> {
    let field = at.checked_add(len).and_then(|end| bytes.get(at..end)).ok_or(Reason::Payload)?;
    Digest::new(field).filter(|_| len <= DIGEST_BYTES_MAX).ok_or(Reason::Payload)
}

fn read_challenge(bytes: &[u8]) -> Result<Body, Reason> {
    if bytes.len() < HEAD_BYTES {
        return Err(Reason::Payload);
    }
    let hash = Hash::of(bytes[8]).ok_or(Reason::HashUnusable)?;
    if bytes[9] != NULL_GROUP {
        return Err(Reason::GroupUnusable);
    }
    if usize::from(bytes[6]) != hash.len_bytes() || u16_at(bytes, 10) != 0 {
        return Err(Reason::Payload);
    }
    Ok(Body::Challenge { hash, sequence: u32_at(bytes, 12), value: digest_at(bytes, HEAD_BYTES, hash.len_bytes())? })
}

fn read_reply(bytes: &[u8]) -> Result<Body, Reason> {
    if bytes.len() < HEAD_BYTES || u16_at(bytes, 10) != 0 {
        return Err(Reason::Payload);
    }
    let len = usize::from(bytes[6]);
    let response = digest_at(bytes, HEAD_BYTES, len)?;
    // The field of the host's challenge is present even where it is not valid.
    let value = digest_at(bytes, HEAD_BYTES + len, len)?;
    let challenge = match bytes[8] {
        0 => None,
        1 => Some((u32_at(bytes, 12), value)),
        _ => return Err(Reason::Payload),
    };
    Ok(Body::Reply { response, challenge })
}

fn read_success1(bytes: &[u8]) -> Result<Body, Reason> {
    if bytes.len() < HEAD_BYTES {
        return Err(Reason::Payload);
    }
    let len = usize::from(bytes[6]);
    let hash = Hash::ALL.into_iter().find(|hash| hash.len_bytes() == len).ok_or(Reason::Payload)?;
    let response = match bytes[8] {
        0 => None,
        1 => Some(digest_at(bytes, HEAD_BYTES, len)?),
        _ => return Err(Reason::Payload),
    };
    Ok(Body::Success1 { hash, response })
}

/// Reads a failure. Its reason code is always 01h, authentication failure; the explanation is the
/// [`Reason`].
fn read_failure(bytes: &[u8]) -> Result<Reason, Reason> {
    let reason = Reason::ALL.into_iter().find(|reason| *reason as u8 == bytes[7]);
    reason.filter(|_| bytes[6] == 1).ok_or(Reason::Payload)
}

fn write_failure(reason: Reason, bytes: &mut [u8; WRITTEN_BYTES_MAX]) -> usize {
    (bytes[6], bytes[7]) = (1, reason as u8);
    FAILURE_BYTES
}
