//! From what a pod asks for to what the kernel enforces.

use super::Capacity;
use crate::runtime::Resources;
use api::Quantity;
use api::kinds::pod_spec::requests::{pod_requests, qos_class};
use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use serde_json::Value;

const PERIOD_US: u64 = 100_000;
const LEAST_QUOTA_US: i64 = 1000;
const LEAST_SHARES: u64 = 2;
const MOST_SHARES: u64 = 262_144;
const CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// The class of service, from the spec.
pub(super) fn class(pod: &Pod) -> &'static str {
    qos_class(&spec_of(pod))
}

fn spec_of(pod: &Pod) -> Value {
    pod.spec.as_ref().and_then(|spec| serde_json::to_value(spec).ok()).unwrap_or_default()
}

/// The cgroup that holds a pod.
pub(super) fn cgroup(pod: &Pod, root: &str) -> String {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let root = root.trim_end_matches('/');
    match class(pod) {
        "Guaranteed" => format!("{root}/kubepods/pod{uid}"),
        "Burstable" => format!("{root}/kubepods/burstable/pod{uid}"),
        _ => format!("{root}/kubepods/besteffort/pod{uid}"),
    }
}

fn amount(
    list: Option<
        &std::collections::BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>,
    >,
    name: &str,
) -> Option<Quantity> {
    list?.get(name)?.0.parse().ok()
}

fn shares(milli_cpu: i64) -> u64 {
    let shares = u64::try_from(milli_cpu).unwrap_or(0) * 1024 / 1000;
    shares.clamp(LEAST_SHARES, MOST_SHARES)
}

fn quota(milli_cpu: i64) -> i64 {
    (milli_cpu * 100_000 / 1000).max(LEAST_QUOTA_US)
}

/// Limits of one container.
pub(crate) fn of_container(pod: &Pod, container: &Container, capacity: &Capacity) -> Resources {
    let resources = container.resources.clone().unwrap_or_default();
    let (requests, limits) = (resources.requests.as_ref(), resources.limits.as_ref());
    let cpu_limit = amount(limits, "cpu").map_or(0, |cpu| cpu.milli_value());
    // Without a request, the limit is what it asks for.
    let cpu_request = amount(requests, "cpu").map_or(cpu_limit, |cpu| cpu.milli_value());
    Resources {
        cpu_shares: shares(cpu_request),
        cpu_quota_us: if cpu_limit > 0 { quota(cpu_limit) } else { 0 },
        cpu_period_us: if cpu_limit > 0 { PERIOD_US } else { 0 },
        memory_limit_bytes: amount(limits, "memory").map_or(0, |memory| memory.value()),
        oom_score_adj: Some(oom_score_adj(pod, &resources, capacity)),
        ..Resources::default()
    }
}

/// Limits of a pod as a whole. It is limited only if all of its containers are; what its runtime takes comes on top.
pub(crate) fn of_pod(pod: &Pod, pids_limit: i64) -> Resources {
    let requests = pod_requests(&spec_of(pod));
    let milli = requests.get("cpu").map_or(0, Quantity::milli_value);
    let Some(spec) = &pod.spec else { return Resources::default() };
    let running: Vec<&Container> = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten().filter(|container| crate::plan::is_sidecar(container)))
        .collect();
    let of_containers = |name: &str, value: fn(&Quantity) -> i64| -> Option<i64> {
        if let Some(own) = spec.resources.as_ref().and_then(|r| amount(r.limits.as_ref(), name)) {
            return Some(value(&own));
        }
        let limits = running.iter().map(|container| {
            let resources = container.resources.as_ref()?;
            amount(resources.limits.as_ref(), name).filter(|amount| !amount.is_zero()).map(|a| value(&a))
        });
        let sum: i64 = limits.sum::<Option<i64>>()?;
        let most_init = spec.init_containers.iter().flatten().filter_map(|container| {
            let resources = container.resources.as_ref()?;
            amount(resources.limits.as_ref(), name).map(|amount| value(&amount))
        });
        Some(most_init.max().unwrap_or(0).max(sum))
    };
    let total = |name: &str, value: fn(&Quantity) -> i64| {
        let overhead = amount(spec.overhead.as_ref(), name).map_or(0, |amount| value(&amount));
        Some(of_containers(name, value)? + overhead)
    };
    let cpu_limit = total("cpu", Quantity::milli_value);
    Resources {
        cpu_shares: shares(milli),
        cpu_quota_us: cpu_limit.map_or(0, quota),
        cpu_period_us: if cpu_limit.is_some() { PERIOD_US } else { 0 },
        memory_limit_bytes: total("memory", Quantity::value).unwrap_or(0),
        pids_limit,
        ..Resources::default()
    }
}

