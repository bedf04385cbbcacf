//! What rdma_cm does that the software RNIC's connection manager has no counterpart of: on kernel
//! devices only.

use std::fs::File;
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
