//! Answers connection requests, in the host of a port that listens.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::epoll;
use verbline_verbs::connection::{ConnectOptions, Request};

use super::{Admitted, Host, HostRole};
use crate::connection::acceptor::{AcceptorPlace, Answer, ConnectionRequest, Decision};
use crate::connection::cm_mailbox::ToLcore;
use crate::connection::handshake::{self, wrong_device};
use crate::connection::multi_port::connection_slots::Held;
use crate::connection::multi_port::listener_ports::NoPlace;

/// Requests that are taken before anything else is looked at.
const REQUESTS_MAX: usize = 64;

impl Host {
    pub(super) fn take_requests(&mut self) {
        for _ in 0..REQUESTS_MAX {
            // An acceptor may take its time: a stop waits for one answer of it, not for all.
            if self.stop.connecting.is_raised() {
                return;
            }
            let HostRole::Listen { listener: Some(listener), .. } = &mut self.spec.role else { return };
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
        let HostRole::Listen { entrances, .. } = &self.spec.role else { return };
        if let Err(no) = entrances.look(request.device_name()) {
            return self.turn_away(request, no);
        }
        match self.decide(&request) {
            Decision::Accept { private_data, tag, place } => {
                let HostRole::Listen { entrances, .. } = &mut self.spec.role else { return };
                match entrances.reserve(request.device_name(), place) {
                    Ok(place) => self.send_to(place, Admitted { request, private_data, tag }),
                    Err(no) => {
                        self.end_of(tag);
                        self.turn_away(request, no);
                    }
                }
            }
            Decision::Reject { private_data } => {
                self.spec.counts.rejected_acceptor.add(1);
                reject(request, &private_data);
            }
        }
    }

    fn turn_away(&self, request: Request, no: NoPlace) {
        let (name, counts, device) = (&self.spec.port.name, &self.spec.counts, request.device_name());
        let HostRole::Listen { entrances, .. } = &self.spec.role else { return };
        let reason = match no {
            NoPlace::Device => {
                counts.rejected_device.add(1);
                wrong_device(name, &self.spec.port.device, device)
            }
            NoPlace::Full => {
                counts.rejected_full.add(1);
                let max: usize = entrances.all().iter().map(|entrance| entrance.intake.max()).sum();
                format!("port.{name} has {max} connections, and takes no more")
            }
            NoPlace::Unreachable => {
                counts.rejected_acceptor.add(1);
                tracing::warn!(port = %name, device, "the acceptor's answer names a place that there is none of");
                format!("port.{name} has no such place on {device}")
            }
        };
        reject(request, reason.as_bytes());
    }

    /// Gives one that has a place to the host of that port.
    fn send_to(&mut self, place: usize, admitted: Admitted) {
        let HostRole::Listen { entrances, .. } = &self.spec.role else { return };
        if place == 0 {
            return self.accept(admitted);
        }
        let intake = &entrances.all()[place].intake;
        if let Some(Admitted { request, tag, .. }) = intake.hand(admitted) {
            // The run comes to its end.
            intake.give_back();
            self.end_of(tag);
            reject(request, b"");
        }
    }

    /// Takes those whom the host that listens has let in.
    pub(super) fn take_admitted(&mut self) {
        let Some(intake) = &self.spec.intake else { return };
        for admitted in intake.take_all() {
            self.spec.counts.requests.add(1);
            self.accept(admitted);
        }
    }

    /// What the acceptor says; without one all come in.
    fn decide(&mut self, request: &Request) -> Decision {
        let HostRole::Listen { entrances, .. } = &self.spec.role else { return Answer::reject().0 };
        let Some(gate) = &self.spec.gate else { return Answer::accept().0 };
        let places: Vec<_> = (entrances.all().iter())
            .map(|entrance| AcceptorPlace {
                port: &entrance.port,
                device: &entrance.device,
                connections: entrance.intake.reserved(),
                connections_max: entrance.intake.max(),
            })
            .collect();
        let answer = gate.decide(&ConnectionRequest {
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
        let Some(connection) = self.places.take() else {
            // Some are used up for good.
            self.spec.counts.rejected_full.add(1);
            reject(request, b"no place is left");
            return self.leave(tag);
        };
        self.tags[connection.slot()] = tag;
        let mut qp = match self.make() {
            Ok(qp) => qp,
            Err(error) => {
                self.spec.counts.rejected_resources.add(1);
                let name = &self.spec.port.name;
                tracing::warn!(port = %name, %error, "a connection is rejected: no queue pair for it");
                reject(request, format!("port.{name} can make no queue pair").as_bytes());
                return self.give_back(connection);
            }
        };
        // The peer may send as soon as it has the answer.
        self.spec.mailbox.tell_lcore(ToLcore::Expect { connection, qpn: qp.qpn() });
        let options = ConnectOptions { private_data, ..self.spec.port.options.now() };
        let accepted = match request.accept(&mut qp, &options) {
            Ok(accepted) => accepted,
            Err(error) => return self.forget(connection, qp, &error),
        };
        let data = epoll::EventData::new_u64(connection.slot() as u64);
        if let Err(errno) = epoll::add(&self.epoll, accepted.as_fd(), data, epoll::EventFlags::IN) {
            return self.forget(connection, qp, &errno);
        }
        self.places.put(connection, Held::Accepted { connection: accepted, qp });
        self.accepted.push_back((self.time.now(), connection));
        self.look_at(connection.slot());
    }
}

fn reject(request: Request, reason: &[u8]) {
    let peer = request.peer_addr();
    tracing::debug!(%peer, reason = %String::from_utf8_lossy(reason), "a connection is rejected");
    if let Err(error) = handshake::reject(request, reason) {
        tracing::debug!(%peer, %error, "the peer does not hear that it is rejected");
    }
}
