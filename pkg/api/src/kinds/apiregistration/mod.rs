//! apiregistration.k8s.io/v1: who serves which version of which group.

pub mod api_service;
