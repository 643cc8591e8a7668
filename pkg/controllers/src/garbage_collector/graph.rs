//! Who belongs to whom: a small node for every object there is.
//!
//! A plain structure. It is told of objects as they come, change and go, and answers with the uids that are worth a look.
//! It may lag behind the server: who acts on it asks the server first.

use crate::discovery::Resource;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// The finalizer of an owner whose dependents go first.
pub const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an owner whose dependents are to stay.
pub const ORPHAN: &str = "orphan";

/// An object's identity for all time.
pub type Uid = Arc<str>;

/// One object.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// What it is.
    pub resource: Arc<Resource>,
    /// Where it is.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Box<str>,
    /// Who it belongs to.
    pub owners: Box<[Owner]>,
    /// Whether and how it is being deleted.
    pub deletion: Deletion,
}

/// Whether and how an object is being deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deletion {
    /// It is not.
    None,
    /// It is, and will be gone by itself.
    Going,
    /// It waits until its dependents are gone.
    Foreground,
    /// It waits until its dependents are nobody's.
    Orphan,
}

/// A reference to an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The owner.
    pub uid: Uid,
    /// Its group and version.
    pub api_version: Box<str>,
    /// Its kind.
    pub kind: Box<str>,
    /// Its name.
    pub name: Box<str>,
    /// Whether the owner, deleted in the foreground, waits for this one.
    pub blocks: bool,
}

/// All nodes.
#[derive(Debug, Default)]
pub struct Graph {
    nodes: HashMap<Uid, Node>,
    dependents: HashMap<Uid, BTreeSet<Uid>>,
}

impl Deletion {
    /// What the metadata says.
    pub fn of(metadata: &ObjectMeta) -> Deletion {
        let has = |finalizer: &str| metadata.finalizers.iter().flatten().any(|found| found == finalizer);
        match metadata.deletion_timestamp {
            None => Deletion::None,
            Some(_) if has(ORPHAN) => Deletion::Orphan,
            Some(_) if has(FOREGROUND) => Deletion::Foreground,
            Some(_) => Deletion::Going,
        }
    }
}

impl Owner {
    /// The reference in short.
    pub fn of(reference: &OwnerReference) -> Owner {
        Owner {
            uid: reference.uid.as_str().into(),
            api_version: reference.api_version.as_str().into(),
            kind: reference.kind.as_str().into(),
            name: reference.name.as_str().into(),
            blocks: reference.block_owner_deletion.unwrap_or(false),
        }
    }

    /// The group of the owner's kind.
    pub fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }
}

impl Graph {
    /// The object of this uid.
    pub fn get(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// The uids of a resource's objects.
    pub fn of_resource(&self, resource: &Resource) -> Vec<Uid> {
        let of =
            |node: &Node| node.resource.group == resource.group && node.resource.plural == resource.plural;
        self.nodes.iter().filter(|(_, node)| of(node)).map(|(uid, _)| uid.clone()).collect()
    }

    /// Who belongs to this one.
    pub fn dependents(&self, uid: &str) -> Vec<(Uid, &Node)> {
        let uids = self.dependents.get(uid).into_iter().flatten();
        uids.filter_map(|uid| Some((uid.clone(), self.nodes.get(uid)?))).collect()
    }

    /// Whether a node's owner is there as the reference says, and neither gone nor waiting for the node to go.
    pub fn is_solid(&self, node: &Node, owner: &Owner) -> bool {
        self.nodes.get(&owner.uid).is_some_and(|found| {
            found.deletion != Deletion::Foreground
                && found.name == owner.name
                && *found.resource.kind == *owner.kind
                && found.resource.group == owner.group()
                && (!found.resource.namespaced || found.namespace == node.namespace)
        })
    }

    /// Whether something may have to be done about the object.
    pub fn needs_look(&self, uid: &str) -> bool {
        let Some(node) = self.nodes.get(uid) else { return false };
        match node.deletion {
            Deletion::Foreground | Deletion::Orphan => true,
            Deletion::Going => false,
            Deletion::None => node.owners.iter().any(|owner| !self.is_solid(node, owner)),
        }
    }

    /// An object is new or changed. Who is worth a look now.
    pub fn apply(&mut self, resource: &Arc<Resource>, metadata: &ObjectMeta) -> Vec<Uid> {
        let Some(uid) = &metadata.uid else { return Vec::new() };
        let uid: Uid = match self.nodes.get_key_value(uid.as_str()) {
            Some((known, _)) => known.clone(),
            None => uid.as_str().into(),
        };
        let node = Node {
            resource: resource.clone(),
            namespace: metadata.namespace.as_deref().unwrap_or_default().into(),
            name: metadata.name.as_deref().unwrap_or_default().into(),
            owners: metadata.owner_references.iter().flatten().map(Owner::of).collect(),
            deletion: Deletion::of(metadata),
        };
        for owner in &node.owners {
            self.dependents.entry(owner.uid.clone()).or_default().insert(uid.clone());
        }
        let mut look = Vec::new();
        let before = self.nodes.insert(uid.clone(), node);
        let after = &self.nodes[&uid];
        if let Some(before) = &before
            && before.owners != after.owners
        {
            for owner in &before.owners {
                if !after.owners.iter().any(|kept| kept.uid == owner.uid) {
                    unlink(&mut self.dependents, &owner.uid, &uid);
                }
                look.push(owner.uid.clone());
            }
        }
        look.push(uid);
        look.retain(|uid| self.needs_look(uid));
        look
    }

    /// An object is gone. Who is worth a look now: those who belonged to it, and owners that waited for it.
    pub fn remove(&mut self, uid: &str) -> Vec<Uid> {
        let Some(node) = self.nodes.remove(uid) else { return Vec::new() };
        let mut look: Vec<Uid> = self.dependents.get(uid).into_iter().flatten().cloned().collect();
        for owner in &node.owners {
            unlink(&mut self.dependents, &owner.uid, uid);
            look.push(owner.uid.clone());
        }
        look.retain(|uid| self.needs_look(uid));
        look
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

fn unlink(dependents: &mut HashMap<Uid, BTreeSet<Uid>>, owner: &str, dependent: &str) {
    if let Some(of_owner) = dependents.get_mut(owner) {
        of_owner.remove(dependent);
        if of_owner.is_empty() {
            dependents.remove(owner);
        }
    }
}
