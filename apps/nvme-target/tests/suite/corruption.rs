//! Blocks with protection information that rot, were never written, are deallocated or zeroed, and
//! are compared and verified.

use std::os::unix::fs::FileExt;

use crate::common::end;
use crate::common::protected::{BOTH, NONE, SMALL, TO, all, pract, serve, set_tuple, tuple_of};
use verbline_nvme::io::{DSM_DEALLOCATE, DsmRange};
use verbline_nvme::protection::{Action, ProtectionType, Tuple};
use verbline_nvme::{Command, Sgl, Status, opcode};

/// A byte that changed in the file is reported to a reader of its block, and to no other reader.
/// Written again, the block is good.
#[test]
fn a_corrupted_block_is_told_of_and_the_next_is_good() {
    let mut served = serve(7830, ProtectionType::Type1);
    for nsid in [3, SMALL] {
        let protection = served.protection(nsid);
        let tags = all(10, 3);
        let bytes = served.blocks(nsid, 3, 0x5A, tags);
        assert!(served.write(nsid, (10, 3), tags, &bytes).status.is_success());
        // The data of block 11, and its guard.
        for inside in [100, protection.block_bytes] {
            let at = 11 * u64::from(protection.extended_bytes()) + u64::from(inside);
            let file = served.file(nsid);
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).expect("read");
            file.write_all_at(&[byte[0] ^ 0x40], at).expect("written");
            for action in [tags, pract(tags)] {
                let (answer, _) = served.read(nsid, (10, 3), action);
                assert!(answer.status.is(Status::GUARD_CHECK_ERROR), "namespace {nsid}: {answer:?}");
                assert_eq!(served.last_error(), (answer.status, 11, nsid));
                // The data of the bad block does not reach the host.
                let (_, read) = served.read(nsid, (11, 1), Action { ref_tag: 11, ..action });
                assert!(read.iter().all(|byte| *byte == 0xEE), "namespace {nsid}");
            }
            let verified = served.without_data(opcode::io::VERIFY, nsid, (10, 3), tags);
            assert!(verified.status.is(Status::GUARD_CHECK_ERROR), "namespace {nsid}: {verified:?}");
            assert_eq!(served.last_error().1, 11);
            served.host.memory.write_from(TO as usize, &bytes).expect("within the memory");
            let compared = served.ask(opcode::io::COMPARE, nsid, (10, 3), tags, TO);
            assert!(compared.status.is(Status::GUARD_CHECK_ERROR), "namespace {nsid}: {compared:?}");
            // The blocks around it are good, and it can be read without checks.
            let extended = protection.extended_bytes() as usize;
            served.assert_read(nsid, (10, 1), tags, &bytes[..extended]);
            served.assert_read(nsid, (12, 1), Action { ref_tag: 12, ..tags }, &bytes[2 * extended..]);
            let (answer, _) = served.read(nsid, (10, 3), NONE);
            assert!(answer.status.is_success(), "{answer:?}");
            assert!(served.write(nsid, (10, 3), tags, &bytes).status.is_success());
            served.assert_read(nsid, (10, 3), tags, &bytes);
        }
    }
    end(served.running);
}

/// Blocks that were never written or were deallocated read as zeros, unchecked.
#[test]
fn blocks_that_were_never_written_are_not_checked() {
    for (port, kind) in [(7831, ProtectionType::Type1), (7832, ProtectionType::Type3)] {
        let mut served = serve(port, kind);
        for nsid in [1, 3, SMALL] {
            let protection = served.protection(nsid);
            let tags = Action { checks_ref_tag: kind == ProtectionType::Type1, ..all(7, 1) };
            let mut never = vec![0; 2 * protection.extended_bytes() as usize];
            (0..2).for_each(|block| set_tuple(&mut never, protection, block, Tuple::DEALLOCATED));
            served.assert_read(nsid, (7, 2), tags, &never);
            served.assert_read(nsid, (7, 2), pract(tags), &vec![0; 2 * protection.block_bytes as usize]);
            assert!(served.without_data(opcode::io::VERIFY, nsid, (7, 2), tags).status.is_success());

            let bytes = served.blocks(nsid, 2, 1, tags);
            assert!(served.write(nsid, (7, 2), tags, &bytes).status.is_success());
            let range = DsmRange { attributes: 0, blocks: 2, slba: 7 }.to_bytes();
            let sgl = Sgl::InCapsule { offset: 0, len: 16 };
            let command = Command::new(opcode::io::DATASET_MANAGEMENT, 0, sgl).with([0, DSM_DEALLOCATE, 0, 0, 0, 0]);
            let answer = served.host.ask_with(served.io, &Command { nsid, ..command }, &range);
            assert!(answer.status.is_success(), "{answer:?}");
            // Memory is not deallocated.
            served.assert_read(nsid, (7, 2), tags, if nsid == 1 { &bytes } else { &never });
        }
        end(served.running);
    }
}

