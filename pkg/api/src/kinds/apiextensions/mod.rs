//! apiextensions.k8s.io/v1: kinds that users bring themselves.

pub mod custom_resource_definition;
