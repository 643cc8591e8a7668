//! As much of SPDY/3.1 as a port-forward speaks inside its WebSocket: kubectl's side of it and the kubelet's.
//!
//! ```text
//! bytes <──> frame <──> connection ──> a stream for each SYN_STREAM: its headers, what comes in, a way out
//!              └ headers: zlib with SPDY's dictionary
//! ```
//!
//! The client opens streams, never the server. There is no flow control: upstream's side has none.

mod connection;
mod dictionary;
mod frame;
mod headers;

pub use connection::{Connection, Event, data, end, refuse};
pub use frame::Malformed;
