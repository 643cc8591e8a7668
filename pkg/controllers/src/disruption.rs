//! PodDisruptionBudgets: how many pods may be evicted now.
//!
//! ```text
//! pods that the selector matches ──> healthy − needed = allowed ──> status, which evictions take from
//! ```

use crate::int_or_percent::{self, Round};
use crate::pods;
use crate::runtime::{Context, Controller, Driver, Note, Plan, Task, Write, controller_of, owner_key};
use client::{Cache, Key, reference};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// An eviction that was allowed and has not happened for so long does not happen.
const EVICTION_TIMEOUT: SignedDuration = SignedDuration::from_secs(120);

/// Keeps the status of PodDisruptionBudgets.
pub fn start(context: &Context) -> Task {
    let informers = &context.informers;
    let (budgets, all_pods) = (informers.cache::<PodDisruptionBudget>(), pods::cache(informers));
    let controller = Budgets {
        budgets: budgets.clone(),
        pods: all_pods.clone(),
        replica_sets: informers.cache(),
        deployments: informers.cache(),
        stateful_sets: informers.cache(),
        replication_controllers: informers.cache(),
    };
    let of_pods = budgets.clone();
    let mut driver = Driver::new(context, controller).owns(&budgets).watches(&all_pods, move |change| {
        let of = |pod: &Arc<Pod>| {
            let mut budgets = of_pods.in_namespace(&pod.namespace().unwrap_or_default());
            budgets.retain(|budget| selects(budget, pod));
            budgets.into_iter().map(|budget| Key::of(budget.as_ref()))
        };
        let mut keys: Vec<Key> = [&change.old, &change.new].into_iter().flatten().flat_map(of).collect();
        keys.dedup();
        keys
    });
    // What is needed of a share depends on how many there should be.
    driver =
        driver.reads(&informers.cache::<ReplicaSet>()).reads(&informers.cache::<ReplicationController>());
    let in_namespace = |budgets: Cache<PodDisruptionBudget>| {
        move |namespace: String| -> Vec<Key> {
            budgets.in_namespace(&namespace).iter().map(|budget| Key::of(budget.as_ref())).collect()
        }
    };
    let (of_deployments, of_sets) = (in_namespace(budgets.clone()), in_namespace(budgets));
    driver
        .watches(&informers.cache::<Deployment>(), move |change| match (&change.old, &change.new) {
            (Some(old), Some(new)) if old.metadata.generation == new.metadata.generation => Vec::new(),
            _ => of_deployments(change.key().namespace),
        })
        .watches(&informers.cache::<StatefulSet>(), move |change| match (&change.old, &change.new) {
            (Some(old), Some(new)) if old.metadata.generation == new.metadata.generation => Vec::new(),
            _ => of_sets(change.key().namespace),
        })
        .task()
}

fn selects(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    selector.is_some_and(|selector| pods::selects(&pods::selector(selector), pod))
}

struct Budgets {
    budgets: Cache<PodDisruptionBudget>,
    pods: Cache<Pod>,
    replica_sets: Cache<ReplicaSet>,
    deployments: Cache<Deployment>,
    stateful_sets: Cache<StatefulSet>,
    replication_controllers: Cache<ReplicationController>,
}

/// A budget and its pods.
pub struct View {
    /// The budget.
    pub budget: Arc<PodDisruptionBudget>,
    /// The pods that it matches.
    pub pods: Vec<Arc<Pod>>,
    /// How many pods their controllers should have, or why that is not known.
    pub scale: Result<i32, String>,
}

impl Controller for Budgets {
    type View = View;

    async fn observe(&self, key: &Key) -> kube::Result<Option<View>> {
        let Some(budget) = self.budgets.get(key) else { return Ok(None) };
        let mut pods = self.pods.in_namespace(&key.namespace);
        pods.retain(|pod| selects(&budget, pod));
        let scale = self.scale(&pods);
        Ok(Some(View { budget, pods, scale }))
    }

    fn plan(&self, view: &View, now: Timestamp) -> Plan {
        plan(view, now)
    }
}

impl Budgets {
    /// The sum of what the controllers of these pods should have.
    fn scale(&self, pods: &[Arc<Pod>]) -> Result<i32, String> {
        let mut controllers: BTreeMap<String, i32> = BTreeMap::new();
        for pod in pods {
            let name = pod.name_any();
            let Some(owner) = controller_of(pod.as_ref()) else {
                return Err(format!("found no controllers for pod {name:?}"));
            };
            if !controllers.contains_key(&owner.uid) {
                let (uid, replicas) = self.controller(pod).ok_or_else(|| {
                    format!(
                        "found no controllers for pod {name:?}: {} {:?} has no scale",
                        owner.kind, owner.name
                    )
                })?;
                controllers.insert(uid, replicas);
            }
        }
        Ok(controllers.values().sum())
    }

