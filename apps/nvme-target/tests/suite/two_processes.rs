//! Target and initiator as two processes, each with a software device of its own address: every
//! block is verified over UDP, and an initiator that leaves makes room for the next.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use verbline_tests::{Finished, Program, counted, own_address, two_lcores};

/// Both halves, at addresses that no other test uses at the same time.
fn halves(folder: &Path) -> [Program; 2] {
    let [at_server, at_client] = [1, 2].map(own_address);
    let listens = format!("{at_server}:4420");
    let server = vec![
        "lcore.target.drain=60s".to_owned(),
        format!("device.nic0.address={at_server}"),
        format!("port.hosts.listen={listens}"),
    ];
    let client = vec![
        "lcore.load.drain=60s".to_owned(),
        // 256 blocks: each is written before the first is read.
        "load.bytes=1_048_576".to_owned(),
        format!("device.nic0.address={at_client}"),
        format!("port.admin.connect={listens}"),
        format!("port.io.connect={listens}"),
    ];
    [("server", server), ("client", client)].map(|(half, sets)| {
        let plan = format!("config/two-processes/nvme-{half}.toml");
        let run = Program::new(env!("CARGO_BIN_EXE_nvme-target")).with(["run", &plan, "--json", "--quiet"]);
        run.listening_in(folder).with(sets.into_iter().flat_map(|set| ["--set".into(), set]))
    })
}

#[test]
fn two_lcores_of_two_processes_write_read_and_verify_every_block() {
    if two_lcores(["target", "load"]).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let [server, client] = halves(folder.path());
    let server = server.start();
    for _ in 0..2 {
        let running = client.start();
        // On all of its connections: the first of them could have had all answers.
        let has_answers = |report: &Value| {
            let opened = &report["ports"][1]["connections"]["opened"];
            counted(report, "load", "answered") >= 2000 && opened.as_u64() >= Some(4)
        };
        client.await_live(Some("nvme-client"), "2000 answers on four connections", has_answers);
        let client = running.end_whole(0);
        let json = client.json();
        assert_eq!(
            (&json["mismatches"], &json["balance"], &json["counts"]["failed"]),
            (&0.into(), &0.into(), &0.into())
        );
        assert!(json["counts"]["verified"].as_u64() > Some(0), "{client}");
        assert!(json["ports"][1]["connections"]["over_udp"].as_u64() >= Some(4), "{client}");
    }
    let server = server.end_whole(0);
    let connections = &server.json()["ports"][0]["connections"];
    assert_eq!(connections["open"], 0, "{server}");
    assert!(connections["over_udp"].as_u64() >= Some(10), "{server}");
}

/// Regression: a target whose file was cut short while it ran said nothing. A read that meets the
/// end says so, unless the target looks at the file's length first, and says that it is shorter.
#[test]
fn two_lcores_of_two_processes_say_that_a_file_was_cut_short() {
    if two_lcores(["target", "load"]).is_none() {
        return;
    }
    let met_its_end = |_| {
        let (server, failed) = cut_short();
        let said = server.stderr.replace('\n', " ");
        let has_met = said.contains(&failed);
        assert!(has_met || said.contains("a namespace has shrunk: its data behind is gone nsid=1"), "{server}");
        has_met
    };
    assert!((0..5).any(met_its_end));
}

/// A target whose file is cut under its load, and what it says of a read that meets the end.
fn cut_short() -> (Finished, String) {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    let namespace = format!("nvme.namespace.1={{ file = {disk:?}, create_bytes = 8_388_608, page_cache = true }}");
    let [server, client] = halves(folder.path());
    let target = server.with(["--set".to_owned(), namespace]);
    let server = target.start();
    let running = client.start();
    let has_answers = |report: &Value| counted(report, "load", "answered") >= 1000;
    client.await_live(Some("nvme-client"), "1000 answers", has_answers);
    // The writes make the file as long as it was before: it is cut until a read has failed.
    let cut = std::fs::File::options().write(true).open(&disk).unwrap();
    let fails = |report: &Value| {
        cut.set_len(0).unwrap();
        counted(report, "target", "failed") > 0
    };
    target.await_live(Some("nvme-server"), "a failed read", fails);
    running.end_whole(1);
    (server.end_whole(0), format!("a command failed beneath the namespace nsid=1 blocks=file {}", disk.display()))
}

/// Regression: a host that was paused with a keep-alive under way took its own pause for the
/// target's silence, and ended its connections.
#[test]
fn two_lcores_of_two_processes_a_pause_of_the_host_is_no_silence_of_the_target() {
    if two_lcores(["target", "load"]).is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let [server, client] = halves(folder.path());
    // Packets are sent again for longer than the pauses take.
    let patient = |run: Program, ports: &[&str]| {
        run.with(ports.iter().flat_map(|port| ["--set".to_owned(), format!("port.{port}.timeout=21")]))
    };
    let (server, client) = (patient(server, &["hosts"]), patient(client, &["admin", "io"]));
    let client = client.with(["--set", "load.keep_alive_ms=6000"]);
    let server = server.start();
    let running = client.start();
    let answered = |least: u64| move |report: &Value| counted(report, "load", "answered") >= least;
    client.await_live(Some("nvme-client"), "1000 answers", answered(1000));
    server.signal(Signal::STOP);
    // One is sent every three seconds. This one waits for its answer.
    std::thread::sleep(Duration::from_millis(3500));
    running.signal(Signal::STOP);
    std::thread::sleep(Duration::from_secs(7));
    running.signal(Signal::CONT);
    std::thread::sleep(Duration::from_secs(1));
    server.signal(Signal::CONT);
    let before = client.live(Some("nvme-client")).map_or(0, |report| counted(&report, "load", "answered"));
    client.await_live(Some("nvme-client"), "1000 more", answered(before + 1000));
    let shown = running.end_whole(0);
    server.end_whole(0);
    let counts = &shown.json()["counts"];
    assert_eq!((&counts["failed"], &counts["connected"]), (&0.into(), &1.into()), "{shown}");
}
