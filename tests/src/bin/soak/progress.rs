//! The display of a soak in progress.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar on a terminal, a line a plan elsewhere.
pub(crate) struct Progress {
    bar: ProgressBar,
    time: Duration,
    plans: usize,
    done: usize,
}

impl Progress {
    pub(crate) fn new(plans: usize, time: Duration) -> Progress {
        let bar = ProgressBar::new(plans as u64 * time.as_secs());
        bar.set_style(ProgressStyle::with_template("{bar:20} {msg}").expect("a fixed template"));
        Progress { bar, time, plans, done: 0 }
    }

    pub(crate) fn begins(&self, name: &str) {
        self.bar.set_message(name.to_owned());
        if self.bar.is_hidden() {
            let left = (self.plans - self.done) as u32 * self.time;
            eprintln!("soak: {name}, {} to go", humantime::format_duration(left));
        }
    }

    /// Shows the current disturbance.
    pub(crate) fn shows(&self, at: Duration, what: Option<&str>) {
        self.bar.set_position(self.done as u64 * self.time.as_secs() + at.as_secs());
        let plan = self.bar.message();
        let plan = plan.split(':').next().unwrap_or_default().to_owned();
        self.bar.set_message(what.map_or_else(|| plan.clone(), |what| format!("{plan}: {what}")));
    }

    /// Prints the reasons of a failure at once: the other plans may take hours.
    pub(crate) fn ended(&mut self, name: &str, verdict: &str, reasons: &[String]) {
        self.done += 1;
        let said = std::iter::once(format!("soak: {name} {verdict}"));
        let said = said.chain(reasons.iter().map(|reason| format!("soak:   {reason}")));
        match self.bar.is_hidden() {
            true => said.for_each(|line| eprintln!("{line}")),
            false if reasons.is_empty() => {}
            false => said.for_each(|line| self.bar.println(line)),
        }
    }

    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
