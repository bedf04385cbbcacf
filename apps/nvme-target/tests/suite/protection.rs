//! Namespaces with protection information, in memory and in a file: inserting, stripping and
//! checking it, and the statuses for wrong writes.

use crate::common::protected::{BOTH, NONE, SMALL, TO, all, pract, serve, serve_with, set_tuple, tuple_of};
use crate::common::{Host, SECOND, end, target};
use verbline_nvme::identify::{PAGE_BYTES, cns};
use verbline_nvme::namespace::Namespace;
use verbline_nvme::protection::{Action, ProtectionType, Tuple};
use verbline_nvme::{Command, Sgl, Status, opcode};

#[test]
fn identify_says_how_blocks_are_protected() {
    for kind in [ProtectionType::Type1, ProtectionType::Type2, ProtectionType::Type3] {
        let mut served = serve(7820, kind);
        for (nsid, block_shift, blocks) in [(1, 12, 255), (3, 12, 63), (SMALL, 9, 504)] {
            let identify = Command::new(opcode::admin::IDENTIFY, 0, served.host.keyed(TO, PAGE_BYTES as u32));
            let identify = Command { nsid, ..identify.with([cns::NAMESPACE.into(), 0, 0, 0, 0, 0]) };
            assert!(served.host.ask(served.admin, &identify).status.is_success());
            let page = served.host.bytes(TO as usize, PAGE_BYTES);
            let namespace = Namespace::read(&page).expect("a page");
            assert_eq!(
                (namespace.protection, namespace.block_shift, namespace.blocks),
                (Some(kind), block_shift, blocks)
            );
            // One format: 8 bytes behind each block, sent with it. The type; its
            // tuple is the last 8 bytes.
            let number = kind.number();
            assert_eq!(page[25..30], [0, 0x10, 0x01, 0x10 | 1 << (number - 1), number]);
            assert_eq!(page[128..132], [8, 0, block_shift, 0]);
        }
        end(served.running);
    }
}

/// The target makes the same protection information as a host, in both directions.
#[test]
fn the_target_inserts_and_strips() {
    let mut served = serve(7821, ProtectionType::Type1);
    for (nsid, blocks) in [(1, 1), (1, 2), (3, 1), (3, 2), (SMALL, 1), (SMALL, 16)] {
        let slba = 5 + u64::from(blocks);
        let tags = all(slba as u32, 0xA17E);
        let extended = served.blocks(nsid, blocks, nsid as u8, tags);
        let data = served.protection(nsid).data(&extended).collect::<Vec<_>>().concat();
        let written = served.write(nsid, (slba, blocks), pract(tags), &data);
        assert!(written.status.is_success(), "namespace {nsid}: {written:?}");
        served.assert_read(nsid, (slba, blocks), pract(tags), &data);
        served.assert_read(nsid, (slba, blocks), tags, &extended);
        served.assert_read(nsid, (slba, blocks), NONE, &extended);
        // The other way: protection information made by the host, and another filling.
        let extended = served.blocks(nsid, blocks, 0x80, tags);
        assert!(served.write(nsid, (slba, blocks), tags, &extended).status.is_success());
        served.assert_read(nsid, (slba, blocks), tags, &extended);
        let data = served.protection(nsid).data(&extended).collect::<Vec<_>>().concat();
        served.assert_read(nsid, (slba, blocks), pract(tags), &data);
        // Unchecked, and straight into the memory where the namespace is in memory.
        let extended = served.blocks(nsid, blocks, 0x81, tags);
        assert!(served.write(nsid, (slba, blocks), NONE, &extended).status.is_success());
        served.assert_read(nsid, (slba, blocks), tags, &extended);
        assert!(served.without_data(opcode::io::VERIFY, nsid, (slba, blocks), tags).status.is_success());
    }
    // In the capsule, with protection information and without.
    let tags = all(3, 9);
    for nsid in [1, 3, SMALL] {
        let blocks = if nsid == SMALL { 7 } else { 1 };
        let extended = served.blocks(nsid, blocks, 3, tags);
        let data = served.protection(nsid).data(&extended).collect::<Vec<_>>().concat();
        for (action, bytes) in [(pract(tags), &data), (tags, &extended)] {
            if bytes.len() > 4096 {
                continue;
            }
            assert!(served.without_data(opcode::io::WRITE_ZEROES, nsid, (3, blocks), NONE).status.is_success());
            let sgl = Sgl::InCapsule { offset: 0, len: bytes.len() as u32 };
            let command = served.command(opcode::io::WRITE, nsid, (3, blocks), action, sgl);
            let written = served.host.ask_with(served.io, &command, bytes);
            assert!(written.status.is_success(), "namespace {nsid}: {written:?}");
            served.assert_read(nsid, (3, blocks), tags, &extended);
        }
    }
    end(served.running);
}

