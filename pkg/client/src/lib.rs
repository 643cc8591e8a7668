//! Clients, informers, leader election and events: how every component of ours talks to the apiserver.
//!
//! ```text
//! kubeconfig ──connect──> Client ──Informers──> Cache<Pod> ──> what changed, to whoever asked
//!                            │       └── follow: HTTP, and Redis where there is one (Bus)
//!                            ├──Recorder──────> Events, counted, never blocking
//!                            └──LeaderElection> lead(token), ended when the lease is lost
//! ```
//!
//! Nothing here decides what a cluster should look like.

mod cache;
mod connect;
mod correlate;
mod flags;
mod follow;
mod informer;
mod key;
mod leader;
mod multiplex;
mod recorder;
mod service_account;
pub mod spdy;
mod tasks;
mod watch;

pub use ::bus::{RedisConfig, RedisFlags};
pub use cache::{AnyCache, Cache, Change, MetadataHandler, version_number};
pub use connect::{ConnectError, connect, connect_multiplexed, server_name};
pub use flags::{LeaderFlags, duration};
pub use follow::{Bus, Question, RedisIdentity, Version, render_transport};
pub use informer::Informers;
pub use key::Key;
pub use leader::{LeaderConfig, LeaderElection, LeaderError};
pub use recorder::{EventType, Recorder, node_reference, reference};
pub use service_account::ServiceAccounts;
pub use tasks::{Panicked, Tasks, caught, contained};
pub use watch::{must_list, watcher};
