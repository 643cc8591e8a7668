//! scheduling.k8s.io/v1: which pods come first.

pub mod priority_class;
