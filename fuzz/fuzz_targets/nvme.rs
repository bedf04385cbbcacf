//! Capsules of NVMe over Fabrics: any bytes are a command, which is written as it was read, or an
//! error that names a field. The blocks of any command lie within a namespace.
#![no_main]

use libfuzzer_sys::fuzz_target;
use verbline_nvme::auth::{self, Body, MESSAGE_BYTES_MAX, Message, WRITTEN_BYTES_MAX};
use verbline_nvme::connect::{Connect, ConnectData};
use verbline_nvme::discovery::{self, DiscoveryEntry};
use verbline_nvme::identify::{self, Controller};
use verbline_nvme::io::{DsmRange, ReadWrite};
use verbline_nvme::log::LogRequest;
use verbline_nvme::namespace::{self, Namespace};
use verbline_nvme::property::Property;
use verbline_nvme::protection::{Action, Protection, ProtectionType};
use verbline_nvme::secret::Secret;
use verbline_nvme::{COMMAND_BYTES, Command, Response, cm};

/// Blocks of the namespace, of two to the power of so many bytes.
const BLOCKS: u64 = 1 << 20;
const SHIFT: u32 = 12;

fuzz_target!(|bytes: &[u8]| {
    match Command::read(bytes) {
        Ok(command) => {
            assert_eq!(Command::read(&command.to_bytes()), Ok(command));
            let range = ReadWrite::of(&command);
            if let Some((at, len)) = range.bytes_within(BLOCKS, SHIFT) {
                assert!(at + len <= BLOCKS << SHIFT && len > 0, "{range:?}");
            }
            let action = Action::of(&command);
            assert_eq!(Action::of(&command.with(action.put(command.cdw10))), action);
            for kind in [ProtectionType::Type1, ProtectionType::Type2, ProtectionType::Type3] {
                let protection = Protection { kind, block_bytes: 512 };
                let _ = (protection.allow(&command), protection.check(action, range.slba as u32, bytes));
            }
            let log = LogRequest::of(&command);
            assert!(log.len >= 4 && LogRequest::of(&command.with(log.dwords())) == log, "{log:?}");
            if let Ok(connect) = Connect::of(&command) {
                assert_eq!(Connect::of(&connect.command(command.cid, command.sgl)), Ok(connect));
            }
            if let Ok(len) = auth::transfer_of(&command) {
                assert!((1..=MESSAGE_BYTES_MAX).contains(&len), "{len}");
            }
            let _ = (Property::of(&command), identify::asked_by(&command));
            let ranges = DsmRange::read_all(&bytes[COMMAND_BYTES..]).take(DsmRange::count_of(&command));
            assert!(ranges.count() <= 256);
        }
        Err(error) => assert!(!error.field.is_empty() && !error.status.is_success() && !error.to_string().is_empty()),
    }
    if let Ok(response) = Response::read(bytes) {
        assert_eq!(Response::read(&response.to_bytes()), Ok(response));
    }
    if let Ok(request) = cm::Request::read(bytes) {
        assert_eq!(cm::Request::read(&request.to_bytes()), Ok(request));
    }
    if let Ok(data) = ConnectData::read(bytes) {
        assert_eq!(ConnectData::read(&data.to_bytes()), Ok(data));
    }
    if let Ok(message) = Message::read(bytes) {
        let mut written = [0; WRITTEN_BYTES_MAX];
        let len = message.write(&mut written);
        // An offer that can't be used is not written.
        if !matches!(message.body, Body::Negotiate(offer) if offer.hash.is_err()) {
            assert_eq!(Message::read(&written[..len]), Ok(message));
        }
    }
    if let Ok(text) = str::from_utf8(bytes) {
        let _ = Secret::read(text);
    }
    let _ = (cm::Reject::read(bytes), discovery::read_head(bytes), namespace::read_name(bytes));
    let _ = (Controller::read(bytes), Namespace::read(bytes), DiscoveryEntry::read(bytes));
    assert!(namespace::read_list(bytes).count() <= bytes.len() / 4);
});
