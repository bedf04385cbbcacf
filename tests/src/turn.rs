//! Tests take turns on the CPUs: one that starts programs has those that it may use to itself.

use std::cell::RefCell;
use std::fs::File;
use std::sync::{Arc, Weak};

use rustix::thread::{CpuSet, sched_getaffinity};

/// Says that the test waits nearly all of its time, so that its programs leave CPUs to others.
const WAITS: &str = "VERBLINE_TEST_WAITS";

thread_local! {
    /// The turn of this thread's programs, while one of them lives.
    static TURN: RefCell<Weak<Turn>> = RefCell::default();
}

/// Exclusive use of CPUs among the tests, for all programs of one test. Held by locks of files,
/// because tests may be threads or processes.
#[derive(Debug)]
pub(crate) struct Turn(#[expect(dead_code, reason = "the locks end with their files")] Vec<File>);

impl Turn {
    /// The turn of this test: a new one unless a program of this test lives.
    pub(crate) fn take() -> Arc<Turn> {
        TURN.with_borrow_mut(|turn| {
            turn.upgrade().unwrap_or_else(|| {
                let taken = Arc::new(Turn::lock());
                *turn = Arc::downgrade(&taken);
                taken
            })
        })
    }

    /// Locks the CPUs that this test may use, unless it waits most of its time.
    fn lock() -> Turn {
        if std::env::var_os(WAITS).is_some() {
            return Turn(Vec::new());
        }
        // Locks lie beside the tests' own program, because the temporary folder may be the
        // system's.
        let tests = std::env::current_exe().expect("a process has a program");
        let lock = |cpu| {
            let path = tests.with_file_name(format!("verbline-tests.cpu{cpu}.lock"));
            let file = File::create(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            file.lock().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            file
        };
        let set = sched_getaffinity(None).expect("every thread may run somewhere");
        // Always in the same order, so that no two tests wait for each other.
        Turn((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).map(lock).collect())
    }
}
