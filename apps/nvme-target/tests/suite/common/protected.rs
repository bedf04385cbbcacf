//! A target whose namespaces have protection information, and a host that reads and writes them.

use std::fs::{File, OpenOptions};

use tempfile::TempDir;
use verbline::engine::Running;
use verbline_nvme::io::ReadWrite;
use verbline_nvme::log::LogRequest;
use verbline_nvme::protection::{Action, Protection, ProtectionType, Tuple};
use verbline_nvme::{Command, Response, Sgl, Status, opcode};

use super::{Host, plan, start};

/// Namespaces 1, in memory, and 3, in a file, both with blocks of 4096 and 8 bytes.
pub(crate) const BOTH: [u32; 2] = [1, 3];
/// Like namespace 3, but with blocks of 512 and 8 bytes.
pub(crate) const SMALL: u32 = 4;
/// The parts of the host's memory that data comes from and goes to.
pub(crate) const FROM: u64 = 0;
pub(crate) const TO: u64 = 32 << 10;

/// A target with protected namespaces, and a host with an I/O queue.
pub(crate) struct Served {
    pub(crate) running: Running,
    pub(crate) host: Host,
    pub(crate) admin: usize,
    /// The queue of the commands.
    pub(crate) io: usize,
    pub(crate) cntlid: u16,
    folder: TempDir,
    kind: ProtectionType,
}

pub(crate) fn serve(port: u16, kind: ProtectionType) -> Served {
    serve_with(port, kind, "")
}

/// The device checks what it can, with `keys` signature keys per connection.
pub(crate) fn serve_pipelined(port: u16, kind: ProtectionType, keys: u16) -> Served {
    serve_checked(port, kind, (keys, "device"))
}

/// The plan with `keys` signature keys per connection, and `reads_checked_by`.
pub(crate) fn serve_checked(port: u16, kind: ProtectionType, (keys, by): (u16, &str)) -> Served {
    let keys = format!("ops_depth_wr = 64\nsignature_keys = {keys}");
    serve_by(port, kind, (&keys, by, PACKET_BYTES), "")
}

/// The plan with more text.
pub(crate) fn serve_with(port: u16, kind: ProtectionType, more: &str) -> Served {
    serve_by(port, kind, ("ops_depth_wr = 64", "auto", PACKET_BYTES), more)
}

/// Serves with packets of `packet_bytes`.
pub(crate) fn serve_in_packets_of(packet_bytes: u32, port: u16, kind: ProtectionType) -> Served {
    serve_by(port, kind, ("ops_depth_wr = 64", "auto", packet_bytes), "")
}

/// Room for four blocks with their protection information.
const PACKET_BYTES: u32 = 16_896;

fn serve_by(port: u16, kind: ProtectionType, (keys, by, packet_bytes): (&str, &str, u32), more: &str) -> Served {
    let folder = tempfile::tempdir().expect("a folder");
    let number = kind.number();
    let file = |nsid: u32, block_bytes: u32| {
        let path = folder.path().join(nsid.to_string());
        format!(
            "[nvme.namespace.{nsid}]\nfile = {path:?}\ncreate_bytes = 262_144\nblock_bytes = {block_bytes}\n\
             protection = \"type{number}\"\n"
        )
    };
    let text = plan(port, &(file(3, 4096) + &file(SMALL, 512))) + more;
    let text = text.replace("ops_depth_wr = 64", keys);
    let settings = format!("transfer_bytes_max = 16_384\nreads_checked_by = \"{by}\"");
    let text = text.replace("transfer_bytes_max = 8192", &settings);
    let text = text.replace("data_bytes = 8192", &format!("data_bytes = {packet_bytes}"));
    let memory = format!("memory = \"disk\"\nprotection = \"type{number}\"");
    let running = start(&text.replace("memory = \"disk\"", &memory));
    let mut host = Host::new(port);
    let (admin, cntlid) = host.controller();
    let io = host.io_queue(cntlid, 1);
    Served { running, host, admin, io, cntlid, folder, kind }
}

/// Checks everything, with tags that begin at these.
pub(crate) fn all(ref_tag: u32, app_tag: u16) -> Action {
    let [checks_guard, checks_app_tag, checks_ref_tag] = [true; 3];
    Action { pract: false, checks_guard, checks_app_tag, checks_ref_tag, ref_tag, app_tag, app_mask: u16::MAX }
}

pub(crate) fn pract(action: Action) -> Action {
    Action { pract: true, ..action }
}

/// Checks and inserts nothing.
pub(crate) const NONE: Action = Action {
    pract: false,
    checks_guard: false,
    checks_app_tag: false,
    checks_ref_tag: false,
    ref_tag: 0,
    app_tag: 0,
    app_mask: 0,
};

impl Served {
    pub(crate) fn protection(&self, nsid: u32) -> Protection {
        Protection { kind: self.kind, block_bytes: if nsid == SMALL { 512 } else { 4096 } }
    }

