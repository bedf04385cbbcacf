//! Namespaces that are removed and have a cache: what their hosts may rely on holds for them, too.

use crate::common::{SECOND, changed, plan};
use crate::crash::{BLOCK, BLOCKS, NSID, ended, serve, serve_with};
use verbline::cli::App;
use verbline_nvme::io::ReadWrite;
use verbline_nvme::{Command, Status, opcode, property};
use verbline_store::{Disk, Faults};

/// Regression: a namespace that was removed was not flushed by the shutdown after it, which was
/// complete all the same.
#[test]
fn what_was_written_before_a_removal_and_a_shutdown_is_there_after_a_restart() {
    assert_durable_after_removal(7994, "");
}

/// The admin queue and the I/O queue are on different lcores, which give the namespace up at
/// different times.
#[test]
fn two_lcores_flush_what_was_written_before_a_removal() {
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
        println!("skipped: one CPU");
        return;
    }
    assert_durable_after_removal(7995, SECOND);
}

/// Writes blocks, has the namespace removed, and shuts the controller down, mostly before the last
/// flush is done. The blocks survive a crash.
#[track_caller]
fn assert_durable_after_removal(port: u16, more: &str) {
    for seed in 1..=8 {
        let faults = Faults { latency_polls_max: 1_000, ..Faults::default() };
        let disk = Disk::new(BLOCKS as usize * BLOCK, BLOCK as u32, faults, seed).expect("a disk");
        let (mut served, app) = serve_with(port, more, &disk);
        served.host.memory.write_from(0, &seed.to_le_bytes().repeat(8 * BLOCK / 8)).expect("within the memory");
        served.of_eight(opcode::io::WRITE, 0);
        app.reload(&changed(&(plan(port, "") + more))).expect("taken");
        let sgl = served.host.keyed(0, BLOCK as u32);
        let range = ReadWrite { slba: 0, blocks: 1 };
        let read = Command { nsid: NSID, ..Command::new(opcode::io::READ, 0, sgl).with(range.dwords()) };
        while !served.host.ask(served.io, &read).status.is(Status::INVALID_NAMESPACE) {}
        assert_eq!(served.shut_down(), (Status::SUCCESS, property::CSTS_SHUTDOWN_COMPLETE), "seed {seed}");
        disk.crash();
        ended(served, None);
        let mut again = serve(port, &disk);
        assert_eq!(again.read_all().map(|blocks| blocks[..8].to_vec()), Ok(vec![seed; 8]), "seed {seed}");
        ended(again, None);
    }
}
