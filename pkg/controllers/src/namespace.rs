//! Namespace deletion: everything in a namespace that is being deleted goes, pods first; then the namespace itself.
//!
//! ```text
//! Namespace, Terminating ──> every namespaced resource of discovery, asked what is left
//!                        ──> deletes, conditions that say what it waits for
//!                        ──> nothing left: the finalizer `kubernetes` goes
//! ```

use crate::discovery::{Resource, discover};
use crate::pods;
use crate::runtime::{Context, Controller, Driver, Plan, Task, Verb, Write};
use client::{Cache, Key};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, NamespaceCondition, NamespaceStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{DynamicObject, ListParams};
use kube::{Api, Client};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const FINALIZER: &str = "kubernetes";
/// So many objects of a resource are looked at at a time.
const PAGE: u32 = 500;
/// So many resources are asked at once.
const AT_ONCE: usize = 8;
/// What has no finalizer is gone as soon as it is deleted.
const SOON: Duration = Duration::from_millis(20);

/// A namespace and what is left in it.
#[derive(Debug)]
pub struct View {
    /// The namespace.
    pub namespace: Arc<Namespace>,
    /// Group versions that could not be asked.
    pub failed_discovery: Vec<String>,
    /// Why resources could not be listed.
    pub failed_lists: Vec<String>,
    /// What is left, by resource. Where pods are left, only those are known.
    pub remaining: Vec<(Arc<Resource>, Vec<ObjectMeta>)>,
}

/// What to do for a namespace that is being deleted.
pub fn plan(view: &View, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    let name = view.namespace.metadata.name.as_deref().unwrap_or_default();
    for (resource, objects) in &view.remaining {
        let present = objects.iter().filter(|object| object.deletion_timestamp.is_none());
        plan.writes.extend(present.map(|object| delete(resource, name, object)));
    }
    let mut next = Namespace::clone(&view.namespace);
    let conditions = conditions(view);
    let changed = set_conditions(next.status.get_or_insert_default(), conditions, now);
    let nothing_left =
        view.remaining.is_empty() && view.failed_discovery.is_empty() && view.failed_lists.is_empty();
    if !nothing_left {
        plan.status = changed.then(|| Write::update_status(&next).tolerating(404));
        let waits = !held(view).is_empty() || plan.writes.is_empty();
        plan.look_again = Some(if waits { pause(&view.namespace, now) } else { SOON });
    } else if changed && has_other_finalizers(&view.namespace) {
        // It stays a while, so people are told. Our finalizer goes when this is seen.
        plan.status = Some(Write::update_status(&next).tolerating(404));
    } else {
        let finalizers = next.spec.get_or_insert_default().finalizers.get_or_insert_default();
        finalizers.retain(|finalizer| finalizer != FINALIZER);
        plan.writes.push(Write::update(&next).on("finalize").tolerating(404));
    }
    plan
}

fn has_other_finalizers(namespace: &Namespace) -> bool {
    let in_spec = namespace.spec.iter().flat_map(|spec| spec.finalizers.iter().flatten());
    let in_metadata = namespace.metadata.finalizers.iter().flatten();
    in_spec.chain(in_metadata).any(|finalizer| finalizer != FINALIZER)
}

/// Somebody works on what is left; they are given longer the longer it takes.
fn pause(namespace: &Namespace, now: Timestamp) -> Duration {
    let since = namespace.metadata.deletion_timestamp.as_ref().map_or(now, |time| time.0);
    let seconds = now.duration_since(since).as_secs().clamp(0, 150);
    Duration::from_secs(1 + u64::try_from(seconds).unwrap_or(0) / 10)
}

fn delete(resource: &Resource, namespace: &str, object: &ObjectMeta) -> Write {
    let body = json!({"propagationPolicy": "Background", "preconditions": {"uid": object.uid}});
    let target = resource.target(namespace, object.name.as_deref().unwrap_or_default());
    // Another one by that name is found in the next look.
    Write::new(Verb::Delete, target, body).tolerating(404).tolerating(409)
}

