//! A claim grows only where its storage class lets it.

use super::Request;
use crate::error::{ApiError, Result};
use api::kinds::core::persistent_volume::storage_class;
use api::kinds::pod_spec::requests::amounts;
use api::{Quantity, Value};

pub(super) fn validate(request: &Request<'_>, claim: &Value) -> Result<()> {
    let Some(old) = request.old.filter(|_| request.is_for("", "persistentvolumeclaims")) else {
        return Ok(());
    };
    if size(claim) <= size(old) {
        return Ok(());
    }
    let name = storage_class(old).filter(|name| !name.is_empty());
    let class = name.and_then(|name| request.server.lookup("storage.k8s.io", "storageclasses", "", name));
    refusal(claim, old, class.as_ref())
        .map_or(Ok(()), |why| Err(ApiError::forbidden(request.kind, &request.name, why)))
}

/// Why a claim of that class does not grow, if it does not.
fn refusal(claim: &Value, old: &Value, class: Option<&Value>) -> Option<&'static str> {
    if old["status"]["phase"] != "Bound" {
        return Some("Only bound persistent volume claims can be expanded");
    }
    let lets = class.is_some_and(|class| class["allowVolumeExpansion"] == true);
    let is_allowed = lets && storage_class(claim) == storage_class(old);
    (!is_allowed).then_some(
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
    )
}

fn size(claim: &Value) -> Quantity {
    amounts(&claim["spec"], "resources.requests").get("storage").copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_bound_claims_of_classes_that_let_them_grow() {
        let claim = |phase: &str, class: &str| json!({"metadata": {}, "spec": {"storageClassName": class}, "status": {"phase": phase}});
        let lets = json!({"allowVolumeExpansion": true});
        let check = |claim: &Value, old: &Value, class: Option<&Value>, expected: Option<&str>| {
            let refused = refusal(claim, old, class);
            assert_eq!(
                refused.map(|why| why.split(' ').take(2).collect::<Vec<_>>().join(" ")).as_deref(),
                expected
            );
        };
        let bound = claim("Bound", "fast");
        check(&bound, &bound, Some(&lets), None);
        check(&bound, &claim("Pending", "fast"), Some(&lets), Some("Only bound"));
        check(&bound, &bound, Some(&json!({})), Some("only dynamically"));
        check(&bound, &bound, Some(&json!({"allowVolumeExpansion": false})), Some("only dynamically"));
        check(&bound, &bound, None, Some("only dynamically"));
        check(&claim("Bound", "slow"), &bound, Some(&lets), Some("only dynamically"));
    }

    #[test]
    fn sizes_are_compared_as_amounts() {
        let claim = |size: &str| json!({"spec": {"resources": {"requests": {"storage": size}}}});
        assert_eq!(size(&claim("1Gi")), size(&claim("1024Mi")));
        assert!(size(&claim("1Gi")) > size(&claim("1G")));
        assert!(size(&claim("1")) > size(&json!({"spec": {}})));
    }
}
