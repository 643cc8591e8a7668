//! The roles and bindings that every cluster starts with, and how they are kept.
//!
//! ```text
//! tables ──> policy() ──> reconcile(what is there, what should be) ──> writes
//! ```
//!
//! Reconciling only ever adds: rules and subjects that somebody added stay, and an object annotated
//! `rbac.authorization.kubernetes.io/autoupdate: "false"` is left alone. Roles say what upstream's say, so that
//! upstream's components work here and ours there.

mod cluster_roles;
mod controller_roles;
mod reconcile;

pub use reconcile::{Reconcile, reconcile};

use super::rbac::{GROUP, Rule};
use serde_json::{Value, json};

const READ: &str = "get,list,watch";
const WRITE: &str = "create,delete,deletecollection,patch,update";
const READ_WRITE: &str = "create,delete,deletecollection,get,list,patch,update,watch";
/// Nearly everybody reports events.
const EVENTS: Terse = rule("create,patch,update", ",events.k8s.io", "events");

/// A rule as the tables write it: lists are separated by commas, the core group is nothing.
#[derive(Clone, Copy)]
struct Terse {
    verbs: &'static str,
    groups: Option<&'static str>,
    resources: Option<&'static str>,
    names: Option<&'static str>,
    urls: Option<&'static str>,
}

const fn rule(verbs: &'static str, groups: &'static str, resources: &'static str) -> Terse {
    Terse { verbs, groups: Some(groups), resources: Some(resources), names: None, urls: None }
}

const fn named(
    verbs: &'static str,
    groups: &'static str,
    resources: &'static str,
    names: &'static str,
) -> Terse {
    Terse { names: Some(names), ..rule(verbs, groups, resources) }
}

const fn urls(verbs: &'static str, urls: &'static str) -> Terse {
    Terse { verbs, groups: None, resources: None, names: None, urls: Some(urls) }
}

impl Terse {
    fn rule(&self) -> Rule {
        let list = |text: &str| text.split(',').map(str::to_owned).collect();
        let maybe = |text: Option<&str>| text.map(list).unwrap_or_default();
        Rule {
            verbs: list(self.verbs),
            api_groups: maybe(self.groups),
            resources: maybe(self.resources),
            resource_names: maybe(self.names),
            non_resource_urls: maybe(self.urls),
        }
    }
}

/// Aggregated roles, and the one that gathers each in turn.
const AGGREGATED: &[(&str, Option<&str>)] =
    &[("admin", None), ("edit", Some("admin")), ("view", Some("edit"))];

/// Who gets which of the [`cluster_roles`]; `system:node` is bound to nobody, since the Node authorizer decides.
const CLUSTER_BINDINGS: &[(&str, &[Subject])] = &[
    ("cluster-admin", &[Subject::Group("system:masters")]),
    ("minik8s:knative", &[Subject::User("system:knative")]),
    // Those who run a Workflow that names no service account, as knative asks for them: in their own namespace only.
    ("minik8s:workflow-runs", &[Subject::Group("system:minik8s:workflow-runs")]),
    ("minik8s:node-gateway", &[Subject::User("system:kube-proxy"), Subject::Group("system:nodes")]),
    ("system:basic-user", &[Subject::Group("system:authenticated")]),
    ("system:discovery", &[Subject::Group("system:authenticated")]),
    ("system:kube-controller-manager", &[Subject::User("system:kube-controller-manager")]),
    ("system:kube-dns", &[Subject::Account("kube-dns")]),
    ("system:kube-scheduler", &[Subject::User("system:kube-scheduler")]),
    // Whoever else is in the group of its certificate: the API server itself needs the kubelets, and no more.
    ("system:kubelet-api-admin", &[Subject::User("kube-apiserver-kubelet-client")]),
    ("system:monitoring", &[Subject::Group("system:monitoring")]),
    ("system:node", &[]),
    ("system:node-proxier", &[Subject::User("system:kube-proxy")]),
    (
        "system:public-info-viewer",
        &[Subject::Group("system:authenticated"), Subject::Group("system:unauthenticated")],
    ),
    ("system:service-account-issuer-discovery", &[Subject::Group("system:serviceaccounts")]),
    ("system:volume-scheduler", &[Subject::User("system:kube-scheduler")]),
];

/// Roles in namespaces: namespace, name, rules.
const ROLES: &[(&str, &str, &[Terse])] = &[
    (
        "kube-public",
        "system:controller:bootstrap-signer",
        &[rule(READ, "", "configmaps"), named("update", "", "configmaps", "cluster-info"), EVENTS],
    ),
    (
        "kube-system",
        "extension-apiserver-authentication-reader",
        &[named(READ, "", "configmaps", "extension-apiserver-authentication")],
    ),
    ("kube-system", "minik8s:leader-locking-knative", LEADER),
    ("kube-system", "system::leader-locking-kube-controller-manager", LEADER),
    ("kube-system", "system::leader-locking-kube-scheduler", LEADER),
    ("kube-system", "system:controller:bootstrap-signer", &[rule(READ, "", "secrets")]),
    ("kube-system", "system:controller:cloud-provider", &[rule("create,get,list,watch", "", "configmaps")]),
    (
        "kube-system",
        "system:controller:token-cleaner",
        &[rule("delete,get,list,watch", "", "secrets"), EVENTS],
    ),
];

const LEADER: &[Terse] = &[
    rule("create,get,list,update,watch", "coordination.k8s.io", "leases"),
    rule("create,get,list,update,watch", "coordination.k8s.io", "leasecandidates"),
];

