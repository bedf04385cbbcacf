//! Hosts that must authenticate: some do, some can't, and some do something else instead.

use crate::common::proving::{AT, OTHER, SECRET, SUCCESS, guarded, key};
use crate::common::{CONNECT, Host, SUBSYSTEM, end, until};
use verbline_nvme::auth::{self, AUTHENTICATION_REQUIRED, Body, Message, Offer, Reason, WRITTEN_BYTES_MAX};
use verbline_nvme::connect::{CNTLID_ANY, Connect};
use verbline_nvme::feature::{self, QueueCount};
use verbline_nvme::property::{self, Property};
use verbline_nvme::secret::{Digest, Hash};
use verbline_nvme::{Command, DISCOVERY_NQN, Sgl, Status, opcode};

#[test]
fn a_host_with_the_secret_is_served_once_it_has_proved_itself_on_each_queue() {
    let (running, _folder) = guarded(7860);
    let mut host = Host::new(7860);
    let (admin, cntlid) = host.connected();
    let cc = Property { offset: property::CC, is_wide: false };
    let queues = QueueCount { submission_less_one: 3, completion_less_one: 3 };
    let set = Command::new(opcode::admin::SET_FEATURES, 0, Sgl::NONE);
    let set = set.with([feature::NUMBER_OF_QUEUES.into(), queues.to_dword(), 0, 0, 0, 0]);
    let locked = [
        cc.get(0),
        cc.set(0, property::CC_USUAL.into()),
        Command::new(opcode::admin::KEEP_ALIVE, 0, Sgl::NONE),
        Command::new(opcode::admin::IDENTIFY, 0, host.keyed(0, 4096)).with([1, 0, 0, 0, 0, 0]),
        Command { nsid: opcode::fabrics::DISCONNECT.into(), ..Command::new(opcode::fabrics::OPCODE, 0, Sgl::NONE) },
        set,
    ];
    for command in &locked {
        let answer = host.ask(admin, command);
        assert!(
            answer.status.is(Status::AUTHENTICATION_REQUIRED) && answer.status.is_final(),
            "{command:?}: {answer:?}"
        );
    }
    assert_eq!(host.prove(admin, 3, &key(SECRET)), Message { transaction: 3, body: SUCCESS });
    assert!(host.ask(admin, &cc.set(0, property::CC_USUAL.into())).status.is_success());
    assert!(host.ask(admin, &set).status.is_success());

    let io = host.dial_queue(1);
    let data = host.data(cntlid, SUBSYSTEM);
    let answer = host.connect(io, Connect { qid: 1, ..CONNECT }, &data);
    assert_eq!(answer.result, AUTHENTICATION_REQUIRED | u64::from(cntlid), "{answer:?}");
    let read = host.read(0, 1);
    assert!(host.ask(io, &read).status.is(Status::AUTHENTICATION_REQUIRED), "the admin queue's proof is its own");
    assert_eq!(host.prove(io, 4, &key(SECRET)).body, SUCCESS);
    host.assert_served(io);
    // It may authenticate again, and is served meanwhile.
    host.challenged(io, 5);
    host.assert_served(io);
    assert_eq!(host.prove(admin, 6, &key(SECRET)).body, SUCCESS);
    host.vanish();
    assert_eq!(end(running).stage("target").and_then(|stage| stage.counter("unauthenticated")), Some(0));
}

#[test]
fn a_host_with_another_secret_is_told_so_and_its_association_ends() {
    let (running, _folder) = guarded(7861);
    let mut host = Host::new(7861);
    let (admin, _) = host.connected();
    assert_eq!(host.prove(admin, 1, &key(OTHER)), Message { transaction: 1, body: Body::Failure1(Reason::Failed) });
    host.wait_cut_off(admin);
    until(&running, "unauthenticated", 1);

    // A wrong proof on an authenticated I/O queue ends the admin queue, too.
    let (admin, cntlid) = host.proven_controller();
    let (io, _) = host.candidate(cntlid, 1);
    assert_eq!(host.prove(io, 2, &key(SECRET)).body, SUCCESS);
    assert_eq!(host.prove(io, 3, &key(OTHER)).body, Body::Failure1(Reason::Failed));
    host.wait_cut_off(io);
    host.wait_cut_off(admin);
    until(&running, "unauthenticated", 2);
    end(running);
}

/// A replayed conversation proves nothing.
#[test]
fn what_was_said_before_is_no_proof() {
    let (running, _folder) = guarded(7862);
    let mut host = Host::new(7862);
    let (admin, _) = host.connected();
    let claim = host.challenged(admin, 8);
    let response = key(SECRET).respond(&claim);
    let reply = Message { transaction: 8, body: Body::Reply { response, challenge: None } };
    assert!(host.send_message(admin, &reply).status.is_success());
    assert_eq!(host.receive(admin).map(|message| message.body), Ok(SUCCESS));
    let cases = [
        // The same number and the same response to another challenge.
        (8, reply, Reason::Failed),
        // The number of an exchange that has ended.
        (9, reply, Reason::Payload),
    ];
    for (transaction, reply, reason) in cases {
        let (admin, _) = host.connected();
        let next = host.challenged(admin, transaction);
        assert!(next.challenge != claim.challenge && next.sequence != claim.sequence);
        assert!(host.send_message(admin, &reply).status.is_success());
        assert_eq!(host.receive(admin), Ok(Message { transaction, body: Body::Failure1(reason) }));
        host.wait_cut_off(admin);
    }
    // On the first queue the exchange has ended, and no reply is expected.
    assert!(host.send_message(admin, &reply).status.is_success());
    assert_eq!(host.receive(admin).map(|message| message.body), Ok(Body::Failure1(Reason::Message)));
    end(running);
}

