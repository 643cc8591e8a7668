//! What controllers of pods ask of a pod, and how a pod is made from a template.

use crate::runtime::{Note, Write, controller_of, owner_key, owner_reference};
use api::selector::LabelSelector;
use client::{Cache, Change, Informers, Key, reference};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod, PodCondition, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{self as meta, ObjectMeta};
use kube::{Resource, ResourceExt};
use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

/// All pods, without what no controller reads: a whole one takes twenty kilobytes of memory, half of them for the volume with
/// its credentials. So a pod of this cache is never sent back whole; see [`Write::merge_patch`].
pub fn cache(informers: &Informers) -> Cache<Pod> {
    informers.cache_pruned(prune)
}

fn prune(pod: &mut Pod) {
    if let Some(spec) = &mut pod.spec {
        let claims = spec.volumes.take().unwrap_or_default().into_iter();
        let claims = claims.filter(|it| it.persistent_volume_claim.is_some() || it.ephemeral.is_some());
        spec.volumes = Some(claims.collect::<Vec<_>>()).filter(|claims| !claims.is_empty());
        for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
            let whole = std::mem::take(container);
            *container = Container {
                name: whole.name,
                ports: whole.ports,
                resources: whole.resources,
                restart_policy: whole.restart_policy,
                ..Container::default()
            };
        }
        spec.ephemeral_containers = None;
        // They are decoded into room for four.
        spec.tolerations.iter_mut().for_each(Vec::shrink_to_fit);
    }
    if let Some(status) = &mut pod.status {
        status.container_statuses.iter_mut().for_each(Vec::shrink_to_fit);
        status.init_container_statuses.iter_mut().for_each(Vec::shrink_to_fit);
    }
}

/// The index of pods by their controller's uid; those without one by [`orphans`].
pub const BY_CONTROLLER: &str = "controller";

/// Where pods of a namespace without a controller are in the index.
pub fn orphans(namespace: &str) -> String {
    format!("orphans in {namespace}")
}

/// Lets objects be found by their controller.
pub fn index_by_controller<K>(cache: &Cache<K>)
where
    K: Resource<DynamicType = ()> + std::fmt::Debug + Send + Sync + 'static,
{
    cache.index(BY_CONTROLLER, |object| {
        vec![match controller_of(object) {
            Some(owner) => owner.uid.clone(),
            None => orphans(&object.namespace().unwrap_or_default()),
        }]
    });
}

/// What an owner controls, and what in its namespace nobody does: what it may claim.
pub fn claimable<K>(cache: &Cache<K>, owner: &impl Resource) -> Vec<Arc<K>>
where
    K: Resource<DynamicType = ()> + std::fmt::Debug + Send + Sync + 'static,
{
    let mut found = cache.by(BY_CONTROLLER, owner.meta().uid.as_deref().unwrap_or_default());
    found.extend(cache.by(BY_CONTROLLER, &orphans(&owner.namespace().unwrap_or_default())));
    found
}

/// The owners of the kind `O` that a change concerns: that of the object as it is and as it was, and, of one that has no
/// controller, all that `select` it.
pub fn owners<O, K>(change: &Change<K>, sets: &Cache<O>, selects: impl Fn(&O, &K) -> bool) -> Vec<Key>
where
    O: Resource<DynamicType = ()> + std::fmt::Debug + Send + Sync + 'static,
    K: Resource<DynamicType = ()>,
{
    let objects = [&change.old, &change.new];
    let mut keys: Vec<Key> =
        objects.into_iter().flatten().filter_map(|object| owner_key::<O>(object.as_ref())).collect();
    keys.dedup();
    if let Some(new) = &change.new
        && controller_of(new.as_ref()).is_none()
    {
        let sets = sets.in_namespace(&new.namespace().unwrap_or_default());
        keys.extend(sets.iter().filter(|set| selects(set, new)).map(|set| Key::of(set.as_ref())));
    }
    keys
}

/// A selector of an object; one that is not understood selects nothing.
pub fn selector(selector: &meta::LabelSelector) -> LabelSelector {
    let json = serde_json::to_value(selector).unwrap_or_default();
    LabelSelector::from_json(&json).unwrap_or_else(|_| LabelSelector::nothing())
}

