//! Starts that fail half-way, for want of a descriptor, at each step of the way: nothing is left
//! behind. Alone in its file, as it takes the descriptors from all threads of its process.

#[path = "suite/common/mod.rs"]
mod common;

use std::fs::{self, File};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{desk, fed, plan};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use verbline_engine::{Acceptor, Answer, ConnectionRequest, EngineError, Report, Runtime};

/// Far more than a run needs here.
const LIMIT: u64 = 512;

/// Takes everybody.
struct Open;

impl Acceptor for Open {
    fn decide(&mut self, _: &ConnectionRequest<'_>) -> Answer {
        Answer::accept()
    }
}

/// A plan with everything that has descriptors or threads: connections by address, of one peer and
/// of many, datagrams with senders, an injector, and the devices' events.
fn text() -> String {
    let of_port = "lcore = \"only\"\ndevice = \"nic0\"\npool = \"p\"\nrx_depth_wr = 8\ntx_depth_wr = 8\n";
    let port = |name: &str, keys: &str| format!("[port.{name}]\n{of_port}{keys}\n");
    desk::server(7394, "acceptor = \"open\"\nconnections_max = 2\nrx_shared_wr = 64\ntx_depth_wr = 16\n")
        + &port("near", "transport = \"rc\"\nconnect = \"10.9.9.1:7395\"\nnext = \"drop\"")
        + &port("far", "transport = \"rc\"\nlisten = \"10.9.9.1:7395\"\nnext = \"drop\"")
        + &port("ud", "transport = \"ud\"\njoin = [\"239.7.3.1\"]\nsenders_max = 4\nnext = \"stage.desk\"")
        + "[injector.orders]\nto = \"stage.desk\"\npool = \"p\"\ndepth = 8\n"
        + &fed("count = 1", "use = \"sink\"")
}

fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

/// The threads and descriptors, once they are as many as `before`, or after a while. The kernel
/// lists a thread for a moment after it was joined.
fn left(before: (usize, usize)) -> (usize, usize) {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let now = (threads(), descriptors());
        if now == before || Instant::now() > until {
            return now;
        }
        sleep(Duration::from_millis(1));
    }
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn a_start_that_fails_at_any_step_leaves_nothing_behind() {
    let mut registry = desk::desk();
    registry.acceptor("open", |_| Ok(Box::new(Open)));
    let plan = plan(&registry, &text());
    let run = || -> Result<Report, EngineError> {
        let mut runtime = Runtime::build(&plan, &registry)?;
        runtime.connect(|| false)?;
        runtime.start()?.stop()
    };
    run().unwrap();
    setrlimit(Resource::Nofile, Rlimit { current: Some(LIMIT), ..getrlimit(Resource::Nofile) }).unwrap();
    // The threads of the program, of the test, and of the panic hook, which stays.
    let before = left((3, descriptors()));
    for free in 0.. {
        let mut taken: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        taken.truncate(taken.len().saturating_sub(free));
        let ended = run();
        drop(taken);
        assert_eq!(left(before), before, "with {free} descriptors: {ended:?}");
        if ended.is_ok() {
            assert!(free > 10, "with {free} descriptors");
            return;
        }
        assert!(free < 200, "{ended:?}");
    }
}
