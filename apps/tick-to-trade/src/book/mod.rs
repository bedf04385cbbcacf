//! Order books: [`OrderBooks`] by order for ITCH, [`DepthBook`] by price level for feeds that send
//! levels.
//!
//! Both are sized once, allocate nothing afterwards, and answer with a typed error when a bound is
//! reached or a message contradicts the book; the book then stays as it was unless the error says
//! otherwise.

mod depth;
mod error;
mod image;
mod ladder;
mod orders;
mod table;

pub use depth::{DepthBook, DepthError, DepthLevel};
pub use error::BookError;
pub use image::{BookImage, ImageOrder};
pub use ladder::Level;
pub use orders::{Book, BookSpec, Change, OrderBooks, Scrub};
