//! admissionregistration.k8s.io/v1: whom the server asks before it writes, and what it demands.

mod matching;
pub mod mutating_webhook_configuration;
pub mod validating_admission_policy;
pub mod validating_admission_policy_binding;
pub mod validating_webhook_configuration;
mod webhook;
