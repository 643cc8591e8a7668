//! ResourceClaimTemplate: what claims are made of, one for each pod.

use super::devices;
use crate::kind::Kind;
use crate::{meta, names};
use k8s_openapi::api::resource::v1::ResourceClaimTemplate;

/// The kind.
pub fn kind() -> Kind {
    Kind {
        validate_name: names::dns_subdomain_name,
        default: |template| {
            if let Some(spec) = template.pointer_mut("/spec/spec") {
                devices::default_claim(spec);
            }
        },
        validate_create: |template, errors| {
            let spec = template.get("spec");
            meta::validate_labels(&spec.get("metadata").get("labels"), errors);
            devices::validate_claim(&spec.get("spec"), errors);
        },
        validate_update: |new, old, errors| new.get("spec").immutable(&old.get("spec"), errors),
        ..Kind::new::<ResourceClaimTemplate>()
    }
}
