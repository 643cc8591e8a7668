//! As much of SPDY/3.1 as `kubectl port-forward` speaks inside its WebSocket.
//!
//! ```text
//! bytes <──> frame <──> connection ──> a stream for each SYN_STREAM: its headers, what comes in, a way out
//!              └ headers: zlib with SPDY's dictionary
//! ```
//!
//! The client opens streams, never the server. There is no flow control: kubectl's side has none.

pub mod connection;
mod dictionary;
mod frame;
mod headers;
