//! Any bytes are read as a value that is written back unchanged, or as an error.

use std::net::SocketAddr;

use proptest::prelude::*;
use verbline_nvme::connect::{Connect, ConnectData};
use verbline_nvme::discovery::{self, DiscoveryEntry};
use verbline_nvme::feature::QueueCount;
use verbline_nvme::identify::{Controller, ControllerType, PAGE_BYTES};
use verbline_nvme::io::{DsmRange, ReadWrite};
use verbline_nvme::log::{ErrorEntry, LogRequest, Smart};
use verbline_nvme::namespace::{self, Namespace};
use verbline_nvme::property::Property;
use verbline_nvme::protection::ProtectionType;
use verbline_nvme::{Command, Nqn, RESPONSE_BYTES, Response, Sgl, Status, cm};

fn sgls() -> impl Strategy<Value = Sgl> {
    prop_oneof![
        (any::<u64>(), any::<u32>()).prop_map(|(offset, len)| Sgl::InCapsule { offset, len }),
        (any::<u64>(), 0..1_u32 << 24, any::<u32>(), any::<bool>())
            .prop_map(|(addr, len, key, invalidate)| Sgl::Keyed { addr, len, key, invalidate }),
    ]
}

fn commands() -> impl Strategy<Value = Command> {
    let numbers = (any::<u8>(), any::<u16>(), any::<u32>(), any::<[u32; 2]>(), any::<u64>(), any::<[u32; 6]>());
    (numbers, sgls()).prop_map(|((opcode, cid, nsid, cdw2, metadata, cdw10), sgl)| Command {
        opcode,
        cid,
        nsid,
        cdw2,
        metadata,
        sgl,
        cdw10,
    })
}

fn names() -> impl Strategy<Value = Nqn> {
    "nqn\\.[!-~]{1,219}".prop_map(|text| Nqn::new(&text).expect("a name"))
}

