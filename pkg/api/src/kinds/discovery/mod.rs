//! discovery.k8s.io/v1: where services lead to.

pub mod endpoint_slice;
