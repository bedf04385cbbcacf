//! A process that has run out of file descriptors. Alone in its file, as it takes them from all
//! threads of its process.

#[path = "suite/common/mod.rs"]
mod common;

use std::fs::File;

use common::{fed, one_lcore, plan, registry};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use verbline_engine::Runtime;

#[test]
fn descriptors_that_run_out_are_asked_for_by_what_needs_them() {
    let text = one_lcore("adaptive", &fed("count = 1", "use = \"sink\""));
    let registry = registry();
    let runtime = Runtime::build(&plan(&registry, &text), &registry).unwrap();
    setrlimit(Resource::Nofile, Rlimit { current: Some(256), ..getrlimit(Resource::Nofile) }).unwrap();
    let taken: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    let error = runtime.start().expect_err("no descriptor is left");
    drop(taken);
    // This plan has no connections by address that somebody could keep, and no line of it is to
    // blame.
    let says = "starting the thread that watches the devices' events: Too many open files (os error 24); \
                free file descriptors or threads (ulimit -n, ulimit -u)";
    assert_eq!(error.to_string(), says);
}
