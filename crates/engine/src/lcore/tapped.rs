//! What an lcore does otherwise while there is a capture: it runs the same code, made for that, so
//! that without one nothing asks for it.

use crate::lcore::poll_loop::Lcore;

impl Lcore {
    /// [`Lcore::complete`] while there is a capture: one by one.
    #[cold]
    pub(super) fn complete_tapped(&mut self) {
        self.state.ctx.time.wake();
        let mut left = self.completions.as_slice();
        while let Some(first) = left.first() {
            let taken = match self.ports.get_mut(usize::from(first.tag())) {
                Some(port) => {
                    port.complete::<true>(first, &mut self.state.ctx);
                    1
                }
                None => self.state.complete_many(left, self.ports.len()),
            };
            left = &left[taken..];
        }
        self.completions.clear();
    }

    /// Takes the beginning or the end of a capture.
    #[cold]
    pub(super) fn take_capture(&mut self) {
        self.control.captures.exchange(self.index, &mut self.state.ctx.tap);
        let is_tapped = self.state.ctx.tap.is_some();
        self.works = Lcore::works(!self.state.many.is_empty(), is_tapped);
        self.completes = if is_tapped { Lcore::complete_tapped } else { Lcore::complete };
    }

    /// [`Lcore::work`], as this lcore is to do it.
    pub(super) fn works(many: bool, is_tapped: bool) -> fn(&mut Lcore, bool) -> bool {
        match (many, is_tapped) {
            (false, false) => Lcore::work::<false, false>,
            (true, false) => Lcore::work::<true, false>,
            (false, true) => Lcore::work::<false, true>,
            (true, true) => Lcore::work::<true, true>,
        }
    }
}
