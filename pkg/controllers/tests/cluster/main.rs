//! The controllers in a whole cluster: a real apiserver with RBAC, the real scheduler, simulated nodes.

mod faults;
mod work;
mod workloads;
