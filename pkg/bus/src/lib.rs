//! Redis as the fan-out of changes: **Redis tells, the store decides.**
//!
//! ```text
//! apiserver (the leader) ── Message ──> Channel ──> Redis ──> every program that has subscribed
//!      └── RedisUser ──> ACL: who may subscribe to what; nobody else may publish
//! ```
//!
//! What goes over Redis is told here once for both sides: [`Channel`] names where, [`Message`] what, [`RedisUser`] who.
//! [`Connection`] speaks the protocol and bounds whatever it reads, since what answers may be anything.
//!
//! A message says which revision came before it on its channel ([`Message::after`]). Whoever knows everything up to there
//! has missed nothing; whoever does not asks the API. So a message may be lost, doubled, late or out of order.
//!
//! Never here: which objects there are, and when somebody is to ask the API.

mod channel;
mod connection;
mod message;
mod resp;
mod server;
mod users;

pub use channel::Channel;
pub use connection::{Connection, Login, Reader, RedisError, Writer};
pub use message::{Garbled, Message, MessageType};
pub use resp::{Reply, command};
pub use server::{RedisConfig, RedisFlags, RedisServer};
pub use users::{COMPONENTS, EVERY_NODE, Permission, RedisUser, node_user, password_hash};

use std::time::Duration;

/// How often the publisher says that it is there.
pub const HEARTBEAT: Duration = Duration::from_secs(2);
/// After so long without a word nothing is believed of Redis any more.
pub const SILENCE: Duration = Duration::from_secs(8);