/// Each wrong part has a status of its own, with the block, and nothing is written.
#[test]
fn a_write_that_is_wrong_is_not_written() {
    let mut served = serve(7822, ProtectionType::Type1);
    let tags = all(20, 0x0102);
    for nsid in BOTH {
        let protection = served.protection(nsid);
        let before = served.blocks(nsid, 2, 1, tags);
        assert!(served.write(nsid, (20, 2), tags, &before).status.is_success());
        let right = tuple_of(&before, protection, 1);
        let cases = [
            (Tuple { guard: !right.guard, ..right }, Status::GUARD_CHECK_ERROR),
            (Tuple { app_tag: 0x0103, ..right }, Status::APPLICATION_TAG_CHECK_ERROR),
            (Tuple { ref_tag: 20, ..right }, Status::REFERENCE_TAG_CHECK_ERROR),
        ];
        for (wrong, status) in cases {
            let mut bytes = served.blocks(nsid, 2, 1, tags);
            set_tuple(&mut bytes, protection, 1, wrong);
            let answer = served.write(nsid, (20, 2), tags, &bytes);
            assert!(answer.status.is(status), "namespace {nsid}, {wrong:?}: {answer:?}");
            assert_eq!(served.last_error(), (answer.status, 21, nsid));
            served.assert_read(nsid, (20, 2), tags, &before);
        }
    }
    end(served.running);
}

#[test]
fn tags_are_checked_as_far_as_they_are_asked_for() {
    let mut served = serve(7823, ProtectionType::Type2);
    for nsid in BOTH {
        let tags = all(0xFFFF_FFFF, 0x1234);
        let bytes = served.blocks(nsid, 2, 7, tags);
        assert!(served.write(nsid, (1, 2), tags, &bytes).status.is_success(), "tags of type 2 begin anywhere");
        let app = Status::APPLICATION_TAG_CHECK_ERROR;
        let reference = Status::REFERENCE_TAG_CHECK_ERROR;
        let cases = [
            (Action { app_tag: 0x1235, ..tags }, Some((app, 1))),
            (Action { app_tag: 0xFF34, app_mask: 0x00FF, ..tags }, None),
            (Action { app_tag: 0xFF35, app_mask: 0x00FF, ..tags }, Some((app, 1))),
            (Action { app_tag: 0, app_mask: 0, ..tags }, None),
            (Action { app_tag: 0, checks_app_tag: false, ..tags }, None),
            (Action { ref_tag: 5, ..tags }, Some((reference, 1))),
            (Action { ref_tag: 5, checks_ref_tag: false, ..tags }, None),
        ];
        for (action, wrong) in cases {
            for action in [action, pract(action)] {
                let (answer, _) = served.read(nsid, (1, 2), action);
                let said = (!answer.status.is_success()).then(|| (answer.status, served.last_error().1));
                assert_eq!(said, wrong, "namespace {nsid}, {action:?}");
            }
        }
    }
    end(served.running);
}

/// An application tag of all ones, in type 3 with such a reference tag, turns checking off.
#[test]
fn blocks_with_escapes_are_not_checked() {
    for (port, kind) in [(7824, ProtectionType::Type2), (7825, ProtectionType::Type3)] {
        let mut served = serve(port, kind);
        let is_third = kind == ProtectionType::Type3;
        for nsid in BOTH {
            let protection = served.protection(nsid);
            let tags = Action { checks_ref_tag: !is_third, ..all(40, 5) };
            let half = Tuple { ref_tag: 7, ..Tuple::DEALLOCATED };
            for (tuple, is_checked) in [(Tuple::DEALLOCATED, false), (half, is_third)] {
                let mut bytes = served.blocks(nsid, 2, 9, tags);
                set_tuple(&mut bytes, protection, 1, tuple);
                let answer = served.write(nsid, (40, 2), tags, &bytes);
                assert_eq!(answer.status.is(Status::GUARD_CHECK_ERROR), is_checked, "{nsid}, {tuple:?}: {answer:?}");
                assert!(served.write(nsid, (40, 2), NONE, &bytes).status.is_success());
                for action in [tags, pract(tags)] {
                    let (answer, _) = served.read(nsid, (40, 2), action);
                    assert_eq!(
                        answer.status.is(Status::GUARD_CHECK_ERROR),
                        is_checked,
                        "{nsid}, {tuple:?}: {answer:?}"
                    );
                }
            }
        }
        end(served.running);
    }
}

