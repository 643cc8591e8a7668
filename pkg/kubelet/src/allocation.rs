//! What the node has given to its pods. One that asks for another size keeps what it has until there is room.
//!
//! ```text
//! Share (asks, has) of each pod ──> decide ──> granted ──> plan_pod brings it into force
//!                                         └──> pending: Deferred (asked again) or Infeasible
//! ```
//!
//! What a pod has is written down with its sandbox ([`ALLOCATED`]), so that another kubelet goes on from there.

use crate::admission::{self, Rejection};
use crate::node::Pressure;
use crate::plan::{Kind, containers_of};
use crate::runtime::PodView;
use api::Quantity;
use api::kinds::pod_spec::requests::{pod_requests, qos_class};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, PodStatus, ResourceRequirements};
use serde::Serialize;
use serde_json::Value;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The annotation of a sandbox that holds what its pod's containers have been given.
pub const ALLOCATED: &str = "minik8s.io/allocated";

/// The resources whose amounts can change while a container runs.
pub(crate) const RESIZABLE: [&str; 2] = ["cpu", "memory"];

/// What the containers of a pod have been given, by name: those that can be given something else.
pub type Allocation = BTreeMap<String, ResourceRequirements>;

/// Why a pod does not have what it asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// `Deferred`: there may be room later. `Infeasible`: there never will be.
    pub reason: &'static str,
    /// For people.
    pub message: String,
    /// The generation of the pod that asks.
    pub generation: Option<i64>,
    /// Since when it waits.
    pub since: Timestamp,
}

impl Pending {
    /// What an earlier kubelet said of a pod.
    pub fn said(status: &PodStatus) -> Option<Pending> {
        let conditions = status.conditions.as_ref()?;
        let said = conditions.iter().find(|condition| condition.type_ == "PodResizePending")?;
        Some(Pending {
            reason: ["Deferred", "Infeasible"]
                .into_iter()
                .find(|name| said.reason.as_deref() == Some(*name))?,
            message: said.message.clone().unwrap_or_default(),
            generation: said.observed_generation,
            since: said.last_transition_time.as_ref()?.0,
        })
    }
}

/// A pod's share of the node.
#[derive(Debug, Clone)]
pub struct Share {
    /// The pod, asking for what it asks for.
    pub pod: Arc<Pod>,
    /// What it has; not known before somebody has looked at what runs.
    pub allocated: Option<Allocation>,
    /// The generation of the pod that was given this, if it is not what the pod was let in with.
    pub generation: Option<i64>,
    /// Why it does not have what it asks for.
    pub pending: Option<Pending>,
    asks: bool,
}

impl Share {
    /// Of a pod that has all it asks for, or of which that is not known yet.
    pub fn new(pod: Arc<Pod>, is_new: bool) -> Share {
        let allocated = is_new.then(|| of(&pod));
        Share { pod, allocated, generation: None, pending: None, asks: false }
    }

    /// The pod is another one now, and may ask for something else.
    pub fn ask(&mut self, pod: Arc<Pod>) {
        self.pod = pod;
        self.compare();
    }

    /// The pod has this now.
    pub fn give(&mut self, allocation: Allocation) {
        self.allocated = Some(allocation);
        self.compare();
    }

    fn compare(&mut self) {
        let given = self.allocated.as_ref();
        self.asks = given.is_some_and(|allocation| !is_given(&self.pod, allocation));
        if !self.asks {
            self.pending = None;
        }
    }

    /// The pod with the resources that it has.
    pub fn in_force(&self) -> Arc<Pod> {
        match &self.allocated {
            Some(allocation) => applied(&self.pod, allocation),
            // Until then an earlier kubelet's word counts.
            None => applied(&self.pod, &said(&self.pod)),
        }
    }

    /// Whether it asks for something else than it has.
    pub fn asks(&self) -> bool {
        self.asks
    }
}

/// What is decided about a pod that asks for another size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It has it now.
    Granted,
    /// It does not: a reason and a message.
    Refused(&'static str, String),
}

