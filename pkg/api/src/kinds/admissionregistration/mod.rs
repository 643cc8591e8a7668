//! admissionregistration.k8s.io/v1: whom the server asks before it writes.

pub mod mutating_webhook_configuration;
pub mod validating_webhook_configuration;
mod webhook;
