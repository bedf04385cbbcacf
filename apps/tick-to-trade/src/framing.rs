//! What a datagram of a channel says of itself, and whether that can be: its first sequence number
//! and how many messages it has.
//!
//! A datagram that contradicts itself or its feed is refused here, before the arbiter hears of it:
//! a MoldUDP64 packet of another session, or with more messages than its bytes can hold; a FORTS
//! datagram whose preamble is not its FAST message's `MsgSeqNum`.

use crate::fast::{Decoder, Message};
use crate::itch::MESSAGE_LEN_BYTES_MIN;
use crate::mold::{self, BLOCK_HEADER_LEN_BYTES, HEADER_LEN_BYTES, Session};

/// A FORTS datagram begins with its MsgSeqNum, little-endian, before the FAST bytes. Without any it
/// is a heartbeat that names the next one.
pub const PREAMBLE_LEN_BYTES: usize = 4;

/// Splits a FORTS datagram into MsgSeqNum and FAST bytes.
#[inline]
pub fn split_preamble(datagram: &[u8]) -> Option<(u32, &[u8])> {
    let (number, fast) = datagram.split_first_chunk::<PREAMBLE_LEN_BYTES>()?;
    Some((u32::from_le_bytes(*number), fast))
}

/// What a datagram says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Framed {
    /// Of its first message; of a heartbeat, of the next message that will come.
    pub sequence: u64,
    /// Its messages; a heartbeat or an end of session has none.
    pub count: u32,
}

/// Why a datagram is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// It is no datagram of this feed: cut, too long, or of another protocol.
    #[error("the datagram is no whole one of this feed")]
    Malformed,
    /// It is of another MoldUDP64 session.
    #[error("the datagram is of another session")]
    WrongSession,
    /// Its preamble is not the sequence number of the message in it.
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
    /// The session that a datagram names, and what it says of itself; `None` if it is no whole
    /// datagram of this feed, be it of which session it may.
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

    /// From here on the feed's session is this one. False, and nothing changes, if the plan says
    /// another.
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

    /// Whether a datagram without messages says that its session is over.
    #[cold]
    pub fn is_end(&self, datagram: &[u8]) -> bool {
        let is_end = |packet: mold::Packet<'_>| packet.kind() == mold::Kind::EndOfSession;
        matches!(self, Frames::Mold(_)) && mold::Packet::parse(datagram).is_ok_and(is_end)
    }

    /// Reads and checks a datagram.
    ///
    /// # Errors
    /// What makes it none of this feed's.
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
    /// It was given, and stays.
    is_fixed: bool,
    /// While the session is not known: that of the last datagram.
    seen: Option<Session>,
}

impl MoldFrames {
    /// Frames of this session; `None` takes that of the first two datagrams in a row that have the
    /// same.
    pub fn new(session: Option<Session>) -> MoldFrames {
        MoldFrames { session, is_fixed: session.is_some(), seen: None }
    }

    /// Reads and checks a frame.
    ///
    /// # Errors
    /// It is cut or too long, announces more messages than its bytes can hold, or is of another
    /// session.
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

/// What a MoldUDP64 packet says of itself, if it can hold so many messages: what a frame can cost
/// at most is the numbers that it carries.
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
    /// Datagrams that this decoder understands.
    pub fn new(decoder: Decoder) -> FortsFrames {
        FortsFrames { decoder, scratch: Message::new() }
    }

    /// Reads and checks a datagram. Its FAST message is read up to the sequence number only.
    ///
    /// # Errors
    /// It has no preamble, what follows is not FAST up to there, or the two numbers differ.
    #[inline]
    pub fn frame(&mut self, datagram: &[u8]) -> Result<Framed, FrameError> {
        let (number, fast) = split_preamble(datagram).ok_or(FrameError::Malformed)?;
        if fast.is_empty() {
            return Ok(Framed { sequence: u64::from(number), count: 0 });
        }
        // The price of a preamble that cannot lie alone: some forty bytes are looked at before the
        // message is decoded.
        match self.decoder.peek_sequence(fast, &mut self.scratch) {
            Ok(own) if own == number => Ok(Framed { sequence: u64::from(number), count: 1 }),
            Ok(_) => Err(FrameError::FalsePreamble),
            Err(_) => Err(FrameError::Malformed),
        }
    }
}
