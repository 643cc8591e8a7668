//! What objects count against a ResourceQuota: pure functions of the quota and the object, for admission, which charges
//! what is to be written, and for the controller, which adds up what is there.

use crate::kinds::pod_spec::requests::{Amounts, amounts, container_limits, pod_requests, qos_class};
use crate::printing::{at, items, text};
use crate::quantity::Quantity;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const STORAGE_CLASS: &str = ".storageclass.storage.k8s.io/";
const CLAIM_RESOURCES: [&str; 2] = ["persistentvolumeclaims", "requests.storage"];
/// What a quota makes every container ask for.
const MANDATORY: [&str; 6] =
    ["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];

/// The amounts under a quota's `spec.hard`, `status.hard` or `status.used`.
pub fn list(quota: &Value, path: &str) -> Amounts {
    amounts(quota, path)
}

/// Whether a resource that a quota names is counted on objects of this kind.
pub fn tracks(group: &str, plural: &str, name: &str) -> bool {
    if name == count_name(group, plural) {
        return true;
    }
    match (group, plural) {
        ("", "pods") => {
            let compute =
                name.strip_prefix("requests.").or_else(|| name.strip_prefix("limits.")).unwrap_or(name);
            let is_extended =
                name.starts_with("requests.") && name.contains('/') && !name.contains(STORAGE_CLASS);
            name == "pods"
                || matches!(compute, "cpu" | "memory" | "ephemeral-storage")
                || name.starts_with("hugepages-")
                || name.starts_with("requests.hugepages-")
                || is_extended
        }
        ("", "services") => matches!(name, "services" | "services.nodeports" | "services.loadbalancers"),
        ("", "persistentvolumeclaims") => {
            let resource = name.split_once(STORAGE_CLASS).map_or(name, |(_, resource)| resource);
            CLAIM_RESOURCES.contains(&resource)
        }
        ("", "configmaps" | "resourcequotas" | "replicationcontrollers" | "secrets") => name == plural,
        _ => false,
    }
}

/// Whether a quota is about an object: it names something that is counted, and all its scopes hold.
pub fn matches(quota: &Value, group: &str, plural: &str, object: &Value) -> bool {
    let tracked = amounts(quota, "status.hard").keys().any(|name| tracks(group, plural, name));
    let is_pod = (group, plural) == ("", "pods");
    let mut scopes = items(quota, "spec.scopes").iter().filter_map(Value::as_str);
    let mut selectors = items(quota, "spec.scopeSelector.matchExpressions").iter();
    tracked
        && scopes.all(|scope| is_pod && in_scope(object, scope, "Exists", &[]))
        && selectors.all(|selector| {
            let (scope, operator) = (text(selector, "scopeName"), text(selector, "operator"));
            is_pod && in_scope(object, scope, operator, items(selector, "values"))
        })
}

/// What an object counts as.
pub fn usage(group: &str, plural: &str, object: &Value, now: Timestamp) -> Amounts {
    let one = Quantity::from_value(1);
    let mut usage = Amounts::from([(count_name(group, plural), one)]);
    match (group, plural) {
        ("", "pods") if !is_over(object, now) => {
            let spec = &object["spec"];
            let mut limits = container_limits(spec);
            limits.extend(amounts(spec, "resources.limits"));
            usage.extend(pod_usage(&pod_requests(spec), &limits));
        }
        ("", "services") => usage.extend(service_usage(object)),
        ("", "persistentvolumeclaims") => usage.extend(claim_usage(object)),
        ("", "configmaps" | "resourcequotas" | "replicationcontrollers" | "secrets") => {
            usage.insert(plural.to_owned(), one);
        }
        _ => {}
    }
    usage
}

/// Whether a pod has a deadline, which is what the scope `Terminating` means.
pub fn is_terminating(pod: &Value) -> bool {
    pod["spec"].get("activeDeadlineSeconds").and_then(Value::as_i64).is_some_and(|seconds| seconds >= 0)
}

/// What the containers of a pod do not ask for, though a quota of these resources makes them, in words.
pub fn missing<'a>(hard: impl Iterator<Item = &'a String>, pod: &Value) -> Option<String> {
    let spec = &pod["spec"];
    if ["requests", "limits"].iter().any(|list| !amounts(spec, &format!("resources.{list}")).is_empty()) {
        return None;
    }
    let required: Vec<&String> = hard.filter(|name| MANDATORY.contains(&name.as_str())).collect();
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for container in items(spec, "containers").iter().chain(items(spec, "initContainers")) {
        let (requests, limits) =
            (amounts(container, "resources.requests"), amounts(container, "resources.limits"));
        let used = pod_usage(&requests, &limits);
        for name in required.iter().filter(|name| !used.contains_key(name.as_str())) {
            missing.entry(name).or_default().insert(text(container, "name"));
        }
    }
    let say = |(name, containers): (&&str, &BTreeSet<&str>)| {
        format!("{name} for: {}", containers.iter().copied().collect::<Vec<_>>().join(","))
    };
    let said: Vec<String> = missing.iter().map(say).collect();
    (!said.is_empty()).then(|| format!("must specify {}", said.join("; ")))
}

