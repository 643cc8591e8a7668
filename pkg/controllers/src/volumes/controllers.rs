//! The controllers of volumes on the runtime.

use super::binding::{self, ClaimView};
use super::{claims, ephemeral, protection};
use crate::pods;
use crate::runtime::{Context, Controller, Driver, Plan, Task, Write, owner_key};
use client::{Cache, Change, Key};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use std::sync::Arc;

fn one(write: Option<Write>) -> Plan {
    Plan { writes: write.into_iter().collect(), ..Plan::default() }
}

fn claim_keys(change: &Change<Pod>) -> Vec<Key> {
    let namespace = change.key().namespace;
    claims(change.object()).into_iter().map(|name| Key::new(&namespace, name)).collect()
}

struct ClaimProtection {
    claims: Cache<PersistentVolumeClaim>,
    pods: Cache<Pod>,
}

/// Claims stay while pods have them.
pub fn start_claim_protection(context: &Context) -> Task {
    let claims: Cache<PersistentVolumeClaim> = context.informers.cache();
    let pods = pods::cache(&context.informers);
    let controller = ClaimProtection { claims: claims.clone(), pods: pods.clone() };
    Driver::new(context, controller).owns(&claims).watches(&pods, claim_keys).task()
}

impl Controller for ClaimProtection {
    type View = (Arc<PersistentVolumeClaim>, Vec<Arc<Pod>>);

    async fn observe(&self, key: &Key) -> kube::Result<Option<Self::View>> {
        Ok(self.claims.get(key).map(|claim| (claim, self.pods.in_namespace(&key.namespace))))
    }

    fn plan(&self, (claim, pods): &Self::View, _now: Timestamp) -> Plan {
        one(protection::plan_claim(claim, pods))
    }
}

struct VolumeProtection(Cache<PersistentVolume>);

/// Volumes stay while claims have them.
pub fn start_volume_protection(context: &Context) -> Task {
    let volumes: Cache<PersistentVolume> = context.informers.cache();
    Driver::new(context, VolumeProtection(volumes.clone())).owns(&volumes).task()
}

impl Controller for VolumeProtection {
    type View = Arc<PersistentVolume>;

    async fn observe(&self, key: &Key) -> kube::Result<Option<Self::View>> {
        Ok(self.0.get(key))
    }

    fn plan(&self, volume: &Self::View, _now: Timestamp) -> Plan {
        one(protection::plan_volume(volume))
    }
}

struct Ephemeral {
    pods: Cache<Pod>,
    claims: Cache<PersistentVolumeClaim>,
}

/// Claims of ephemeral volumes.
pub fn start_ephemeral(context: &Context) -> Task {
    let pods = pods::cache(&context.informers);
    let claims: Cache<PersistentVolumeClaim> = context.informers.cache();
    let controller = Ephemeral { pods: pods.clone(), claims: claims.clone() };
    Driver::new(context, controller)
        .owns(&pods)
        .watches(&claims, |change| owner_key::<Pod>(change.object().as_ref()).into_iter().collect())
        .task()
}

impl Controller for Ephemeral {
    type View = (Arc<Pod>, Vec<(String, Arc<PersistentVolumeClaim>)>);

    async fn observe(&self, key: &Key) -> kube::Result<Option<Self::View>> {
        let Some(pod) = self.pods.get(key) else { return Ok(None) };
        let names = claims(&pod).into_iter();
        let found = names.filter_map(|name| {
            let claim = self.claims.get(&Key::new(&key.namespace, &name))?;
            Some((name, claim))
        });
        let found = found.collect();
        Ok(Some((pod, found)))
    }

    fn plan(&self, (pod, claims): &Self::View, _now: Timestamp) -> Plan {
        let find =
            |name: &str| claims.iter().find(|(known, _)| known == name).map(|(_, claim)| claim.clone());
        let (writes, foreign) = ephemeral::plan(pod, find);
        for claim in foreign {
            tracing::debug!(claim, "it is not of the pod that wants it");
        }
        Plan { writes, ..Plan::default() }
    }
}

struct Binder {
    claims: Cache<PersistentVolumeClaim>,
    volumes: Cache<PersistentVolume>,
    classes: Cache<StorageClass>,
}

/// What the binder looks at: a claim has a namespace, a volume has none.
enum BinderView {
    Claim(ClaimView),
    Volume(Arc<PersistentVolume>, bool),
}

/// Binds claims and volumes. One after the other, so that no two claims choose the same volume.
pub fn start_binder(context: &Context) -> Task {
    let informers = &context.informers;
    let claims: Cache<PersistentVolumeClaim> = informers.cache();
    let volumes: Cache<PersistentVolume> = informers.cache();
    let classes: Cache<StorageClass> = informers.cache();
    let controller = Binder { claims: claims.clone(), volumes: volumes.clone(), classes: classes.clone() };
    let waiting = claims.clone();
    Driver::new(context, controller)
        .watches(&claims, |change| {
            let claim = change.object();
            let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone());
            volume.map(Key::cluster).into_iter().chain([change.key()]).collect()
        })
        .watches(&volumes, move |change| {
            let claim = change.object().spec.as_ref().and_then(|spec| spec.claim_ref.clone());
            let mut keys = vec![change.key()];
            match claim {
                Some(claim) => {
                    keys.push(Key::new(claim.namespace.unwrap_or_default(), claim.name.unwrap_or_default()))
                }
                // It is free: any claim that has none may want it.
                None => {
                    let without = |claim: &Arc<PersistentVolumeClaim>| {
                        claim.status.as_ref().and_then(|status| status.phase.as_deref()) != Some("Bound")
                    };
                    let claims = waiting.list().into_iter().filter(without);
                    keys.extend(claims.map(|claim| Key::of(claim.as_ref())));
                }
            }
            keys
        })
        .reads(&classes)
        .workers(1)
        .task()
}

impl Controller for Binder {
    type View = BinderView;

    async fn observe(&self, key: &Key) -> kube::Result<Option<BinderView>> {
        if key.namespace.is_empty() {
            let Some(volume) = self.volumes.get(key) else { return Ok(None) };
            let named = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
            let there = named.is_some_and(|named| {
                let key = Key::new(
                    named.namespace.clone().unwrap_or_default(),
                    named.name.clone().unwrap_or_default(),
                );
                self.claims.get(&key).is_some_and(|claim| claim.metadata.uid == named.uid)
            });
            return Ok(Some(BinderView::Volume(volume, there)));
        }
        let Some(claim) = self.claims.get(key) else { return Ok(None) };
        let spec = claim.spec.as_ref();
        let named = spec.and_then(|spec| spec.volume_name.as_deref()).filter(|name| !name.is_empty());
        let class = spec.and_then(|spec| spec.storage_class_name.as_deref());
        Ok(Some(BinderView::Claim(ClaimView {
            named: named.and_then(|name| self.volumes.get(&Key::cluster(name))),
            class: class.and_then(|name| self.classes.get(&Key::cluster(name))),
            volumes: if named.is_none() { self.volumes.list() } else { Vec::new() },
            claim,
        })))
    }

    fn plan(&self, view: &BinderView, _now: Timestamp) -> Plan {
        match view {
            BinderView::Claim(view) => binding::plan_claim(view),
            BinderView::Volume(volume, claim_is_there) => one(binding::plan_volume(volume, *claim_is_there)),
        }
    }
}
