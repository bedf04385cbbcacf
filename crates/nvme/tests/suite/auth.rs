//! Authentication: keys and responses compared with values of another implementation, and messages
//! byte for byte and malformed.

use verbline_nvme::auth::{self, Body, MESSAGE_BYTES_MAX, Message, Offer, Reason, WRITTEN_BYTES_MAX};
use verbline_nvme::secret::{Claim, Digest, Hash, Secret, SecretError};
use verbline_nvme::{Command, Nqn, Sgl, Status, opcode};

const HOST: &str = "nqn.2026-01.org.example:host";
const SUBSYSTEM: &str = "nqn.2026-01.org.verbline:disk";

/// Secrets of bytes 7i + NN; challenges of bytes 3i + 1, S1 01020304h, T_ID 0506h. Python's `hmac`,
/// `hashlib` and `zlib` computed the texts and the responses from the specification's formulas.
const KNOWN: [(&str, Hash, &str); 4] = [
    (
        "DHHC-1:00:AAcOFRwjKjE4P0ZNVFtiaXB3foWMk5qhqK+2vcTL0tk/PUPo:",
        Hash::Sha256,
        "858d8733b2ffe60e725e033cd3b9db1cb5e2d608ba3153d4e2a03fa69292967f",
    ),
    (
        "DHHC-1:01:AQgPFh0kKzI5QEdOVVxjanF4f4aNlJuiqbC3vsXM09pl1OOC:",
        Hash::Sha256,
        "c5c4b60ccc01b7c668171ae4aecc873fdf60bd5abe4bedd7d4eba4f234bf7a6d",
    ),
    (
        "DHHC-1:02:AgkQFx4lLDM6QUhPVl1ka3J5gIeOlZyjqrG4v8bN1Nvi6fD3/gUMExohKC82PURLIrqU+w==:",
        Hash::Sha384,
        "612dadffc7e72f0ec008ef77f68f637b10e6a4c9c03f501e5d5a2f472294a29d8ba653635a2e7ae84aa3b600c50a8873",
    ),
    (
        "DHHC-1:03:AwoRGB8mLTQ7QklQV15lbHN6gYiPlp2kq7K5wMfO1dzj6vH4/wYNFBsiKTA3PkVMU1phaG92fYSLkpmgp661vPDs2cs=:",
        Hash::Sha512,
        "c5e28e2f41952fd6d795c0e0d5a67db531a9d01fe6026649cee8e1bb340cda86\
         f5d0c9d251d529068c86275897efebf1f374a01519d254f51c0cc8ba535e7722",
    ),
];

fn challenge(hash: Hash) -> Digest {
    let bytes: Vec<u8> = (0..hash.len_bytes()).map(|at| (at * 3 + 1) as u8).collect();
    Digest::new(&bytes).expect("as long as a digest")
}

fn name(text: &str) -> Nqn {
    Nqn::new(text).expect("a name")
}

fn written(message: &Message) -> Vec<u8> {
    let mut bytes = [0xFF; WRITTEN_BYTES_MAX];
    let len = message.write(&mut bytes);
    bytes[..len].to_vec()
}

#[test]
fn responses_are_those_of_another_implementation() {
    for (text, hash, response) in KNOWN {
        let key = Secret::read(text).unwrap_or_else(|error| panic!("{text}: {error}")).key_of(&name(HOST));
        let claim = Claim {
            hash,
            challenge: challenge(hash),
            sequence: 0x0102_0304,
            transaction: 0x0506,
            host: name(HOST),
            subsystem: name(SUBSYSTEM),
        };
        let own = key.respond(&claim);
        let hex: String = own.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, response, "{text}");
        assert!(key.verifies(&claim, &own));
        // A response fits only its own claim.
        let others = [
            Claim { sequence: 0x0102_0305, ..claim },
            Claim { transaction: 0x0507, ..claim },
            Claim { host: name(SUBSYSTEM), ..claim },
            Claim { subsystem: name(HOST), ..claim },
        ];
        assert!(others.iter().all(|other| !key.verifies(other, &own)), "{text}");
        let mut bytes = own.as_bytes().to_vec();
        *bytes.last_mut().expect("it has bytes") ^= 1;
        assert!(!key.verifies(&claim, &Digest::new(&bytes).expect("as long")));
    }
    let other_host = Secret::read(KNOWN[1].0).expect("a secret").key_of(&name(SUBSYSTEM));
    let claim = Claim {
        hash: Hash::Sha256,
        challenge: challenge(Hash::Sha256),
        sequence: 0x0102_0304,
        transaction: 0x0506,
        host: name(HOST),
        subsystem: name(SUBSYSTEM),
    };
    assert!(
        !Secret::read(KNOWN[1].0).expect("a secret").key_of(&name(HOST)).verifies(&claim, &other_host.respond(&claim))
    );
}

#[test]
fn secrets_that_are_none_are_told_without_their_bytes() {
    let coded = KNOWN[0].0.split(':').nth(2).expect("three parts");
    let cases = [
        (String::new(), SecretError::Form),
        (format!("DHHC-1:00:{coded}"), SecretError::Form),
        (format!("DHHC-2:00:{coded}:"), SecretError::Form),
        (format!("DHHC-1:04:{coded}:"), SecretError::Transform),
        (format!("DHHC-1:0:{coded}:"), SecretError::Transform),
        (format!("DHHC-1:00:{}:", &coded[1..]), SecretError::Base64),
        (format!("DHHC-1:00:{}?:", &coded[1..]), SecretError::Base64),
        (format!("DHHC-1:00:{}:", &coded[4..]), SecretError::Length(33)),
        ("DHHC-1:00:AAAA:".to_owned(), SecretError::Length(3)),
        (format!("DHHC-1:00:{}:", "A".repeat(400)), SecretError::Length(300)),
        (format!("DHHC-1:00:B{}:", &coded[1..]), SecretError::Checksum),
    ];
    for (text, error) in cases {
        let found = Secret::read(&text).expect_err("it is no secret");
        assert_eq!(found, error, "{text}");
        assert!(!found.to_string().contains(&coded[4..12]), "{found}");
    }
    let secret = Secret::read(&format!(" {}\n", KNOWN[0].0)).expect("blanks around it do not matter");
    assert_eq!(format!("{secret:?} {:?}", secret.key_of(&name(HOST))), "Secret(32 bytes) Key(32 bytes)");
}

