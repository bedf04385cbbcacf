//! What an lcore does otherwise while there is a capture: it runs the same code, made for that, so
//! that without one nothing asks for it.

use crate::lcore::poll_loop::Lcore;

impl Lcore {
    /// Takes the beginning or the end of a capture.
    #[cold]
    pub(super) fn take_capture(&mut self) {
        self.control.captures.exchange(self.index, &mut self.state.ctx.tap);
        let is_tapped = self.state.ctx.tap.is_some();
        self.works = Lcore::works(!self.state.many.is_empty(), is_tapped);
        self.completes = if is_tapped { Lcore::complete::<true> } else { Lcore::complete::<false> };
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