/// Decides about all that ask, in the order in which they are served: who gives back, then by priority, class of service
/// and waiting time. What is granted is in their shares at once.
pub fn decide(
    shares: &mut BTreeMap<String, Share>,
    node: &Node,
    pressure: Pressure,
) -> Vec<(String, Verdict)> {
    let mut asking: Vec<_> = shares.iter().filter(|(_, share)| share.asks()).collect();
    asking.sort_by_key(|(_, share)| order(share));
    let asking: Vec<String> = asking.into_iter().map(|(uid, _)| uid.clone()).collect();
    let mut verdicts = Vec::new();
    for uid in asking {
        let others: Vec<Arc<Pod>> =
            shares.iter().filter(|(other, _)| **other != uid).map(|(_, share)| share.in_force()).collect();
        let Some(share) = shares.get_mut(&uid) else { continue };
        let verdict = verdict(&share.pod, &others, node, pressure);
        if verdict == Verdict::Granted {
            share.give(of(&share.pod));
        }
        verdicts.push((uid, verdict));
    }
    verdicts
}

fn order(share: &Share) -> (bool, Reverse<i32>, bool, (bool, Option<Timestamp>)) {
    let (asks, has) = (requests(&share.pod), requests(&share.in_force()));
    let grows = RESIZABLE.iter().any(|name| asks.get(*name) > has.get(*name));
    let priority = share.pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
    let is_guaranteed = qos_class(&spec_of(&share.pod)) == "Guaranteed";
    let since = share.pending.as_ref().map(|pending| pending.since);
    (grows, Reverse(priority), !is_guaranteed, (since.is_none(), since))
}

fn verdict(pod: &Pod, others: &[Arc<Pod>], node: &Node, pressure: Pressure) -> Verdict {
    let capacity = node.status.as_ref().and_then(|status| status.capacity.as_ref());
    let wanted = requests(pod);
    for (name, value) in [("memory", Quantity::value as fn(&Quantity) -> i64), ("cpu", Quantity::milli_value)]
    {
        let most = capacity.and_then(|all| all.get(name)?.0.parse::<Quantity>().ok());
        let (wanted, most) = (wanted.get(name).map_or(0, value), most.as_ref().map_or(0, value));
        if wanted > most {
            let message =
                format!("Node didn't have enough capacity: {name}, requested: {wanted}, capacity: {most}");
            return Verdict::Refused("Infeasible", message);
        }
    }
    match admission::admit(pod, others, Some(node), pressure) {
        Ok(()) => Verdict::Granted,
        Err(Rejection { message, .. }) => Verdict::Refused("Deferred", message),
    }
}

fn spec_of(pod: &Pod) -> Value {
    pod.spec.as_ref().and_then(|spec| serde_json::to_value(spec).ok()).unwrap_or_default()
}

fn requests(pod: &Pod) -> BTreeMap<String, Quantity> {
    pod_requests(&spec_of(pod))
}

/// Whether a container can be given something else while its pod runs.
pub(crate) fn is_resizable(kind: Kind) -> bool {
    matches!(kind, Kind::Regular | Kind::Sidecar)
}

/// What a pod asks for.
pub fn of(pod: &Pod) -> Allocation {
    let containers = containers_of(pod).into_iter().filter(|(kind, _)| is_resizable(*kind));
    containers
        .map(|(_, container)| (container.name.clone(), container.resources.clone().unwrap_or_default()))
        .collect()
}

/// What a pod has as its status says.
fn said(pod: &Pod) -> Allocation {
    let status = pod.status.as_ref();
    let lists = status.map(|status| [&status.container_statuses, &status.init_container_statuses]);
    let mut said = of(pod);
    for status in lists.into_iter().flatten().flatten().flatten() {
        if let (Some(has), Some(requests)) = (said.get_mut(&status.name), &status.allocated_resources) {
            has.requests = Some(requests.clone());
        }
    }
    said
}

/// An allocation as it is written down.
pub fn written(allocation: &Allocation) -> String {
    serde_json::to_string(allocation).expect("amounts are plain data")
}

