//! Who may do what in a cluster as it starts, with a few users: a matrix.

use super::*;
use serde_json::json;

/// A cluster with its default policy, and: jane edits namespace `team`, viv views everything, a service account
/// `team/app` reads pods of `team`, and node n1 runs the pod `team/web`, which uses the secret `team/key`.
fn cluster() -> Authorizer {
    let mut authorizer = Authorizer::default();
    let policy = bootstrap::policy();
    let cluster_roles: Vec<Value> =
        policy.iter().filter(|object| object["kind"] == "ClusterRole").cloned().collect();
    policy.iter().for_each(|object| authorizer.rbac.apply(object));
    for (name, rules) in rbac::aggregated_rules(&cluster_roles) {
        let rules: Vec<Value> = rules.iter().map(rbac::Rule::to_json).collect();
        authorizer.rbac.apply(&json!({"kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}));
    }
    let bind = |kind: &str, name: &str, role: &str, subject: Value| {
        json!({"kind": kind, "metadata": {"name": name, "namespace": if kind == "RoleBinding" { "team" } else { "" }},
            "roleRef": {"kind": "ClusterRole", "name": role}, "subjects": [subject]})
    };
    for object in [
        bind("RoleBinding", "jane", "edit", json!({"kind": "User", "name": "jane"})),
        bind("RoleBinding", "adam", "admin", json!({"kind": "User", "name": "adam"})),
        bind("ClusterRoleBinding", "viv", "view", json!({"kind": "User", "name": "viv"})),
        bind("RoleBinding", "app", "pod-reader", json!({"kind": "ServiceAccount", "name": "app"})),
        json!({"kind": "ClusterRole", "metadata": {"name": "pod-reader"},
            "rules": [{"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["pods"]}]}),
    ] {
        authorizer.rbac.apply(&object);
    }
    authorizer.node.apply(&json!({"kind": "Pod", "metadata": {"namespace": "team", "name": "web"},
        "spec": {"nodeName": "n1", "serviceAccountName": "app",
            "volumes": [{"name": "v", "secret": {"secretName": "key"}}]}}));
    authorizer
}

fn user(name: &str) -> User {
    let (name, groups) = match name {
        "master" => ("root", vec!["system:masters"]),
        "anonymous" => return User::anonymous(),
        "app" => return User::service_account("team", "app").authenticated(),
        "n1" | "n2" => (if name == "n1" { "system:node:n1" } else { "system:node:n2" }, vec!["system:nodes"]),
        "scheduler" => ("system:kube-scheduler", vec![]),
        "manager" => ("system:kube-controller-manager", vec![]),
        "proxy" => ("system:kube-proxy", vec![]),
        "deployments" => {
            return User::service_account("kube-system", "deployment-controller").authenticated();
        }
        _ => (name, vec![]),
    };
    let groups = groups.into_iter().map(str::to_owned).collect();
    User { name: name.to_owned(), groups, ..User::default() }.authenticated()
}

/// `verb namespace resource[.group][/subresource][:name]` or `verb /path`; `-` is no namespace.
fn allowed(authorizer: &Authorizer, who: &str, what: &str) -> bool {
    let user = user(who);
    let words: Vec<&str> = what.split(' ').collect();
    if let [verb, path] = words[..] {
        return authorizer.authorize(&Attributes::non_resource(&user, verb, path)).allowed;
    }
    let (resource, name) = words[2].split_once(':').unwrap_or((words[2], ""));
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
    let namespace = if words[1] == "-" { "" } else { words[1] };
    let attributes =
        Attributes { namespace, subresource, name, ..Attributes::resource(&user, words[0], group, resource) };
    authorizer.authorize(&attributes).allowed
}

#[test]
fn everybody_may_do_their_own_and_nothing_else() {
    let cluster = cluster();
    let check = |who: &str, yes: &[&str], no: &[&str]| {
        for what in yes {
            assert!(allowed(&cluster, who, what), "{who} should be able to: {what}");
        }
        for what in no {
            assert!(!allowed(&cluster, who, what), "{who} should not be able to: {what}");
        }
    };
    check("master", &["delete - nodes:n1", "get kube-system secrets:x", "post /anything"], &[]);
    check(
        "jane",
        &[
            "create team deployments.apps",
            "delete team pods:web",
            "get team secrets:key",
            "create team pods/exec:web",
            "get team pods/log:web",
            "list team events",
            "create team functions.minik8s.io",
            "create team functions.minik8s.io/invoke:f",
            "get team dnses.minik8s.io:d",
            "update team leases.coordination.k8s.io:l",
            "create - selfsubjectaccessreviews.authorization.k8s.io",
            "get /api",
            "get /version",
        ],
        &[
            "list - pods",
            "create other deployments.apps",
            "get - nodes:n1",
            "get - namespaces:other",
            "create team roles.rbac.authorization.k8s.io",
            "update team pods/status:web",
            "create team resourcequotas",
            "create - namespaces",
            "get /metrics",
            "update team functions.minik8s.io/status:f",
            "create other functions.minik8s.io/invoke:f",
        ],
    );
    check(
        "adam",
        &[
            "create team roles.rbac.authorization.k8s.io",
            "create team rolebindings.rbac.authorization.k8s.io",
            "create team deployments.apps",
            "create team localsubjectaccessreviews.authorization.k8s.io",
        ],
        &[
            "create - clusterroles.rbac.authorization.k8s.io",
            "create other rolebindings.rbac.authorization.k8s.io",
        ],
    );
    check(
        "viv",
        &[
            "list - pods",
            "get other deployments.apps:d",
            "get other workflowruns.minik8s.io/status:w",
            "get - namespaces:x",
        ],
        &[
            "get other secrets:s",
            "create other functions.minik8s.io/invoke:f",
            "create other pods",
            "list - nodes",
            "create other pods/exec:p",
            "list - roles.rbac.authorization.k8s.io",
        ],
    );
    check(
        "app",
        &["list team pods", "get /.well-known/openid-configuration", "get /openid/v1/jwks", "get /apis"],
        &["list other pods", "get team secrets:key", "delete team pods:web", "get team pods/log:web"],
    );
    check(
        "stranger",
        &[
            "get /healthz",
            "get /apis/apps",
            "create - selfsubjectreviews.authentication.k8s.io",
            "get /openapi/v3",
        ],
        &["list team pods", "get /openid/v1/jwks", "get /metrics", "get /logs"],
    );
    check(
        "anonymous",
        &["get /healthz", "get /livez", "get /readyz", "get /version"],
        &[
            "get /api",
            "get /apis",
            "list - pods",
            "get /metrics",
            "get /openapi/v3",
            "get /openid/v1/jwks",
            "create - selfsubjectaccessreviews.authorization.k8s.io",
        ],
    );
    check(
        "n1",
        &[
            "get team pods:web",
            "get team secrets:key",
            "watch team secrets:key",
            "create team serviceaccounts/token:app",
            "get - nodes:n1",
            "update - nodes/status:n1",
            "update kube-node-lease leases.coordination.k8s.io:n1",
            "create team events",
            "list - services",
            "list - runtimeclasses.node.k8s.io",
            "get /healthz",
            "create - certificatesigningrequests.certificates.k8s.io",
        ],
        &[
            "get team secrets:other",
            "list team secrets",
            "get - nodes:n2",
            "list - nodes",
            "list - pods",
            "update kube-node-lease leases.coordination.k8s.io:n2",
            "create team serviceaccounts/token:other",
            "update team pods:web",
            "create team deployments.apps",
            "get kube-system secrets:bootstrap-token-abcdef",
        ],
    );
    check(
        "n2",
        &["get - nodes:n2"],
        &["get team secrets:key", "get team pods:web", "create team serviceaccounts/token:app"],
    );
    check(
        "scheduler",
        &[
            "list - nodes",
            "create team pods/binding:web",
            "patch team pods/status:web",
            "create kube-system leases.coordination.k8s.io",
            "get - persistentvolumes:p",
            "update kube-system leases.coordination.k8s.io:kube-scheduler",
        ],
        &["get team secrets:key", "create team pods", "delete - nodes:n1"],
    );
    check(
        "manager",
        &["list team secrets", "create kube-system serviceaccounts/token:x"],
        &["delete team pods:web"],
    );
    check(
        "proxy",
        &["watch - services", "list - endpointslices.discovery.k8s.io", "get - nodes:n1"],
        &["list - pods"],
    );
    check(
        "deployments",
        &["create team replicasets.apps", "update team deployments.apps/status:d"],
        &["create team pods"],
    );
}

#[test]
fn reasons_of_all_who_were_asked_are_told() {
    let mut cluster = cluster();
    cluster.rbac.apply(&json!({"kind": "ClusterRoleBinding", "metadata": {"name": "broken"},
        "roleRef": {"kind": "ClusterRole", "name": "gone"}, "subjects": [{"kind": "Group", "name": "system:nodes"}]}));
    let node = user("n1");
    let attributes =
        Attributes { namespace: "team", name: "x", ..Attributes::resource(&node, "get", "", "secrets") };
    assert_eq!(
        cluster.authorize(&attributes).reason.to_string(),
        "no relationship found between node 'n1' and this object\n\
         RBAC: clusterrole.rbac.authorization.k8s.io \"gone\" not found"
    );
}

#[test]
fn what_one_may_do_is_listed() {
    let cluster = cluster();
    let status = cluster.rules_review(&user("app"), "team");
    assert_eq!(status["incomplete"], false);
    assert_eq!(status.get("evaluationError"), None);
    let pods = json!({"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["pods"]});
    assert!(status["resourceRules"].as_array().unwrap().contains(&pods));
    assert!(!status["nonResourceRules"].as_array().unwrap().is_empty());
    let elsewhere = cluster.rules_review(&user("app"), "other");
    assert!(!elsewhere["resourceRules"].as_array().unwrap().contains(&pods));
    let node = cluster.rules_review(&user("n1"), "team");
    assert_eq!(node["incomplete"], true);
    assert_eq!(node["evaluationError"], "node authorizer does not support user rule resolution");
}
