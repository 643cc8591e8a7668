//! MutatingWebhookConfiguration: who may change what is written.

use super::webhook;
use crate::field::{Errors, Field};
use crate::kind::Kind;
use crate::names;
use crate::object::set_default;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use serde_json::Value;

/// The kind.
pub fn kind() -> Kind {
    Kind {
        columns: webhook::columns(),
        unconditional_update: false,
        validate_name: names::dns_subdomain_name,
        default,
        validate,
        ..Kind::new::<MutatingWebhookConfiguration>().with_generation()
    }
}

fn default(configuration: &mut Value) {
    for hook in webhook::hooks_mut(configuration) {
        webhook::default(hook);
        set_default(hook, "reinvocationPolicy", "Never");
    }
}

fn validate(configuration: &Field<'_>, errors: &mut Errors) {
    webhook::validate_all(&configuration.get("webhooks"), errors);
    for hook in configuration.get("webhooks").items() {
        hook.get("reinvocationPolicy").one_of(&["IfNeeded", "Never"], errors);
    }
}
