//! Programs in turn: as many at once as may be.

use std::sync::Mutex;
use std::sync::mpsc::channel;

use crate::build::{Built, Error};
use crate::program::{self, Ended, Limits};

/// Runs all programs, `at_once` of them side by side, and hands each to `ended` as it ends.
pub(crate) fn run(
    programs: Vec<Built>,
    at_once: usize,
    limits: &Limits,
    mut ended: impl FnMut(Ended),
) -> Result<(), Error> {
    let left = Mutex::new(programs.into_iter());
    std::thread::scope(|scope| {
        let (sender, receiver) = channel();
        for _ in 0..at_once {
            let (sender, left) = (sender.clone(), &left);
            scope.spawn(move || {
                loop {
                    let next = left.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).next();
                    let Some(program) = next else { break };
                    if sender.send(program::run(program, limits)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        receiver.into_iter().try_for_each(|result| result.map(&mut ended))
    })
}
