//! The names of namespaces: those in the plan, and those that blocks have of their own. By them, a
//! host with a mounted file system sees whether the blocks are still those that it mounted.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::{Host, changed, end, plan, start, start_app};
use nvme_target::NvmeTarget;
use verbline::cli::App;
use verbline_nvme::identify::cns;
use verbline_nvme::{Command, opcode};

/// A namespace's page of Identify; `None` if the namespace does not exist.
fn page(host: &mut Host, admin: usize, cns: u8, nsid: u32) -> Option<Vec<u8>> {
    let identify = Command::new(opcode::admin::IDENTIFY, 0, host.keyed(0, 4096)).with([cns.into(), 0, 0, 0, 0, 0]);
    let answer = host.ask(admin, &Command { nsid, ..identify });
    answer.status.is_success().then(|| host.bytes(0, 4096))
}

/// The UUID among the descriptors of a namespace.
#[track_caller]
fn uuid(host: &mut Host, admin: usize, nsid: u32) -> [u8; 16] {
    let descriptors = page(host, admin, cns::NAMESPACE_DESCRIPTORS, nsid).expect("it is there");
    let mut rest = &descriptors[..];
    while let [kind, len, _, _, behind @ ..] = rest {
        let (value, after) = behind.split_at(usize::from(*len));
        if *kind == 3 {
            return value.try_into().expect("16 bytes");
        }
        assert_ne!(*kind, 0, "there is a UUID");
        rest = after;
    }
    panic!("there is a UUID");
}

/// The UUIDs of these namespaces in one run.
fn uuids<const N: usize>(port: u16, more: &str, nsids: [u32; N]) -> [[u8; 16]; N] {
    let running = start(&plan(port, more));
    let mut host = Host::new(port);
    let (admin, _) = host.controller();
    let uuids = nsids.map(|nsid| uuid(&mut host, admin, nsid));
    end(running);
    uuids
}

fn file(path: &Path) -> String {
    format!("[nvme.namespace.7]\nfile = {path:?}\ncreate_bytes = 65_536\npage_cache = true\n")
}

/// Another file under the same number has another UUID, and the same file under another path keeps
/// its own. A region's UUID ends with the run. That of a namespace that stores nothing never
/// changes.
#[test]
fn blocks_have_names_of_their_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, moved) = (folder.path().join("disk"), folder.path().join("moved"));
    let [region, nothing, first] = uuids(7900, &file(&path), [1, 2, 7]);
    let [other_region, same_nothing, again] = uuids(7900, &file(&path), [1, 2, 7]);
    assert_eq!((again, same_nothing), (first, nothing), "the same after a restart");
    assert_ne!(other_region, region);
    std::fs::rename(&path, &moved).expect("moved");
    let [another] = uuids(7900, &file(&path), [7]);
    let [found] = uuids(7900, &file(&moved), [7]);
    assert_ne!(another, first, "another file, where the first one was");
    assert_eq!(found, first);
}

#[test]
fn a_plan_may_name_a_namespace() {
    let names = "uuid = \"01234567-89ab-4def-8123-456789abcdef\"\nnguid = \"00112233445566778899aabbccddeeff\"\n\
                 eui64 = \"0123456789abcdef\"\n";
    let running = start(&plan(7901, &format!("[nvme.namespace.7]\nnull_bytes = 65_536\n{names}")));
    let mut host = Host::new(7901);
    let (admin, _) = host.controller();
    let uuid = uuid(&mut host, admin, 7);
    assert_eq!(u128::from_be_bytes(uuid), 0x0123_4567_89AB_4DEF_8123_4567_89AB_CDEF);
    let namespace = page(&mut host, admin, cns::NAMESPACE, 7).expect("it is there");
    assert_eq!(namespace[104..120], 0x0011_2233_4455_6677_8899_AABB_CCDD_EEFF_u128.to_be_bytes());
    assert_eq!(namespace[120..128], 0x0123_4567_89AB_CDEF_u64.to_be_bytes());
    let unnamed = page(&mut host, admin, cns::NAMESPACE, 1).expect("it is there");
    assert_eq!(unnamed[104..128], [0; 24], "no number of IEEE's stands where nobody gave one");
    end(running);
}

/// A region that moves to another namespace keeps its UUID, like its blocks.
#[test]
fn a_region_keeps_its_name_under_another_number() {
    let app = NvmeTarget::default();
    let text = plan(7902, "");
    let running = start_app(&text, &app);
    let mut host = Host::new(7902);
    let (admin, _) = host.controller();
    let before = uuid(&mut host, admin, 1);
    let text = text.replace("[nvme.namespace.1]", "[nvme.namespace.9]");
    app.reload(&changed(&text)).expect("taken");
    let deadline = Instant::now() + Duration::from_secs(20);
    while page(&mut host, admin, cns::NAMESPACE_DESCRIPTORS, 9).is_none() {
        assert!(Instant::now() < deadline, "it comes");
    }
    assert_eq!(uuid(&mut host, admin, 9), before);
    end(running);
}