/// `count/pods`, `count/deployments.apps`.
fn count_name(group: &str, plural: &str) -> String {
    if group.is_empty() { format!("count/{plural}") } else { format!("count/{plural}.{group}") }
}

fn in_scope(pod: &Value, scope: &str, operator: &str, values: &[Value]) -> bool {
    let class = text(pod, "spec.priorityClassName");
    match scope {
        "Terminating" => is_terminating(pod),
        "NotTerminating" => !is_terminating(pod),
        "BestEffort" => qos_class(&pod["spec"]) == "BestEffort",
        "NotBestEffort" => qos_class(&pod["spec"]) != "BestEffort",
        "PriorityClass" => match operator {
            "Exists" => !class.is_empty(),
            "DoesNotExist" => class.is_empty(),
            "In" => !class.is_empty() && values.iter().any(|value| value == class),
            "NotIn" => class.is_empty() || !values.iter().any(|value| value == class),
            _ => false,
        },
        "CrossNamespacePodAffinity" => crosses_namespaces(pod),
        _ => false,
    }
}

fn crosses_namespaces(pod: &Value) -> bool {
    let crosses =
        |term: &Value| !items(term, "namespaces").is_empty() || at(term, "namespaceSelector").is_some();
    ["podAffinity", "podAntiAffinity"].iter().any(|affinity| {
        let terms = |list: &str| items(pod, &format!("spec.affinity.{affinity}.{list}"));
        terms("requiredDuringSchedulingIgnoredDuringExecution").iter().any(crosses)
            || terms("preferredDuringSchedulingIgnoredDuringExecution")
                .iter()
                .filter_map(|weighted| at(weighted, "podAffinityTerm"))
                .any(crosses)
    })
}

/// A pod that has ended, or should be gone by now, holds nothing but its place in the store.
fn is_over(pod: &Value, now: Timestamp) -> bool {
    if matches!(text(pod, "status.phase"), "Failed" | "Succeeded") {
        return true;
    }
    let deleted = text(pod, "metadata.deletionTimestamp").parse::<Timestamp>();
    let grace = at(pod, "metadata.deletionGracePeriodSeconds").and_then(Value::as_i64);
    deleted.is_ok_and(|at| grace.is_some_and(|grace| now > at + SignedDuration::from_secs(grace)))
}

fn pod_usage(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut usage = Amounts::from([("pods".to_owned(), Quantity::from_value(1))]);
    for (name, amount) in requests {
        let is_compute = matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage");
        if is_compute || name.starts_with("hugepages-") {
            usage.insert(name.clone(), *amount);
        }
        if is_compute || name.starts_with("hugepages-") || name.contains('/') {
            usage.insert(format!("requests.{name}"), *amount);
        }
    }
    for name in ["cpu", "memory", "ephemeral-storage"] {
        if let Some(amount) = limits.get(name) {
            usage.insert(format!("limits.{name}"), *amount);
        }
    }
    usage
}

fn service_usage(service: &Value) -> Amounts {
    let ports = items(service, "spec.ports");
    let with_node_port = ports.iter().filter(|port| port["nodePort"].as_i64().unwrap_or(0) != 0).count();
    let suppressed = at(service, "spec.allocateLoadBalancerNodePorts") == Some(&Value::Bool(false));
    let (balancers, node_ports) = match text(service, "spec.type") {
        "NodePort" => (0, ports.len()),
        "LoadBalancer" if suppressed => (1, with_node_port),
        "LoadBalancer" => (1, ports.len()),
        _ => (0, 0),
    };
    let counts =
        [("services", 1), ("services.loadbalancers", balancers), ("services.nodeports", node_ports as i64)];
    counts.into_iter().map(|(name, count)| (name.to_owned(), Quantity::from_value(count))).collect()
}