    fn controller(&self, pod: &Pod) -> Option<(String, i32)> {
        if let Some(set) = owner_key::<ReplicaSet>(pod).and_then(|key| self.replica_sets.get(&key)) {
            let deployment = owner_key::<Deployment>(set.as_ref()).and_then(|key| self.deployments.get(&key));
            return match deployment {
                Some(deployment) => {
                    Some((deployment.uid()?, deployment.spec.as_ref()?.replicas.unwrap_or(1)))
                }
                None => Some((set.uid()?, set.spec.as_ref()?.replicas.unwrap_or(1))),
            };
        }
        if let Some(set) = owner_key::<StatefulSet>(pod).and_then(|key| self.stateful_sets.get(&key)) {
            return Some((set.uid()?, set.spec.as_ref()?.replicas.unwrap_or(1)));
        }
        let set =
            owner_key::<ReplicationController>(pod).and_then(|key| self.replication_controllers.get(&key))?;
        Some((set.uid()?, set.spec.as_ref()?.replicas.unwrap_or(1)))
    }
}

/// What to do about a budget.
pub fn plan(view: &View, now: Timestamp) -> Plan {
    let budget = view.budget.as_ref();
    let mut plan = Plan::default();
    let old = budget.status.clone().unwrap_or_default();
    let status = match needed(view) {
        Ok((expected, desired)) => {
            let (disrupted, look_again) = still_disrupted(&old, &view.pods, now);
            plan.look_again = look_again;
            let is_disrupted = |pod: &Pod| disrupted.contains_key(&pod.name_any());
            let healthy = view
                .pods
                .iter()
                .filter(|pod| !pods::is_going(pod.as_ref()) && !is_disrupted(pod) && pods::is_ready(pod));
            let healthy = i32::try_from(healthy.count()).unwrap_or(i32::MAX);
            let allowed = if expected > 0 { (healthy - desired).max(0) } else { 0 };
            PodDisruptionBudgetStatus {
                current_healthy: healthy,
                desired_healthy: desired,
                expected_pods: expected,
                disruptions_allowed: allowed,
                disrupted_pods: Some(disrupted).filter(|disrupted| !disrupted.is_empty()),
                observed_generation: budget.metadata.generation,
                conditions: old.conditions.clone(),
            }
        }
        Err(why) => {
            let message = format!("Failed to calculate the number of expected pods: {why}");
            plan.tell(Note::warning(reference(budget), "CalculateExpectedPodCountFailed", message));
            // As long as it is not known, nothing is evicted.
            PodDisruptionBudgetStatus {
                disruptions_allowed: 0,
                observed_generation: budget.metadata.generation,
                ..old.clone()
            }
        }
    };
    let status = with_condition(status, view, now);
    if status != old {
        let mut copy = budget.clone();
        copy.status = Some(status);
        plan.status = Some(Write::update_status(&copy));
    } else {
        // It was told when it was found.
        plan.events.clear();
    }
    plan
}

/// How many pods there should be, and how many of them healthy.
fn needed(view: &View) -> Result<(i32, i32), String> {
    let spec = view.budget.spec.clone().unwrap_or_default();
    let present = i32::try_from(view.pods.len()).unwrap_or(i32::MAX);
    if let Some(most) = &spec.max_unavailable {
        let expected = view.scale.clone()?;
        return Ok((expected, (expected - int_or_percent::of(Some(most), expected, Round::Up)).max(0)));
    }
    match &spec.min_available {
        Some(IntOrString::Int(least)) => Ok((present, *least)),
        Some(share) => {
            let expected = view.scale.clone()?;
            Ok((expected, int_or_percent::of(Some(share), expected, Round::Up)))
        }
        None => Ok((present, 0)),
    }
}

/// The evictions that were allowed and may still happen, and when the next of them no longer may.
fn still_disrupted(
    old: &PodDisruptionBudgetStatus,
    pods: &[Arc<Pod>],
    now: Timestamp,
) -> (BTreeMap<String, Time>, Option<Duration>) {
    let mut disrupted = BTreeMap::new();
    let mut look_again = None;
    for (name, at) in old.disrupted_pods.iter().flatten() {
        let is_there = pods.iter().any(|pod| &pod.name_any() == name && !pods::is_going(pod.as_ref()));
        let left = Duration::try_from((at.0 + EVICTION_TIMEOUT).duration_since(now)).ok();
        if let Some(left) = left.filter(|left| is_there && !left.is_zero()) {
            disrupted.insert(name.clone(), at.clone());
            look_again = Some(look_again.map_or(left, |other: Duration| other.min(left)));
        }
    }
    (disrupted, look_again)
}

