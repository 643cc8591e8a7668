//! coordination.k8s.io/v1: who leads, and who is alive.

pub mod lease;
