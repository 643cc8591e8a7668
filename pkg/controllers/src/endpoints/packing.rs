//! Endpoints into slices: as few writes as can be, and slices that stay what they are.
//!
//! ```text
//! slices there are ┐  by ports  ┌ keep and change what is in them
//! endpoints wanted ┴───────────>┼ fill those that change anyway, then one that the rest fits into
//!                               └ new slices, written over old ones that would go
//! ```
//!
//! It knows nothing of pods and services: a template says what a new slice looks like.

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What to write.
#[derive(Debug, Default, PartialEq)]
pub struct Writes {
    /// Slices to create; the server names them.
    pub create: Vec<EndpointSlice>,
    /// Slices to write over.
    pub update: Vec<EndpointSlice>,
    /// Slices to delete.
    pub delete: Vec<Arc<EndpointSlice>>,
}

/// Endpoints that share their ports.
#[derive(Debug, Default, Clone)]
pub struct Group {
    /// Their ports.
    pub ports: Vec<EndpointPort>,
    /// They themselves.
    pub endpoints: Vec<Endpoint>,
}

/// Which ports, whatever their order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortsKey(BTreeSet<(String, String, Option<i32>, Option<String>)>);

impl PortsKey {
    /// The key of these ports.
    pub fn of(ports: &[EndpointPort]) -> Self {
        let key = |port: &EndpointPort| {
            let name = port.name.clone().unwrap_or_default();
            let protocol = super::backends::protocol(port.protocol.as_deref()).to_owned();
            (name, protocol, port.port, port.app_protocol.clone())
        };
        PortsKey(ports.iter().map(key).collect())
    }
}

/// What slices look like.
#[derive(Debug)]
pub struct Shape {
    /// A slice without ports and endpoints. What it says of labels, annotations and owners is made so in every slice.
    pub template: EndpointSlice,
    /// The most endpoints in a slice.
    pub most_per_slice: usize,
    /// Whether there is an empty slice where there would be none.
    pub keeps_one: bool,
    /// Whether hints are ours to set and to remove. If not, those of others alone are no reason to write.
    pub owns_hints: bool,
}

/// Packs the endpoints of one address family.
pub fn pack(shape: &Shape, existing: &[Arc<EndpointSlice>], groups: &BTreeMap<PortsKey, Group>) -> Writes {
    let template = &shape.template;
    let (most, owns_hints) = (shape.most_per_slice, shape.owns_hints);
    let mut packer = Packer { template, most, owns_hints, writes: Writes::default() };
    let mut by_ports: BTreeMap<PortsKey, Vec<Arc<EndpointSlice>>> = BTreeMap::new();
    for slice in existing {
        if is_of_owner(slice, template) {
            let key = PortsKey::of(slice.ports.as_deref().unwrap_or_default());
            by_ports.entry(key).or_default().push(slice.clone());
        } else {
            packer.writes.delete.push(slice.clone());
        }
    }
    for (key, group) in groups {
        packer.group(by_ports.remove(key).unwrap_or_default(), group);
    }
    packer.writes.delete.extend(by_ports.into_values().flatten());
    if shape.keeps_one && existing.len() == packer.writes.delete.len() && packer.writes.create.is_empty() {
        packer.placeholder();
    }
    packer.finish()
}

struct Packer<'a> {
    template: &'a EndpointSlice,
    most: usize,
    owns_hints: bool,
    writes: Writes,
}

