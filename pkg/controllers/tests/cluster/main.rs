//! The controllers in a whole cluster: a real apiserver with RBAC, the real scheduler, simulated nodes.

mod autoscaling;
mod batch;
mod faults;
mod placing;
mod quiet;
mod rollouts;
mod work;
mod workloads;