/// Zeroed blocks have the protection information that Write Zeroes asks for, or zeros.
#[test]
fn zeroed_blocks_have_what_was_asked_for() {
    for (port, kind) in [(7833, ProtectionType::Type2), (7834, ProtectionType::Type3)] {
        let mut served = serve(port, kind);
        let is_third = kind == ProtectionType::Type3;
        for (nsid, blocks) in [(1, 255), (3, 63), (SMALL, 504)] {
            let protection = served.protection(nsid);
            let tags = Action { checks_ref_tag: !is_third, ..all(0xFFFF_FFF0, 0x77) };
            // All blocks: more than fit into a packet.
            let made = Action { pract: true, ref_tag: tags.ref_tag, app_tag: tags.app_tag, ..NONE };
            assert!(served.without_data(opcode::io::WRITE_ZEROES, nsid, (0, blocks), made).status.is_success());
            assert!(served.without_data(opcode::io::VERIFY, nsid, (0, blocks), tags).status.is_success());
            let last = u64::from(blocks) - 1;
            let ref_tag = if is_third { tags.ref_tag } else { tags.ref_tag.wrapping_add(blocks - 1) };
            let mut block = vec![0; protection.extended_bytes() as usize];
            set_tuple(&mut block, protection, 0, Tuple { guard: 0, app_tag: 0x77, ref_tag });
            served.assert_read(nsid, (last, 1), Action { ref_tag, ..tags }, &block);
            assert!(served.without_data(opcode::io::WRITE_ZEROES, nsid, (last, 1), NONE).status.is_success());
            block.fill(0);
            served.assert_read(nsid, (last, 1), Action { checks_guard: true, ..NONE }, &block);
            let (answer, _) = served.read(nsid, (last, 1), tags);
            assert!(answer.status.is(Status::APPLICATION_TAG_CHECK_ERROR), "{answer:?}");
        }
        end(served.running);
    }
}

/// The host's data is checked like a write's, the namespace's like a read's; only data is compared.
#[test]
fn compare_checks_both_and_compares_data() {
    let mut served = serve(7835, ProtectionType::Type2);
    for nsid in BOTH {
        let protection = served.protection(nsid);
        let tags = all(4, 0x0A0B);
        let bytes = served.blocks(nsid, 2, 2, tags);
        assert!(served.write(nsid, (4, 2), tags, &bytes).status.is_success());
        let mut compare = |bytes: &[u8], action: Action| {
            served.host.memory.write_from(TO as usize, bytes).expect("within the memory");
            served.ask(opcode::io::COMPARE, nsid, (4, 2), action, TO).status
        };
        assert!(compare(&bytes, tags).is_success());
        // Other tags than the namespace's, neither checked nor compared.
        let mut other_tags = bytes.clone();
        let tuple = Tuple { app_tag: 1, ref_tag: 1, ..tuple_of(&bytes, protection, 1) };
        set_tuple(&mut other_tags, protection, 1, tuple);
        assert!(compare(&other_tags, NONE).is_success());
        assert!(compare(&other_tags, Action { checks_guard: true, ..NONE }).is_success());
        assert!(compare(&other_tags, tags).is(Status::APPLICATION_TAG_CHECK_ERROR), "the host's are checked");
        let wrong = Action { ref_tag: 5, checks_guard: false, checks_app_tag: false, ..tags };
        assert!(compare(&bytes, wrong).is(Status::REFERENCE_TAG_CHECK_ERROR));
        // Other data, with a guard of its own and with the old one.
        let mut other = bytes.clone();
        other[protection.extended_bytes() as usize] ^= 1;
        assert!(compare(&other, tags).is(Status::GUARD_CHECK_ERROR));
        assert!(compare(&other, NONE).is(Status::COMPARE_FAILURE));
    }
    end(served.running);
}

/// Regression: commands that failed counted as read and written bytes, of whatever way they went.
#[test]
fn bytes_of_commands_that_failed_do_not_count() {
    let mut served = serve(7836, ProtectionType::Type1);
    let tags = all(10, 3);
    let counted = |served: &crate::common::protected::Served| {
        let report = served.running.snapshot();
        let target = report.stage("target").expect("it is in the plan");
        ["reads", "read_bytes", "writes", "written_bytes"].map(|name| target.counter(name).expect("it is counted"))
    };
    let mut wanted = [0; 4];
    for nsid in [1, 3, SMALL] {
        let protection = served.protection(nsid);
        let bytes = served.blocks(nsid, 3, 0x5A, tags);
        assert!(served.write(nsid, (10, 3), tags, &bytes).status.is_success());
        served.assert_read(nsid, (10, 3), tags, &bytes);
        let wrong = Action { app_tag: 4, ..tags };
        assert!(served.write(nsid, (10, 3), wrong, &bytes).status.is(Status::APPLICATION_TAG_CHECK_ERROR));
        let (answer, _) = served.read(nsid, (10, 3), wrong);
        assert!(answer.status.is(Status::APPLICATION_TAG_CHECK_ERROR), "namespace {nsid}: {answer:?}");
        // Unchecked blocks of namespace 1 go straight to its memory and from there.
        assert!(served.write(nsid, (10, 3), NONE, &bytes).status.is_success());
        served.assert_read(nsid, (10, 3), NONE, &bytes);
        let len = 2 * 3 * u64::from(protection.extended_bytes());
        wanted = [wanted[0] + 3, wanted[1] + len, wanted[2] + 3, wanted[3] + len];
        // The device's part in a read may end after the host has the answer.
        let read = wanted[1];
        crate::common::until(&served.running, "read_bytes", read);
        assert_eq!(counted(&served), wanted, "namespace {nsid}");
    }
    end(served.running);
}
