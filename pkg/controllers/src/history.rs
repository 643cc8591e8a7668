//! ControllerRevisions: the templates that a StatefulSet or DaemonSet has had.

use crate::runtime::{Failure, Verb, Write, controlled_by, controller_of, owner_reference};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::{Resource, ResourceExt};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The revisions of an owner, oldest first, and the adoptions of those that nobody owns.
pub fn claim<O: Resource<DynamicType = ()>>(
    owner: &O,
    revisions: &[Arc<ControllerRevision>],
    matches: impl Fn(&ControllerRevision) -> bool,
) -> (Vec<Arc<ControllerRevision>>, Vec<Write>) {
    let uid = owner.uid().unwrap_or_default();
    let mut owned: Vec<_> =
        revisions.iter().filter(|revision| controlled_by(revision.as_ref(), &uid)).cloned().collect();
    owned.sort_by_key(|revision| (revision.revision, revision.creation_timestamp(), revision.name_any()));
    let orphans = revisions.iter().filter(|revision| {
        controller_of(revision.as_ref()).is_none()
            && !crate::pods::is_going(revision.as_ref())
            && matches(revision)
    });
    let adopt = |revision: &Arc<ControllerRevision>| {
        let patch = json!({"metadata": {"ownerReferences": [owner_reference(owner)]}});
        Write::strategic_patch(revision.as_ref(), patch).only_if_alive(owner).tolerating(404)
    };
    let adoptions = if crate::pods::is_going(owner) { Vec::new() } else { orphans.map(adopt).collect() };
    (owned, adoptions)
}

/// The template that a revision holds.
pub fn template(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let data = revision.data.as_ref()?;
    let mut template = data.0["spec"]["template"].clone();
    template.as_object_mut()?.remove("$patch");
    serde_json::from_value(template).ok()
}

/// A new revision of an owner with this template.
pub fn new<O: Resource<DynamicType = ()>>(
    owner: &O,
    template: &PodTemplateSpec,
    number: i64,
    hash: &str,
    hash_label: &str,
) -> ControllerRevision {
    let mut data = json!({"spec": {"template": template}});
    data["spec"]["template"]["$patch"] = "replace".into();
    let mut labels: BTreeMap<String, String> =
        template.metadata.as_ref().and_then(|meta| meta.labels.clone()).unwrap_or_default();
    labels.insert(hash_label.into(), hash.into());
    let stem: String = owner.name_any().chars().take(223).collect();
    ControllerRevision {
        metadata: ObjectMeta {
            name: Some(format!("{stem}-{hash}")),
            namespace: owner.namespace(),
            labels: Some(labels),
            annotations: Some(owner.annotations().clone()).filter(|annotations| !annotations.is_empty()),
            owner_references: Some(vec![owner_reference(owner)]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(data)),
        revision: number,
    }
}

/// What to do so that the present template is the latest revision: it, if it is there already, or a write.
pub enum Present {
    /// It is the latest.
    Latest(Arc<ControllerRevision>),
    /// It has to be created, or to become the latest again.
    Write(Box<Write>),
}

/// Finds the present template among the revisions, which are sorted.
pub fn present(
    owned: &[Arc<ControllerRevision>],
    wanted: &PodTemplateSpec,
    create: impl FnOnce(i64) -> ControllerRevision,
) -> Present {
    let next = owned.last().map_or(1, |latest| latest.revision + 1);
    let equal = owned.iter().rev().find(|revision| template(revision).as_ref() == Some(wanted));
    match equal {
        Some(revision) if revision.revision + 1 == next => Present::Latest(revision.clone()),
        Some(revision) => {
            let mut revision = revision.as_ref().clone();
            revision.revision = next;
            Present::Write(Box::new(Write::update(&revision)))
        }
        None => Present::Write(Box::new(Write::create(&create(next)))),
    }
}

/// Whether a write failed because another revision has the name: the hash of the next one must be another.
pub fn is_collision(failure: &Failure) -> bool {
    failure.write.verb == Verb::Create
        && failure.write.target.plural == "controllerrevisions"
        && failure.reason() == "AlreadyExists"
}

/// One collision more.
pub fn count_collision(count: &mut Option<i32>) {
    *count = Some(count.unwrap_or(0) + 1);
}

/// Deletes the oldest revisions beyond the limit that nothing uses.
pub fn truncate(
    owned: &[Arc<ControllerRevision>],
    is_live: impl Fn(&ControllerRevision) -> bool,
    limit: Option<i32>,
) -> Vec<Write> {
    let unused: Vec<_> = owned.iter().filter(|revision| !is_live(revision)).collect();
    let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(10);
    let surplus = unused.len().saturating_sub(limit);
    unused[..surplus].iter().map(|revision| Write::delete(revision.as_ref())).collect()
}