#[test]
fn messages_lie_as_the_specification_has_them() {
    let negotiate = written(&Message { transaction: 0x0102, body: Body::Negotiate(Offer::of(Hash::Sha384)) });
    assert_eq!((negotiate.len(), &negotiate[..16]), (72, &[0, 0, 0, 0, 2, 1, 0, 1, 1, 0, 3, 1, 2, 1, 3, 0][..]));
    assert_eq!(negotiate[42], 0, "the null group");
    let value = challenge(Hash::Sha256);
    let asked = Body::Challenge { hash: Hash::Sha256, sequence: 0x0A0B_0C0D, value };
    let bytes = written(&Message { transaction: 7, body: asked });
    assert_eq!(bytes[..16], [1, 1, 0, 0, 7, 0, 32, 0, 1, 0, 0, 0, 0x0D, 0x0C, 0x0B, 0x0A]);
    assert_eq!(&bytes[16..], value.as_bytes());
    let failed = written(&Message { transaction: 7, body: Body::Failure1(Reason::GroupUnusable) });
    assert_eq!(failed, [0, 0xF1, 0, 0, 7, 0, 1, 5]);
    let both = Body::Reply { response: value, challenge: Some((9, challenge(Hash::Sha256))) };
    let success = Body::Success1 { hash: Hash::Sha512, response: None };
    let second = Body::Failure2(Reason::Failed);
    for body in [asked, both, Body::Reply { response: value, challenge: None }, success, Body::Success2, second] {
        let message = Message { transaction: 0xFFFF, body };
        assert_eq!(Message::read(&written(&message)), Ok(message));
    }
}

#[test]
fn messages_that_are_wrong_name_the_reason() {
    let negotiate = written(&Message { transaction: 1, body: Body::Negotiate(Offer::of(Hash::Sha256)) });
    let value = challenge(Hash::Sha256);
    let reply = written(&Message { transaction: 1, body: Body::Reply { response: value, challenge: None } });
    let with = |bytes: &[u8], at: usize, value: u8| {
        let mut bytes = bytes.to_vec();
        bytes[at] = value;
        bytes
    };
    let cases = [
        (Vec::new(), Reason::Payload),
        (negotiate[..7].to_vec(), Reason::Payload),
        (negotiate[..71].to_vec(), Reason::Payload),
        (with(&negotiate, 7, 0), Reason::Payload),
        (with(&negotiate, 7, 255), Reason::Payload),
        (with(&negotiate, 10, 31), Reason::Payload),
        (with(&negotiate, 11, 0), Reason::Payload),
        (with(&negotiate, 1, 9), Reason::Message),
        (reply[..reply.len() - 1].to_vec(), Reason::Payload),
        (with(&reply, 6, 31), Reason::Payload),
        (with(&reply, 6, 64), Reason::Payload),
        (with(&reply, 6, 255), Reason::Payload),
        (with(&reply, 8, 2), Reason::Payload),
        (with(&reply, 10, 1), Reason::Payload),
    ];
    for (bytes, reason) in cases {
        assert_eq!(Message::read(&bytes), Err(reason), "{bytes:?}");
    }
    let offered = |bytes: &[u8]| match Message::read(bytes).map(|message| message.body) {
        Ok(Body::Negotiate(offer)) => offer,
        other => panic!("{other:?}"),
    };
    assert_eq!(offered(&with(&negotiate, 8, 9)).hash, Err(Reason::ProtocolUnusable));
    assert_eq!(offered(&with(&with(&negotiate, 10, 1), 12, 9)).hash, Err(Reason::HashUnusable));
    assert_eq!(offered(&with(&negotiate, 12, 9)).hash, Ok(Hash::Sha384), "the next one that is known");
    assert_eq!(offered(&with(&negotiate, 42, 1)).hash, Err(Reason::GroupUnusable));
    assert!(offered(&with(&negotiate, 6, 1)).wants_channel);
}

#[test]
fn transfers_are_of_one_protocol_and_of_their_length() {
    let sgl = |len| Sgl::Keyed { addr: 0x1000, len, key: 7, invalidate: false };
    let good = auth::send(3, sgl(72));
    assert_eq!((good.opcode, good.nsid as u8), (opcode::fabrics::OPCODE, opcode::fabrics::AUTHENTICATION_SEND));
    assert_eq!(good.to_bytes()[40..48], [0, 1, 1, 0xE9, 72, 0, 0, 0]);
    assert_eq!(auth::transfer_of(&good), Ok(72));
    let cases = [
        (Command { cdw10: [0xEA01_0100, 72, 0, 0, 0, 0], ..good }, Status::INVALID_FIELD),
        (auth::receive(3, sgl(0)), Status::INVALID_FIELD),
        (auth::receive(3, sgl(MESSAGE_BYTES_MAX as u32 + 1)), Status::INVALID_FIELD),
        (Command { sgl: sgl(71), ..good }, Status::SGL_DATA_LENGTH_INVALID),
    ];
    for (command, status) in cases {
        let error = auth::transfer_of(&command).expect_err("it is wrong");
        assert!(error.status.is(status), "{error}");
    }
}