/// What is written down with the sandbox of a pod.
pub fn recorded(view: &PodView) -> Option<Allocation> {
    let newest = view.sandboxes.iter().max_by_key(|sandbox| sandbox.spec.attempt)?;
    serde_json::from_str(newest.spec.annotations.get(ALLOCATED)?).ok()
}

/// A pod with other resources than it asks for; the same one if they are the same.
pub fn applied(pod: &Arc<Pod>, allocation: &Allocation) -> Arc<Pod> {
    if is_given(pod, allocation) {
        return pod.clone();
    }
    let mut pod = (**pod).clone();
    if let Some(spec) = &mut pod.spec {
        for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
            if let Some(given) = allocation.get(&container.name) {
                container.resources = Some(given.clone());
            }
        }
    }
    Arc::new(pod)
}

/// Whether a pod has been given what it asks for.
fn is_given(pod: &Pod, allocation: &Allocation) -> bool {
    of(pod).iter().all(|(name, asked)| allocation.get(name).is_none_or(|given| is_same(given, asked)))
}

/// Whether two containers may use as much of what can change.
pub(crate) fn is_same(one: &ResourceRequirements, other: &ResourceRequirements) -> bool {
    RESIZABLE
        .iter()
        .all(|name| limit(one, name) == limit(other, name) && request(one, name) == request(other, name))
}

/// What a container may use of a resource.
pub(crate) fn limit(resources: &ResourceRequirements, name: &str) -> Option<Quantity> {
    resources.limits.as_ref()?.get(name)?.0.parse().ok()
}

/// What a container asks for of a resource.
pub(crate) fn request(resources: &ResourceRequirements, name: &str) -> Option<Quantity> {
    resources.requests.as_ref()?.get(name)?.0.parse().ok()
}

