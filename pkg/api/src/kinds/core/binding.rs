//! Binding: the answer to where a pod runs. Given to `pods/binding`, never kept.

use crate::field::{Errors, Field};
use crate::kind::{Kind, Verbs};
use crate::names;
use k8s_openapi::api::core::v1::Binding;

pub(crate) fn kind() -> Kind {
    Kind {
        validate_name: names::dns_subdomain_name,
        verbs: Verbs::CreateOnly,
        validate,
        ..Kind::new::<Binding>()
    }
}

/// Complains about a binding.
pub fn validate(binding: &Field<'_>, errors: &mut Errors) {
    let target = binding.get("target");
    let kind = target.get("kind");
    if !matches!(kind.text(), "" | "Node") {
        kind.not_supported(&["Node", "<empty>"], errors);
    }
    target.get("name").required(errors);
}
