//! Behaviour of rdma_cm without a counterpart in the software RNIC's connection manager: on kernel
//! devices only.

use std::fs::File;
use std::process::Command;
use std::time::Duration;

use crate::common::{PATIENCE, only_kernel};
use crate::connections::{fresh, listen, route};
use verbline_verbs::connection::{ConnectOptions, ConnectionError};

#[test]
fn a_request_for_which_no_descriptor_is_left_is_rejected() {
    only_kernel!("a request takes no descriptor");
    let mut listener = listen("10.9.9.2:0");
    let mut side = fresh("soft0");
    let connecting = route(listener.local_addr()).unwrap().connect(&mut side.qp, &ConnectOptions::default()).unwrap();
    let all: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    let error = listener.next(PATIENCE).unwrap_err();
    drop(all);
    assert!(error.to_string().contains("EMFILE"), "{error}");
    let error = connecting.finish(&mut side.qp, Duration::from_secs(3)).unwrap_err();
    assert!(matches!(error, ConnectionError::Rejected { .. }), "{error}");
}

fn ip(args: &str) {
    assert!(Command::new("ip").args(args.split(' ')).status().unwrap().success(), "ip {args}");
}

#[test]
fn a_connection_whose_peer_s_address_moves_to_another_interface_says_so() {
    only_kernel!("no interface is under it");
    let mut listener = listen("10.9.9.2:0");
    let (mut a, mut b) = (fresh("soft0"), fresh("soft1"));
    let usual = ConnectOptions::default();
    let connecting = route(listener.local_addr()).unwrap().connect(&mut a.qp, &usual).unwrap();
    let _accepted = listener.next(PATIENCE).unwrap().unwrap().accept(&mut b.qp, &usual).unwrap();
    let mut connected = connecting.finish(&mut a.qp, PATIENCE).unwrap();
    ip("neigh replace 10.9.9.2 lladdr 02:00:00:00:00:77 dev d0 nud permanent");
    let over = connected.wait_disconnected(PATIENCE);
    ip("neigh del 10.9.9.2 dev d0");
    assert!(over.unwrap());
    assert_eq!(connected.end_reason(), Some("the peer's address has moved to another interface"));
}
