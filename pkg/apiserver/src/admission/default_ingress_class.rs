//! An Ingress that names no class gets the default one, if there is one.

use super::{Operation, Request, default_class};
use crate::error::Result;
use api::kinds::networking::ingress::CLASS_ANNOTATION;
use api::kinds::networking::ingress_class::is_default;
use api::{Value, object};

pub(super) fn admit(request: &Request<'_>, ingress: Option<&mut Value>) -> Result<()> {
    let Some(ingress) = ingress else { return Ok(()) };
    if request.operation != Operation::Create || !request.is_for("networking.k8s.io", "ingresses") {
        return Ok(());
    }
    if !names_class(ingress)
        && let Some(class) = default_class::find(request, "networking.k8s.io", "ingressclasses", is_default)
    {
        object::object_mut(ingress, "spec").insert("ingressClassName".into(), class.into());
    }
    Ok(())
}

/// In its spec, or in the annotation of old.
fn names_class(ingress: &Value) -> bool {
    let is_given = |class: Option<&Value>| class.is_some_and(|class| !class.is_null());
    is_given(ingress["spec"].get("ingressClassName"))
        || is_given(ingress["metadata"]["annotations"].get(CLASS_ANNOTATION))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_class_may_be_named_in_two_ways() {
        let check = |ingress: Value, expected| assert_eq!(names_class(&ingress), expected, "{ingress}");
        check(json!({"metadata": {}, "spec": {}}), false);
        check(json!({"metadata": {}, "spec": {"ingressClassName": null}}), false);
        check(json!({"metadata": {}, "spec": {"ingressClassName": "nginx"}}), true);
        check(json!({"metadata": {"annotations": {"kubernetes.io/ingress.class": ""}}}), true);
    }
}
