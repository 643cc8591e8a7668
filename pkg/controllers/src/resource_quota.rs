//! ResourceQuota status: how much of each limited resource a namespace uses.
//!
//! ```text
//! spec.hard ──> which names ──> pods, services and claims from the caches, others counted by the server ──> status.used
//! ```
//!
//! Refusing what would go beyond is the apiserver's business.

use crate::discovery::discover;
use crate::pods;
use crate::runtime::{Context, Controller, Driver, Plan, Task, Write};
use api::Quantity;
use client::{Cache, Key};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuota, Service};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;
use kube::api::{DynamicObject, ListParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

/// What is only counted has no watch here; it is counted so often.
const RECOUNT: Duration = Duration::from_secs(60);
const PAGE: u32 = 500;

/// A quota and what counts against it.
#[derive(Debug)]
pub struct View {
    /// The quota.
    pub quota: Arc<ResourceQuota>,
    /// The pods of the namespace.
    pub pods: Vec<Arc<Pod>>,
    /// Its services.
    pub services: Vec<Arc<Service>>,
    /// Its claims.
    pub claims: Vec<Arc<PersistentVolumeClaim>>,
    /// Objects of other resources, counted, by the names that quotas use.
    pub counts: BTreeMap<String, u64>,
}

/// What to write.
pub fn plan(view: &View) -> Plan {
    let hard = view.quota.spec.as_ref().and_then(|spec| spec.hard.clone()).unwrap_or_default();
    let used = usage(view);
    let mut plan = Plan::default();
    if !view.counts.is_empty() {
        plan.look_again = Some(RECOUNT);
    }
    let status = view.quota.status.clone().unwrap_or_default();
    let same = |a: &Option<BTreeMap<String, Amount>>, b: &BTreeMap<String, Amount>| {
        let value = |amount: &Amount| amount.0.parse::<Quantity>().ok();
        let a = a.clone().unwrap_or_default();
        a.len() == b.len() && a.iter().all(|(name, amount)| b.get(name).map(value) == Some(value(amount)))
    };
    if !same(&status.hard, &hard) || !same(&status.used, &used) {
        let mut next = ResourceQuota::clone(&view.quota);
        let status = next.status.get_or_insert_default();
        (status.hard, status.used) = (Some(hard), Some(used));
        plan.status = Some(Write::update_status(&next));
    }
    plan
}

/// How much is used of each name.
fn usage(view: &View) -> BTreeMap<String, Amount> {
    let pods: Vec<&Pod> = view.pods.iter().map(Arc::as_ref).filter(|pod| counts(&view.quota, pod)).collect();
    let names = view.quota.spec.iter().flat_map(|spec| spec.hard.iter().flatten());
    names.map(|(name, _)| (name.clone(), Amount(used(view, &pods, name).to_string()))).collect()
}

/// Whether less is used of anything than the quota says.
fn is_lower(view: &View) -> bool {
    let amount = |amount: &Amount| amount.0.parse::<Quantity>().unwrap_or_default();
    let (now, status) = (usage(view), view.quota.status.as_ref());
    let mut said = status.and_then(|status| status.used.as_ref()).into_iter().flatten();
    said.any(|(name, said)| now.get(name).is_some_and(|now| amount(now) < amount(said)))
}

fn used(view: &View, pods: &[&Pod], name: &str) -> Quantity {
    let count = |number: usize| Quantity::from_value(i64::try_from(number).unwrap_or(i64::MAX));
    let services = || view.services.iter().filter_map(|service| service.spec.as_ref());
    match name {
        "pods" => count(pods.len()),
        "count/pods" => count(view.pods.len()),
        "services" | "count/services" => count(view.services.len()),
        "persistentvolumeclaims" | "count/persistentvolumeclaims" => count(view.claims.len()),
        "services.loadbalancers" => {
            count(services().filter(|s| s.type_.as_deref() == Some("LoadBalancer")).count())
        }
        "services.nodeports" => {
            let open = services().filter(|s| matches!(s.type_.as_deref(), Some("NodePort" | "LoadBalancer")));
            count(open.map(|s| s.ports.as_ref().map_or(0, Vec::len)).sum())
        }
        "requests.storage" => view.claims.iter().fold(Quantity::default(), |sum, claim| sum + storage(claim)),
        name if view.counts.contains_key(name) => {
            Quantity::from_value(i64::try_from(view.counts[name]).unwrap_or(i64::MAX))
        }
        name => match name.split_once(".storageclass.storage.k8s.io/") {
            Some((class, what)) => {
                let of = |claim: &&Arc<PersistentVolumeClaim>| {
                    claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref()) == Some(class)
                };
                let of_class = view.claims.iter().filter(of);
                match what {
                    "persistentvolumeclaims" => count(of_class.count()),
                    _ => of_class.fold(Quantity::default(), |sum, claim| sum + storage(claim)),
                }
            }
            None => pods.iter().fold(Quantity::default(), |sum, pod| sum + compute(pod, name)),
        },
    }
}

