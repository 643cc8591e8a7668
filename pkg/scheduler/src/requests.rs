//! What a pod asks for as a whole, and what counts as its size where it asks for nothing.
//!
//! The rules are those of `api::kinds::pod_spec`, on slim records instead of JSON.

use crate::wire;
use api::Quantity;
use std::collections::BTreeMap;

/// Where a container asks for no CPU, scores count this much, in thousandths.
const DEFAULT_MILLI_CPU: i64 = 100;
/// Where a container asks for no memory, scores count this much, in bytes.
const DEFAULT_MEMORY: i64 = 200 * 1024 * 1024;

/// Amounts of the resources that every node has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Amounts {
    pub milli_cpu: i64,
    pub memory: i64,
    pub ephemeral: i64,
}

/// What a pod asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Requests {
    pub amounts: Amounts,
    /// As scores count it: a container that asks for nothing still needs something.
    pub scored_milli_cpu: i64,
    pub scored_memory: i64,
    /// Every other resource, by name.
    pub others: Vec<(String, i64)>,
}

type Sum = BTreeMap<String, i64>;

/// A pod that is given another size takes the largest of what it asks for, what was allocated to it and what is in force:
/// makes that what its containers ask for. What its node can never give does not count.
pub(crate) fn count_given(pod: &mut wire::Pod) {
    let status = &pod.status;
    let is_infeasible = status
        .conditions
        .iter()
        .any(|condition| condition.kind == "PodResizePending" && condition.reason == "Infeasible");
    let spec = &mut pod.spec;
    let sidecars = spec.init_containers.iter_mut();
    let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let sidecars = sidecars.map(|container| (container, &status.init_container_statuses));
    let all = spec.containers.iter_mut().map(|container| (container, &status.container_statuses));
    for (container, statuses) in all.chain(sidecars) {
        let status = statuses.iter().find(|status| status.name == container.name);
        let Some((status, in_force)) = status.and_then(|status| Some((status, status.resources.as_ref()?)))
        else {
            continue;
        };
        let requests = &mut container.resources.requests;
        if is_infeasible {
            requests.clear();
        }
        for (name, amount) in status.allocated_resources.iter().chain(&in_force.requests) {
            let quantity = |text: &str| text.parse::<Quantity>().ok();
            let known = requests.get(name);
            if known.is_none_or(|known| known != amount && quantity(known) < quantity(amount)) {
                requests.insert(name.clone(), amount.clone());
            }
        }
    }
    for container in spec.containers.iter_mut().chain(&mut spec.init_containers) {
        container.name.clear();
    }
}

impl Requests {
    pub(crate) fn of(spec: &wire::PodSpec) -> Requests {
        let real = total(spec, false);
        let scored = total(spec, true);
        let of = |sum: &Sum, name: &str| sum.get(name).copied().unwrap_or(0);
        Requests {
            amounts: Amounts {
                milli_cpu: of(&real, "cpu"),
                memory: of(&real, "memory"),
                ephemeral: of(&real, "ephemeral-storage"),
            },
            scored_milli_cpu: of(&scored, "cpu"),
            scored_memory: of(&scored, "memory"),
            others: real
                .into_iter()
                .filter(|(name, amount)| {
                    *amount != 0 && !matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage" | "pods")
                })
                .collect(),
        }
    }
}

fn total(spec: &wire::PodSpec, with_defaults: bool) -> Sum {
    let mut total = Sum::new();
    for container in &spec.containers {
        add(&mut total, &requests(container, with_defaults));
    }
    let (mut sidecars, mut most) = (Sum::new(), Sum::new());
    for container in &spec.init_containers {
        let mut needed = requests(container, with_defaults);
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut total, &needed);
            add(&mut sidecars, &needed);
            needed.clone_from(&sidecars);
        } else {
            add(&mut needed, &sidecars);
        }
        raise(&mut most, &needed);
    }
    raise(&mut total, &most);
    total.extend(amounts(&spec.resources.requests));
    add(&mut total, &amounts(&spec.overhead));
    total
}

