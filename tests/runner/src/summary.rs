//! The output for a person: a line a program as it ends, and at the end the failed, skipped and
//! slow tests with reasons, and where the time went.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::build::Documented;
use crate::program::{self, Ended, Test, Verdict};

/// A test that takes longer has a line in `slow-tests` that says why.
const SLOW: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Summary {
    begun: Instant,
    steps: Vec<(&'static str, Duration)>,
    passed: usize,
    failed: Vec<String>,
    skipped: BTreeSet<String>,
    slow: Vec<(Duration, String)>,
    /// The number of pauses, if they were asked for.
    paused: Option<u64>,
}

impl Summary {
    pub(crate) fn begun() -> Summary {
        let begun = Instant::now();
        let (steps, failed, slow) = (Vec::new(), Vec::new(), Vec::new());
        Summary { begun, steps, passed: 0, failed, skipped: BTreeSet::new(), slow, paused: None }
    }

    /// Runs a step, and notes its time.
    pub(crate) fn step<T>(&mut self, name: &'static str, work: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let result = work();
        self.took(name, begun.elapsed());
        result
    }

    pub(crate) fn took(&mut self, name: &'static str, time: Duration) {
        match self.steps.iter_mut().find(|(step, _)| *step == name) {
            Some((_, sum)) => *sum += time,
            None => self.steps.push((name, time)),
        }
    }

    /// Prints the result of a program.
    pub(crate) fn ended(&mut self, ended: Ended) {
        if ended.tests.is_empty() {
            return;
        }
        let verdict = if ended.is_passed() { "ok    " } else { "FAILED" };
        let title = ended.program.title();
        println!("{verdict} {title:<28} {:>4} tests {:>7.1} s", ended.tests.len(), ended.took.as_secs_f64());
        if !ended.is_passed() {
            println!("{}", ended.said);
        }
        self.skipped.extend(ended.skipped().map(|why| format!("{title}: {why}")));
        for test in &ended.tests {
            self.test(&title, test);
        }
    }

    fn test(&mut self, title: &str, test: &Test) {
        let name = format!("{title} {}", test.name);
        match test.verdict {
            Verdict::Passed => self.passed += 1,
            Verdict::Ignored => drop(self.skipped.insert(format!("{name}: ignored"))),
            Verdict::Failed => self.failed.push(name.clone()),
            Verdict::Hung => self.failed.push(format!("{name}: hung, and was ended after {} s", test.took.as_secs())),
            Verdict::Died => self.failed.push(format!("{name}: its program ended before it did")),
        }
        if test.took > SLOW {
            self.slow.push((test.took, name));
        }
    }

    pub(crate) fn paused(&mut self, times: Option<u64>) {
        self.paused = times;
    }

    pub(crate) fn documented(&mut self, documented: &Documented) {
        self.passed += documented.passed;
        if documented.failed > 0 {
            println!("{}", documented.said);
            self.failed.push(format!("{} examples in the documentation", documented.failed));
        }
    }

    /// Prints the summary. Returns whether all is well.
    pub(crate) fn print(mut self, all: bool) -> bool {
        self.slow.sort_by(|a, b| b.cmp(a));
        for (took, name) in &self.slow {
            let why = program::slow(name).unwrap_or("no line of tests/runner/slow-tests says why");
            println!("slow: {:>5.1} s  {name}: {why}", took.as_secs_f64());
        }
        for why in &self.skipped {
            println!("skipped: {why}");
        }
        if !all {
            println!("left to --all: the loom models of ring, sync and mem");
            program::long().for_each(|(name, why)| println!("left to --all: {name}: {why}"));
        }
        let whole = self.begun.elapsed().as_secs_f64();
        for (name, time) in &self.steps {
            let time = time.as_secs_f64();
            println!("time: {time:>6.1} s {:>3.0} %  {name}", 100.0 * time / whole);
        }
        println!("time: {whole:>6.1} s        in all");
        if let Some(times) = self.paused {
            println!("paused: processes of the tests, {times} times");
        }
        for name in &self.failed {
            println!("failed: {name}");
        }
        println!("{} passed, {} failed", self.passed, self.failed.len());
        if self.failed.is_empty() && self.passed == 0 {
            println!("No test ran. `./x test --list` shows the names.");
        }
        self.failed.is_empty() && self.passed > 0
    }
}
