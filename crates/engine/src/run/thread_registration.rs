//! The registration of an lcore's thread in the counts of its run.
//!
//! Guarantees: whatever happens to the thread, it counts as ready or as refused once, and as ended
//! once if it was ready. So a wait for it always ends.

use std::io;
use std::sync::Arc;

use crate::control::run_control::Control;
use crate::errors::error::{EngineError, Place};
use crate::stats::report::FailureReport;

pub(crate) struct Seat {
    control: Arc<Control>,
    lcore: String,
    at: Place,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Starting,
    Refused,
    Ready,
}

impl Seat {
    pub(crate) fn new(control: Arc<Control>, lcore: &str, at: Place) -> Seat {
        Seat { control, lcore: lcore.to_owned(), at, state: State::Starting }
    }

    /// Counts the thread as ready: it is pinned, and its lcore bound.
    pub(crate) fn ready(&mut self) {
        self.state = State::Ready;
        self.control.update(|progress| progress.ready += 1);
    }

    /// Counts the thread as refused: it will not run.
    pub(crate) fn refuse(mut self, why: EngineError) {
        self.state = State::Refused;
        self.control.update(|progress| progress.refused.push(why));
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        // The thread unwinds by a bug of the engine: the app's code runs guarded.
        let unwinds = std::thread::panicking();
        match self.state {
            State::Refused => {}
            State::Starting => {
                let (at, lcore) = (self.at.clone(), self.lcore.clone());
                let source = io::Error::other("it panicked before it ran");
                let remedy = "see the panic's own message; this is a bug of the engine";
                let error = EngineError::System { at, lcore, call: "starting its thread", source, remedy };
                self.control.update(|progress| progress.refused.push(error));
            }
            State::Ready => self.control.update(|progress| {
                progress.ended += 1;
                if unwinds {
                    let message = "its thread panicked outside of its lcore".to_owned();
                    let lcore = self.lcore.clone();
                    progress.failures.push(FailureReport { lcore, stage: None, panicked: true, message });
                }
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errors::guarded;

    fn counts(control: &Control) -> [usize; 4] {
        control.with(|it| [it.ready, it.refused.len(), it.ended, it.failures.len()])
    }

    fn seat(control: &Arc<Control>) -> Seat {
        let at = Place::new(verbline_plan::Location { file: "test.toml".into(), line: 1, column: 1 });
        Seat::new(Arc::clone(control), "a", at)
    }

    #[test]
    fn a_thread_is_counted_whatever_becomes_of_it() {
        let control = Arc::new(Control::new(Vec::new()));
        let mut ready = seat(&control);
        ready.ready();
        assert_eq!(counts(&control), [1, 0, 0, 0]);
        drop(ready);
        assert_eq!(counts(&control), [1, 0, 1, 0]);
        seat(&control).refuse(EngineError::Interrupted);
        assert_eq!(counts(&control), [1, 1, 1, 0]);
        let early = seat(&control);
        let late = seat(&control);
        let _ = guarded::call(move || {
            let _early = early;
            panic!("before it is ready");
        });
        assert_eq!(counts(&control), [1, 2, 1, 0]);
        let _ = guarded::call(move || {
            let mut late = late;
            late.ready();
            panic!("behind it");
        });
        assert_eq!(counts(&control), [2, 2, 2, 1]);
    }
}