fn requests(container: &wire::Container, with_defaults: bool) -> Sum {
    let mut sum = amounts(&container.resources.requests);
    if with_defaults {
        sum.entry("cpu".to_owned()).or_insert(DEFAULT_MILLI_CPU);
        sum.entry("memory".to_owned()).or_insert(DEFAULT_MEMORY);
    }
    sum
}

/// Amounts as whole numbers: CPU in thousandths, everything else in units.
pub(crate) fn amounts(list: &wire::Map) -> Sum {
    let amount = |name: &str, text: &str| {
        let quantity: Quantity = text.parse().ok()?;
        Some(if name == "cpu" { quantity.milli_value() } else { quantity.value() })
    };
    list.iter().filter_map(|(name, text)| Some((name.clone(), amount(name, text)?))).collect()
}

fn add(sum: &mut Sum, more: &Sum) {
    for (name, amount) in more {
        let slot = sum.entry(name.clone()).or_default();
        *slot = slot.saturating_add(*amount);
    }
}

fn raise(sum: &mut Sum, least: &Sum) {
    for (name, amount) in least {
        let slot = sum.entry(name.clone()).or_default();
        *slot = (*slot).max(*amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn of(spec: Value) -> Requests {
        Requests::of(&serde_json::from_value(spec).unwrap())
    }

    fn asks(cpu: &str, memory: &str) -> Value {
        json!({"resources": {"requests": {"cpu": cpu, "memory": memory}}})
    }

    #[test]
    fn containers_add_up_and_init_containers_do_not() {
        let requests = of(json!({"containers": [asks("100m", "1Mi"), asks("200m", "1Mi")],
            "initContainers": [asks("1", "1"), asks("500m", "4Mi")]}));
        assert_eq!(requests.amounts, Amounts { milli_cpu: 1000, memory: 4 << 20, ephemeral: 0 });
    }

    #[test]
    fn sidecars_stay() {
        let mut sidecar = asks("1", "0");
        sidecar["restartPolicy"] = "Always".into();
        let requests =
            of(json!({"containers": [asks("1", "0")], "initContainers": [sidecar, asks("1500m", "0")]}));
        assert_eq!(requests.amounts.milli_cpu, 2500);
    }

    #[test]
    fn scores_count_what_is_not_asked_for() {
        let requests = of(json!({"containers": [{}, asks("1", "1Gi")], "overhead": {"cpu": "10m"}}));
        assert_eq!(requests.amounts.milli_cpu, 1010);
        assert_eq!(requests.scored_milli_cpu, 1110);
        assert_eq!(requests.scored_memory, DEFAULT_MEMORY + (1 << 30));
    }

    #[test]
    fn a_pod_takes_the_largest_of_its_sizes() {
        for (asks, allocated, in_force, reason, expected) in [
            ("1", "1", "1", "", 1000),
            ("2", "1", "1", "Deferred", 2000),
            ("2", "1", "1", "Infeasible", 1000),
            ("500m", "500m", "1", "", 1000),
            ("500m", "1", "500m", "", 1000),
        ] {
            let status = json!({"name": "c", "allocatedResources": {"cpu": allocated},
                "resources": {"requests": {"cpu": in_force}}});
            let condition = json!({"type": "PodResizePending", "status": "True", "reason": reason});
            let mut pod: wire::Pod = serde_json::from_value(json!({
                "spec": {"containers": [asks_for("c", asks), asks_for("d", "1")]},
                "status": {"containerStatuses": [status], "conditions": [condition]},
            }))
            .unwrap();
            count_given(&mut pod);
            let found = Requests::of(&pod.spec).amounts.milli_cpu;
            assert_eq!(found, expected + 1000, "{asks} {allocated} {in_force} {reason}");
        }
    }

    fn asks_for(name: &str, cpu: &str) -> Value {
        json!({"name": name, "resources": {"requests": {"cpu": cpu}}})
    }

    #[test]
    fn other_resources_keep_their_names() {
        let gpu = json!({"resources": {"requests": {"example.com/gpu": "2", "ephemeral-storage": "1Ki"}}});
        let requests = of(json!({"containers": [gpu]}));
        assert_eq!(requests.others, [("example.com/gpu".to_owned(), 2)]);
        assert_eq!(requests.amounts.ephemeral, 1024);
    }
}
