//! The cm thread of the model's connections: it makes queue pairs, and destroys those that it gets
//! back.

use std::sync::Arc;

use verbline_mem::ConnectionId;
use verbline_verbs::QpMaker;

use super::PLACE;
use super::oracle::{Answer, Message};
use crate::connection::acceptor::ConnectionPeer;
use crate::connection::cm_mailbox::{CmMailbox, ToCm, ToLcore};
use crate::connection::port_qp::PortQp;
use crate::rig::Rig;

/// The reason of a connection whose peer has left.
const LEFT: &str = "left";

pub(super) struct CmThread {
    mailbox: Arc<CmMailbox>,
    maker: QpMaker,
    /// The connections with a queue pair, wherever that is.
    pub(super) all: Vec<Made>,
    /// The number of connections that each place has had.
    generations: Vec<u32>,
    /// Every connection so far.
    pub(super) ids: Vec<ConnectionId>,
}

/// A connection with a queue pair.
pub(super) struct Made {
    pub(super) id: ConnectionId,
    pub(super) qpn: u32,
    /// Its queue pair, while the cm thread has it.
    qp: Option<Box<PortQp>>,
    is_open: bool,
    is_given_up: bool,
    is_closed: bool,
    is_forced: bool,
    is_back: bool,
}

impl CmThread {
    pub(super) fn new(mailbox: Arc<CmMailbox>, maker: QpMaker, connections: usize) -> CmThread {
        CmThread { mailbox, maker, all: Vec::new(), generations: vec![0; connections], ids: Vec::new() }
    }

    /// Makes a queue pair, if there is a place.
    pub(super) fn expect(&mut self, rig: &Rig) -> Option<Message> {
        let taken = |at: &usize| self.all.iter().any(|made| made.id.slot() == *at);
        let at = (0..self.generations.len()).find(|at| !taken(at))?;
        self.generations[at] += 1;
        let id = ConnectionId::new(PLACE, at as u16, self.generations[at])?;
        let mut qp = self.maker.make().unwrap();
        rig.bring_up(&mut qp);
        rig.script.queues().know(&qp);
        let qpn = qp.qpn();
        self.ids.push(id);
        self.all.push(Made {
            id,
            qpn,
            qp: Some(Box::new(PortQp::new(qp))),
            is_open: false,
            is_given_up: false,
            is_closed: false,
            is_forced: false,
            is_back: false,
        });
        self.mailbox.tell_lcore(ToLcore::Expect { connection: id, qpn });
        Some(Message::Expect(id, qpn))
    }

    /// Returns one of the connections for which `is_so` holds.
    fn pick(&mut self, which: usize, is_so: impl Fn(&Made) -> bool) -> Option<&mut Made> {
        let mut some: Vec<_> = self.all.iter_mut().filter(|made| is_so(made)).collect();
        let count = some.len();
        (count > 0).then(|| some.swap_remove(which % count))
    }

    pub(super) fn open(&mut self, which: usize) -> Option<Message> {
        let made = self.pick(which, |made| !made.is_open && !made.is_given_up)?;
        let (connection, qp) = (made.id, made.qp.take()?);
        made.is_open = true;
        let address = ([127, 0, 0, 1], 4791).into();
        let tag = u64::from(connection.generation());
        let peer = ConnectionPeer { address, local: address, private_data: Box::default(), tag };
        let peer = Some(Box::new(peer));
        self.mailbox.tell_lcore(ToLcore::Open { connection, qp, peer });
        Some(Message::Open(connection))
    }

    pub(super) fn forget(&mut self, which: usize) -> Option<Message> {
        let made = self.pick(which, |made| !made.is_open && !made.is_given_up)?;
        let (connection, qp) = (made.id, made.qp.take()?);
        made.is_given_up = true;
        self.mailbox.tell_lcore(ToLcore::Forget { connection, qp });
        Some(Message::Forget(connection))
    }

    pub(super) fn close(&mut self, which: usize) -> Option<Message> {
        let made = self.pick(which, |made| made.is_open && !made.is_closed)?;
        made.is_closed = true;
        let connection = made.id;
        self.mailbox.tell_lcore(ToLcore::Close { connection, reason: LEFT });
        Some(Message::Close(connection, LEFT))
    }

    pub(super) fn force(&mut self, which: usize) -> Option<Message> {
        let made = self.pick(which, |made| (made.is_closed || made.is_given_up) && !made.is_forced)?;
        made.is_forced = true;
        let connection = made.id;
        self.mailbox.tell_lcore(ToLcore::Force { connection });
        Some(Message::Force(connection))
    }

    /// Returns the lcore's messages.
    pub(super) fn answers(&mut self) -> Vec<Answer> {
        let mut said = Vec::new();
        self.mailbox.take_for_cm(&mut said);
        said.into_iter().map(|said| self.answer(said)).collect()
    }

    fn answer(&mut self, said: ToCm) -> Answer {
        match said {
            ToCm::Over { connection, .. } => {
                // From then on it waits for the completions.
                self.all.iter_mut().filter(|made| made.id == connection).for_each(|made| made.is_closed = true);
                Answer::Over(connection)
            }
            ToCm::Drained { .. } => unreachable!("of a port with one queue pair"),
            ToCm::Told { peer } => Answer::Told(peer.tag),
            ToCm::Released { connection, qp } => {
                let made = self.all.iter_mut().find(|made| made.id == connection).expect("one that is not back");
                let qpn = qp.qpn();
                (made.qp, made.is_back) = (Some(qp), true);
                Answer::Released(connection, qpn)
            }
        }
    }

    /// Destroys the returned queue pairs; returns their numbers.
    pub(super) fn destroy(&mut self) -> Vec<u32> {
        let back = self.all.iter().filter(|made| made.is_back).map(|made| made.qpn).collect();
        self.all.retain(|made| !made.is_back);
        back
    }
}
