//! Reads and checks the framing of a channel's datagrams: the first sequence number and the number
//! of messages.
//!
//! A datagram that contradicts itself or its feed is refused here, before it reaches the arbiter: a
//! MoldUDP64 packet of another session, or with more messages than its bytes can hold; a FORTS
//! datagram whose preamble is not its FAST message's `MsgSeqNum`.

use crate::fast::{Decoder, Message};
use crate::itch::MESSAGE_LEN_BYTES_MIN;
use crate::mold::{self, BLOCK_HEADER_LEN_BYTES, HEADER_LEN_BYTES, Session};

/// A FORTS datagram begins with its MsgSeqNum, little-endian, before the FAST bytes. A datagram
/// without FAST bytes is a heartbeat and carries the next MsgSeqNum.
pub const PREAMBLE_LEN_BYTES: usize = 4;

/// Splits a FORTS datagram into MsgSeqNum and FAST bytes.
#[inline]
pub fn split_preamble(datagram: &[u8]) -> Option<(u32, &[u8])> {
    let (number, fast) = datagram.split_first_chunk::<PREAMBLE_LEN_BYTES>()?;
    Some((u32::from_le_bytes(*number), fast))
}

/// The framing of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Framed {
    /// The first message's number; in a heartbeat, that of the next message to come.
    pub sequence: u64,
    /// The number of messages; 0 in a heartbeat or an end of session.
    pub count: u32,
}

/// Why a datagram is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The datagram is not this feed's: it is cut, too long, or of another protocol.
    #[error("the datagram is no whole one of this feed")]
    Malformed,
    /// The datagram is of another MoldUDP64 session.
    #[error("the datagram is of another session")]
    WrongSession,
    /// The preamble is not the sequence number of the datagram's message.
    #[error("the preamble is not the message's own sequence number")]
    FalsePreamble,
}

/// How a feed's datagrams are framed.
pub enum Frames {
    /// MoldUDP64.
    Mold(MoldFrames),
    /// FAST behind a four-byte MsgSeqNum.
    Forts(Box<FortsFrames>),
}

/// A FORTS feed has no sessions.
const NO_SESSION: Session = [0; size_of::<Session>()];

impl Frames {
    /// The session and the framing of a datagram of any session; `None` if it is not a whole
    /// datagram of this feed.
    #[cold]
    pub fn claim(&mut self, datagram: &[u8]) -> Option<(Session, Framed)> {
        match self {
            Frames::Mold(_) => {
                let packet = mold::Packet::parse(datagram).ok()?;
                Some((*packet.session(), framed(&packet, datagram)?))
            }
            Frames::Forts(frames) => Some((NO_SESSION, frames.frame(datagram).ok()?)),
        }
    }

    /// Changes the feed's session. Returns false, and changes nothing, if the plan fixes another
    /// one.
    #[cold]
    #[must_use]
    pub fn go_over(&mut self, session: &Session) -> bool {
        let Frames::Mold(frames) = self else { return true };
        let may = !frames.is_fixed || frames.session == Some(*session);
        if may {
            frames.session = Some(*session);
        }
        may
    }

    /// Whether a datagram without messages announces the end of its session.
    #[cold]
    pub fn is_end(&self, datagram: &[u8]) -> bool {
        let is_end = |packet: mold::Packet<'_>| packet.kind() == mold::Kind::EndOfSession;
        matches!(self, Frames::Mold(_)) && mold::Packet::parse(datagram).is_ok_and(is_end)
    }

    /// Reads and checks a datagram.
    ///
    /// # Errors
    /// The reason why the datagram is not this feed's.
    #[inline]
    pub fn frame(&mut self, datagram: &[u8]) -> Result<Framed, FrameError> {
        match self {
            Frames::Mold(frames) => frames.frame(datagram),
            Frames::Forts(frames) => frames.frame(datagram),
        }
    }
}

/// MoldUDP64 frames of ITCH messages.
#[derive(Debug)]
pub struct MoldFrames {
    session: Option<Session>,
    /// The session was given to `new` and stays.
    is_fixed: bool,
    /// The last datagram's session, while the feed's is unknown.
    seen: Option<Session>,
}

impl MoldFrames {
    /// Frames of this session; `None` learns it from the first two datagrams in a row with the same
    /// session.
    pub fn new(session: Option<Session>) -> MoldFrames {
        MoldFrames { session, is_fixed: session.is_some(), seen: None }
    }

    /// Reads and checks a frame.
    ///
    /// # Errors
    /// The frame is cut or too long, announces more messages than its bytes can hold, or is of
    /// another session.
    #[inline]
    pub fn frame(&mut self, datagram: &[u8]) -> Result<Framed, FrameError> {
        let packet = mold::Packet::parse(datagram).map_err(|_| FrameError::Malformed)?;
        let framed = framed(&packet, datagram).ok_or(FrameError::Malformed)?;
        match &self.session {
            Some(session) if session == packet.session() => {}
            Some(_) => return Err(FrameError::WrongSession),
            None => self.learn(packet.session()),
        }
        Ok(framed)
    }

    #[cold]
    fn learn(&mut self, session: &Session) {
        if self.seen.replace(*session) == Some(*session) {
            self.session = Some(*session);
        }
    }
}

/// The framing of a MoldUDP64 packet, if its bytes can hold its message count. This bounds the cost
/// of a frame by the numbers that it carries.
#[inline]
fn framed(packet: &mold::Packet<'_>, datagram: &[u8]) -> Option<Framed> {
    let count = usize::from(packet.count());
    let can_be = count * (BLOCK_HEADER_LEN_BYTES + MESSAGE_LEN_BYTES_MIN) <= datagram.len() - HEADER_LEN_BYTES;
    can_be.then(|| Framed { sequence: packet.sequence(), count: u32::from(packet.count()) })
}

/// FORTS datagrams: a preamble, then a FAST reset and message.
pub struct FortsFrames {
    decoder: Decoder,
    scratch: Message,
}

impl FortsFrames {
    /// Frames whose FAST messages `decoder` decodes.
    pub fn new(decoder: Decoder) -> FortsFrames {
        FortsFrames { decoder, scratch: Message::new() }
    }

    /// Reads and checks a datagram. Its FAST message is read up to the sequence number only.
    ///
    /// # Errors
    /// The datagram has no preamble, is not valid FAST up to the sequence number, or the two
    /// numbers differ.
    #[inline]
    pub fn frame(&mut self, datagram: &[u8]) -> Result<Framed, FrameError> {
        let (number, fast) = split_preamble(datagram).ok_or(FrameError::Malformed)?;
        if fast.is_empty() {
            return Ok(Framed { sequence: u64::from(number), count: 0 });
        }
        // Verifying the preamble costs a look at some forty bytes before the message is decoded.
        match self.decoder.peek_sequence(fast, &mut self.scratch) {
            Ok(own) if own == number => Ok(Framed { sequence: u64::from(number), count: 1 }),
            Ok(_) => Err(FrameError::FalsePreamble),
            Err(_) => Err(FrameError::Malformed),
        }
    }
}
