//! A UD QP's table of destinations, and the path back to a sender.

use verbline_mem::Packet;
use verbline_softnic::qp_table::Transport;

use super::{QpError, QueuePair};
use crate::cq::completion::Completion;
use crate::datagram::ah::{AddressHandle, AhSpec};
use crate::datagram::grh::ReplyError;
use crate::wr::post::DestinationId;
use crate::wr::send::Destination;

impl QueuePair {
    /// Sets the default destination of UD packets: the first, or its replacement. The replaced one
    /// is dropped if nothing is outstanding; else it stays for the life of the QP, since a posted
    /// send may still use it.
    pub fn set_destination(&mut self, ah: &AddressHandle, qpn: u32, qkey: u32) -> Result<(), QpError> {
        let id = usize::from(self.add_destination(ah, qpn, qkey)?.0);
        self.send.destinations.swap(0, id);
        if id > 0 && self.sends_outstanding() == 0 {
            self.send.destinations.pop();
        }
        Ok(())
    }

    /// Adds a destination of UD packets, for [`crate::SendOptions::destination`]. Destinations stay
    /// for the life of the QP: a posted send may still use one. [`crate::datagram::MULTICAST_QPN`]
    /// is the QP number of a group.
    pub fn add_destination(&mut self, ah: &AddressHandle, qpn: u32, qkey: u32) -> Result<DestinationId, QpError> {
        self.check_destination(ah)?;
        let id = u16::try_from(self.send.destinations.len())
            .map_err(|_| QpError::Destinations { qpn: self.qpn(), max: self.send.destinations.len() })?;
        self.send.destinations.push(Destination { ah: ah.clone(), qpn, qkey });
        Ok(DestinationId(id))
    }

    /// Reserves space for this many more destinations, and for as many replaced address handles
    /// still in use: adding and replacing them then allocates nothing.
    pub fn reserve_destinations(&mut self, more: usize) {
        self.send.reserve_destinations(more);
    }

    /// Replaces a destination, for callers that keep a bounded number of them. The old address
    /// handle stays until no posted send uses it: [`QueuePair::take_replaced`]. Refused if there is
    /// no such destination.
    pub fn replace_destination(
        &mut self,
        id: DestinationId,
        ah: &AddressHandle,
        qpn: u32,
        qkey: u32,
    ) -> Result<(), QpError> {
        self.check_destination(ah)?;
        let (ours, has) = (self.qpn(), self.send.destinations.len());
        let place = self.send.destinations.get_mut(usize::from(id.0));
        let place = place.ok_or(QpError::NoDestination { qpn: ours, has, asked: id.0 })?;
        let before = std::mem::replace(place, Destination { ah: ah.clone(), qpn, qkey });
        self.send.replace(before.ah);
        Ok(())
    }

    /// The number of replaced address handles not taken back. Only a completion shows that a send
    /// is done: its own or a later one.
    pub fn replaced(&self) -> usize {
        self.send.replaced.len()
    }

    /// Takes a replaced address handle that no posted send uses any more. Dropping its last clone
    /// destroys it, which on kernel devices is a system call.
    pub fn take_replaced(&mut self) -> Option<AddressHandle> {
        self.send.take_replaced()
    }

    fn check_destination(&self, ah: &AddressHandle) -> Result<(), QpError> {
        self.check_transport(Transport::Ud)?;
        if ah.inner.pd.id != self.keep.pd.id {
            let (theirs, ours) = (ah.inner.pd.describe(), self.keep.pd.describe());
            return Err(QpError::Foreign { what: "address handle", theirs, ours });
        }
        Ok(())
    }

    /// The path back to the sender of this completion's message: [`AhSpec::reply`], from the port
    /// and GID that the QP has from INIT on. Together with [`Completion::src_qp`] and the sender's
    /// Q_Key it makes a destination:
    ///
    /// ```no_run
    /// # use verbline_verbs::{Completion, QueuePair, datagram::{DEFAULT_QKEY, DestinationId}};
    /// # fn answer(qp: &mut QueuePair, completion: &Completion) -> Result<DestinationId, Box<dyn std::error::Error>> {
    /// let packet = qp.recv_done(completion)?;
    /// let ah = qp.pd().create_ah(&qp.reply_path(completion, &packet)?)?;
    /// let back = qp.add_destination(&ah, completion.src_qp(), DEFAULT_QKEY)?;
    /// # Ok(back)
    /// # }
    /// ```
    ///
    /// Destinations stay for the life of the QP, so a caller that answers a peer often keeps the
    /// result of `add_destination`.
    pub fn reply_path(&self, completion: &Completion, packet: &Packet) -> Result<AhSpec, ReplyError> {
        Ok(AhSpec::reply(completion, packet)?.from_port(self.local.port, self.local.gid_index))
    }
}