/// Who is killed first when the node's memory runs out.
fn oom_score_adj(pod: &Pod, resources: &ResourceRequirements, capacity: &Capacity) -> i32 {
    if pod.spec.as_ref().and_then(|spec| spec.priority).is_some_and(|priority| priority >= CRITICAL_PRIORITY)
    {
        return -997;
    }
    match class(pod) {
        "Guaranteed" => -997,
        "BestEffort" => 1000,
        _ => {
            let memory = amount(resources.requests.as_ref(), "memory").map_or(0, |memory| memory.value());
            let all = capacity.get("memory").map_or(0, Quantity::value).max(1);
            let score = 1000 - (1000 * i128::from(memory) / i128::from(all)).clamp(0, 1000) as i32;
            score.clamp(3, 999)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(resources: &[Value]) -> Pod {
        let containers: Vec<Value> =
            resources.iter().map(|resources| json!({"name": "c", "resources": resources})).collect();
        serde_json::from_value(json!({"metadata": {"uid": "u"}, "spec": {"containers": containers}}))
            .expect("a pod")
    }

    #[test]
    fn limits_of_containers_and_pods() {
        let half = json!({"limits": {"cpu": "500m", "memory": "64Mi"}, "requests": {"cpu": "250m", "memory": "32Mi"}});
        let one = pod(&[half.clone(), half.clone()]);
        let capacity = Capacity::from([("memory".to_owned(), "640Mi".parse().expect("an amount"))]);
        let container = &one.spec.as_ref().expect("a spec").containers[0];
        let own = of_container(&one, container, &capacity);
        assert_eq!((own.cpu_shares, own.cpu_quota_us, own.memory_limit_bytes), (256, 50_000, 64 << 20));
        assert_eq!(own.oom_score_adj, Some(950));
        let whole = of_pod(&one, 100);
        assert_eq!(
            (whole.cpu_shares, whole.cpu_quota_us, whole.memory_limit_bytes),
            (512, 100_000, 128 << 20)
        );
        assert_eq!(whole.pids_limit, 100);
        let mut heavy = one.clone();
        heavy.spec.as_mut().expect("a spec").overhead =
            serde_json::from_value(json!({"cpu": "250m", "memory": "16Mi"})).expect("amounts");
        let heavy = of_pod(&heavy, 0);
        assert_eq!(
            (heavy.cpu_shares, heavy.cpu_quota_us, heavy.memory_limit_bytes),
            (768, 125_000, 144 << 20)
        );
        let open = of_pod(&pod(&[half, json!({})]), 0);
        assert_eq!((open.cpu_quota_us, open.memory_limit_bytes), (0, 0), "one container without limits");
    }

    #[test]
    fn classes_and_cgroups() {
        let full =
            json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}});
        assert_eq!(cgroup(&pod(&[full]), "/"), "/kubepods/podu");
        assert_eq!(cgroup(&pod(&[json!({"requests": {"cpu": "1"}})]), ""), "/kubepods/burstable/podu");
        assert_eq!(cgroup(&pod(&[json!({})]), "/x"), "/x/kubepods/besteffort/podu");
    }
}
