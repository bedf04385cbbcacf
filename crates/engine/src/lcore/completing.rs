//! Hands polled completions to their ports. The code of a turn is compiled twice: for a watched
//! lcore, and for an unwatched one, which never asks.

use verbline_verbs::Completion;

use crate::lcore::poll_loop::Lcore;
use crate::ports::single_port::Port;
use crate::ports::state::LcoreState;

impl Lcore {
    // Not inlined, like all code that only turns with work need: that keeps an empty turn short,
    // and so a packet's average wait.
    #[inline(never)]
    pub(super) fn complete<const TAP: bool>(&mut self) {
        self.state.ctx.time.wake();
        match self.completions.as_slice() {
            // Most messages of a quiet port arrive alone, and each matters for latency.
            [only] => match self.ports.get_mut(usize::from(only.tag())) {
                Some(port) => port.complete::<TAP>(only, &mut self.state.ctx),
                None => _ = self.state.complete_many(self.completions.as_slice(), self.ports.len()),
            },
            many => complete_runs::<TAP>(many, &mut self.ports, &mut self.state),
        }
        self.completions.clear();
    }
}

/// Hands completions to their ports. Consecutive completions of one port go together, except for a
/// capture (`TAP`), which looks at each.
#[inline(never)]
pub(crate) fn complete_runs<const TAP: bool>(
    mut completions: &[Completion],
    ports: &mut [Port],
    state: &mut LcoreState,
) {
    while let Some(first) = completions.first() {
        let taken = match ports.get_mut(usize::from(first.tag())) {
            Some(port) if TAP => {
                port.complete::<true>(first, &mut state.ctx);
                1
            }
            Some(port) => port.complete_run(completions, &mut state.ctx),
            None => state.complete_many(completions, ports.len()),
        };
        completions = &completions[taken..];
    }
}
