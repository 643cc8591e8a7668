//! events.k8s.io/v1: what happened, in newer words than core's.

pub mod event;
