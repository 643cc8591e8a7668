//! One request that changes an object, as data: plans are compared in tests, and executed in one place.

use super::Note;
use client::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};

/// A request to the apiserver.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// What to do.
    pub verb: Verb,
    /// With which object.
    pub target: Target,
    /// The object, the patch, or the options of a delete.
    pub body: Value,
    /// The event to send when it was done.
    pub done: Option<Note>,
    /// The event to send when it was not.
    pub failed: Option<Note>,
    /// Before this, the apiserver is asked whether this owner still is, and is not on its way out.
    pub only_if: Option<(Target, String)>,
    /// Codes of the apiserver that are as good as success.
    pub tolerates: Vec<u16>,
}

/// What a write does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// POST.
    Create,
    /// PUT, which conflicts unless the resourceVersion is the latest.
    Update,
    /// PATCH of the kind `merge`.
    MergePatch,
    /// PATCH of the kind `strategic-merge`.
    StrategicPatch,
    /// DELETE.
    Delete,
}

/// Which object.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// `v1`, `apps/v1`.
    pub api_version: String,
    /// `Pod`.
    pub kind: String,
    /// `pods`.
    pub plural: String,
    /// Where it is. Of a create with a generated name, the name is empty.
    pub key: Key,
    /// `status`, `scale`, …; empty for the object itself.
    pub subresource: &'static str,
}

impl Target {
    /// This object.
    pub fn of<K: Resource<DynamicType = ()>>(object: &K) -> Target {
        let key =
            Key::new(object.namespace().unwrap_or_default(), object.meta().name.clone().unwrap_or_default());
        Target {
            api_version: K::api_version(&()).into_owned(),
            kind: K::kind(&()).into_owned(),
            plural: K::plural(&()).into_owned(),
            key,
            subresource: "",
        }
    }

    /// The path of the collection that it is in.
    pub fn collection(&self) -> String {
        let prefix = if self.api_version.contains('/') { "/apis" } else { "/api" };
        let namespace = match self.key.namespace.as_str() {
            "" => String::new(),
            namespace => format!("/namespaces/{namespace}"),
        };
        format!("{prefix}/{}{namespace}/{}", self.api_version, self.plural)
    }

    /// The path of the object, and of the subresource if one is meant.
    pub fn path(&self) -> String {
        let subresource =
            if self.subresource.is_empty() { String::new() } else { format!("/{}", self.subresource) };
        format!("{}/{}{subresource}", self.collection(), self.key.name)
    }
}

impl Write {
    /// Any write.
    pub fn new(verb: Verb, target: Target, body: Value) -> Write {
        Write { verb, target, body, done: None, failed: None, only_if: None, tolerates: Vec::new() }
    }

    /// Creates an object. Where it has a `generateName` and no name, the name is chosen when it is sent, and kept when the
    /// request has to be repeated: so it is created once.
    pub fn create<K: Resource<DynamicType = ()> + Serialize>(object: &K) -> Write {
        Write::new(Verb::Create, Target::of(object), encode(object))
    }

    /// Replaces an object; a conflict unless it is as it was seen.
    pub fn update<K: Resource<DynamicType = ()> + Serialize>(object: &K) -> Write {
        Write::new(Verb::Update, Target::of(object), encode(object))
    }

    /// Replaces the status of an object; a conflict unless it is as it was seen.
    pub fn update_status<K: Resource<DynamicType = ()> + Serialize>(object: &K) -> Write {
        Write::update(object).on("status")
    }

    /// Holds an object by a finalizer, and lets it go when it is to go and nobody uses it any more.
    pub fn hold<K>(object: &K, finalizer: &str, used: bool) -> Option<Write>
    where
        K: Resource<DynamicType = ()> + Clone + Serialize,
    {
        let held = object.meta().finalizers.iter().flatten().any(|found| found == finalizer);
        let going = object.meta().deletion_timestamp.is_some();
        let mut next = object.clone();
        let finalizers = next.meta_mut().finalizers.get_or_insert_default();
        if !going && !held {
            finalizers.push(finalizer.to_owned());
        } else if going && held && !used {
            finalizers.retain(|found| found != finalizer);
        } else {
            return None;
        }
        Some(Write::update(&next).tolerating(404))
    }

    /// Changes fields of an object (a merge patch), if it still is the one with this uid.
    pub fn merge_patch<K: Resource<DynamicType = ()>>(object: &K, patch: Value) -> Write {
        Write::new(Verb::MergePatch, Target::of(object), guarded(object, patch))
    }

    /// Changes fields of an object (a strategic merge patch), if it still is the one with this uid.
    pub fn strategic_patch<K: Resource<DynamicType = ()>>(object: &K, patch: Value) -> Write {
        Write::new(Verb::StrategicPatch, Target::of(object), guarded(object, patch))
    }

    /// Deletes an object, if it still is the one with this uid. That it is gone already is as good.
    pub fn delete<K: Resource<DynamicType = ()>>(object: &K) -> Write {
        let options = match object.uid() {
            Some(uid) => json!({"preconditions": {"uid": uid}}),
            None => json!({}),
        };
        Write::new(Verb::Delete, Target::of(object), options).tolerating(404)
    }

    /// Deletes what it owns as well: `Background`, `Foreground` or `Orphan`.
    #[must_use]
    pub fn propagating(mut self, policy: &str) -> Write {
        self.body["propagationPolicy"] = policy.into();
        self
    }

    /// On a subresource.
    #[must_use]
    pub fn on(mut self, subresource: &'static str) -> Write {
        self.target.subresource = subresource;
        self
    }

    /// Takes a code of the apiserver for success.
    #[must_use]
    pub fn tolerating(mut self, code: u16) -> Write {
        self.tolerates.push(code);
        self
    }

    /// Tells people what became of it.
    #[must_use]
    pub fn told(mut self, done: Note, failed: Note) -> Write {
        (self.done, self.failed) = (Some(done), Some(failed));
        self
    }

    /// Only while this owner lives: adopting in the name of one that is going would have the object collected.
    #[must_use]
    pub fn only_if_alive<K: Resource<DynamicType = ()>>(mut self, owner: &K) -> Write {
        self.only_if = Some((Target::of(owner), owner.uid().unwrap_or_default()));
        self
    }

    /// The uid that a delete or a patch asks for.
    pub fn uid(&self) -> Option<&str> {
        match self.verb {
            Verb::Delete => self.body["preconditions"]["uid"].as_str(),
            _ => self.body["metadata"]["uid"].as_str(),
        }
    }

    /// Whether it can be done at the same time as another.
    pub(super) fn goes_with(&self, other: &Write) -> bool {
        self.verb == other.verb
            && self.target.plural == other.target.plural
            && self.target.subresource == other.target.subresource
    }
}

/// An object with the group and kind that k8s-openapi's types do not carry... they do when serialized.
fn encode(object: &impl Serialize) -> Value {
    serde_json::to_value(object).expect("objects of the API are JSON")
}

fn guarded(object: &impl Resource, mut patch: Value) -> Value {
    if let Some(uid) = &object.meta().uid {
        patch["metadata"]["uid"] = uid.as_str().into();
    }
    patch
}

/// The patch that makes an owner the controller of an object.
pub(super) fn adopting(owner: &OwnerReference) -> Value {
    json!({"metadata": {"ownerReferences": [owner]}})
}
