//! What tests share: a real apiserver on a free port, real etcd, conditions to wait for. Dev-dependency only.
//!
//! ```text
//! RedisServer ──> who tells of changes beside it
//! Engine ──> TestServer ──> kube::Client   as admin, as anybody, with a token, as nobody
//!                └────────> Http           the same, for requests that no client library sends
//!                             └──> Watch   events as they come
//! Slurm ──> munge, slurmctld, two slurmd   a batch system of its own, with accounting and SSH where asked
//! Cluster ──> a TestServer, controllers, a scheduler and simulated nodes   (feature `cluster`)
//! eventually(condition)                    for what happens by itself
//! ```
//!
//! Nothing here waits a fixed time, and everything that waits gives up after [`PATIENCE`]. What cannot go on panics:
//! a test that cannot start its server has failed.

#[cfg(feature = "cluster")]
mod cluster;
mod containerd;
mod etcd;
mod eventually;
mod http;
mod kubectl;
mod machine;
mod port;
mod redis;
mod script;
mod server;
mod slurm;

#[cfg(feature = "cluster")]
pub use cluster::{Cluster, ClusterConfig, Invariants, Proxy, SimulatedNodes};
pub use containerd::Containerd;
pub use etcd::{EtcdServer, EtcdTls};
pub use eventually::{PATIENCE, eventually, in_time};
pub use http::{Answer, Event, Http, Watch};
pub use kubectl::kubectl;
pub use machine::{Machine, ROOM_ENOUGH, Switch};
pub use port::Port;
pub use redis::RedisServer;
pub use script::{run_script, testcases};
pub use server::{Engine, TestServer};
pub use slurm::{Slurm, SlurmConfig, Sshd};
