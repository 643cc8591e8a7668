//! ValidatingWebhookConfiguration: who may refuse what is written.

use super::webhook;
use crate::field::{Errors, Field};
use crate::kind::Kind;
use crate::names;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use serde_json::Value;

/// The kind.
pub fn kind() -> Kind {
    Kind {
        columns: webhook::columns(),
        unconditional_update: false,
        validate_name: names::dns_subdomain_name,
        default,
        validate,
        ..Kind::new::<ValidatingWebhookConfiguration>().with_generation()
    }
}

fn default(configuration: &mut Value) {
    webhook::hooks_mut(configuration).iter_mut().for_each(webhook::default);
}

fn validate(configuration: &Field<'_>, errors: &mut Errors) {
    webhook::validate_all(&configuration.get("webhooks"), errors);
}