/// What an event about a change of size says: upstream's words, and what the containers are to have.
pub fn event_message(words: &str, pod: &Pod, generation: Option<i64>, error: Option<&str>) -> String {
    #[derive(Serialize)]
    struct Given {
        name: String,
        resources: ResourceRequirements,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Summary<'a> {
        #[serde(skip_serializing_if = "Vec::is_empty")]
        init_containers: Vec<Given>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        containers: Vec<Given>,
        generation: i64,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<&'a str>,
    }
    let (init, rest): (Vec<_>, Vec<_>) = containers_of(pod)
        .into_iter()
        .filter(|(kind, _)| *kind != Kind::Ephemeral)
        .partition(|(kind, _)| *kind != Kind::Regular);
    let given = |list: Vec<(Kind, std::borrow::Cow<'_, k8s_openapi::api::core::v1::Container>)>| {
        list.into_iter()
            .map(|(_, container)| Given {
                name: container.name.clone(),
                resources: container.resources.clone().unwrap_or_default(),
            })
            .collect()
    };
    let summary = Summary {
        init_containers: given(init),
        containers: given(rest),
        generation: generation.unwrap_or_default(),
        error,
    };
    format!("{words}: {}", serde_json::to_string(&summary).expect("amounts are plain data"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, cpu: &str, priority: i32) -> Arc<Pod> {
        let container = json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
        let pod = json!({"metadata": {"name": name, "uid": name, "generation": 2},
            "spec": {"priority": priority, "containers": [container]}});
        Arc::new(serde_json::from_value(pod).expect("a pod"))
    }

    fn share(name: &str, has: &str, asks: &str, priority: i32) -> (String, Share) {
        let mut share = Share::new(pod(name, has, priority), true);
        share.ask(pod(name, asks, priority));
        (name.to_owned(), share)
    }

    /// A node with two cores, of which pods may use one and a half.
    fn node() -> Node {
        let status = json!({"capacity": {"cpu": "2", "memory": "1Gi"},
            "allocatable": {"cpu": "1500m", "memory": "1Gi", "pods": "10"}});
        serde_json::from_value(json!({"metadata": {"name": "n"}, "status": status})).expect("a node")
    }

    #[track_caller]
    fn check(shares: &[(String, Share)], expected: &[(&str, &str)]) {
        let mut shares = shares.iter().cloned().collect();
        let verdicts = decide(&mut shares, &node(), Pressure::default());
        let said: Vec<(&str, String)> = verdicts
            .iter()
            .map(|(uid, verdict)| match verdict {
                Verdict::Granted => (uid.as_str(), "granted".to_owned()),
                Verdict::Refused(reason, message) => (uid.as_str(), format!("{reason} {message}")),
            })
            .collect();
        let said: Vec<(&str, &str)> = said.iter().map(|(uid, said)| (*uid, said.as_str())).collect();
        assert_eq!(said, expected);
        for (uid, verdict) in verdicts.iter().filter(|(_, verdict)| *verdict == Verdict::Granted) {
            assert!(!shares[uid].asks(), "{verdict:?} is in force");
        }
    }

    #[test]
    fn who_asks_for_another_size_gets_it_if_there_is_room() {
        check(&[share("a", "500m", "500m", 0)], &[]);
        check(&[share("a", "500m", "1", 0), share("b", "500m", "500m", 0)], &[("a", "granted")]);
        let taken =
            "Deferred Node didn't have enough resource: cpu, requested: 1100, used: 500, capacity: 1500";
        check(&[share("a", "500m", "1100m", 0), share("b", "500m", "500m", 0)], &[("a", taken)]);
        let never = "Infeasible Node didn't have enough capacity: cpu, requested: 2001, capacity: 2000";
        check(&[share("a", "500m", "2001m", 0)], &[("a", never)]);
    }

    #[test]
    fn who_gives_back_comes_first_and_then_who_matters_most() {
        let shares =
            [share("a", "200m", "700m", 0), share("b", "200m", "700m", 7), share("c", "1100m", "300m", 0)];
        let taken =
            "Deferred Node didn't have enough resource: cpu, requested: 700, used: 1000, capacity: 1500";
        check(&shares, &[("c", "granted"), ("b", "granted"), ("a", taken)]);
        let mut waits =
            [share("a", "200m", "700m", 0), share("b", "200m", "700m", 0), share("c", "700m", "700m", 0)];
        for (index, since) in [(0, 9), (1, 5)] {
            waits[index].1.pending = Some(Pending {
                reason: "Deferred",
                message: String::new(),
                generation: None,
                since: Timestamp::from_second(since).expect("a time"),
            });
        }
        let taken =
            "Deferred Node didn't have enough resource: cpu, requested: 700, used: 1400, capacity: 1500";
        check(
            &waits,
            &[("b", taken.replace("1400", "900").as_str()), ("a", taken.replace("1400", "900").as_str())],
        );
    }

    #[test]
    fn nothing_is_decided_before_it_is_known_what_a_pod_has() {
        let mut given = (*pod("a", "1", 0)).clone();
        given.status = serde_json::from_value(json!({"containerStatuses": [{"name": "c", "image": "",
            "imageID": "", "ready": true, "restartCount": 0, "allocatedResources": {"cpu": "300m"}}]}))
        .expect("a status");
        let unknown = Share::new(Arc::new(given), false);
        // Its status tells what it takes from others.
        check(&[("a".to_owned(), unknown), share("b", "1", "1200m", 0)], &[("b", "granted")]);
    }

    #[test]
    fn events_say_what_containers_are_to_have() {
        let message = event_message("Pod resize started", &pod("a", "1", 0), Some(2), None);
        let expected = r#"Pod resize started: {"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}],"generation":2}"#;
        assert_eq!(message, expected);
        let message = event_message("Pod resize error", &pod("a", "1", 0), Some(2), Some("no"));
        assert!(message.ends_with(r#","generation":2,"error":"no"}"#), "{message}");
    }

    #[test]
    fn what_a_pod_has_is_found_again() {
        let has = of(&pod("a", "500m", 0));
        let found: Allocation = serde_json::from_str(&written(&has)).expect("it reads what it writes");
        let asks = pod("a", "1", 0);
        let in_force = applied(&asks, &found);
        assert_eq!(of(&in_force), has);
        assert!(Arc::ptr_eq(&applied(&in_force, &found), &in_force), "the same one");
    }
}
