//! flowcontrol.apiserver.k8s.io/v1: how requests share a server, as upstream's API has it.
//!
//! A FlowSchema says which requests belong together and to which priority level; a PriorityLevelConfiguration how many
//! seats of the server that level has, and how requests wait for one. Every cluster has those that upstream's clusters
//! have. The apiserver's `flowcontrol` does as they say.

pub mod flow_schema;
pub mod priority_level_configuration;

use crate::field::{Errors, Field};
use serde_json::{Value, json};
use std::collections::HashSet;

/// The group of both kinds.
pub const GROUP: &str = "flowcontrol.apiserver.k8s.io";
/// The schemas and levels without which no request has a place: their specs are fixed.
pub const MANDATORY: [&str; 2] = ["exempt", "catch-all"];
/// The annotation that says whether the server keeps the spec of one that it suggests as it suggests it.
pub const AUTOUPDATE: &str = "apf.kubernetes.io/autoupdate-spec";

const API_VERSION: &str = "flowcontrol.apiserver.k8s.io/v1";
const EVERYBODY: [&str; 2] = ["system:unauthenticated", "system:authenticated"];

/// What every cluster has, levels first.
pub fn suggested() -> Vec<Value> {
    let levels =
        ["exempt", "catch-all", "system", "node-high", "leader-election", "workload-high", "workload-low"];
    let levels = levels.into_iter().chain(["global-default"]).map(|name| {
        let spec = level(name).expect("a known name");
        named("PriorityLevelConfiguration", name, spec)
    });
    levels.chain(schemas().into_iter().map(|(name, spec)| named("FlowSchema", name, spec))).collect()
}

fn named(kind: &str, name: &str, spec: Value) -> Value {
    let metadata = json!({"name": name, "annotations": {AUTOUPDATE: "true"}});
    json!({"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec})
}

fn level(name: &str) -> Option<Value> {
    let limited = |shares: i32, lendable: i32, response: Value| {
        json!({"type": "Limited", "limited": {"nominalConcurrencyShares": shares, "lendablePercent": lendable,
            "limitResponse": response}})
    };
    let queue = |queues: i32, hand: i32| json!({"type": "Queue", "queuing": {"queues": queues, "handSize": hand, "queueLengthLimit": 50}});
    Some(match name {
        "exempt" => {
            json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}})
        }
        "catch-all" => limited(5, 0, json!({"type": "Reject"})),
        "system" => limited(30, 33, queue(64, 6)),
        "node-high" => limited(40, 25, queue(64, 6)),
        "leader-election" => limited(10, 0, queue(16, 4)),
        "workload-high" => limited(40, 50, queue(128, 6)),
        "workload-low" => limited(100, 90, queue(128, 6)),
        "global-default" => limited(20, 50, queue(128, 6)),
        _ => return None,
    })
}

fn schemas() -> Vec<(&'static str, Value)> {
    let groups = |names: &[&str]| -> Vec<Value> {
        names.iter().map(|name| json!({"kind": "Group", "group": {"name": name}})).collect()
    };
    let user = |name: &str| json!({"kind": "User", "user": {"name": name}});
    let system_accounts =
        json!({"kind": "ServiceAccount", "serviceAccount": {"name": "*", "namespace": "kube-system"}});
    let resources = |verbs: &[&str], group: &str, resources: &[&str], is_cluster: bool| {
        let mut rule =
            json!({"verbs": verbs, "apiGroups": [group], "resources": resources, "namespaces": ["*"]});
        if is_cluster {
            rule["clusterScope"] = true.into();
        }
        rule
    };
    let anything = |subjects: Vec<Value>| {
        json!([{"subjects": subjects, "resourceRules": [resources(&["*"], "*", &["*"], true)],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]}])
    };
    let schema = |level: &str, precedence: i32, method: &str, rules: Value| {
        let mut spec = json!({"priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence, "rules": rules});
        if !method.is_empty() {
            spec["distinguisherMethod"] = json!({ "type": method });
        }
        spec
    };
    let leases = |verbs: &[&str]| resources(verbs, "coordination.k8s.io", &["leases"], false);
    let (manager, scheduler) = (user("system:kube-controller-manager"), user("system:kube-scheduler"));
    let nodes = || groups(&["system:nodes"]);
    let probes = json!([{"subjects": groups(&EVERYBODY),
        "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}]}]);
    let elections = json!([{"subjects": [manager, scheduler, system_accounts],
        "resourceRules": [leases(&["get", "create", "update"])]}]);
    let node_high = json!([{"subjects": nodes(),
        "resourceRules": [resources(&["*"], "", &["nodes", "nodes/status"], true), leases(&["*"])]}]);
    vec![
        ("exempt", schema("exempt", 1, "", anything(groups(&["system:masters"])))),
        ("catch-all", schema("catch-all", 10000, "ByUser", anything(groups(&EVERYBODY)))),
        ("probes", schema("exempt", 2, "", probes)),
        ("system-leader-election", schema("leader-election", 100, "ByUser", elections)),
        ("system-node-high", schema("node-high", 400, "ByUser", node_high)),
        ("system-nodes", schema("system", 500, "ByUser", anything(nodes()))),
        ("kube-controller-manager", schema("workload-high", 800, "ByNamespace", anything(vec![manager]))),
        ("kube-scheduler", schema("workload-high", 800, "ByNamespace", anything(vec![scheduler]))),
        (
            "kube-system-service-accounts",
            schema("workload-high", 900, "ByNamespace", anything(vec![system_accounts])),
        ),
        (
            "service-accounts",
            schema("workload-low", 9000, "ByUser", anything(groups(&["system:serviceaccounts"]))),
        ),
        ("global-default", schema("global-default", 9900, "ByUser", anything(groups(&EVERYBODY)))),
    ]
}

fn validate_conditions(object: &Field<'_>, errors: &mut Errors) {
    let status = object.get("status");
    let mut seen = HashSet::new();
    for condition in status.get("conditions").items() {
        let ty = condition.get("type");
        if ty.required(errors) && !seen.insert(ty.text().to_owned()) {
            ty.duplicate(errors);
        }
    }
}
