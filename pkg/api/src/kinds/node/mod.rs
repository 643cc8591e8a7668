//! node.k8s.io/v1: how nodes run containers.

pub mod runtime_class;