fn storage(claim: &PersistentVolumeClaim) -> Quantity {
    let requests = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_ref());
    requests.and_then(|list| list.get("storage")?.0.parse().ok()).unwrap_or_default()
}

/// What a pod asks for: containers together, or the largest of those that run before them.
fn compute(pod: &Pod, name: &str) -> Quantity {
    let (limits, resource) = match name.split_once('.') {
        Some(("limits", resource)) => (true, resource),
        Some(("requests", resource)) => (false, resource),
        _ => (false, name),
    };
    let Some(spec) = &pod.spec else { return Quantity::default() };
    let of = |resources: &Option<k8s_openapi::api::core::v1::ResourceRequirements>| {
        let resources = resources.as_ref();
        let list = if limits {
            resources.and_then(|all| all.limits.as_ref())
        } else {
            resources.and_then(|all| all.requests.as_ref())
        };
        list.and_then(|list| list.get(resource)?.0.parse::<Quantity>().ok()).unwrap_or_default()
    };
    let mut always = spec.containers.iter().fold(Quantity::default(), |sum, c| sum + of(&c.resources));
    let (mut sidecars, mut largest) = (Quantity::default(), Quantity::default());
    for container in spec.init_containers.iter().flatten() {
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars = sidecars + of(&container.resources);
            largest = largest.max(sidecars);
        } else {
            largest = largest.max(sidecars + of(&container.resources));
        }
    }
    always = (always + sidecars).max(largest);
    let overhead = spec.overhead.as_ref().and_then(|list| list.get(resource)?.0.parse().ok());
    always + overhead.unwrap_or_default()
}

/// Whether a pod counts against a quota: it has not ended, and is of the quota's scopes.
fn counts(quota: &ResourceQuota, pod: &Pod) -> bool {
    let ended = matches!(
        pod.status.as_ref().and_then(|status| status.phase.as_deref()),
        Some("Succeeded" | "Failed")
    );
    let Some(spec) = &quota.spec else { return !ended };
    let terminating =
        pod.spec.as_ref().and_then(|spec| spec.active_deadline_seconds).is_some_and(|seconds| seconds >= 0);
    let best_effort =
        pod.status.as_ref().and_then(|status| status.qos_class.as_deref()) == Some("BestEffort");
    let class = pod.spec.as_ref().and_then(|spec| spec.priority_class_name.as_deref()).unwrap_or_default();
    let in_scope = |scope: &str| match scope {
        "Terminating" => terminating,
        "NotTerminating" => !terminating,
        "BestEffort" => best_effort,
        "NotBestEffort" => !best_effort,
        "PriorityClass" => !class.is_empty(),
        _ => false,
    };
    let expressions =
        spec.scope_selector.iter().flat_map(|selector| selector.match_expressions.iter().flatten());
    let mut expressions = expressions.map(|expression| {
        let listed = expression.values.iter().flatten().any(|value| value == class);
        match (expression.scope_name.as_str(), expression.operator.as_str()) {
            ("PriorityClass", "In") => listed,
            ("PriorityClass", "NotIn") => !listed,
            ("PriorityClass", "DoesNotExist") => class.is_empty(),
            (scope, _) => in_scope(scope),
        }
    });
    !ended && spec.scopes.iter().flatten().all(|scope| in_scope(scope)) && expressions.all(|holds| holds)
}

