//! Answers connection requests, in the cm thread of a port that listens.

use std::time::Duration;

use verbline_verbs::connection::{ConnectOptions, Request};

use super::{Admitted, CmThread, CmThreadRole};
use crate::connection::acceptor::{AcceptorPlace, Answer, ConnectionRequest, Decision};
use crate::connection::handshake::{self, wrong_device};
use crate::connection::multi_port::connection_slots::SlotState;
use crate::connection::multi_port::listener_ports::NoPlace;

/// The most requests taken before other events are handled.
const REQUESTS_MAX: usize = 64;

impl CmThread {
    pub(super) fn take_requests(&mut self) {
        for _ in 0..REQUESTS_MAX {
            // An acceptor may take its time: a stop waits for one answer, not for all.
            if self.stop.connecting.is_raised() {
                return;
            }
            let CmThreadRole::Listen { listener: Some(listener), .. } = &mut self.spec.role else { return };
            match listener.next(Duration::ZERO) {
                Ok(Some(request)) => self.answer(request),
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(port = %self.spec.port.name, %error, "a request could not be taken");
                    return;
                }
            }
        }
    }

    fn answer(&mut self, request: Request) {
        self.spec.counts.requests.add(1);
        let CmThreadRole::Listen { listener_ports, .. } = &self.spec.role else { return };
        if let Err(no) = listener_ports.look(request.device_name()) {
            return self.turn_away(request, no, None);
        }
        match self.decide(&request) {
            Decision::Accept { private_data, tag, place } => {
                let CmThreadRole::Listen { listener_ports, .. } = &mut self.spec.role else { return };
                let chosen = place;
                match listener_ports.reserve(request.device_name(), chosen) {
                    Ok(place) => self.send_to(place, Admitted { request, private_data, tag }),
                    Err(no) => {
                        self.end_of(tag);
                        self.turn_away(request, no, chosen);
                    }
                }
            }
            Decision::Reject { private_data } => {
                self.spec.counts.rejected_acceptor.add(1);
                reject(request, &private_data);
            }
        }
    }

    /// `chosen`: the place that the acceptor chose, if it did.
    fn turn_away(&self, request: Request, no: NoPlace, chosen: Option<usize>) {
        let (name, counts, device) = (&self.spec.port.name, &self.spec.counts, request.device_name());
        let CmThreadRole::Listen { listener_ports, .. } = &self.spec.role else { return };
        let reason = match no {
            NoPlace::Device => {
                counts.rejected_device.add(1);
                wrong_device(name, &self.spec.port.device, device)
            }
            NoPlace::Full => {
                counts.rejected_full.add(1);
                let max: usize = listener_ports.all().iter().map(|port| port.accept_queue.max()).sum();
                format!("port.{name} has {max} connections, and takes no more")
            }
            NoPlace::Unreachable => {
                counts.rejected_acceptor.add(1);
                let (place, places) = (chosen.unwrap_or_default(), listener_ports.all().len());
                let why = if place < places { "is on another device" } else { "does not exist" };
                tracing::warn!(port = %name, device, place, places, "the acceptor chose a place that {why}");
                format!("port.{name} has no such place on {device}")
            }
        };
        reject(request, reason.as_bytes());
    }

    /// Hands an admitted request to the cm thread of its port.
    fn send_to(&mut self, place: usize, admitted: Admitted) {
        let CmThreadRole::Listen { listener_ports, .. } = &self.spec.role else { return };
        if place == 0 {
            return self.accept(admitted);
        }
        let accept_queue = &listener_ports.all()[place].accept_queue;
        if let Some(Admitted { request, tag, .. }) = accept_queue.hand(admitted) {
            // The run comes to its end.
            self.spec.counts.unanswered.add(1);
            accept_queue.give_back();
            self.end_of(tag);
            reject(request, b"");
        }
    }

    /// Takes the requests that the listening cm thread has admitted.
    pub(super) fn take_admitted(&mut self) {
        let Some(accept_queue) = &self.spec.accept_queue else { return };
        for admitted in accept_queue.take_all() {
            self.spec.counts.requests.add(1);
            self.accept(admitted);
        }
    }

    /// The acceptor's decision; without an acceptor every request is accepted.
    fn decide(&mut self, request: &Request) -> Decision {
        let CmThreadRole::Listen { listener_ports, .. } = &self.spec.role else { return Answer::reject().0 };
        let Some(acceptor) = &self.spec.acceptor else { return Answer::accept().0 };
        let places: Vec<_> = (listener_ports.all().iter())
            .map(|port| AcceptorPlace {
                port: &port.port,
                device: &port.device,
                connections: port.accept_queue.reserved(),
                connections_max: port.accept_queue.max(),
            })
            .collect();
        let answer = acceptor.decide(&ConnectionRequest {
            peer: request.peer_addr(),
            private_data: request.private_data(),
            param: request.param(),
            device: request.device_name(),
            places: &places,
        });
        match answer {
            Ok(Answer(decision)) => decision,
            Err(sentence) => {
                self.fail(sentence);
                Answer::reject().0
            }
        }
    }

    fn accept(&mut self, admitted: Admitted) {
        let Admitted { request, private_data, tag } = admitted;
        let Some(connection) = self.slots.take() else {
            // Some slots are used up for good.
            self.spec.counts.rejected_full.add(1);
            reject(request, b"no place is left");
            return self.leave(tag);
        };
        self.tags[connection.slot()] = tag;
        let qp = match self.make() {
            Ok(qp) => qp,
            Err(error) => {
                self.spec.counts.rejected_resources.add(1);
                let name = &self.spec.port.name;
                tracing::warn!(port = %name, %error, "a connection is rejected: no queue pair for it");
                reject(request, format!("port.{name} can make no queue pair").as_bytes());
                return self.give_back(connection);
            }
        };
        let options = ConnectOptions { private_data, ..self.spec.port.options.now() };
        let accepted = |connection, qp| SlotState::Accepted { connection, qp };
        if self.begin(connection, qp, |qp| request.accept(qp, &options), accepted) {
            self.look_at(connection.slot());
        }
    }
}

fn reject(request: Request, reason: &[u8]) {
    let peer = request.peer_addr();
    tracing::debug!(%peer, reason = %String::from_utf8_lossy(reason), "a connection is rejected");
    if let Err(error) = handshake::reject(request, reason) {
        tracing::debug!(%peer, %error, "the peer does not hear that it is rejected");
    }
}