#[test]
fn what_may_not_be_asked_for_is_told_so() {
    let mut first = serve(7826, ProtectionType::Type1);
    let mut third = serve(7827, ProtectionType::Type3);
    for nsid in [1, 3] {
        let extended = first.host.keyed(TO, 4104);
        let cases = [
            first.command(opcode::io::READ, nsid, (8, 1), all(9, 0), extended),
            first.command(opcode::io::WRITE, nsid, (8, 1), all(9, 0), extended),
            first.command(opcode::io::COMPARE, nsid, (8, 1), pract(NONE), first.host.keyed(TO, 4096)),
            first.command(opcode::io::VERIFY, nsid, (8, 1), pract(NONE), Sgl::NONE),
            first.command(opcode::io::WRITE_ZEROES, nsid, (8, 1), all(8, 0), Sgl::NONE),
        ];
        for command in cases {
            let answer = first.host.ask(first.io, &command);
            let is_told = answer.status.is(Status::INVALID_PROTECTION_INFORMATION) && answer.status.is_final();
            assert!(is_told, "{command:?}: {answer:?}");
        }
        let (answer, _) = third.read(nsid, (8, 1), all(8, 0));
        assert!(answer.status.is(Status::INVALID_PROTECTION_INFORMATION), "{answer:?}");
        // Lengths are of the data alone, or with protection information.
        for (action, len) in [(NONE, 4096), (pract(NONE), 4104), (NONE, 4112)] {
            let command = first.command(opcode::io::READ, nsid, (8, 1), action, first.host.keyed(TO, len));
            let answer = first.host.ask(first.io, &command);
            assert!(answer.status.is(Status::SGL_DATA_LENGTH_INVALID), "{action:?}, {len}: {answer:?}");
        }
        // At most 16,384 bytes: four blocks without protection information, three with it.
        let command = first.command(opcode::io::READ, nsid, (8, 4), NONE, first.host.keyed(TO, 4 * 4104));
        assert!(first.host.ask(first.io, &command).status.is(Status::INVALID_FIELD));
    }
    end(first.running);
    end(third.running);
}

/// A namespace without protection information ignores its fields in commands.
#[test]
fn without_protection_information_nothing_is_checked() {
    let running = target(7828, "");
    let mut host = Host::new(7828);
    let (_, io) = host.queues();
    for action in [all(77, 1), pract(all(77, 1))] {
        let read = host.read(3, 2);
        let answer = host.ask(io, &read.with(action.put(read.cdw10)));
        assert!(answer.status.is_success(), "{answer:?}");
    }
    end(running);
}

/// Each lcore reads and checks blocks that the other wrote, and neither misses a write of the
/// other.
#[test]
fn two_lcores_share_protected_blocks() {
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
        println!("skipped: one CPU");
        return;
    }
    let mut served = serve_with(7829, ProtectionType::Type1, SECOND);
    let queues = [served.io, served.host.io_queue(served.cntlid, 2)];
    for nsid in [1, 3, SMALL] {
        for (slba, writer) in (9..).zip(queues) {
            let tags = all(slba as u32, 5);
            let bytes = served.blocks(nsid, 1, slba as u8, tags);
            served.io = writer;
            assert!(served.write(nsid, (slba, 1), tags, &bytes).status.is_success());
            for reader in queues {
                served.io = reader;
                served.assert_read(nsid, (slba, 1), tags, &bytes);
                let (never, _) = served.read(nsid, (slba + 20, 1), all(slba as u32 + 20, 0));
                assert!(never.status.is_success(), "{never:?}");
            }
        }
    }
    let report = end(served.running);
    for stage in ["target", "target2"] {
        let reads = report.stage(stage).and_then(|stage| stage.counter("reads"));
        assert!(reads > Some(8), "stage.{stage} read {reads:?}");
    }
}