struct Counter {
    client: Client,
    quotas: Cache<ResourceQuota>,
    pods: Cache<Pod>,
    services: Cache<Service>,
    claims: Cache<PersistentVolumeClaim>,
}

/// Makes it.
pub fn start(context: &Context) -> Task {
    let informers = &context.informers;
    let quotas: Cache<ResourceQuota> = informers.cache();
    let pods = pods::cache(informers);
    let services: Cache<Service> = informers.cache();
    let claims: Cache<PersistentVolumeClaim> = informers.cache();
    let controller = Counter {
        client: context.client.clone(),
        quotas: quotas.clone(),
        pods: pods.clone(),
        services: services.clone(),
        claims: claims.clone(),
    };
    let of = |quotas: &Cache<ResourceQuota>| {
        let quotas = quotas.clone();
        move |key: Key| -> Vec<Key> {
            quotas.in_namespace(&key.namespace).iter().map(|quota| Key::of(quota.as_ref())).collect()
        }
    };
    let (of_pods, of_services, of_claims) = (of(&quotas), of(&quotas), of(&quotas));
    Driver::new(context, controller)
        .owns(&quotas)
        .watches(&pods, move |change| of_pods(change.key()))
        .watches(&services, move |change| of_services(change.key()))
        .watches(&claims, move |change| of_claims(change.key()))
        .task()
}

/// The resource that a name of a quota counts, where nobody here watches it: plural and group.
fn counted(name: &str) -> Option<(&str, &str)> {
    let old = ["configmaps", "secrets", "replicationcontrollers", "resourcequotas"];
    let of = match name.strip_prefix("count/") {
        Some("pods" | "services" | "persistentvolumeclaims") => None,
        Some(of) => Some(of),
        None => old.contains(&name).then_some(name),
    }?;
    Some(of.split_once('.').unwrap_or((of, "")))
}

impl Controller for Counter {
    type View = View;

    async fn observe(&self, key: &Key) -> kube::Result<Option<View>> {
        let Some(quota) = self.quotas.get(key) else { return Ok(None) };
        let names = quota.spec.iter().flat_map(|spec| spec.hard.iter().flatten());
        let names: Vec<String> =
            names.map(|(name, _)| name.clone()).filter(|name| counted(name).is_some()).collect();
        let counts =
            if names.is_empty() { BTreeMap::new() } else { self.count(&key.namespace, names).await? };
        let mut view = View {
            quota,
            pods: self.pods.in_namespace(&key.namespace),
            services: self.services.in_namespace(&key.namespace),
            claims: self.claims.in_namespace(&key.namespace),
            counts,
        };
        // An object may be charged for before it is heard of: what the caches do not know is not free yet.
        if is_lower(&view) {
            view.pods = self.listed(&key.namespace).await?;
            view.services = self.listed(&key.namespace).await?;
            view.claims = self.listed(&key.namespace).await?;
        }
        Ok(Some(view))
    }

    fn plan(&self, view: &View, _now: Timestamp) -> Plan {
        plan(view)
    }
}

