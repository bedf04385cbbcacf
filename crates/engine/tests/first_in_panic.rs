//! The first run of a process, started while a panic unwinds. Alone in its file, as every later run
//! finds the panic hook set.

#[path = "suite/common/mod.rs"]
mod common;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use common::{fed, one_lcore, registry, run};

/// Runs a plan as it is dropped.
struct Guard<'a>(&'a mut bool);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let report = run(&registry(), &one_lcore("poll", &fed("count = 1", "use = \"sink\"")));
        *self.0 = std::thread::panicking() && report.is_ok();
    }
}

/// Regression: the panic hook was set on the thread that unwinds, which aborts the process.
#[test]
fn a_run_starts_though_its_owner_unwinds() {
    let mut has_run = false;
    let guard = Guard(&mut has_run);
    let unwound = catch_unwind(AssertUnwindSafe(move || {
        let _guard = guard;
        resume_unwind(Box::new("on purpose"));
    }));
    assert!(unwound.is_err() && has_run);
}