fn claim_usage(claim: &Value) -> Amounts {
    let mut usage = Amounts::from([("persistentvolumeclaims".to_owned(), Quantity::from_value(1))]);
    let requested = amounts(&claim["spec"], "resources.requests").get("storage").copied();
    let allocated = amounts(&claim["status"], "allocatedResources").get("storage").copied();
    if let Some(storage) = requested.map(|requested| requested.max(allocated.unwrap_or_default())) {
        usage.insert("requests.storage".to_owned(), storage);
    }
    let class = text(claim, "spec.storageClassName");
    if !class.is_empty() {
        let by_class =
            |(name, amount): (&String, &Quantity)| (format!("{class}{STORAGE_CLASS}{name}"), *amount);
        usage.extend(usage.iter().map(by_class).collect::<Vec<_>>());
    }
    usage
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(usage: Amounts) -> String {
        usage.iter().map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>().join(" ")
    }

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    #[test]
    fn what_objects_count_as() {
        let resources = json!({"requests": {"cpu": "1", "example.com/gpu": "2"}, "limits": {"cpu": "2"}});
        let pod = json!({"spec": {"containers": [{"name": "c", "resources": resources}]}});
        let used = "cpu=1 limits.cpu=2 pods=1 requests.cpu=1 requests.example.com/gpu=2";
        let mut ended = pod.clone();
        ended["status"] = json!({"phase": "Failed"});
        let mut stuck = pod.clone();
        stuck["metadata"] =
            json!({"deletionTimestamp": "2025-12-31T23:00:00Z", "deletionGracePeriodSeconds": 30});
        let service = json!({"spec": {"type": "NodePort", "ports": [{}, {}]}});
        let claim =
            json!({"spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}}});
        let cases = [
            ("", "pods", &pod, format!("count/pods=1 {used}")),
            ("", "pods", &ended, "count/pods=1".to_owned()),
            ("", "pods", &stuck, "count/pods=1".to_owned()),
            (
                "",
                "services",
                &service,
                "count/services=1 services=1 services.loadbalancers=0 services.nodeports=2".to_owned(),
            ),
            (
                "",
                "persistentvolumeclaims",
                &claim,
                "count/persistentvolumeclaims=1 fast.storageclass.storage.k8s.io/persistentvolumeclaims=1 \
                 fast.storageclass.storage.k8s.io/requests.storage=1Gi persistentvolumeclaims=1 requests.storage=1Gi"
                    .to_owned(),
            ),
            ("", "secrets", &json!({}), "count/secrets=1 secrets=1".to_owned()),
            ("apps", "deployments", &json!({}), "count/deployments.apps=1".to_owned()),
        ];
        for (group, plural, object, expected) in cases {
            let usage = usage(group, plural, object, now());
            assert!(usage.keys().all(|name| tracks(group, plural, name)), "{plural}");
            let names = |text: &str| text.split_whitespace().map(str::to_owned).collect::<BTreeSet<_>>();
            assert_eq!(names(&shown(usage)), names(&expected), "{plural}");
        }
        assert!(!tracks("", "pods", "services") && !tracks("apps", "deployments", "pods"));
    }

    #[test]
    fn scopes_say_which_pods_a_quota_is_about() {
        let plain = json!({"spec": {"containers": [{"name": "c"}]}});
        let mut short = plain.clone();
        short["spec"]["activeDeadlineSeconds"] = 5.into();
        let mut high = plain.clone();
        high["spec"]["priorityClassName"] = "high".into();
        let by_class = |operator: &str, values: Value| {
            json!({"scopeSelector": {"matchExpressions": [
                {"scopeName": "PriorityClass", "operator": operator, "values": values}]}})
        };
        for (spec, plain_in, short_in, high_in) in [
            (json!({}), true, true, true),
            (json!({"scopes": ["Terminating"]}), false, true, false),
            (json!({"scopes": ["NotTerminating", "BestEffort"]}), true, false, true),
            (json!({"scopes": ["NotBestEffort"]}), false, false, false),
            (by_class("In", json!(["high"])), false, false, true),
            (by_class("NotIn", json!(["high"])), true, true, false),
            (by_class("Exists", json!([])), false, false, true),
        ] {
            let quota = json!({"spec": spec, "status": {"hard": {"pods": "1"}}});
            let is_in = [&plain, &short, &high].map(|pod| matches(&quota, "", "pods", pod));
            assert_eq!(is_in, [plain_in, short_in, high_in], "{quota}");
        }
        let quota = json!({"status": {"hard": {"services": "1"}}});
        assert!(!matches(&quota, "", "pods", &plain), "it counts no pods");
    }

    #[test]
    fn containers_must_ask_for_what_is_counted() {
        let pod = json!({"spec": {"containers": [
            {"name": "a", "resources": {"requests": {"cpu": "1"}}}, {"name": "b"}]}});
        let hard = ["cpu", "limits.memory", "pods"].map(str::to_owned);
        assert_eq!(
            missing(hard.iter(), &pod).as_deref(),
            Some("must specify cpu for: b; limits.memory for: a,b")
        );
        assert_eq!(missing(["pods".to_owned()].iter(), &pod), None);
    }
}