type Condition = (&'static str, &'static str, &'static str, String);

/// Each condition: type, status, reason, message.
fn conditions(view: &View) -> [Condition; 5] {
    let ok = |kind, reason, message: &str| (kind, "False", reason, message.to_owned());
    let discovery = match view.failed_discovery.len() {
        0 => ok(
            "NamespaceDeletionDiscoveryFailure",
            "ResourcesDiscovered",
            "All resources successfully discovered",
        ),
        failing => {
            let groups = view.failed_discovery.join(", ");
            let message = format!(
                "Discovery failed for some groups, {failing} failing: unable to retrieve the complete list of server APIs: {groups}: stale GroupVersion discovery: {groups}"
            );
            ("NamespaceDeletionDiscoveryFailure", "True", "DiscoveryFailed", message)
        }
    };
    let content = match view.failed_lists.len() {
        0 => ok(
            "NamespaceDeletionContentFailure",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        failing => {
            let mut errors = view.failed_lists.clone();
            errors.sort();
            let message =
                format!("Failed to delete all resource types, {failing} remaining: {}", errors.join(", "));
            ("NamespaceDeletionContentFailure", "True", "ContentDeletionFailed", message)
        }
    };
    let parsing = ok(
        "NamespaceDeletionGroupVersionParsingFailure",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    );
    [discovery, parsing, content, remaining(view), finalizers(view)]
}

/// What is left after this look: that which is only marked for deletion by it.
fn held(view: &View) -> Vec<(&Resource, Vec<&ObjectMeta>)> {
    let graceful = |resource: &Resource| resource.group.is_empty() && resource.plural == "pods";
    view.remaining
        .iter()
        .map(|(resource, objects)| {
            let stays = |object: &&ObjectMeta| {
                graceful(resource) || object.finalizers.as_ref().is_some_and(|list| !list.is_empty())
            };
            (resource.as_ref(), objects.iter().filter(stays).collect::<Vec<_>>())
        })
        .filter(|(_, objects)| !objects.is_empty())
        .collect()
}

fn remaining(view: &View) -> Condition {
    let mut left: Vec<String> = held(view)
        .iter()
        .map(|(resource, objects)| {
            format!("{}.{} has {} resource instances", resource.plural, resource.group, objects.len())
        })
        .collect();
    if left.is_empty() {
        let message = "All content successfully removed".to_owned();
        return ("NamespaceContentRemaining", "False", "ContentRemoved", message);
    }
    left.sort();
    let message = format!("Some resources are remaining: {}", left.join(", "));
    ("NamespaceContentRemaining", "True", "SomeResourcesRemain", message)
}

fn finalizers(view: &View) -> Condition {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, objects) in held(view) {
        for finalizer in objects.iter().flat_map(|object| object.finalizers.iter().flatten()) {
            *counts.entry(finalizer).or_default() += 1;
        }
    }
    if counts.is_empty() {
        let message = "All content-preserving finalizers finished".to_owned();
        return ("NamespaceFinalizersRemaining", "False", "ContentHasNoFinalizers", message);
    }
    let left: Vec<String> =
        counts.iter().map(|(name, count)| format!("{name} in {count} resource instances")).collect();
    let message = format!("Some content in the namespace has finalizers remaining: {}", left.join(", "));
    ("NamespaceFinalizersRemaining", "True", "SomeFinalizersRemain", message)
}

fn set_conditions(status: &mut NamespaceStatus, wanted: [Condition; 5], now: Timestamp) -> bool {
    let conditions = status.conditions.get_or_insert_default();
    let mut changed = false;
    for (kind, state, reason, message) in wanted {
        let mut new = NamespaceCondition {
            type_: kind.to_owned(),
            status: state.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_transition_time: Some(Time(now)),
        };
        match conditions.iter_mut().find(|found| found.type_ == kind) {
            Some(old) => {
                if old.status == new.status {
                    new.last_transition_time = old.last_transition_time.clone();
                }
                changed |= *old != new;
                *old = new;
            }
            None => {
                conditions.push(new);
                changed = true;
            }
        }
    }
    changed
}

struct Deleter {
    client: Client,
    namespaces: Cache<Namespace>,
}

/// Makes it.
pub fn start(context: &Context) -> Task {
    let namespaces: Cache<Namespace> = context.informers.cache();
    let pods = pods::cache(&context.informers);
    let controller = Deleter { client: context.client.clone(), namespaces: namespaces.clone() };
    let known = namespaces.clone();
    Driver::new(context, controller)
        .owns(&namespaces)
        .watches(&pods, move |change| {
            // The rest is deleted as soon as the last pod is gone.
            let namespace = Key::cluster(change.key().namespace);
            let going = |found: Arc<Namespace>| found.metadata.deletion_timestamp.is_some();
            let ended = change.new.is_none() && known.get(&namespace).is_some_and(going);
            if ended { vec![namespace] } else { Vec::new() }
        })
        .task()
}

impl Controller for Deleter {
    type View = View;

    async fn observe(&self, key: &Key) -> kube::Result<Option<View>> {
        if !self.namespaces.get(key).is_some_and(|namespace| is_ours(&namespace)) {
            return Ok(None);
        }
        // Asked live: by now there may be a new one of that name, whose content is none of our business.
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let live = namespaces.get_opt(&key.name).await?;
        let Some(namespace) = live.filter(is_ours).map(Arc::new) else { return Ok(None) };
        let discovered = discover(&self.client).await?;
        let resources = discovered.resources.into_iter();
        let (pods, others): (Vec<_>, Vec<_>) = resources
            .filter(|resource| resource.namespaced && resource.can(&["list", "delete"]))
            .partition(|resource| resource.group.is_empty() && resource.plural == "pods");
        let mut view = View {
            namespace,
            failed_discovery: discovered.failed,
            failed_lists: Vec::new(),
            remaining: Vec::new(),
        };
        for resources in [pods, others] {
            let lists = resources.into_iter().map(|resource| self.list(resource, &key.name));
            let mut lists = futures::stream::iter(lists).buffered(AT_ONCE);
            while let Some((resource, list)) = lists.next().await {
                match list {
                    Ok(objects) if objects.is_empty() => {}
                    Ok(objects) => view.remaining.push((resource, objects)),
                    Err(error) => view.failed_lists.push(error.to_string()),
                }
            }
            if !view.remaining.is_empty() {
                break;
            }
        }
        Ok(Some(view))
    }

    fn plan(&self, view: &View, now: Timestamp) -> Plan {
        plan(view, now)
    }
}

impl Deleter {
    async fn list(
        &self,
        resource: Arc<Resource>,
        namespace: &str,
    ) -> (Arc<Resource>, kube::Result<Vec<ObjectMeta>>) {
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.client.clone(), namespace, &resource.api_resource());
        let list = api.list_metadata(&ListParams::default().limit(PAGE)).await;
        let list = match list {
            // A resource that went while it was asked has nothing left.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 405) => Ok(Vec::new()),
            list => list.map(|list| list.items.into_iter().map(|object| object.metadata).collect()),
        };
        (resource, list)
    }
}

