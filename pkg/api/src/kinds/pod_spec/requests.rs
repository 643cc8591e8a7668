//! What a pod asks for as a whole: sums over its containers, and the class of service that follows.

use crate::printing::{at, items, text};
use crate::quantity::Quantity;
use serde_json::Value;
use std::collections::BTreeMap;

/// Amounts by the name of the resource.
pub type Amounts = BTreeMap<String, Quantity>;

/// What the containers of a pod spec request together: the running ones' sum, or more if one that runs before
/// them needs more.
pub fn container_requests(spec: &Value) -> Amounts {
    container_amounts(spec, "resources.requests")
}

/// What the containers of a pod spec are limited to together, summed as their requests are.
pub fn container_limits(spec: &Value) -> Amounts {
    container_amounts(spec, "resources.limits")
}

fn container_amounts(spec: &Value, path: &str) -> Amounts {
    let mut total = Amounts::new();
    for container in items(spec, "containers") {
        add(&mut total, &amounts(container, path));
    }
    let (mut sidecars, mut most) = (Amounts::new(), Amounts::new());
    for container in items(spec, "initContainers") {
        let mut needed = amounts(container, path);
        if text(container, "restartPolicy") == "Always" {
            add(&mut total, &needed);
            add(&mut sidecars, &needed);
            needed = sidecars.clone();
        } else {
            add(&mut needed, &sidecars);
        }
        for (name, amount) in needed {
            let slot = most.entry(name).or_default();
            *slot = amount.max(*slot);
        }
    }
    for (name, amount) in most {
        let slot = total.entry(name).or_default();
        *slot = amount.max(*slot);
    }
    total
}

/// What a pod requests: its containers' requests, overridden by its own, and its overhead.
pub fn pod_requests(spec: &Value) -> Amounts {
    let mut total = container_requests(spec);
    total.extend(amounts(spec, "resources.requests"));
    add(&mut total, &amounts(spec, "overhead"));
    total
}

/// `Guaranteed`, `Burstable` or `BestEffort`.
pub fn qos_class(spec: &Value) -> &'static str {
    let (mut requests, mut limits) = (Amounts::new(), Amounts::new());
    let mut guaranteed = true;
    let mut take = |holder: &Value| {
        let compute = |path: &str| -> Amounts {
            let list = amounts(holder, path).into_iter();
            list.filter(|(name, amount)| {
                matches!(name.as_str(), "cpu" | "memory") && *amount > Quantity::default()
            })
            .collect()
        };
        let own_limits = compute("resources.limits");
        guaranteed &= own_limits.len() == 2;
        add(&mut requests, &compute("resources.requests"));
        add(&mut limits, &own_limits);
    };
    if at(spec, "resources").is_some() {
        take(spec);
    } else {
        items(spec, "containers").iter().chain(items(spec, "initContainers")).for_each(take);
    }
    if requests.is_empty() && limits.is_empty() {
        "BestEffort"
    } else if guaranteed && requests == limits {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

/// The amounts under a dotted path, such as `resources.requests`; what is no quantity is left out.
pub fn amounts(holder: &Value, path: &str) -> Amounts {
    at(holder, path)
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(name, amount)| Some((name.clone(), amount.as_str()?.parse().ok()?)))
        .collect()
}

fn add(total: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let slot = total.entry(name.clone()).or_default();
        *slot = *slot + *amount;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sidecars_run_beside_what_comes_after_them() {
        let asks = |cpu: &str| json!({"requests": {"cpu": cpu}});
        let spec = json!({
            "initContainers": [
                {"resources": asks("5")},
                {"restartPolicy": "Always", "resources": asks("1")},
                {"resources": asks("3")},
            ],
            "containers": [{"resources": asks("1")}, {"resources": asks("500m")}],
            "overhead": {"cpu": "100m"},
        });
        assert_eq!(container_requests(&spec)["cpu"].to_string(), "5");
        assert_eq!(pod_requests(&spec)["cpu"].to_string(), "5100m");
    }

    #[test]
    fn classes_of_service() {
        let full = json!({"cpu": "1", "memory": "1Gi"});
        for (resources, class) in [
            (json!({}), "BestEffort"),
            (json!({"requests": {"cpu": "0"}}), "BestEffort"),
            (json!({"requests": {"cpu": "1"}}), "Burstable"),
            (json!({"limits": full, "requests": full}), "Guaranteed"),
            (json!({"limits": full, "requests": {"cpu": "500m", "memory": "1Gi"}}), "Burstable"),
            (json!({"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}), "Burstable"),
        ] {
            let spec = json!({"containers": [{"resources": resources}]});
            assert_eq!(qos_class(&spec), class, "{spec}");
        }
    }
}