impl Counter {
    /// All objects of a kind in a namespace, as the server has them now.
    async fn listed<K>(&self, namespace: &str) -> kube::Result<Vec<Arc<K>>>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), namespace);
        Ok(api.list(&ListParams::default()).await?.items.into_iter().map(Arc::new).collect())
    }

    async fn count(&self, namespace: &str, names: Vec<String>) -> kube::Result<BTreeMap<String, u64>> {
        let discovered = discover(&self.client).await?;
        let mut counts = BTreeMap::new();
        for name in names {
            let Some((plural, group)) = counted(&name) else { continue };
            let mut found = discovered.resources.iter();
            let Some(resource) = found.find(|known| known.plural == plural && known.group == group) else {
                continue;
            };
            let api: Api<DynamicObject> =
                Api::namespaced_with(self.client.clone(), namespace, &resource.api_resource());
            let list = api.list_metadata(&ListParams::default().limit(PAGE)).await?;
            let rest = list.metadata.remaining_item_count.and_then(|rest| u64::try_from(rest).ok());
            counts.insert(name, list.items.len() as u64 + rest.unwrap_or(0));
        }
        Ok(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn of<T: serde::de::DeserializeOwned>(object: Value) -> Arc<T> {
        Arc::new(serde_json::from_value(object).unwrap())
    }

    fn pod(phase: &str, cpu: &str, more: Value) -> Arc<Pod> {
        let container = |cpu: &str| json!({"name": "c", "resources": {"requests": {"cpu": cpu}, "limits": {"memory": "1Gi"}}});
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [container(cpu)]}, "status": {"phase": phase}});
        if let Some(init) = more["init"].as_str() {
            pod["spec"]["initContainers"] = json!([container(init)]);
        }
        pod["spec"]["activeDeadlineSeconds"] = more["deadline"].clone();
        of(pod)
    }

    fn view(hard: Value, more: Value) -> View {
        let mut spec = json!({"hard": hard});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        View {
            quota: of(json!({"metadata": {"name": "q"}, "spec": spec})),
            pods: vec![
                pod("Running", "500m", json!({})),
                pod("Pending", "1", json!({"init": "3", "deadline": 60})),
                pod("Succeeded", "9", json!({})),
            ],
            services: vec![
                of(json!({"spec": {"type": "NodePort", "ports": [{"port": 1}, {"port": 2}]}})),
                of(json!({"spec": {}})),
            ],
            claims: vec![of(
                json!({"spec": {"storageClassName": "slow", "resources": {"requests": {"storage": "5Gi"}}}}),
            )],
            counts: BTreeMap::from([("secrets".to_owned(), 4)]),
        }
    }

    #[test]
    fn what_would_free_something_is_noticed() {
        let mut view = view(json!({"pods": "10"}), json!({}));
        for (said, expected) in [("1", false), ("2", false), ("3", true)] {
            let status = json!({"used": {"pods": said}});
            view.quota =
                of(json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": "10"}}, "status": status}));
            assert_eq!(is_lower(&view), expected, "{said}");
        }
    }

    #[test]
    fn each_name_counts_what_it_names() {
        let cases = [
            ("pods", "2"),
            ("count/pods", "3"),
            ("cpu", "3500m"),
            ("requests.cpu", "3500m"),
            ("limits.memory", "2Gi"),
            ("services", "2"),
            ("services.nodeports", "2"),
            ("services.loadbalancers", "0"),
            ("persistentvolumeclaims", "1"),
            ("requests.storage", "5Gi"),
            ("slow.storageclass.storage.k8s.io/requests.storage", "5Gi"),
            ("fast.storageclass.storage.k8s.io/persistentvolumeclaims", "0"),
            ("secrets", "4"),
        ];
        for (name, amount) in cases {
            let plan = plan(&view(json!({name: "10"}), json!({})));
            let status = &plan.status.unwrap().body["status"];
            assert_eq!(status["used"], json!({name: amount}), "{name}");
            assert_eq!(status["hard"], json!({name: "10"}), "{name}");
        }
    }

    #[test]
    fn scopes_choose_pods() {
        for (scope, cpu) in [
            ("Terminating", "3"),
            ("NotTerminating", "500m"),
            ("BestEffort", "0"),
            ("NotBestEffort", "3500m"),
        ] {
            let plan = plan(&view(json!({"cpu": "10"}), json!({"scopes": [scope]})));
            assert_eq!(plan.status.unwrap().body["status"]["used"]["cpu"], cpu, "{scope}");
        }
    }

    #[test]
    fn what_is_so_is_not_written() {
        let mut view = view(json!({"cpu": "10"}), json!({}));
        let mut quota = ResourceQuota::clone(&view.quota);
        quota.status =
            serde_json::from_value(json!({"hard": {"cpu": "10"}, "used": {"cpu": "3.5"}})).unwrap();
        view.quota = Arc::new(quota);
        assert!(plan(&view).is_quiet());
    }
}