/// Whether a selector matches an object's labels.
pub fn selects(selector: &LabelSelector, object: &impl Resource) -> bool {
    static NONE: std::collections::BTreeMap<String, String> = std::collections::BTreeMap::new();
    selector.matches(object.meta().labels.as_ref().unwrap_or(&NONE))
}

/// A number as upstream writes it: zero is left out.
pub fn nonzero<N: Default + PartialEq>(number: N) -> Option<N> {
    (number != N::default()).then_some(number)
}

/// The phase; empty where there is none yet.
pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Whether it has ended.
pub fn is_finished(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Whether it is on its way out.
pub fn is_going(object: &impl Resource) -> bool {
    object.meta().deletion_timestamp.is_some()
}

/// Whether it counts as a replica: neither finished nor going.
pub fn is_active(pod: &Pod) -> bool {
    !is_finished(pod) && !is_going(pod)
}

/// Whether it is going and has not finished.
pub fn is_terminating(pod: &Pod) -> bool {
    !is_finished(pod) && is_going(pod)
}

/// A condition of a pod.
pub fn condition<'a>(pod: &'a Pod, ty: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == ty)
}

/// Whether it is ready.
pub fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|ready| ready.status == "True")
}

/// Since when it is ready.
pub fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let ready = condition(pod, "Ready").filter(|ready| ready.status == "True")?;
    ready.last_transition_time.as_ref().map(|time| time.0)
}

/// Whether it has been ready for long enough.
pub fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    is_ready(pod) && until_available(pod, min_ready_seconds, now).is_none()
}

/// How long a ready pod has yet to be ready before it is available; `None` if it is, or is not ready.
pub fn until_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> Option<Duration> {
    if min_ready_seconds <= 0 || !is_ready(pod) {
        return None;
    }
    let since = ready_since(pod).unwrap_or(now);
    let left = since + SignedDuration::from_secs(min_ready_seconds.into()) - now;
    let left = Duration::try_from(SignedDuration::try_from(left).ok()?).ok()?;
    // Timestamps are whole seconds, so "after" begins a moment later.
    (!left.is_zero()).then(|| left + Duration::from_millis(1))
}

/// When the next of these becomes available by waiting.
pub fn next_available<'a>(
    pods: impl IntoIterator<Item = &'a Arc<Pod>>,
    min_ready_seconds: i32,
    now: Timestamp,
) -> Option<Duration> {
    pods.into_iter().filter_map(|pod| until_available(pod, min_ready_seconds, now)).min()
}

