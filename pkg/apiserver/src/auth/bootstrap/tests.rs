use super::*;
use std::collections::BTreeSet;

fn names(kind: &str) -> Vec<String> {
    let of_kind = policy().into_iter().filter(|object| object["kind"] == kind);
    of_kind
        .map(|object| format!("{}/{}", api::object::namespace(&object), api::object::name(&object)))
        .collect()
}

#[test]
fn everything_is_there_once() {
    for (kind, count) in [("ClusterRole", 73), ("ClusterRoleBinding", 53), ("Role", 8), ("RoleBinding", 8)] {
        let names = names(kind);
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{kind}");
        assert_eq!(names.len(), count, "{kind}");
    }
}

#[test]
fn every_controller_has_a_role_and_is_bound_to_it() {
    let (roles, bindings) = (names("ClusterRole"), names("ClusterRoleBinding"));
    for controller in [
        "attachdetach-controller",
        "certificate-controller",
        "clusterrole-aggregation-controller",
        "cronjob-controller",
        "daemon-set-controller",
        "deployment-controller",
        "disruption-controller",
        "endpoint-controller",
        "endpointslice-controller",
        "endpointslicemirroring-controller",
        "ephemeral-volume-controller",
        "expand-controller",
        "generic-garbage-collector",
        "horizontal-pod-autoscaler",
        "job-controller",
        "legacy-service-account-token-cleaner",
        "namespace-controller",
        "node-controller",
        "persistent-volume-binder",
        "pod-garbage-collector",
        "pv-protection-controller",
        "pvc-protection-controller",
        "replicaset-controller",
        "replication-controller",
        "resourcequota-controller",
        "root-ca-cert-publisher",
        "route-controller",
        "service-account-controller",
        "service-controller",
        "statefulset-controller",
        "ttl-after-finished-controller",
        "ttl-controller",
    ] {
        let name = format!("/system:controller:{controller}");
        assert!(roles.contains(&name), "{controller}");
        assert!(bindings.contains(&name), "{controller}");
    }
}

#[test]
fn every_binding_binds_a_role_that_is_there() {
    let (cluster_roles, roles) = (names("ClusterRole"), names("Role"));
    for object in policy().iter().filter(|object| object.get("roleRef").is_some()) {
        let role = object["roleRef"]["name"].as_str().unwrap();
        match object["roleRef"]["kind"].as_str() {
            Some("ClusterRole") => assert!(cluster_roles.contains(&format!("/{role}")), "{role}"),
            _ => assert!(roles.contains(&format!("{}/{role}", api::object::namespace(object))), "{role}"),
        }
    }
}

#[test]
fn objects_are_as_the_api_wants_them() {
    let policy = policy();
    let find = |name: &str| policy.iter().find(|object| object["metadata"]["name"] == name).unwrap();
    assert_eq!(
        *find("system:kube-dns"),
        json!({"kind": "ClusterRole", "apiVersion": "rbac.authorization.k8s.io/v1",
            "metadata": {"name": "system:kube-dns",
                "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
                "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"}},
            "rules": [{"verbs": ["list", "watch"], "apiGroups": [""], "resources": ["endpoints", "services"]}]})
    );
    let edit = find("edit");
    assert_eq!(edit["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-admin"], "true");
    assert_eq!(
        edit["aggregationRule"]["clusterRoleSelectors"],
        json!([{"matchLabels": {"rbac.authorization.k8s.io/aggregate-to-edit": "true"}}])
    );
    assert_eq!(
        find("minik8s:aggregate-to-edit")["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-edit"],
        "true"
    );
    assert!(find("system:node")["rules"].as_array().unwrap().len() > 10);
    for object in &policy {
        assert_eq!(reconcile(Some(object), object), Reconcile::Nothing);
    }
}
