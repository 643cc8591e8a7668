//! SubjectAccessReviews in their four forms: somebody asks whether somebody may.

use super::{Attributes, Authorizer, User};
use api::selector::Term;
use serde_json::{Value, json};

/// The user whom the `spec` of a SubjectAccessReview (or LocalSubjectAccessReview) asks about.
pub fn reviewed_user(spec: &Value) -> User {
    let extra = spec["extra"].as_object().into_iter().flatten();
    User {
        name: text(&spec["user"]).to_owned(),
        uid: text(&spec["uid"]).to_owned(),
        groups: strings(&spec["groups"]),
        extra: extra.map(|(key, values)| (key.clone(), strings(values))).collect(),
    }
}

/// The `status` of a review: whether the user may do what its `spec` describes. A review that describes nothing is
/// refused before, by validation.
pub fn access_review(authorizer: &Authorizer, spec: &Value, user: &User) -> Value {
    let other = &spec["nonResourceAttributes"];
    let resource = &spec["resourceAttributes"];
    let selector = equalities(&resource["fieldSelector"]["requirements"]);
    let attributes = if resource.is_object() {
        Attributes {
            version: text(&resource["version"]),
            subresource: text(&resource["subresource"]),
            namespace: text(&resource["namespace"]),
            name: text(&resource["name"]),
            field_selector: &selector,
            ..Attributes::resource(
                user,
                text(&resource["verb"]),
                text(&resource["group"]),
                text(&resource["resource"]),
            )
        }
    } else {
        Attributes::non_resource(user, text(&other["verb"]), text(&other["path"]))
    };
    let decision = authorizer.authorize(&attributes);
    let mut status = json!({"allowed": decision.allowed});
    let reason = decision.reason.to_string();
    if !reason.is_empty() {
        status["reason"] = json!(reason);
    }
    status
}

/// The requirements that say `field=value`; the others restrict nothing that anybody looks at.
fn equalities(requirements: &Value) -> Vec<Term> {
    let list = requirements.as_array().into_iter().flatten();
    list.filter_map(|requirement| match &strings(&requirement["values"])[..] {
        [value] if requirement["operator"] == "In" => {
            Some(Term { field: text(&requirement["key"]).into(), equal: true, value: value.as_str().into() })
        }
        _ => None,
    })
    .collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authorizer() -> Authorizer {
        let mut authorizer = Authorizer::default();
        for object in [
            json!({"kind": "ClusterRole", "metadata": {"name": "r"}, "rules": [
                {"verbs": ["get"], "apiGroups": ["apps"], "resources": ["deployments/scale"]},
                {"verbs": ["get"], "nonResourceURLs": ["/metrics"]}]}),
            json!({"kind": "ClusterRoleBinding", "metadata": {"name": "b"},
                "roleRef": {"kind": "ClusterRole", "name": "r"}, "subjects": [{"kind": "Group", "name": "dev"}]}),
        ] {
            authorizer.rbac.apply(&object);
        }
        authorizer
    }

    #[test]
    fn a_review_is_answered_as_a_request_would_be() {
        let check = |attributes: Value, expected: Value| {
            let mut spec = attributes;
            spec["user"] = json!("jane");
            spec["groups"] = json!(["dev"]);
            assert_eq!(access_review(&authorizer(), &spec, &reviewed_user(&spec)), expected, "{spec}");
        };
        let reason = r#"RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "r" to Group "dev""#;
        let scale =
            json!({"verb": "get", "group": "apps", "resource": "deployments", "subresource": "scale"});
        check(json!({"resourceAttributes": scale}), json!({"allowed": true, "reason": reason}));
        let path = |path: &str| json!({"nonResourceAttributes": {"verb": "get", "path": path}});
        check(path("/metrics"), json!({"allowed": true, "reason": reason}));
        check(path("/logs"), json!({"allowed": false}));
        check(json!({}), json!({"allowed": false}));
    }

    #[test]
    fn a_nodes_selector_counts() {
        let status = |node: &str| {
            let spec = json!({"user": "system:node:n1", "groups": ["system:nodes"], "resourceAttributes": {
                "verb": "list", "resource": "pods",
                "fieldSelector": {"requirements": [{"key": "spec.nodeName", "operator": "In", "values": [node]}]}}});
            access_review(&authorizer(), &spec, &reviewed_user(&spec))
        };
        assert_eq!(status("n1"), json!({"allowed": true}));
        assert_eq!(
            status("n2"),
            json!({"allowed": false, "reason": "can only list/watch pods with spec.nodeName field selector"})
        );
    }
}
