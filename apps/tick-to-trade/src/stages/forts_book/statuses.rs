//! Statuses of the market and of its instruments.

use super::FortsBook;

/// The `TradSesStatus` (340) of a market that trades. Any other is a halt, an auction or a close.
pub(super) const OPEN: u32 = 2;

/// The `SecurityTradingStatus` (326) of an instrument that trades. Any other is a halt, an auction,
/// or an instrument not for trading. An instrument without a status trades.
pub(super) const TRADES: u32 = 17;

impl FortsBook {
    /// Takes the market's status. While the market does not trade, the books are kept, and the
    /// strategy gets no updates.
    pub(super) fn session(&mut self, status: u32) {
        let is_open = status == OPEN;
        match (std::mem::replace(&mut self.is_open, is_open), is_open) {
            (true, false) => {
                tracing::warn!("the market does not trade (TradSesStatus {status}): nothing is traded until it does");
                self.take_back();
            }
            (false, true) => tracing::info!("the market trades"),
            _ => {}
        }
    }

    /// Takes an instrument's status: like the market's, for one book.
    #[cold]
    pub(super) fn security(&mut self) {
        let (Some(security_id), Some(status)) = (self.message.security_id, self.message.trading_status) else { return };
        let is_halted = status != TRADES;
        let Some(index) = self.books.index_of(security_id) else {
            return self.halts.put(security_id, is_halted);
        };
        if std::mem::replace(&mut self.seen[index].is_halted, is_halted) == is_halted {
            return;
        }
        match is_halted {
            true => {
                tracing::warn!("instrument {security_id} is not traded (SecurityTradingStatus {status})");
                self.take_back();
            }
            false => tracing::info!("instrument {security_id} is traded again"),
        }
    }

    /// Whether the instrument of a book is traded.
    #[inline]
    pub(super) fn trades(&self, index: usize) -> bool {
        self.is_open && !self.seen[index].is_halted
    }

    /// Looks new books up among the halted instruments.
    #[inline]
    pub(super) fn meet(&mut self) {
        while let Some(book) = self.books.books().get(self.halts.met) {
            self.seen[self.halts.met].is_halted = self.halts.take(book.security_id());
            self.halts.met += 1;
        }
    }
}
