//! The kinds of core/v1: one file each.

pub mod binding;
pub(super) mod config_map;
pub mod endpoints;
pub(super) mod event;
pub(super) mod limit_range;
pub mod namespace;
pub(super) mod node;
pub mod persistent_volume;
pub(super) mod persistent_volume_claim;
pub mod pod;
pub(super) mod pod_template;
pub mod replication_controller;
pub(super) mod resource_quota;
pub(super) mod secret;
pub(super) mod service;
pub(super) mod service_account;