proptest! {
    #[test]
    fn a_command_is_read_as_it_was_written(command in commands()) {
        prop_assert_eq!(Command::read(&command.to_bytes()), Ok(command));
    }

    #[test]
    fn any_bytes_are_a_command_or_an_error_that_names_a_field(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        match Command::read(&bytes) {
            Ok(command) => {
                prop_assert_eq!(Command::read(&command.to_bytes()), Ok(command));
                // No single kind of command has all of these fields valid: nothing panics.
                let _ = (Connect::of(&command), Property::of(&command), LogRequest::of(&command));
                let _ = (ReadWrite::of(&command).bytes_within(u64::MAX, 12), DsmRange::count_of(&command));
            }
            Err(error) => prop_assert!(!error.field.is_empty() && !error.status.is_success()),
        }
        let _ = (cm::Request::read(&bytes), cm::Reject::read(&bytes), Response::read(&bytes), Nqn::read(&bytes, 7));
    }

    #[test]
    fn any_pages_are_read_without_harm(
        seed in prop::collection::vec(any::<u8>(), 1..64),
        len in prop_oneof![Just(PAGE_BYTES), 0..PAGE_BYTES],
    ) {
        let page: Vec<u8> = seed.iter().copied().cycle().take(len).collect();
        let _ = (Controller::read(&page), Namespace::read(&page), ConnectData::read(&page));
        let _ = (namespace::read_name(&page), discovery::read_head(&page), DiscoveryEntry::read(&page));
        prop_assert!(namespace::read_list(&page).count() <= namespace::LISTED_MAX);
        prop_assert!(DsmRange::read_all(&page).count() <= len / 16);
    }

    #[test]
    fn responses_and_private_data_are_read_as_written(
        numbers in any::<(u64, u16, u16, u16)>(), field in any::<u16>(), cm_numbers in any::<(u16, u16, u16, u16)>(),
    ) {
        let (result, sq_head, sq_id, cid) = numbers;
        let response = Response { result, sq_head, sq_id, cid, status: Status::from_field(field) };
        let bytes: [u8; RESPONSE_BYTES] = response.to_bytes();
        prop_assert_eq!(Response::read(&bytes), Ok(response));
        let (qid, recv_depth, send_depth_less_one, cntlid) = cm_numbers;
        let request = cm::Request { qid, recv_depth, send_depth_less_one, cntlid };
        prop_assert_eq!(cm::Request::read(&request.to_bytes()), Ok(request));
        prop_assert_eq!(&cm::acceptance(qid)[..4], &[[0, 0], qid.to_le_bytes()].concat()[..]);
    }

    #[test]
    fn pages_are_read_as_written(
        names in (names(), names()), serial in "[A-Z0-9]{0,20}", model in "[a-z]{0,40}",
        numbers in any::<(u8, u16, u32, u32)>(),
        host_id in any::<[u8; 16]>(), blocks in any::<u64>(), block_shift in 9..=31_u8, port in any::<u16>(),
    ) {
        let (subsystem, host) = names;
        let (mdts, cntlid, version, async_events) = numbers;
        let data = ConnectData { host_id, cntlid, subsystem, host };
        prop_assert_eq!(ConnectData::read(&data.to_bytes()), Ok(data));
        let controller = Controller {
            serial, model, firmware: "1".to_owned(), mdts, cntlid, version, async_events,
            kind: ControllerType::Discovery, aerl: mdts, elpe: 3, kas: cntlid, max_commands: cntlid,
            namespaces_max: version, commands: cntlid, has_write_cache: true,
            capsule_bytes: (version >> 4).saturating_mul(16), subsystem,
        };
        let mut page = [0; PAGE_BYTES];
        controller.write(&mut page);
        prop_assert_eq!(Controller::read(&page), Ok(controller));
        let protection = ProtectionType::from_number((cntlid % 4) as u8);
        let nguid = Some(host_id).filter(|id| *id != [0; 16]);
        let eui64 = host_id.first_chunk().copied().filter(|id| *id != [0; 8]);
        let namespace = Namespace { blocks, block_shift, is_read_only: blocks % 2 == 0, nguid, eui64, protection };
        namespace.write(&mut page);
        prop_assert_eq!(Namespace::read(&page), Ok(namespace));
        let mut first = |names: &namespace::Names| {
            namespace::write_descriptors(&mut page, names);
            namespace::read_name(&page)
        };
        let names = namespace::Names { uuid: host_id, nguid, eui64 };
        let uuid = namespace::Names { nguid: None, eui64: None, ..names };
        prop_assert_eq!(first(&uuid), Some(namespace::Name::Uuid(host_id)));
        if let (Some(nguid), Some(eui64)) = (nguid, eui64) {
            prop_assert_eq!(first(&names), Some(namespace::Name::Eui64(eui64)));
            prop_assert_eq!(first(&namespace::Names { eui64: None, ..names }), Some(namespace::Name::Nguid(nguid)));
        }
        let address = SocketAddr::from(([10, 9, 9, 1], port));
        let entry = DiscoveryEntry { address, port_id: cntlid, admin_entries: 32, subsystem };
        let mut bytes = [0; discovery::ENTRY_BYTES];
        entry.write(&mut bytes);
        prop_assert_eq!(DiscoveryEntry::read(&bytes), Ok(entry));
    }

    #[test]
    fn parameters_are_read_as_written(
        numbers in any::<(u16, u16, u8, u32, u64)>(), id in any::<u8>(), dwords in 1..=1_u64 << 32,
        blocks in 1..=1_u32 << 16,
    ) {
        let (qid, sqsize, cattr, kato_ms, offset) = numbers;
        let connect = Connect { qid, sqsize, cattr, kato_ms };
        prop_assert_eq!(Connect::of(&connect.command(1, Sgl::NONE)), Ok(connect));
        let asked = LogRequest { id, retain_event: kato_ms % 2 == 0, offset, len: dwords * 4 };
        prop_assert_eq!(LogRequest::of(&Command::new(2, 0, Sgl::NONE).with(asked.dwords())), asked);
        let range = ReadWrite { slba: offset, blocks };
        prop_assert_eq!(ReadWrite::of(&Command::new(2, 0, Sgl::NONE).with(range.dwords())), range);
        let property = Property { offset: kato_ms, is_wide: cattr % 2 == 0 };
        prop_assert_eq!(Property::of(&property.set(1, offset)), Ok(property));
        prop_assert_eq!(Property::value_of(&property.set(1, offset)), offset);
        let dsm = DsmRange { attributes: kato_ms, blocks, slba: offset };
        prop_assert_eq!(DsmRange::read_all(&dsm.to_bytes()).next(), Some(dsm));
        prop_assert_eq!(QueueCount::from_dword(kato_ms).to_dword(), kato_ms);
    }

    /// Blocks within a namespace lie within its bytes, and no others do.
    #[test]
    fn blocks_are_bytes(slba in any::<u64>(), blocks in 1..=65_536_u32, held in 0..=1_u64 << 40, shift in 9..=12_u32) {
        let slba = slba % (2 * held + 2);
        match (ReadWrite { slba, blocks }).bytes_within(held, shift) {
            Some((at, len)) => prop_assert!(at + len <= held << shift && len == u64::from(blocks) << shift),
            None => prop_assert!(slba + u64::from(blocks) > held),
        }
    }
}

#[test]
fn logs_have_what_they_count() {
    let entry = ErrorEntry { count: 7, sq_id: 1, cid: 2, status_field: 4, location: 0xFFFF, lba: 9, nsid: 1 };
    assert_eq!(entry.to_bytes()[..16], [7, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2, 0, 4, 0, 0xFF, 0xFF]);
    let smart = Smart { reads: 3, writes: 4, read_bytes: 512_001, written_bytes: 0, errors: 5 }.to_bytes();
    assert_eq!((smart[32], smart[48], smart[64], smart[80], smart[176]), (2, 0, 3, 4, 5));
}
