//! What becomes of an object, given what the server says of it and of its owners.
//!
//! ```text
//! waits for dependents  ──> none block it: its finalizer goes        some do: they are looked at
//! dependents to stay    ──> their references go, then its finalizer
//! some owner is there   ──> references to the others go
//! no owner is there     ──> it is deleted
//! ```

use super::graph::{Deletion, FOREGROUND, ORPHAN, Uid};
use crate::discovery::Resource;
use crate::runtime::{Plan, Verb, Write};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Value, json};
use std::sync::Arc;

/// What the server and the graph say of one object.
#[derive(Debug)]
pub struct View {
    /// What it is.
    pub resource: Arc<Resource>,
    /// The object itself.
    pub metadata: ObjectMeta,
    /// Its owners, in the order of its references.
    pub owners: Vec<OwnerState>,
    /// Who belongs to it.
    pub dependents: Vec<Dependent>,
}

/// What the server says of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerState {
    /// It is there.
    Solid,
    /// There is none of that uid.
    Absent,
    /// It waits for its dependents to go.
    Waiting,
}

/// An object that belongs to the one that is looked at.
#[derive(Debug)]
pub struct Dependent {
    /// Which.
    pub uid: Uid,
    /// Whether its owner waits for it.
    pub blocks: bool,
    /// Whether it waits for dependents of its own.
    pub foreground: bool,
    /// What the server says of it; asked only where its references are to be changed.
    pub live: Option<(Arc<Resource>, ObjectMeta)>,
}

/// What to do, and whom to look at.
#[derive(Debug, Default, PartialEq)]
pub struct Outcome {
    /// What to write.
    pub plan: Plan,
    /// Whom to look at next.
    pub look_at: Vec<Uid>,
}

/// Decides.
pub fn plan(view: &View) -> Outcome {
    match Deletion::of(&view.metadata) {
        Deletion::Foreground => foreground(view),
        Deletion::Orphan => orphan(view),
        Deletion::Going => Outcome::default(),
        Deletion::None => writes(collect(view)),
    }
}

fn writes(writes: Vec<Write>) -> Outcome {
    Outcome { plan: Plan { writes, ..Plan::default() }, look_at: Vec::new() }
}

fn foreground(view: &View) -> Outcome {
    let blocking: Vec<&Dependent> = view.dependents.iter().filter(|dependent| dependent.blocks).collect();
    if blocking.is_empty() {
        return writes(vec![without_finalizer(view, FOREGROUND)]);
    }
    let look_at = blocking.iter().filter(|dependent| !dependent.foreground).map(|d| d.uid.clone()).collect();
    Outcome { look_at, ..Outcome::default() }
}

fn orphan(view: &View) -> Outcome {
    let uid = view.metadata.uid.as_deref().unwrap_or_default();
    let live = view.dependents.iter().filter_map(|dependent| dependent.live.as_ref());
    let mut all: Vec<Write> = live
        .map(|(resource, metadata)| {
            let owners = metadata.owner_references.iter().flatten();
            let kept: Vec<&OwnerReference> = owners.filter(|owner| owner.uid != uid).collect();
            patch(resource, metadata, json!({"ownerReferences": kept})).tolerating(404)
        })
        .collect();
    all.push(without_finalizer(view, ORPHAN));
    writes(all)
}

fn collect(view: &View) -> Vec<Write> {
    let references: Vec<&OwnerReference> = view.metadata.owner_references.iter().flatten().collect();
    let with = |state: OwnerState| view.owners.contains(&state);
    if references.is_empty() {
        return Vec::new();
    }
    if with(OwnerState::Solid) {
        let owners = references.iter().zip(&view.owners);
        let kept: Vec<&OwnerReference> =
            owners.filter(|(_, state)| **state == OwnerState::Solid).map(|(owner, _)| *owner).collect();
        // References to owners that wait go too, or those would wait for ever.
        return if kept.len() == references.len() {
            Vec::new()
        } else {
            vec![patch(&view.resource, &view.metadata, json!({"ownerReferences": kept}))]
        };
    }
    if with(OwnerState::Waiting) && !view.dependents.is_empty() {
        return delete_in_foreground(view, &references);
    }
    let has = |finalizer: &str| view.metadata.finalizers.iter().flatten().any(|found| found == finalizer);
    let policy = match () {
        () if has(ORPHAN) => "Orphan",
        () if has(FOREGROUND) => "Foreground",
        () => "Background",
    };
    vec![delete(view, policy, view.metadata.resource_version.as_deref())]
}

/// An owner waits for it, and it has dependents of its own: they go first. Where one of those waits too, this may be a
/// circle; it is broken by letting nobody wait for this one.
fn delete_in_foreground(view: &View, references: &[&OwnerReference]) -> Vec<Write> {
    if !view.dependents.iter().any(|dependent| dependent.foreground) {
        return vec![delete(view, "Foreground", view.metadata.resource_version.as_deref())];
    }
    let unblocked: Vec<OwnerReference> = references
        .iter()
        .map(|owner| OwnerReference { block_owner_deletion: Some(false), ..(*owner).clone() })
        .collect();
    let unblock = patch(&view.resource, &view.metadata, json!({"ownerReferences": unblocked}));
    vec![unblock, delete(view, "Foreground", None)]
}

fn delete(view: &View, policy: &str, version: Option<&str>) -> Write {
    let mut preconditions = json!({"uid": view.metadata.uid});
    if let Some(version) = version {
        // Its owners may have changed since: then it is looked at again.
        preconditions["resourceVersion"] = version.into();
    }
    let body = json!({"propagationPolicy": policy, "preconditions": preconditions});
    Write::new(Verb::Delete, target(&view.resource, &view.metadata), body).tolerating(404)
}

fn without_finalizer(view: &View, finalizer: &str) -> Write {
    let finalizers = view.metadata.finalizers.iter().flatten();
    let kept: Vec<&String> = finalizers.filter(|found| *found != finalizer).collect();
    patch(&view.resource, &view.metadata, json!({"finalizers": kept})).tolerating(404)
}

fn patch(resource: &Resource, metadata: &ObjectMeta, mut change: Value) -> Write {
    change["uid"] = json!(metadata.uid);
    change["resourceVersion"] = json!(metadata.resource_version);
    Write::new(Verb::MergePatch, target(resource, metadata), json!({"metadata": change}))
}

fn target(resource: &Resource, metadata: &ObjectMeta) -> crate::runtime::Target {
    let namespace = metadata.namespace.as_deref().unwrap_or_default();
    resource.target(namespace, metadata.name.as_deref().unwrap_or_default())
}