fn is_ours(namespace: &Namespace) -> bool {
    let finalizers = namespace.spec.iter().flat_map(|spec| spec.finalizers.iter().flatten());
    namespace.metadata.deletion_timestamp.is_some()
        && finalizers.into_iter().any(|finalizer| finalizer == FINALIZER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn namespace(conditions: Value) -> Arc<Namespace> {
        let namespace = json!({
            "metadata": {"name": "old", "uid": "n", "resourceVersion": "9", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"finalizers": ["kubernetes", "example.com/mine"]},
            "status": {"phase": "Terminating", "conditions": conditions},
        });
        Arc::new(serde_json::from_value(namespace).unwrap())
    }

    fn resource(group: &str, plural: &str) -> Arc<Resource> {
        Arc::new(Resource {
            group: group.into(),
            version: "v1".into(),
            kind: "Any".into(),
            plural: plural.into(),
            namespaced: true,
            verbs: vec![],
        })
    }

    fn object(name: &str, more: Value) -> ObjectMeta {
        let mut all = json!({"name": name, "uid": name});
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(all).unwrap()
    }

    fn view(remaining: Vec<(Arc<Resource>, Vec<ObjectMeta>)>) -> View {
        View { namespace: namespace(json!([])), failed_discovery: vec![], failed_lists: vec![], remaining }
    }

    fn now() -> Timestamp {
        "2026-01-01T00:00:05Z".parse().unwrap()
    }

    /// `Type=Status Reason: Message` of those that are not fine.
    fn troubles(plan: &Plan) -> Vec<String> {
        let status = plan.status.as_ref().expect("a status");
        let conditions = status.body["status"]["conditions"].as_array().unwrap();
        let text = |condition: &Value, field: &str| condition[field].as_str().unwrap().to_owned();
        conditions
            .iter()
            .filter(|condition| condition["status"] == "True")
            .map(|c| format!("{} {}: {}", text(c, "type"), text(c, "reason"), text(c, "message")))
            .collect()
    }

    #[test]
    fn what_is_left_is_deleted_and_told() {
        let deleted = json!({"deletionTimestamp": "2026-01-01T00:00:01Z", "finalizers": ["example.com/a"]});
        let view = view(vec![
            (resource("", "configmaps"), vec![object("a", json!({})), object("b", deleted.clone())]),
            (
                resource("apps", "deployments"),
                vec![object("c", json!({"finalizers": ["example.com/a", "x"]}))],
            ),
        ]);
        let plan = plan(&view, now());
        let deletes: Vec<String> = plan.writes.iter().map(|write| write.target.path()).collect();
        assert_eq!(
            deletes,
            ["/api/v1/namespaces/old/configmaps/a", "/apis/apps/v1/namespaces/old/deployments/c"]
        );
        assert_eq!(
            troubles(&plan),
            [
                "NamespaceContentRemaining SomeResourcesRemain: Some resources are remaining: configmaps. has 1 resource instances, deployments.apps has 1 resource instances",
                "NamespaceFinalizersRemaining SomeFinalizersRemain: Some content in the namespace has finalizers remaining: example.com/a in 2 resource instances, x in 1 resource instances",
            ]
        );
        assert_eq!(plan.look_again, Some(Duration::from_secs(1)));
    }

    #[test]
    fn failures_keep_the_namespace() {
        let mut view = view(vec![]);
        view.failed_discovery = vec!["metrics.k8s.io/v1beta1".into()];
        view.failed_lists = vec!["b".into(), "a".into()];
        let plan = plan(&view, now());
        let troubles = troubles(&plan);
        assert!(troubles[0].starts_with(
            "NamespaceDeletionDiscoveryFailure DiscoveryFailed: Discovery failed for some groups, 1 failing: "
        ));
        assert_eq!(
            troubles[1],
            "NamespaceDeletionContentFailure ContentDeletionFailed: Failed to delete all resource types, 2 remaining: a, b"
        );
        assert!(plan.writes.is_empty() && plan.look_again.is_some());
    }

    #[test]
    fn an_empty_namespace_is_told_so_and_then_let_go() {
        let first = plan(&view(vec![]), now());
        assert!(first.writes.is_empty() && troubles(&first).is_empty());
        let conditions = first.status.unwrap().body["status"]["conditions"].clone();
        assert_eq!(conditions.as_array().unwrap().len(), 5);
        let mut second = view(vec![]);
        second.namespace = namespace(conditions);
        let second = plan(&second, now());
        assert!(second.status.is_none());
        assert_eq!(second.writes[0].target.path(), "/api/v1/namespaces/old/finalize");
        assert_eq!(second.writes[0].body["spec"]["finalizers"], json!(["example.com/mine"]));
        assert_eq!(second.writes[0].body["metadata"]["resourceVersion"], "9");
    }

    #[test]
    fn only_namespaces_on_their_way_are_looked_at() {
        assert!(is_ours(&namespace(json!([]))));
        let mut other = Namespace::clone(&namespace(json!([])));
        other.metadata.deletion_timestamp = None;
        assert!(!is_ours(&other));
    }
}