#[test]
fn malformed_messages_are_refused_with_their_reasons() {
    let (running, _folder) = guarded(7863);
    let mut host = Host::new(7863);
    let mut bytes = [0; WRITTEN_BYTES_MAX];
    let len = Message { transaction: 1, body: Body::Negotiate(Offer::of(Hash::Sha256)) }.write(&mut bytes);
    let negotiate = bytes[..len].to_vec();
    let with = |at: usize, value: u8| {
        let mut bytes = negotiate.clone();
        bytes[at] = value;
        bytes
    };
    let short = Digest::new(&[7; 32]).expect("as long as one of SHA-256");
    let cases = [
        (vec![0], Reason::Payload),
        (negotiate[..71].to_vec(), Reason::Payload),
        (with(7, 255), Reason::Payload),
        (with(0, 1), Reason::Message),
        (with(1, 0x77), Reason::Message),
        (with(6, 1), Reason::ChannelMismatch),
        (with(8, 2), Reason::ProtocolUnusable),
        (with(42, 5), Reason::GroupUnusable),
        (vec![1, 4, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], Reason::Message),
        (vec![0xEE; 4096], Reason::Message),
    ];
    for (at, (bytes, reason)) in cases.iter().enumerate() {
        let (admin, _) = host.connected();
        assert!(host.send_bytes(admin, bytes, at.is_multiple_of(2)).status.is_success());
        assert_eq!(host.receive(admin).map(|message| message.body), Ok(Body::Failure1(*reason)), "{bytes:?}");
        host.wait_cut_off(admin);
    }
    // A response that is too short, and a host that asks the controller to authenticate, too.
    for (is_short, reason) in [(true, Reason::Payload), (false, Reason::Failed)] {
        let (admin, _) = host.connected();
        let claim = host.challenged(admin, 2);
        let whole = key(SECRET).respond(&claim);
        let body = match is_short {
            true => Body::Reply { response: short, challenge: None },
            false => Body::Reply { response: whole, challenge: Some((1, whole)) },
        };
        assert!(host.send_message(admin, &Message { transaction: 2, body }).status.is_success());
        assert_eq!(host.receive(admin).map(|message| message.body), Ok(Body::Failure1(reason)));
        host.wait_cut_off(admin);
    }
    until(&running, "unauthenticated", cases.len() as u64 + 2);
    end(running);
}

#[test]
fn commands_that_are_wrong_change_nothing_of_an_exchange() {
    let (running, _folder) = guarded(7864);
    let mut host = Host::new(7864);
    let (admin, _) = host.connected();
    let out_of_turn = host.receive(admin).expect_err("the host has not negotiated");
    assert!(out_of_turn.status.is(Status::SEQUENCE_ERROR), "{out_of_turn:?}");
    let claim = host.challenged(admin, 1);
    let keyed = |host: &Host, len: u32| host.keyed(AT, len);
    let send = auth::send(0, keyed(&host, 72));
    let cases = [
        (Command { cdw10: [0, 72, 0, 0, 0, 0], ..send }, Status::INVALID_FIELD),
        (auth::send(0, keyed(&host, 0)), Status::INVALID_FIELD),
        (auth::send(0, keyed(&host, 4097)), Status::INVALID_FIELD),
        (Command { sgl: keyed(&host, 71), ..send }, Status::SGL_DATA_LENGTH_INVALID),
        (auth::send(0, Sgl::InCapsule { offset: 0, len: 72 }), Status::SGL_DATA_LENGTH_INVALID),
        (auth::send(0, Sgl::InCapsule { offset: 9, len: 72 }), Status::SGL_OFFSET_INVALID),
    ];
    for (command, status) in cases {
        let answer = host.ask(admin, &command);
        assert!(answer.status.is(status), "{command:?}: {answer:?}");
    }
    let reply = Body::Reply { response: key(SECRET).respond(&claim), challenge: None };
    assert!(host.send_message(admin, &Message { transaction: 1, body: reply }).status.is_success());
    let sgl = host.keyed(AT, 63);
    let answer = host.ask(admin, &auth::receive(0, sgl));
    assert!(answer.status.is(Status::SGL_DATA_LENGTH_INVALID), "Success1 has 64 bytes: {answer:?}");
    let answer = host.ask(admin, &auth::receive(0, Sgl::InCapsule { offset: 0, len: 64 }));
    assert!(answer.status.is(Status::SGL_TYPE_INVALID), "{answer:?}");
    assert_eq!(host.receive(admin).map(|message| message.body), Ok(SUCCESS));
    end(running);
}

/// Hosts without a secret need not authenticate, nor need a host that asks for discovery.
#[test]
fn hosts_without_a_secret_are_served_as_before() {
    let (running, _folder) = guarded(7865);
    let mut host = Host::new(7865);
    let admin = host.dial_queue(0);
    let data = host.data(CNTLID_ANY, DISCOVERY_NQN);
    assert_eq!(host.connect(admin, CONNECT, &data).result & !0xFFFF, 0);
    host.name = "nqn.2026-01.org.example:other";
    let (admin, io) = host.queues();
    host.assert_served(io);
    let answer = host.send_bytes(admin, &[0; 72], true);
    assert!(answer.status.is(Status::INVALID_OPCODE), "{answer:?}");
    end(running);
}
