//! ResourceQuota status: how much of each limited resource a namespace uses.
//!
//! ```text
//! spec.hard ──> which names ──> pods, services and claims from the caches, others counted by the server ──> status.used
//! ```
//!
//! Refusing what would go beyond is the apiserver's business. What an object counts as is said in [`api::quota`], for both.

use crate::discovery::discover;
use crate::pods;
use crate::runtime::{Context, Controller, Driver, Plan, Task, Write};
use api::kinds::pod_spec::requests::Amounts;
use api::{Quantity, Value, quota};
use client::{Cache, Key};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuota, Service};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;
use kube::api::{DynamicObject, ListParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use serde::Serialize;
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
pub fn plan(view: &View, now: Timestamp) -> Plan {
    let hard = view.quota.spec.as_ref().and_then(|spec| spec.hard.clone()).unwrap_or_default();
    let used = usage(view, now);
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
fn usage(view: &View, now: Timestamp) -> BTreeMap<String, Amount> {
    let mut quota = serde_json::to_value(&*view.quota).unwrap_or_default();
    quota["status"]["hard"] = quota["spec"]["hard"].take();
    let hard = quota::list(&quota, "status.hard");
    let mut tally =
        Tally { used: hard.keys().map(|name| (name.clone(), Quantity::default())).collect(), quota, now };
    tally.add("pods", &view.pods);
    tally.add("services", &view.services);
    tally.add("persistentvolumeclaims", &view.claims);
    for (name, count) in &view.counts {
        if let Some(used) = tally.used.get_mut(name) {
            *used = Quantity::from_value(i64::try_from(*count).unwrap_or(i64::MAX));
        }
    }
    tally.used.into_iter().map(|(name, amount)| (name, Amount(amount.to_string()))).collect()
}

/// A quota's amounts while objects are added up.
struct Tally {
    quota: Value,
    used: Amounts,
    now: Timestamp,
}

impl Tally {
    /// Adds objects of the core group, unless the quota counts none of them.
    fn add<K: Serialize>(&mut self, plural: &str, objects: &[Arc<K>]) {
        if !self.used.keys().any(|name| quota::tracks("", plural, name)) {
            return;
        }
        for object in objects {
            let object = serde_json::to_value(&**object).unwrap_or_default();
            if !quota::matches(&self.quota, "", plural, &object) {
                continue;
            }
            for (name, amount) in quota::usage("", plural, &object, self.now) {
                if let Some(sum) = self.used.get_mut(&name) {
                    *sum = *sum + amount;
                }
            }
        }
    }
}

/// Whether less is used of anything than the quota says.
fn is_lower(view: &View, now: Timestamp) -> bool {
    let amount = |amount: &Amount| amount.0.parse::<Quantity>().unwrap_or_default();
    let (counted, status) = (usage(view, now), view.quota.status.as_ref());
    let mut said = status.and_then(|status| status.used.as_ref()).into_iter().flatten();
    said.any(|(name, said)| counted.get(name).is_some_and(|counted| amount(counted) < amount(said)))
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
        if is_lower(&view, Timestamp::now()) {
            view.pods = self.listed(&key.namespace).await?;
            view.services = self.listed(&key.namespace).await?;
            view.claims = self.listed(&key.namespace).await?;
        }
        Ok(Some(view))
    }

    fn plan(&self, view: &View, now: Timestamp) -> Plan {
        plan(view, now)
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
    use serde_json::json;

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

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
            assert_eq!(is_lower(&view, now()), expected, "{said}");
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
            let plan = plan(&view(json!({name: "10"}), json!({})), now());
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
            let plan = plan(&view(json!({"cpu": "10"}), json!({"scopes": [scope]})), now());
            assert_eq!(plan.status.unwrap().body["status"]["used"]["cpu"], cpu, "{scope}");
        }
    }

    #[test]
    fn it_counts_what_admission_charges() {
        let mut view = view(json!({"pods": "9", "requests.cpu": "9", "services.nodeports": "9"}), json!({}));
        let far = json!({"namespaces": ["other"], "topologyKey": "zone"});
        let affinity = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [far]}});
        view.pods.push(of(json!({"spec": {"affinity": affinity, "resources": {"requests": {"cpu": "2"}},
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}})));
        let quiet =
            json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false, "ports": [{"port": 1}]});
        view.services.push(of(json!({"spec": quiet})));
        let used = |view: &View| plan(view, now()).status.unwrap().body["status"]["used"].clone();
        assert_eq!(used(&view), json!({"pods": "3", "requests.cpu": "5500m", "services.nodeports": "2"}));

        let scoped = json!({"hard": {"pods": "9"}, "scopes": ["CrossNamespacePodAffinity"]});
        view.quota = of(json!({"metadata": {"name": "q"}, "spec": scoped}));
        assert_eq!(used(&view), json!({"pods": "1"}));
    }

    #[test]
    fn what_is_so_is_not_written() {
        let mut view = view(json!({"cpu": "10"}), json!({}));
        let mut quota = ResourceQuota::clone(&view.quota);
        quota.status =
            serde_json::from_value(json!({"hard": {"cpu": "10"}, "used": {"cpu": "3.5"}})).unwrap();
        view.quota = Arc::new(quota);
        assert!(plan(&view, now()).is_quiet());
    }
}
