//! The nodes: what each has, what is used of it, and the images it holds.

use crate::requests::amounts;
use crate::rules::NodeFacts;
use crate::wire;
use std::collections::HashMap;
use std::sync::Arc;

/// What of a node is looked at for every pod: allocatable and used amounts side by side.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub milli_cpu: i64,
    pub memory: i64,
    pub ephemeral: i64,
    pub pods: i64,
    pub used_milli_cpu: i64,
    pub used_memory: i64,
    pub used_ephemeral: i64,
    pub used_pods: i64,
    pub scored_milli_cpu: i64,
    pub scored_memory: i64,
}

/// A node, or the name of one that pods were seen on.
#[derive(Debug, Default)]
pub(crate) struct Node {
    pub facts: NodeFacts,
    /// Whether the object exists.
    pub exists: bool,
    /// Where it stands in the order of nodes, if it exists.
    position: usize,
    /// Its pods.
    pub pods: Vec<u32>,
    /// Allocatable and used amounts of other resources, by their number.
    pub others: Vec<(i64, i64)>,
    /// The images it holds, sorted.
    pub images: Vec<u32>,
    /// How many of its pods take ports of the node.
    pub pods_with_ports: u32,
}

/// An image that nodes hold.
#[derive(Debug)]
pub(crate) struct Image {
    pub size: i64,
    pub nodes: u32,
}

/// What changed about a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeChange {
    /// It is new.
    pub added: bool,
    /// Its labels.
    pub labels: bool,
    /// Its taints, or whether it takes new pods.
    pub taints: bool,
    /// It has more of something.
    pub more: bool,
    /// What it has.
    pub allocatable: bool,
}

impl NodeChange {
    /// Whether pods may fit now that did not before.
    pub fn may_help(&self) -> bool {
        self.added || self.labels || self.taints || self.more
    }
}

/// All nodes. A node's number is its place in the lists.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    pub list: Vec<Node>,
    pub usage: Vec<Usage>,
    /// Those that exist, in the order in which they are tried.
    pub order: Vec<u32>,
    by_name: HashMap<String, u32>,
    free: Vec<u32>,
    images: HashMap<Arc<str>, u32>,
    pub image_list: Vec<Image>,
    resources: HashMap<String, u32>,
    pub resource_names: Vec<String>,
    /// How many nodes have taints that only prefer.
    pub with_soft_taints: u32,
}