fn with_condition(
    mut status: PodDisruptionBudgetStatus,
    view: &View,
    now: Timestamp,
) -> PodDisruptionBudgetStatus {
    let (is, reason, message) = match needed(view) {
        Err(why) => ("False", "SyncFailed", why),
        Ok(_) if status.disruptions_allowed > 0 => ("True", "SufficientPods", String::new()),
        Ok(_) => ("False", "InsufficientPods", String::new()),
    };
    let conditions = status.conditions.get_or_insert_default();
    let old = conditions.iter().find(|condition| condition.type_ == "DisruptionAllowed").cloned();
    let since =
        old.as_ref().filter(|old| old.status == is).map_or(Time(now), |old| old.last_transition_time.clone());
    let condition = Condition {
        type_: "DisruptionAllowed".into(),
        status: is.into(),
        reason: reason.into(),
        message,
        last_transition_time: since,
        observed_generation: status.observed_generation,
    };
    conditions.retain(|condition| condition.type_ != "DisruptionAllowed");
    conditions.push(condition);
    status
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(name: &str, ready: bool) -> Arc<Pod> {
        let ready = if ready { "True" } else { "False" };
        let pod = json!({"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": ready}]}});
        Arc::new(serde_json::from_value(pod).expect("a pod"))
    }

    fn plan_of(spec: Value, status: Value, ready: usize, unready: usize, scale: Result<i32, String>) -> Plan {
        let budget = json!({"metadata": {"name": "b", "namespace": "default", "generation": 1}, "spec": spec, "status": status});
        let budget = Arc::new(serde_json::from_value(budget).expect("a budget"));
        let pods = (0..ready + unready).map(|number| pod(&format!("p{number}"), number < ready)).collect();
        plan(&View { budget, pods, scale }, "2026-01-01T00:01:00Z".parse().expect("a time"))
    }

    #[test]
    fn what_is_not_needed_may_go() {
        // The budget; ready and unready pods; how many there should be; then healthy, desired, expected, allowed.
        let cases: &[(Value, usize, usize, i32, [i32; 4])] = &[
            (json!({"minAvailable": 2}), 3, 0, 3, [3, 2, 3, 1]),
            (json!({"minAvailable": 2}), 1, 2, 3, [1, 2, 3, 0]),
            (json!({"minAvailable": "50%"}), 4, 0, 5, [4, 3, 5, 1]),
            (json!({"maxUnavailable": 1}), 3, 0, 3, [3, 2, 3, 1]),
            (json!({"maxUnavailable": "34%"}), 3, 0, 3, [3, 1, 3, 2]),
            (json!({"maxUnavailable": 1}), 2, 1, 3, [2, 2, 3, 0]),
            (json!({"maxUnavailable": 1}), 0, 0, 0, [0, 0, 0, 0]),
        ];
        for (spec, ready, unready, scale, expected) in cases {
            let plan = plan_of(spec.clone(), Value::Null, *ready, *unready, Ok(*scale));
            let status = &plan.status.expect("a status").body["status"];
            let found = ["currentHealthy", "desiredHealthy", "expectedPods", "disruptionsAllowed"]
                .map(|key| status[key].clone());
            assert_eq!(found, expected.map(|number| json!(number)), "{spec} {ready} {unready}");
        }
    }

    #[test]
    fn an_allowed_eviction_counts_until_it_happened_or_did_not() {
        let status = |at: &str| json!({"disruptedPods": {"p0": at, "gone": at}, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0, "disruptionsAllowed": 0});
        let fresh = plan_of(json!({"minAvailable": 1}), status("2026-01-01T00:00:00Z"), 3, 0, Ok(3));
        assert_eq!(fresh.look_again, Some(Duration::from_secs(60)));
        let body = fresh.status.expect("a status").body;
        assert_eq!(
            (&body["status"]["currentHealthy"], &body["status"]["disruptionsAllowed"]),
            (&json!(2), &json!(1))
        );
        assert_eq!(body["status"]["disruptedPods"], json!({"p0": "2026-01-01T00:00:00Z"}));
        let stale = plan_of(json!({"minAvailable": 1}), status("2025-12-31T23:58:00Z"), 3, 0, Ok(3));
        assert_eq!(stale.status.expect("a status").body["status"]["disruptionsAllowed"], 2);
    }

    #[test]
    fn what_is_not_known_forbids_evictions() {
        let plan = plan_of(
            json!({"maxUnavailable": 1}),
            json!({"disruptionsAllowed": 5, "currentHealthy": 5, "desiredHealthy": 0, "expectedPods": 5}),
            3,
            0,
            Err("why".into()),
        );
        let status = &plan.status.expect("a status").body["status"];
        assert_eq!(status["disruptionsAllowed"], 0);
        assert_eq!(status["conditions"][0]["reason"], "SyncFailed");
    }
}
