//! Encoding that is work: tables, YAML, metadata alone, other versions, gzip.
//!
//! ```text
//! Pieces ── one at a time, when the client has taken the last ──> Workers (beside the runtime, in turns) ──> Body
//!    └─ charged to the user's share of the budget until it is sent
//! ```
//!
//! What is small is encoded at once, where it is asked for. What is not is never there as a whole: a list of any length
//! takes the memory of one piece, and who asks for many waits for the own ones only.

mod gzip;
mod list;
mod work;
mod workers;
pub mod yaml;

pub use gzip::Gzip;
pub use list::{Encoding, ListPieces, Source};
pub use work::{Maker, Pieces, Work};
pub use workers::Workers;

/// What is encoded at once: a list of this many bytes is made in less time than it takes to hand it to others.
pub const SMALL: usize = 64 * 1024;
/// What is made at a time.
pub const PIECE: usize = 128 * 1024;