    /// Extended blocks of this filling, with the tags of the action.
    pub(crate) fn blocks(&self, nsid: u32, blocks: u32, filling: u8, action: Action) -> Vec<u8> {
        let protection = self.protection(nsid);
        let mut bytes: Vec<u8> = (0..blocks * protection.block_bytes).map(|at| (at % 249) as u8 ^ filling).collect();
        bytes.resize((blocks * protection.extended_bytes()) as usize, 0);
        protection.insert(action, 0, &mut bytes);
        bytes
    }

    pub(crate) fn command(
        &self,
        opcode: u8,
        nsid: u32,
        (slba, blocks): (u64, u32),
        action: Action,
        sgl: Sgl,
    ) -> Command {
        let dwords = action.put(ReadWrite { slba, blocks }.dwords());
        Command { nsid, ..Command::new(opcode, 0, sgl).with(dwords) }
    }

    /// Sends a command whose data lies in the host's memory.
    pub(crate) fn ask(&mut self, opcode: u8, nsid: u32, range: (u64, u32), action: Action, at: u64) -> Response {
        let bytes = self.protection(nsid).wire_bytes(action, range.1);
        let command = self.command(opcode, nsid, range, action, self.host.keyed(at, bytes as u32));
        self.host.ask(self.io, &command)
    }

    /// A Write of these bytes.
    pub(crate) fn write(&mut self, nsid: u32, range: (u64, u32), action: Action, bytes: &[u8]) -> Response {
        self.host.memory.write_from(FROM as usize, bytes).expect("within the memory");
        self.ask(opcode::io::WRITE, nsid, range, action, FROM)
    }

    /// A Read. Returns the response and the data.
    pub(crate) fn read(&mut self, nsid: u32, range: (u64, u32), action: Action) -> (Response, Vec<u8>) {
        let bytes = self.protection(nsid).wire_bytes(action, range.1) as usize;
        self.host.memory.write_from(TO as usize, &vec![0xEE; bytes]).expect("within the memory");
        let answer = self.ask(opcode::io::READ, nsid, range, action, TO);
        (answer, self.host.bytes(TO as usize, bytes))
    }

    #[track_caller]
    pub(crate) fn assert_read(&mut self, nsid: u32, range: (u64, u32), action: Action, bytes: &[u8]) {
        let (answer, read) = self.read(nsid, range, action);
        assert!(answer.status.is_success() && read == bytes, "namespace {nsid}: {answer:?}");
    }

    pub(crate) fn without_data(&mut self, opcode: u8, nsid: u32, range: (u64, u32), action: Action) -> Response {
        let command = self.command(opcode, nsid, range, action, Sgl::NONE);
        self.host.ask(self.io, &command)
    }

    /// Opens the file of a namespace without the target's knowledge.
    pub(crate) fn file(&self, nsid: u32) -> File {
        OpenOptions::new().read(true).write(true).open(self.folder.path().join(nsid.to_string())).expect("the file")
    }

    /// Reads of protected blocks that the device checked, and that the CPU checked.
    pub(crate) fn checked(&self) -> [u64; 2] {
        let report = self.running.snapshot();
        let target = report.stage("target").expect("it is in the plan");
        ["pipelined", "cpu_checked"].map(|name| target.counter(name).expect("it is counted"))
    }

    /// The latest entry of the error log: status, block and namespace.
    pub(crate) fn last_error(&mut self) -> (Status, u64, u32) {
        last_error(&mut self.host, self.admin)
    }
}

/// The latest entry of the error log of a host's controller: status, block and namespace.
pub(crate) fn last_error(host: &mut Host, admin: usize) -> (Status, u64, u32) {
    let asked = LogRequest { id: 0x01, retain_event: false, offset: 0, len: 64 };
    let log = Command::new(opcode::admin::GET_LOG_PAGE, 0, host.keyed(TO, 64)).with(asked.dwords());
    assert!(host.ask(admin, &log).status.is_success());
    let entry = host.bytes(TO as usize, 64);
    let (status, lba, nsid) = (&entry[12..14], &entry[16..24], &entry[24..28]);
    let status = Status::from_field(u16::from_le_bytes(status.try_into().expect("2 bytes")));
    let lba = u64::from_le_bytes(lba.try_into().expect("8 bytes"));
    (status, lba, u32::from_le_bytes(nsid.try_into().expect("4 bytes")))
}

/// The protection information of block number `block` in `bytes`.
pub(crate) fn tuple_of(bytes: &[u8], protection: Protection, block: u32) -> Tuple {
    let first = (block * protection.extended_bytes() + protection.block_bytes) as usize;
    Tuple::read(&bytes[first..first + 8])
}

pub(crate) fn set_tuple(bytes: &mut [u8], protection: Protection, block: u32, tuple: Tuple) {
    let first = (block * protection.extended_bytes() + protection.block_bytes) as usize;
    bytes[first..first + 8].copy_from_slice(&tuple.to_bytes());
}
