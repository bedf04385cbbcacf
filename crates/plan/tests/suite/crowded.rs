//! A listener, or a device's address, with fewer places than the plan wants.

use crate::common::loader;

/// A listener of this many places, and a port that wants this many connections there. `more` is
/// another port.
fn plan(places: u32, wanted: u32, more: &str) -> String {
    let port = |name: &str, lcore: &str, keys: &str| {
        format!(
            "[port.{name}]\nlcore = \"{lcore}\"\ndevice = \"nic\"\npool = \"p\"\ntransport = \"rc\"\n{keys}\n\
             rx_shared_wr = 64\ntx_depth_wr = 1\nnext = \"drop\"\n"
        )
    };
    let door = port("door", "a", &format!("listen = \"10.9.9.1:4420\"\nconnections_max = {places}"));
    let clients = port("clients", "b", &format!("connect = \"10.9.9.1:4420\"\nconnections = {wanted}"));
    let more = if more.is_empty() { String::new() } else { port("more", "a", more) };
    format!(
        "app = \"tick-to-trade\"\n[device.nic]\nprovider = \"soft\"\n[pool.p]\ndevice = \"nic\"\npackets = 8192\n\
         data_bytes = 64\n[lcore.a]\ncpu = 0\n[lcore.b]\ncpu = 1\n{door}{clients}{more}"
    )
}

/// The warning about places.
fn said(text: &str) -> Option<String> {
    let plan = loader().load_str("door.toml", text).unwrap_or_else(|faults| panic!("{faults}"));
    plan.warnings().iter().any(|one| one.code() == "too-few-places").then(|| {
        let shown = plan.warnings().render(false);
        shown.split_whitespace().collect::<Vec<_>>().join(" ")
    })
}

#[test]
fn more_connections_than_places_are_a_warning() {
    let warning = said(&plan(64, 65, "")).expect("a warning");
    let words = [
        "port.clients wants 65 connections at port.door",
        "connections = 65",
        "there are places for 64",
        "raise `connections_max` to 65, or",
    ];
    assert!(words.iter().all(|word| warning.contains(word)), "{warning}");
    assert_eq!(said(&plan(65, 65, "")), None);
}

#[test]
fn places_of_ports_that_share_the_listener_count_and_so_does_everybody_who_asks() {
    assert_eq!(said(&plan(64, 65, "listen_with = \"port.door\"\nconnections_max = 1")), None);
    let warning = said(&plan(64, 60, "connect = \"10.9.9.1:4420\"\nconnections = 5")).expect("a warning");
    assert!(warning.contains("port.clients and port.more want 65 connections at port.door"), "{warning}");
    // Connections without a place there go to the other address.
    let elsewhere = "connect = [\"10.9.9.1:4420\", \"10.9.9.3:4420\"]\nconnections = 5";
    assert_eq!(said(&plan(64, 60, elsewhere)), None);
}

#[test]
fn a_device_has_a_number_of_connections_by_its_address() {
    let by_address = |text: &str| text.replace("[pool.p]", "address = \"127.0.0.1\"\n[pool.p]");
    let warning = said(&by_address(&plan(4096, 1, ""))).expect("a warning");
    for words in ["device.nic has at most 4096 connections by its address, not 4097", "connections_max = 4096"] {
        assert!(warning.contains(words), "{warning}");
    }
    assert_eq!(said(&by_address(&plan(4095, 1, ""))), None);
    assert_eq!(said(&plan(4096, 1, "")), None);
}