impl Packer<'_> {
    fn group(&mut self, existing: Vec<Arc<EndpointSlice>>, group: &Group) {
        let mut wanted: BTreeMap<Identity, &Endpoint> =
            group.endpoints.iter().map(|endpoint| (identity(endpoint), endpoint)).collect();
        let (mut changed, mut unchanged) = (Vec::new(), Vec::new());
        for slice in existing {
            let kept: Vec<Endpoint> = slice
                .endpoints
                .iter()
                .filter_map(|endpoint| wanted.remove(&identity(endpoint)))
                .cloned()
                .collect();
            if kept.is_empty() {
                self.writes.delete.push(slice);
            } else if self.same_endpoints(&kept, &slice.endpoints) && same_metadata(&slice, self.template) {
                unchanged.push(slice);
            } else {
                changed.push(self.rewrite(&slice, &slice.ports.clone().unwrap_or_default(), kept));
            }
        }
        let mut rest: Vec<Endpoint> = wanted.into_values().cloned().collect();
        self.fill(&mut changed, &unchanged, &mut rest);
        while !rest.is_empty() {
            let endpoints: Vec<Endpoint> = rest.drain(..rest.len().min(self.most)).collect();
            let ports = Some(group.ports.clone());
            self.writes.create.push(EndpointSlice { ports, endpoints, ..self.template.clone() });
        }
        self.writes.update.append(&mut changed);
    }

    /// Slices that are written anyway take what they can; then one that is not, if all the rest fits into it.
    fn fill(
        &self,
        changed: &mut Vec<EndpointSlice>,
        unchanged: &[Arc<EndpointSlice>],
        rest: &mut Vec<Endpoint>,
    ) {
        changed.sort_by_key(|slice| std::cmp::Reverse(slice.endpoints.len()));
        for slice in changed.iter_mut() {
            let room = self.most.saturating_sub(slice.endpoints.len());
            slice.endpoints.extend(rest.drain(..rest.len().min(room)));
        }
        // A full load of new ones makes a slice of its own.
        let tail = rest.len() % self.most;
        let fitting = unchanged.iter().filter(|slice| slice.endpoints.len() + tail <= self.most);
        if tail > 0
            && let Some(slice) = fitting.max_by_key(|slice| slice.endpoints.len())
        {
            let mut endpoints = slice.endpoints.clone();
            endpoints.extend(rest.drain(rest.len() - tail..));
            changed.push(self.rewrite(slice, &slice.ports.clone().unwrap_or_default(), endpoints));
        }
    }

    /// A service without endpoints has one empty slice, so that consumers can tell it from one not yet looked at.
    fn placeholder(&mut self) {
        let empty = |slice: &EndpointSlice| {
            slice.endpoints.is_empty() && slice.ports.as_deref().unwrap_or_default().is_empty()
        };
        let found = self.writes.delete.iter().position(|slice| {
            empty(slice) && same_metadata(slice, self.template) && is_of_owner(slice, self.template)
        });
        match found {
            Some(index) => drop(self.writes.delete.swap_remove(index)),
            None => {
                let ports = Some(Vec::new());
                self.writes.create.push(EndpointSlice { ports, ..self.template.clone() });
            }
        }
    }

    /// What would be deleted is written over with what would be created.
    fn finish(mut self) -> Writes {
        let mut delete = Vec::new();
        for slice in std::mem::take(&mut self.writes.delete) {
            let reusable = is_of_owner(&slice, self.template) && slice.metadata.deletion_timestamp.is_none();
            if reusable && let Some(new) = self.writes.create.pop() {
                let ports = new.ports.unwrap_or_default();
                self.writes.update.push(self.rewrite(&slice, &ports, new.endpoints));
            } else {
                delete.push(slice);
            }
        }
        self.writes.delete = delete;
        self.writes
    }

    /// Equal in all that matters.
    fn same_endpoints(&self, wanted: &[Endpoint], present: &[Endpoint]) -> bool {
        wanted.len() == present.len()
            && wanted.iter().zip(present).all(|(wanted, present)| {
                wanted.addresses == present.addresses
                    && wanted.hostname == present.hostname
                    && wanted.node_name == present.node_name
                    && wanted.zone == present.zone
                    && wanted.conditions == present.conditions
                    && wanted.target_ref == present.target_ref
                    && (!self.owns_hints || wanted.hints == present.hints)
            })
    }

    fn rewrite(
        &self,
        slice: &EndpointSlice,
        ports: &[EndpointPort],
        endpoints: Vec<Endpoint>,
    ) -> EndpointSlice {
        let mut metadata = slice.metadata.clone();
        metadata.labels = self.template.metadata.labels.clone();
        metadata.owner_references = self.template.metadata.owner_references.clone();
        if self.template.metadata.annotations.is_some() {
            metadata.annotations = self.template.metadata.annotations.clone();
        }
        metadata.managed_fields = None;
        EndpointSlice {
            metadata,
            ports: Some(ports.to_vec()),
            endpoints,
            address_type: self.template.address_type.clone(),
        }
    }
}

type Identity = (Vec<String>, Option<String>, Option<String>, Option<String>);

fn identity(endpoint: &Endpoint) -> Identity {
    let target = endpoint.target_ref.as_ref();
    (
        endpoint.addresses.clone(),
        endpoint.hostname.clone(),
        target.and_then(|target| target.name.clone()),
        target.and_then(|target| target.uid.clone()),
    )
}

fn same_metadata(slice: &EndpointSlice, template: &EndpointSlice) -> bool {
    slice.metadata.labels == template.metadata.labels
        && (template.metadata.annotations.is_none()
            || slice.metadata.annotations.clone().unwrap_or_default()
                == template.metadata.annotations.clone().unwrap_or_default())
}

fn is_of_owner(slice: &EndpointSlice, template: &EndpointSlice) -> bool {
    let uid = |slice: &EndpointSlice| {
        slice.metadata.owner_references.iter().flatten().map(|owner| owner.uid.clone()).next()
    };
    uid(slice) == uid(template)
}