/// Who gets which of the roles in namespaces: namespace, name, role, subjects.
const BINDINGS: &[(&str, &str, &str, &[Subject])] = &[
    (
        "kube-public",
        "system:controller:bootstrap-signer",
        "system:controller:bootstrap-signer",
        &[Subject::Account("bootstrap-signer")],
    ),
    (
        "kube-system",
        "system::extension-apiserver-authentication-reader",
        "extension-apiserver-authentication-reader",
        &[Subject::User("system:kube-controller-manager"), Subject::User("system:kube-scheduler")],
    ),
    (
        "kube-system",
        "system::leader-locking-kube-controller-manager",
        "system::leader-locking-kube-controller-manager",
        &[
            Subject::User("system:kube-controller-manager"),
            Subject::Account("kube-controller-manager"),
            Subject::Account("leader-election-controller"),
        ],
    ),
    (
        "kube-system",
        "minik8s:leader-locking-knative",
        "minik8s:leader-locking-knative",
        &[Subject::User("system:knative")],
    ),
    (
        "kube-system",
        "system::leader-locking-kube-scheduler",
        "system::leader-locking-kube-scheduler",
        &[Subject::User("system:kube-scheduler"), Subject::Account("kube-scheduler")],
    ),
    (
        "kube-system",
        "system:controller:bootstrap-signer",
        "system:controller:bootstrap-signer",
        &[Subject::Account("bootstrap-signer")],
    ),
    (
        "kube-system",
        "system:controller:cloud-provider",
        "system:controller:cloud-provider",
        &[Subject::Account("cloud-provider")],
    ),
    (
        "kube-system",
        "system:controller:token-cleaner",
        "system:controller:token-cleaner",
        &[Subject::Account("token-cleaner")],
    ),
];

#[derive(Clone, Copy)]
enum Subject {
    User(&'static str),
    Group(&'static str),
    /// A service account in kube-system.
    Account(&'static str),
}

impl Subject {
    fn to_json(self) -> Value {
        match self {
            Subject::User(name) => json!({"kind": "User", "apiGroup": GROUP, "name": name}),
            Subject::Group(name) => json!({"kind": "Group", "apiGroup": GROUP, "name": name}),
            Subject::Account(name) => {
                json!({"kind": "ServiceAccount", "name": name, "namespace": "kube-system"})
            }
        }
    }
}

/// All that every cluster has: ClusterRoles, ClusterRoleBindings, Roles, RoleBindings, in the order to write them.
/// The namespaces `kube-system` and `kube-public` must be there.
pub fn policy() -> Vec<Value> {
    let mut objects = Vec::new();
    for (name, gathered_by) in AGGREGATED {
        objects.push(aggregated_role(name, *gathered_by));
    }
    for (name, rules) in cluster_roles::ROLES.iter().chain(cluster_roles::OWN) {
        let mut role = cluster_role(name, rules);
        if let Some((_, target)) = name.split_once("aggregate-to-") {
            role["metadata"]["labels"][aggregation_label(target)] = json!("true");
        }
        objects.push(role);
    }
    let controllers = || controller_roles::ROLES.iter();
    objects.extend(controllers().map(|(name, rules)| cluster_role(&controller(name), rules)));
    objects.extend(CLUSTER_BINDINGS.iter().map(|(name, subjects)| cluster_binding(name, subjects)));
    objects
        .extend(controllers().map(|(name, _)| cluster_binding(&controller(name), &[Subject::Account(name)])));
    objects.extend(ROLES.iter().map(|(namespace, name, rules)| {
        let mut role = object("Role", namespace, name);
        role["rules"] = to_json(rules);
        role
    }));
    objects.extend(BINDINGS.iter().map(|(namespace, name, role, subjects)| {
        binding(object("RoleBinding", namespace, name), "Role", role, subjects)
    }));
    objects
}

/// The rules of `system:node`: what the Node authorizer allows to all nodes alike.
pub(super) fn node_rules() -> Vec<Rule> {
    let roles = cluster_roles::ROLES.iter().filter(|(name, _)| *name == "system:node");
    roles.flat_map(|(_, rules)| rules.iter().map(Terse::rule)).collect()
}

fn controller(name: &str) -> String {
    format!("system:controller:{name}")
}

fn aggregation_label(target: &str) -> String {
    format!("{GROUP}/aggregate-to-{target}")
}

fn aggregated_role(name: &str, gathered_by: Option<&str>) -> Value {
    let mut role = object("ClusterRole", "", name);
    role["rules"] = Value::Null;
    role["aggregationRule"] =
        json!({"clusterRoleSelectors": [{"matchLabels": {aggregation_label(name): "true"}}]});
    if let Some(target) = gathered_by {
        role["metadata"]["labels"][aggregation_label(target)] = json!("true");
    }
    role
}

fn cluster_role(name: &str, rules: &[Terse]) -> Value {
    let mut role = object("ClusterRole", "", name);
    role["rules"] = to_json(rules);
    role
}

fn cluster_binding(name: &str, subjects: &[Subject]) -> Value {
    binding(object("ClusterRoleBinding", "", name), "ClusterRole", name, subjects)
}

fn binding(mut object: Value, kind: &str, role: &str, subjects: &[Subject]) -> Value {
    object["roleRef"] = json!({"apiGroup": GROUP, "kind": kind, "name": role});
    if !subjects.is_empty() {
        object["subjects"] = subjects.iter().map(|subject| subject.to_json()).collect();
    }
    object
}

fn to_json(rules: &[Terse]) -> Value {
    rules.iter().map(|rule| rule.rule().to_json()).collect()
}

fn object(kind: &str, namespace: &str, name: &str) -> Value {
    let mut object = json!({
        "kind": kind,
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
            "annotations": {reconcile::AUTOUPDATE: "true"},
        },
    });
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

#[cfg(test)]
mod tests;