impl Nodes {
    pub(crate) fn find(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// Where a node stands in the order, if it exists.
    pub(crate) fn position(&self, id: u32) -> Option<usize> {
        let node = &self.list[id as usize];
        node.exists.then_some(node.position)
    }

    /// The number of a node; a new one if it was never heard of.
    pub(crate) fn number(&mut self, name: &str) -> u32 {
        if let Some(id) = self.find(name) {
            return id;
        }
        let facts = NodeFacts { name: name.to_owned(), ..NodeFacts::default() };
        let node = Node { facts, ..Node::default() };
        let id = match self.free.pop() {
            Some(id) => {
                self.list[id as usize] = node;
                self.usage[id as usize] = Usage::default();
                id
            }
            None => {
                self.list.push(node);
                self.usage.push(Usage::default());
                (self.list.len() - 1) as u32
            }
        };
        self.by_name.insert(name.to_owned(), id);
        id
    }

    /// The number of a resource that only some nodes have.
    pub(crate) fn resource(&mut self, name: &str) -> u32 {
        if let Some(id) = self.resources.get(name) {
            return *id;
        }
        let id = self.resource_names.len() as u32;
        self.resource_names.push(name.to_owned());
        self.resources.insert(name.to_owned(), id);
        id
    }

    /// The number of an image, if a node holds it.
    pub(crate) fn image(&self, name: &str) -> Option<u32> {
        self.images.get(name).copied()
    }

    /// Takes over a node as it is now.
    pub(crate) fn set(&mut self, node: wire::Node) -> (u32, NodeChange) {
        let id = self.number(&node.metadata.name);
        let mut change = NodeChange::default();
        let slot = &mut self.list[id as usize];
        if !slot.exists {
            slot.exists = true;
            slot.position = self.order.len();
            self.order.push(id);
            change.added = true;
        }
        let labels = node.metadata.labels.iter().collect();
        if slot.facts.labels != labels {
            slot.facts.labels = labels;
            change.labels = true;
        }
        if slot.facts.taints != node.spec.taints || slot.facts.unschedulable != node.spec.unschedulable {
            let is_soft = |taints: &[wire::Taint]| taints.iter().any(|t| t.effect == "PreferNoSchedule");
            self.with_soft_taints += u32::from(is_soft(&node.spec.taints));
            self.with_soft_taints -= u32::from(is_soft(&slot.facts.taints));
            slot.facts.taints = node.spec.taints;
            slot.facts.unschedulable = node.spec.unschedulable;
            change.taints = true;
        }
        self.set_allocatable(id, &node.status.allocatable, &mut change);
        self.set_images(id, &node.status.images);
        (id, change)
    }

    fn set_allocatable(&mut self, id: u32, allocatable: &wire::Map, change: &mut NodeChange) {
        let before = self.usage[id as usize];
        let mut others = Vec::new();
        let usage = &mut self.usage[id as usize];
        (usage.milli_cpu, usage.memory, usage.ephemeral, usage.pods) = (0, 0, 0, 0);
        for (name, amount) in amounts(allocatable) {
            let usage = &mut self.usage[id as usize];
            match name.as_str() {
                "cpu" => usage.milli_cpu = amount,
                "memory" => usage.memory = amount,
                "ephemeral-storage" => usage.ephemeral = amount,
                "pods" => usage.pods = amount,
                name => {
                    let resource = self.resource(name);
                    others.push((resource, amount));
                }
            }
        }
        let now = self.usage[id as usize];
        change.more |= now.milli_cpu > before.milli_cpu
            || now.memory > before.memory
            || now.ephemeral > before.ephemeral
            || now.pods > before.pods;
        change.allocatable |= now != before;
        let slot = &mut self.list[id as usize].others;
        let old: Vec<i64> = slot.iter().map(|(allocatable, _)| *allocatable).collect();
        slot.iter_mut().for_each(|(allocatable, _)| *allocatable = 0);
        for (resource, amount) in others {
            let resource = resource as usize;
            if slot.len() <= resource {
                slot.resize(resource + 1, (0, 0));
            }
            slot[resource].0 = amount;
            change.more |= amount > old.get(resource).copied().unwrap_or(0);
        }
        change.allocatable |= slot.iter().map(|(allocatable, _)| *allocatable).ne(old);
    }

    fn set_images(&mut self, id: u32, images: &[wire::Image]) {
        let mut now = Vec::new();
        for image in images {
            for name in &image.names {
                let number = match self.images.get(name.as_str()) {
                    Some(number) => *number,
                    None => {
                        let number = self.image_list.len() as u32;
                        self.image_list.push(Image { size: 0, nodes: 0 });
                        self.images.insert(name.as_str().into(), number);
                        number
                    }
                };
                self.image_list[number as usize].size = image.size_bytes;
                now.push(number);
            }
        }
        now.sort_unstable();
        now.dedup();
        for image in &now {
            self.image_list[*image as usize].nodes += 1;
        }
        for image in std::mem::replace(&mut self.list[id as usize].images, now) {
            self.image_list[image as usize].nodes -= 1;
        }
    }

    /// Forgets the object; the number stays while pods are on it.
    pub(crate) fn remove(&mut self, name: &str) -> Option<u32> {
        let id = self.find(name)?;
        let slot = &mut self.list[id as usize];
        if !slot.exists {
            return None;
        }
        slot.exists = false;
        let position = slot.position;
        let had_soft = slot.facts.taints.iter().any(|taint| taint.effect == "PreferNoSchedule");
        self.with_soft_taints -= u32::from(had_soft);
        slot.facts = NodeFacts { name: name.to_owned(), ..NodeFacts::default() };
        self.order.swap_remove(position);
        if let Some(moved) = self.order.get(position) {
            self.list[*moved as usize].position = position;
        }
        self.set_allocatable(id, &wire::Map::new(), &mut NodeChange::default());
        self.set_images(id, &[]);
        self.release(id);
        Some(id)
    }

    /// Gives the number away if nobody needs it.
    pub(crate) fn release(&mut self, id: u32) {
        let slot = &mut self.list[id as usize];
        if !slot.exists && slot.pods.is_empty() && self.by_name.remove(&slot.facts.name).is_some() {
            slot.facts.name.clear();
            self.free.push(id);
        }
    }
}
