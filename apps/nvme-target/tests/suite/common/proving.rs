//! Hosts that must authenticate, and the target that knows a secret.

use std::path::PathBuf;

use verbline::engine::Running;
use verbline_nvme::auth::{self, AUTHENTICATION_REQUIRED, Body, Message, Offer, WRITTEN_BYTES_MAX};
use verbline_nvme::connect::{CNTLID_ANY, Connect};
use verbline_nvme::feature::{self, QueueCount};
use verbline_nvme::property::{self, Property};
use verbline_nvme::secret::{Claim, Hash, Key, Secret};
use verbline_nvme::{Command, Nqn, Response, Sgl, opcode};

use super::{CONNECT, Host, SUBSYSTEM, target};

pub(crate) const HOST: &str = "nqn.2026-01.org.example:host";
pub(crate) const SECRET: &str = "DHHC-1:01:AQgPFh0kKzI5QEdOVVxjanF4f4aNlJuiqbC3vsXM09pl1OOC:";
/// The secret of another host.
pub(crate) const OTHER: &str = "DHHC-1:00:AAcOFRwjKjE4P0ZNVFtiaXB3foWMk5qhqK+2vcTL0tk/PUPo:";
/// The messages' place in the host's memory.
pub(crate) const AT: u64 = 32 << 10;
const ROOM: u32 = 512;

pub(crate) fn key(secret: &str) -> Key {
    Secret::read(secret).expect("a secret").key_of(&name(HOST))
}

pub(crate) fn name(text: &str) -> Nqn {
    Nqn::new(text).expect("a name")
}

/// A target that knows the secret of one host. The folder holds the secret's file.
pub(crate) fn guarded(port: u16) -> (Running, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let path: PathBuf = folder.path().join("host.key");
    std::fs::write(&path, format!("{SECRET}\n")).expect("written");
    (target(port, &format!("secrets = {{ \"{HOST}\" = {path:?} }}")), folder)
}

/// Methods for authentication.
impl Host {
    /// An admin queue that has to be authenticated, and its controller.
    #[track_caller]
    pub(crate) fn connected(&mut self) -> (usize, u16) {
        let admin = self.dial_queue(0);
        let data = self.data(CNTLID_ANY, SUBSYSTEM);
        let answer = self.connect(admin, CONNECT, &data);
        assert!(answer.status.is_success(), "{answer:?}");
        assert_eq!(answer.result & !0xFFFF, AUTHENTICATION_REQUIRED, "{answer:?}");
        (admin, answer.result as u16)
    }

    pub(crate) fn send_bytes(&mut self, queue: usize, bytes: &[u8], in_capsule: bool) -> Response {
        let len = bytes.len() as u32;
        if in_capsule {
            return self.ask_with(queue, &auth::send(0, Sgl::InCapsule { offset: 0, len }), bytes);
        }
        self.memory.write_from(AT as usize, bytes).expect("within the memory");
        let sgl = self.keyed(AT, len);
        self.ask(queue, &auth::send(0, sgl))
    }

    pub(crate) fn send_message(&mut self, queue: usize, message: &Message) -> Response {
        let mut bytes = [0; WRITTEN_BYTES_MAX];
        let len = message.write(&mut bytes);
        // Alternates between the capsule and a key.
        self.send_bytes(queue, &bytes[..len], message.transaction.is_multiple_of(2))
    }

    pub(crate) fn receive(&mut self, queue: usize) -> Result<Message, Response> {
        let sgl = self.keyed(AT, ROOM);
        let answer = self.ask(queue, &auth::receive(0, sgl));
        match answer.status.is_success() {
            true => Ok(Message::read(&self.bytes(AT as usize, ROOM as usize)).expect("a message")),
            false => Err(answer),
        }
    }

    /// Negotiates. Returns the claim to be proved.
    #[track_caller]
    pub(crate) fn challenged(&mut self, queue: usize, transaction: u16) -> Claim {
        let negotiate = Message { transaction, body: Body::Negotiate(Offer::of(Hash::Sha384)) };
        assert!(self.send_message(queue, &negotiate).status.is_success());
        match self.receive(queue) {
            Ok(Message { transaction: own, body: Body::Challenge { hash, sequence, value: challenge } }) => {
                assert_eq!((own, hash), (transaction, Hash::Sha384), "the host's first choice");
                Claim { hash, challenge, sequence, transaction, host: name(self.name), subsystem: name(SUBSYSTEM) }
            }
            other => panic!("{other:?}"),
        }
    }

    /// A whole exchange: how it ends.
    #[track_caller]
    pub(crate) fn prove(&mut self, queue: usize, transaction: u16, key: &Key) -> Message {
        let claim = self.challenged(queue, transaction);
        let reply = Body::Reply { response: key.respond(&claim), challenge: None };
        assert!(self.send_message(queue, &Message { transaction, body: reply }).status.is_success());
        self.receive(queue).unwrap_or_else(|answer| panic!("{answer:?}"))
    }

    /// A controller whose host has proved itself, which is enabled and has granted four queues.
    #[track_caller]
    pub(crate) fn proven_controller(&mut self) -> (usize, u16) {
        let (admin, cntlid) = self.connected();
        assert_eq!(self.prove(admin, 1, &key(SECRET)).body, SUCCESS);
        let cc = Property { offset: property::CC, is_wide: false };
        assert!(self.ask(admin, &cc.set(0, property::CC_USUAL.into())).status.is_success());
        let queues = QueueCount { submission_less_one: 3, completion_less_one: 3 };
        let set = Command::new(opcode::admin::SET_FEATURES, 0, Sgl::NONE);
        let set = set.with([feature::NUMBER_OF_QUEUES.into(), queues.to_dword(), 0, 0, 0, 0]);
        assert!(self.ask(admin, &set).status.is_success());
        (admin, cntlid)
    }

    /// An I/O queue that is connected to a controller, and has proved nothing.
    pub(crate) fn candidate(&mut self, cntlid: u16, qid: u16) -> (usize, Response) {
        let queue = self.dial_queue(qid);
        let data = self.data(cntlid, SUBSYSTEM);
        let answer = self.connect(queue, Connect { qid, ..CONNECT }, &data);
        (queue, answer)
    }
}

pub(crate) const SUCCESS: Body = Body::Success1 { hash: Hash::Sha384, response: None };