/// A pod of a template, whose controller is `owner`. It has no name yet, but the prefix of one.
pub fn from_template<K: Resource<DynamicType = ()>>(template: &PodTemplateSpec, owner: &K) -> Pod {
    let template_meta = template.metadata.clone().unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(name_prefix(&owner.name_any())),
            namespace: owner.namespace(),
            labels: template_meta.labels,
            annotations: template_meta.annotations,
            finalizers: template_meta.finalizers,
            owner_references: Some(vec![owner_reference(owner)]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

/// The prefix of the names of an owner's pods.
pub fn name_prefix(owner: &str) -> String {
    // With a dash it may be no name, of an owner with a very long one.
    if owner.len() + 1 > 253 { owner.to_owned() } else { format!("{owner}-") }
}

/// Creates a pod, and tells so in the name of its owner.
pub fn create<K: Resource<DynamicType = ()>>(pod: &Pod, owner: &K) -> Write {
    Write::create(pod).told(
        Note::normal(reference(owner), "SuccessfulCreate", "Created pod: {name}"),
        Note::warning(reference(owner), "FailedCreate", "Error creating: {error}"),
    )
}

/// Deletes a pod, and tells so in the name of its owner.
pub fn delete<K: Resource<DynamicType = ()>>(pod: &Pod, owner: &K) -> Write {
    Write::delete(pod).told(
        Note::normal(reference(owner), "SuccessfulDelete", "Deleted pod: {name}"),
        Note::warning(reference(owner), "FailedDelete", "Error deleting: {error}"),
    )
}

/// Which of the active pods go first when there are too many: those with the smallest of these, as upstream ranks them.
/// `doubled` says how many pods of the same owner share its node.
///
/// Upstream compares two by two, and not consistently: of pods about as old (within a power of two), those of the same
/// second go on to be compared by restarts, others are decided by uid at once, so that a may go before b, b before c and c
/// before a. Go's sorting takes that; Rust's panics. Here those about as old are all compared further, and the uid comes
/// last.
pub fn deletion_order(pod: &Pod, doubled: usize, now: Timestamp) -> impl Ord + use<> {
    let is_assigned = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    let phase = match phase(pod) {
        "Unknown" => 1,
        "Running" => 2,
        _ => 0,
    };
    let is_wanted = (is_assigned, phase, is_ready(pod), deletion_cost(pod));
    let made = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let uid = pod.metadata.uid.clone();
    (is_wanted, Reverse(doubled), age(ready_since(pod), now), Reverse(restarts(pod)), age(made, now), uid)
}

fn deletion_cost(pod: &Pod) -> i32 {
    let cost = pod.annotations().get("controller.kubernetes.io/pod-deletion-cost");
    cost.and_then(|cost| cost.parse().ok()).unwrap_or(0)
}

fn restarts(pod: &Pod) -> i32 {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    statuses.map(|status| status.restart_count).max().unwrap_or(0)
}

/// How old something is, in powers of two, so that it is not always the youngest that goes; `None` is younger than all.
fn age(since: Option<Timestamp>, now: Timestamp) -> Option<u32> {
    let nanos = now.duration_since(since?).as_nanos();
    Some(if nanos > 0 { nanos.ilog2() } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn pod(uid: usize, (ready, restarts, made): (i64, i32, i64)) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"namespace": "default", "name": "web", "uid": uid.to_string(), "creationTimestamp": at(made)},
            "spec": {"containers": [], "nodeName": "node"},
            "status": {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at(ready)}],
                "containerStatuses": [
                    {"name": "c", "image": "", "imageID": "", "ready": true, "restartCount": restarts},
                ],
            },
        }))
        .expect("a pod")
    }

    #[test]
    fn what_controllers_read_of_a_pod_is_kept() {
        let read: Pod = serde_json::from_value(json!({
            "metadata": {"name": "web", "labels": {"app": "web"}},
            "spec": {
                "nodeName": "node",
                "tolerations": [{"key": "a", "operator": "Exists"}],
                "volumes": [
                    {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
                    {"name": "scratch", "ephemeral": {}},
                ],
                "containers": [
                    {"name": "c", "ports": [{"containerPort": 80}], "resources": {"requests": {"cpu": "1"}}},
                ],
                "initContainers": [{"name": "sidecar", "restartPolicy": "Always"}],
            },
        }))
        .expect("a pod");
        let mut whole = read.clone();
        let spec = whole.spec.as_mut().expect("a spec");
        spec.volumes.as_mut().expect("volumes").insert(0, Default::default());
        spec.containers[0].image = Some("v1".into());
        spec.containers[0].env = Some(vec![Default::default()]);
        prune(&mut whole);
        assert_eq!(whole, read);
    }

    /// Pods of every mixture of times that are equal, about the same and far apart, with and without restarts.
    fn mixtures() -> Vec<Pod> {
        let mut pods = Vec::new();
        for ready in [1, 2, 900] {
            for restarts in [0, 1] {
                for made in [1, 2, 900] {
                    // Two of each, with uids that do not follow the order of the rest.
                    for uid in [pods.len() * 7 % 36, 100 + pods.len() * 5 % 36] {
                        pods.push(pod(uid, (ready, restarts, made)));
                    }
                }
            }
        }
        pods
    }

    #[test]
    fn which_pod_goes_first_is_a_total_order() {
        let (pods, now) = (mixtures(), at(1_000));
        let order =
            |a: usize, b: usize| deletion_order(&pods[a], 0, now).cmp(&deletion_order(&pods[b], 0, now));
        let all = 0..pods.len();
        for (a, b) in all.clone().flat_map(|a| all.clone().map(move |b| (a, b))) {
            assert_eq!(order(a, b), order(b, a).reverse(), "{a} and {b}");
            assert_eq!(order(a, b).is_eq(), a == b, "{a} and {b}");
            for c in all.clone().filter(|c| order(a, b).is_le() && order(b, *c).is_le()) {
                assert!(
                    order(a, c).is_le(),
                    "{a} goes before {b}, which goes before {c}, which goes before {a}"
                );
            }
        }
    }
}
