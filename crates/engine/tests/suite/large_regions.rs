//! Regions longer than 4 GiB: stages read and write them, and operations and windows reach them,
//! beyond the reach of 32 bits.

use crate::common::{OUT, assert_clean, one_lcore_with};
use crate::operation_kinds::{REST, Side, key_in, packet, play_on};
use verbline_engine::{Done, KeptWindow, Operation, Outputs, Region, Rights};
use verbline_mem::Packet;

/// More than 32 bits can count; on demand, so that only touched pages take memory.
const BYTES: usize = 5 << 30;
/// 512 MiB beyond 4 GiB. Cut to 32 bits, it is 512 MiB.
const AT: usize = (4 << 30) + ALIAS;
const ALIAS: usize = 512 << 20;
const LAST: usize = BYTES - 8;

/// Opens all of its region by a window, and finds the peer's data at its end.
struct Opens;

impl Side for Opens {
    fn begin(&mut self, region: &Region, out: &mut Outputs<'_>) {
        assert_eq!(region.len_bytes(), BYTES);
        region.store_u64(AT, 4711).unwrap();
        let all = region.part(0, BYTES).unwrap();
        assert_eq!((all.offset(), all.len()), (0, BYTES));
        assert!(region.part(AT, BYTES - AT).is_some() && region.part(AT, BYTES - AT + 1).is_none());
        out.operate(OUT, Operation::bind(KeptWindow(0), all, Rights::REMOTE_READ | Rights::REMOTE_WRITE)).unwrap();
    }

    fn took(&mut self, _: Packet, region: &Region, _: &mut Outputs<'_>) -> bool {
        assert_eq!(region.load_u64(LAST).unwrap(), 4712);
        assert_eq!(region.load_u64(ALIAS - 8).unwrap(), 0, "no offset lost its upper bits");
        true
    }

    fn done(&mut self, done: Done, _: &Region, out: &mut Outputs<'_>) -> bool {
        assert_eq!((done.result, done.bytes), (Ok(()), u32::MAX));
        let key = packet(out, &done.key.expect("of a bind").to_bytes());
        assert!(out.send(OUT, key));
        false
    }
}

/// Reads from beyond 4 GiB there to beyond 4 GiB here, and writes to the last word.
struct Reaches {
    last: Option<verbline_engine::Remote>,
}

impl Side for Reaches {
    fn begin(&mut self, _: &Region, _: &mut Outputs<'_>) {}

    fn took(&mut self, came: Packet, region: &Region, out: &mut Outputs<'_>) -> bool {
        let all = key_in(&came);
        self.last = Some(all.offset(LAST as u64));
        let into = region.part(AT, 4096).unwrap();
        out.operate(OUT, Operation::read(into, all.offset(AT as u64)).tag(1)).unwrap();
        false
    }

    fn done(&mut self, done: Done, region: &Region, out: &mut Outputs<'_>) -> bool {
        assert_eq!(done.result, Ok(()));
        if done.tag == 1 {
            assert_eq!((region.load_u64(AT).unwrap(), region.load_u64(ALIAS).unwrap()), (4711, 0));
            region.store_u64(AT, 4712).unwrap();
            let from = region.part(AT, 8).unwrap();
            out.operate(OUT, Operation::write(from, self.last.unwrap()).tag(2)).unwrap();
            return false;
        }
        let told = packet(out, b"done");
        assert!(out.send(OUT, told));
        true
    }
}

/// A region whose pages come when they are touched.
fn sparse(name: &str, rights: &str) -> String {
    format!("[region.{name}]\ndevice = \"nic0\"\nbytes = {BYTES}\npages = \"odp\"\nrights = {rights}\n")
}

#[test]
fn stages_operations_and_windows_reach_a_region_beyond_4_gib() {
    let regions = sparse("mine", r#"["local-write"]"#)
        + &sparse("table", r#"["local-write", "remote-read", "remote-write", "bind"]"#);
    let text = one_lcore_with("poll", [2048, 256], &(regions + REST));
    let before = resident_bytes();
    let report = play_on(&text, Reaches { last: None }, Opens).unwrap();
    assert_clean(&report);
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 256 << 20, "only pages that were touched are there, not {grown} bytes more");
}

fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let most = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    most.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}
