//! Who owns what: references to owners, and the claiming of objects that a selector matches.

use super::Write;
use super::write::adopting;
use api::selector::LabelSelector;
use client::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The reference that makes `owner` the controller of an object, as upstream writes it.
pub fn owner_reference<K: Resource<DynamicType = ()>>(owner: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: owner.name_any(),
        uid: owner.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// The reference to the controller of an object.
pub fn controller_of(object: &impl Resource) -> Option<&OwnerReference> {
    object.meta().owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// Whether an object's controller is the one with this uid.
pub fn controlled_by(object: &impl Resource, uid: &str) -> bool {
    controller_of(object).is_some_and(|owner| owner.uid == uid)
}

/// The key of an object's controller, if that is of the kind `K`: for handlers.
pub fn owner_key<K: Resource<DynamicType = ()>>(object: &impl Resource) -> Option<Key> {
    let owner = controller_of(object)?;
    let group = |api_version: &str| {
        api_version.split_once('/').map(|(group, _)| group.to_owned()).unwrap_or_default()
    };
    let is_kind = owner.kind == K::kind(&()) && group(&owner.api_version) == K::group(&());
    is_kind.then(|| Key::new(object.namespace().unwrap_or_default(), &owner.name))
}

/// What an owner has, and what it takes to have it so.
pub struct Claim<T> {
    /// Objects that the owner controls and its selector matches.
    pub owned: Vec<Arc<T>>,
    /// Adoptions of orphans that match, and releases of what no longer matches.
    pub writes: Vec<Write>,
}

/// Claims objects for an owner, as upstream's ref managers do: what it controls and matches is its own; what matches and
/// has no controller is adopted, unless the owner or the object is going; what it controls and no longer matches is
/// released, unless the owner is going.
pub fn claim<O, T>(owner: &O, selector: &LabelSelector, objects: impl IntoIterator<Item = Arc<T>>) -> Claim<T>
where
    O: Resource<DynamicType = ()>,
    T: Resource<DynamicType = ()>,
{
    let uid = owner.uid().unwrap_or_default();
    let is_going = owner.meta().deletion_timestamp.is_some();
    let mut claim = Claim { owned: Vec::new(), writes: Vec::new() };
    for object in objects {
        let none = BTreeMap::new();
        let matches = selector.matches(object.meta().labels.as_ref().unwrap_or(&none));
        match controller_of(object.as_ref()) {
            Some(controller) if controller.uid != uid => {}
            Some(_) if matches => claim.owned.push(object),
            Some(_) if is_going => {}
            Some(_) => {
                let patch = json!({"metadata": {"ownerReferences": [{"$patch": "delete", "uid": uid}]}});
                // It is gone, or somebody else released it: either way it is not ours.
                let release = Write::strategic_patch(object.as_ref(), patch).tolerating(404).tolerating(422);
                claim.writes.push(release);
            }
            None if !matches || is_going || object.meta().deletion_timestamp.is_some() => {}
            None => {
                let adopt = Write::strategic_patch(object.as_ref(), adopting(&owner_reference(owner)));
                claim.writes.push(adopt.only_if_alive(owner).tolerating(404));
            }
        }
    }
    claim
}
