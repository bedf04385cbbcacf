//! Hosts that do not take their responses: they are disconnected, and other hosts are served.

use std::time::{Duration, Instant};

use crate::common::{ENTRIES, Host, end, plan, start, until};
use verbline_nvme::identify::cns;
use verbline_nvme::{Command, Sgl, opcode};

/// A host that takes no responses on its I/O queues, each with all the reads that it may have.
fn slow_host(port: u16, name: &'static str, queues: u16) -> (Host, Vec<usize>) {
    let mut host = Host::new(port);
    host.name = name;
    let (_, cntlid) = host.controller();
    let deaf: Vec<usize> = (1..=queues).map(|qid| host.deaf_queue(cntlid, qid)).collect();
    for queue in &deaf {
        for cid in 1..ENTRIES {
            host.send(*queue, &Command { cid, ..host.read(0, 1) }.to_bytes());
        }
    }
    (host, deaf)
}

/// Three queues could hold every operation of the port. A host beside them reads, and asks for
/// pages, all the while. The slow host is disconnected after the time-out.
#[test]
fn hosts_that_take_no_responses_stop_nobody() {
    let text = plan(7825, "response_timeout_ms = 1500").replace("ops_shared_wr = 256", "ops_shared_wr = 64");
    let running = start(&text);
    let (mut slow, deaf) = slow_host(7825, "nqn.2026-01.org.example:slow", 3);
    until(&running, "waited", 3);
    let mut good = Host::new(7825);
    let (admin, io) = good.queues();
    let identify = Command::new(opcode::admin::IDENTIFY, 0, good.keyed(0, 4096));
    let identify = identify.with([cns::CONTROLLER.into(), 0, 0, 0, 0, 0]);
    let began = Instant::now();
    for _ in 0..50 {
        let cid = good.cid();
        good.send(io, &Command { cid, ..good.read(0, 1) }.to_bytes());
        let answer = good.response_within(io, Duration::from_secs(10)).expect("a read is answered");
        assert!(answer.cid == cid && answer.status.is_success());
        let cid = good.cid();
        good.send(admin, &Command { cid, ..identify }.to_bytes());
        let answer = good.response_within(admin, Duration::from_secs(10)).expect("Identify is answered");
        assert!(answer.status.is_success(), "{answer:?}");
    }
    let took = began.elapsed();
    for queue in deaf {
        assert!(slow.is_cut_off(queue, Duration::from_secs(20)), "a queue that takes nothing is disconnected");
    }
    until(&running, "stuck", 3);
    good.assert_served(io);
    println!("50 reads and pages took {took:?}");
    end(running);
}

/// A slow host keeps its connection: a response taken late is still a sign of life.
#[test]
fn a_host_that_takes_its_responses_late_stays() {
    let running = start(&plan(7826, "response_timeout_ms = 2000"));
    let (mut slow, deaf) = slow_host(7826, "nqn.2026-01.org.example:late", 1);
    std::thread::sleep(Duration::from_millis(800));
    slow.listen_again(deaf[0]);
    for _ in 1..ENTRIES {
        assert!(slow.response(deaf[0]).status.is_success());
    }
    slow.assert_served(deaf[0]);
    let report = end(running);
    assert_eq!(report.stage("target").and_then(|stage| stage.counter("stuck")), Some(0));
}

/// While hosts have a namespace zeroed and verified, over and over, the reads of another host go
/// on: an lcore's work per turn is bounded, however much its hosts ask for.
#[test]
fn two_lcores_long_commands_leave_turns_to_others() {
    let running = start(&plan(7827, ""));
    // The lcore has the first CPU. A kernel that runs idle-class work on the others leaves this
    // thread beside the lcore for as long as both compute.
    let cpu = core_affinity::get_core_ids().and_then(|cpus| cpus.last().copied()).expect("a CPU");
    assert!(core_affinity::set_for_current(cpu), "cannot pin this thread");
    let mut busy = Host::new(7827);
    busy.name = "nqn.2026-01.org.example:busy";
    let (_, cntlid) = busy.controller();
    let queues = [1, 2, 3, 4].map(|qid| busy.io_queue(cntlid, qid));
    let mut host = Host::new(7827);
    let (_, io) = host.queues();
    host.assert_served(io);
    // The best of a few rounds: this thread shares its CPU, and reads nothing while another has it.
    // If long commands took all turns, no round would have many.
    let most = (0..5).map(|_| reads_beside_long_commands(&mut busy, queues, &mut host, io)).find(|reads| *reads > 40);
    assert!(most.is_some(), "in no round more than 40 reads were answered meanwhile");
    end(running);
}

/// Regression: the first busy namespace spent the budget of every turn, and those behind it were
/// never asked.
#[test]
fn two_lcores_a_namespace_that_always_has_work_leaves_turns_to_others() {
    let running = start(&plan(7828, ""));
    let mut busy = Host::new(7828);
    busy.name = "nqn.2026-01.org.example:busy";
    let (_, queue) = busy.queues();
    let mut host = Host::new(7828);
    let (_, io) = host.queues();
    let zeroes = busy.of_blocks(opcode::io::WRITE_ZEROES, 0, 256, Sgl::NONE);
    (1..ENTRIES - 1).for_each(|cid| busy.send(queue, &Command { cid, ..zeroes }.to_bytes()));
    // Through the store, like those of the other host.
    let read = Command { nsid: 2, cid: ENTRIES, ..host.read(0, 1) };
    let (mut answered, mut is_read) = (0, false);
    while !is_read {
        while let Some(answer) = busy.response_within(queue, Duration::ZERO) {
            assert!(answer.status.is_success(), "{answer:?}");
            answered += 1;
            assert!(answered < 40 * ENTRIES, "the read waits behind {answered} commands");
            busy.send(queue, &Command { cid: answer.cid, ..zeroes }.to_bytes());
            if answered == ENTRIES {
                host.send(io, &read.to_bytes());
            }
        }
        is_read = host.response_within(io, Duration::ZERO).is_some_and(|answer| answer.status.is_success());
    }
    end(running);
}

/// Reads of one host answered while 60 long commands of another are carried out: 60 MiB, at 256 KiB
/// per turn.
fn reads_beside_long_commands(busy: &mut Host, queues: [usize; 4], host: &mut Host, io: usize) -> usize {
    for cid in 1..ENTRIES {
        for (index, queue) in queues.into_iter().enumerate() {
            let opcode = if index == 3 { opcode::io::VERIFY } else { opcode::io::WRITE_ZEROES };
            let command = busy.of_blocks(opcode, 0, 256, Sgl::NONE);
            busy.send(queue, &Command { cid, ..command }.to_bytes());
        }
    }
    let (mut reads, mut answered) = (0, 0);
    while answered < 4 * (usize::from(ENTRIES) - 1) {
        host.assert_served(io);
        reads += 1;
        for queue in queues {
            while let Some(answer) = busy.response_within(queue, Duration::ZERO) {
                assert!(answer.status.is_success(), "{answer:?}");
                answered += 1;
            }
        }
    }
    println!("{reads} reads beside 60 long commands");
    reads
}
