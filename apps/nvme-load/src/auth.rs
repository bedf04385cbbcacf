//! DH-HMAC-CHAP from the host's side: on the admin queue as steps of the handshake, on each I/O
//! queue as its first commands.

use verbline::prelude::*;
use verbline_nvme::auth::{
    self, AUTHENTICATION_REQUIRED, Body, Message, Offer, SECURE_CHANNEL_REQUIRED, WRITTEN_BYTES_MAX,
};
use verbline_nvme::secret::{Claim, Hash};
use verbline_nvme::{Command, Response, Sgl};

use crate::handshake_state::AuthStep;
use crate::queue::{Pending, State, Task};
use crate::stage::{IO, Initiator};

/// Room for a message of the controller; the data of every slot has more.
pub(crate) const ROOM_BYTES: usize = 256;

impl Initiator {
    /// Whether the response to a Connect asks for authentication.
    pub(crate) fn must_authenticate(&self, response: &Response) -> Result<bool, String> {
        if response.result & SECURE_CHANNEL_REQUIRED != 0 {
            return Err("the controller wants a secure channel, which the initiator does not have".to_owned());
        }
        if response.result & AUTHENTICATION_REQUIRED == 0 {
            return Ok(false);
        }
        match self.key {
            Some(_) => Ok(true),
            None => Err(format!(
                "the controller wants {} to prove who it is: write `secret = \"PATH\"` in [load], the file with \
                 the secret that the target has for this host",
                self.host
            )),
        }
    }

    /// Draws the number of the next exchange.
    pub(crate) fn next_transaction(&mut self) -> u16 {
        self.transaction = self.transaction.wrapping_add(1);
        self.transaction
    }

    pub(crate) fn negotiation(transaction: u16) -> Message {
        Message { transaction, body: Body::Negotiate(Offer::of(Hash::Sha256)) }
    }

    /// Takes the controller's message of this step. Returns the host's answer, if one is due.
    pub(crate) fn prove(&self, auth_step: AuthStep, transaction: u16, bytes: &[u8]) -> Result<Option<Message>, String> {
        let message = Message::read(bytes).map_err(|reason| format!("the controller's message: {reason}"))?;
        if let Body::Failure1(reason) = message.body {
            return Err(format!("{reason}: compare the secret in load.secret with the target's for {}", self.host));
        }
        if message.transaction != transaction {
            return Err(format!("the controller's message is of exchange {}, not {transaction}", message.transaction));
        }
        match (auth_step, message.body, &self.key) {
            (AuthStep::Challenge, Body::Challenge { hash, sequence, value: challenge }, Some(key)) => {
                let (host, subsystem) = (self.host, self.subsystem);
                let claim = Claim { hash, challenge, sequence, transaction, host, subsystem };
                Ok(Some(Message { transaction, body: Body::Reply { response: key.respond(&claim), challenge: None } }))
            }
            (AuthStep::Verdict, Body::Success1 { .. }, _) => Ok(None),
            _ => Err("the controller's message is not the one that is next".to_owned()),
        }
    }

    /// Begins the authentication on a connected I/O queue.
    pub(crate) fn authenticate_queue(&mut self, index: usize, out: &mut Outputs<'_>) {
        let transaction = self.next_transaction();
        self.queues[index].transaction = transaction;
        self.send_auth_step(index, AuthStep::Negotiate, Some(Initiator::negotiation(transaction)), out);
    }

    /// Takes the response to a command of the authentication.
    pub(crate) fn auth_step_answered(
        &mut self,
        index: usize,
        slot: u16,
        auth_step: AuthStep,
        response: &Response,
        out: &mut Outputs<'_>,
    ) {
        let number = index + 1;
        if !response.status.is_success() {
            return self
                .fail(format!("queue {number}: {auth_step:?} of authentication ended with {}", response.status));
        }
        let mut bytes = [0; ROOM_BYTES];
        let read = self.region.read_into(self.offset_of(index, slot), &mut bytes).map_err(|error| error.to_string());
        let answer = |initiator: &Initiator| {
            read.and_then(|()| initiator.prove(auth_step, initiator.queues[index].transaction, &bytes))
        };
        match auth_step {
            AuthStep::Negotiate => self.send_auth_step(index, AuthStep::Challenge, None, out),
            AuthStep::Reply => self.send_auth_step(index, AuthStep::Verdict, None, out),
            AuthStep::Challenge | AuthStep::Verdict => match answer(self) {
                Ok(Some(reply)) => self.send_auth_step(index, AuthStep::Reply, Some(reply), out),
                Ok(None) => self.queues[index].state = State::Ready,
                Err(why) => self.fail(format!("queue {number} is not authenticated: {why}")),
            },
        }
    }

    fn send_auth_step(&mut self, index: usize, auth_step: AuthStep, message: Option<Message>, out: &mut Outputs<'_>) {
        if !self.try_send_auth_step(index, auth_step, message, out) {
            self.fail(format!("queue {}: no packet or no room for {auth_step:?} of authentication", index + 1));
        }
    }

    fn try_send_auth_step(
        &mut self,
        index: usize,
        auth_step: AuthStep,
        message: Option<Message>,
        out: &mut Outputs<'_>,
    ) -> bool {
        let pending = Pending { task: Task::Authenticate(auth_step), began_ns: out.now_ns(), key: None };
        let Some(connection) = self.queues[index].connection else { return false };
        let Some(slot) = self.queues[index].next_slot() else { return false };
        let Some(cid) = self.queues[index].begin(pending) else { return false };
        let (command, bytes, len) = match message {
            Some(message) => {
                let mut bytes = [0; WRITTEN_BYTES_MAX];
                let len = message.write(&mut bytes);
                (auth::send(cid, Sgl::InCapsule { offset: 0, len: len as u32 }), bytes, len)
            }
            None => match self.receive_at(cid, self.offset_of(index, slot)) {
                Some(command) => (command, [0; WRITTEN_BYTES_MAX], 0),
                None => return false,
            },
        };
        let Some(mut packet) = out.alloc() else { return false };
        let is_filled = packet.fill(&command.to_bytes())
            && packet.append(len).map(|place| place.copy_from_slice(&bytes[..len])).is_some();
        packet.set_connection(Some(connection));
        is_filled && out.send(IO, packet)
    }

    /// An Authentication Receive into the region at `offset`.
    pub(crate) fn receive_at(&self, cid: u16, offset: usize) -> Option<Command> {
        let remote = self.region.remote(offset).ok()?;
        let sgl = Sgl::Keyed { addr: remote.addr, len: ROOM_BYTES as u32, key: remote.rkey, invalidate: false };
        Some(auth::receive(cid, sgl))
    }
}
