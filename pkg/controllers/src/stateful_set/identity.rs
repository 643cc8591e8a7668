//! Who a pod of a StatefulSet is: its name, its labels, and the claims that it keeps.

use crate::pods;
use crate::runtime::{Note, Write, owner_reference};
use client::reference;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

pub const REVISION_LABEL: &str = "controller-revision-hash";
pub const HASH_LABEL: &str = "controller.kubernetes.io/hash";
const POD_NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";

fn parts(name: &str) -> Option<(&str, i32)> {
    let (parent, number) = name.rsplit_once('-')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    Some((parent, number.parse().ok().filter(|_| is_number)?))
}

/// The set that a pod is named after.
pub fn parent(pod: &Pod) -> Option<&str> {
    parts(pod.metadata.name.as_deref()?).map(|(parent, _)| parent)
}

/// The number in a pod's name.
pub fn ordinal(pod: &Pod) -> Option<i32> {
    parts(pod.metadata.name.as_deref()?).map(|(_, number)| number)
}

/// The pod of an ordinal.
pub fn pod(set: &StatefulSet, template: &PodTemplateSpec, number: i32, revision: &str) -> Pod {
    let mut pod = pods::from_template(template, set);
    let name = format!("{}-{number}", set.name_any());
    pod.metadata.generate_name = Some(format!("{}-", set.name_any()));
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(POD_NAME_LABEL.into(), name.clone());
    labels.insert(POD_INDEX_LABEL.into(), number.to_string());
    labels.insert(REVISION_LABEL.into(), revision.into());
    let spec = pod.spec.get_or_insert_default();
    spec.hostname = Some(name.clone());
    spec.subdomain = set.spec.as_ref().and_then(|spec| spec.service_name.clone());
    let claims = claims_of(set, number);
    let kept = spec.volumes.take().unwrap_or_default();
    let is_claimed = |volume: &Volume| claims.iter().any(|(template, _)| *template == volume.name);
    let mut volumes: Vec<Volume> = claims
        .iter()
        .map(|(template, claim)| Volume {
            name: template.clone(),
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                claim_name: claim.name_any(),
                read_only: None,
            }),
            ..Volume::default()
        })
        .collect();
    volumes.extend(kept.into_iter().filter(|volume| !is_claimed(volume)));
    spec.volumes = (!volumes.is_empty()).then_some(volumes);
    pod.metadata.name = Some(name);
    pod
}

/// Gives a pod the labels of its identity, if it lost them.
pub fn corrected(pod: &Pod, set: &StatefulSet) -> Option<Write> {
    let name = pod.name_any();
    if pod.labels().get(POD_NAME_LABEL) == Some(&name) {
        return None;
    }
    let index = ordinal(pod)?.to_string();
    let patch = json!({"metadata": {"labels": {POD_NAME_LABEL: name, POD_INDEX_LABEL: index}}});
    Some(tell(Write::merge_patch(pod, patch).tolerating(404), "Update", pod, set))
}

/// Creates a pod, and tells so.
pub fn created(pod: &Pod, set: &StatefulSet) -> Write {
    tell(Write::create(pod), "Create", pod, set)
}

/// Deletes a pod, and tells so.
pub fn deleted(pod: &Pod, set: &StatefulSet) -> Write {
    tell(Write::delete(pod), "Delete", pod, set)
}

fn tell(write: Write, verb: &str, pod: &Pod, set: &StatefulSet) -> Write {
    let what = format!("{verb} Pod {} in StatefulSet {}", pod.name_any(), set.name_any());
    let verb = verb.to_lowercase();
    let title = verb[..1].to_uppercase() + &verb[1..];
    write.told(
        Note::normal(reference(set), &format!("Successful{title}"), format!("{what} successful")),
        Note::warning(reference(set), &format!("Failed{title}"), format!("{what} failed error: {{error}}")),
    )
}

/// The claims of an ordinal, with the names of their templates.
fn claims_of(set: &StatefulSet, number: i32) -> Vec<(String, PersistentVolumeClaim)> {
    let Some(spec) = &set.spec else { return Vec::new() };
    let of_template = |template: &PersistentVolumeClaim| {
        let mut claim = template.clone();
        let template = template.name_any();
        claim.metadata.name = Some(format!("{template}-{}-{number}", set.name_any()));
        claim.metadata.namespace = set.namespace();
        let labels = claim.metadata.labels.get_or_insert_default();
        labels.extend(spec.selector.match_labels.clone().unwrap_or_default());
        claim.status = None;
        (template, claim)
    };
    spec.volume_claim_templates.iter().flatten().map(of_template).collect()
}

/// The claims of a set.
pub struct Claims<'a> {
    pub set: &'a StatefulSet,
    pub known: &'a BTreeMap<String, Arc<PersistentVolumeClaim>>,
}

impl Claims<'_> {
    /// Creates the claims that a pod lacks.
    pub fn missing(&self, pod: &Pod) -> Vec<Write> {
        let Some(number) = ordinal(pod) else { return Vec::new() };
        let missing = claims_of(self.set, number).into_iter().map(|(_, claim)| claim);
        let missing = missing.filter(|claim| !self.known.contains_key(&claim.name_any()));
        let create = |claim: PersistentVolumeClaim| {
            let (name, pod, set) = (claim.name_any(), pod.name_any(), self.set.name_any());
            let done = format!("Create Claim {name} Pod {pod} in StatefulSet {set} success");
            let failed =
                format!("Create Claim {name} for Pod {pod} in StatefulSet {set} failed error: {{error}}");
            Write::create(&claim).tolerating(409).told(
                Note::normal(reference(self.set), "SuccessfulCreate", done),
                Note::warning(reference(self.set), "FailedCreate", failed),
            )
        };
        missing.map(create).collect()
    }

    /// Makes the owners of a pod's claims those that the retention policy asks for.
    pub fn keep_owned(&self, pod: &Pod, is_condemned: bool) -> Vec<Write> {
        let Some(number) = ordinal(pod) else { return Vec::new() };
        let claims = claims_of(self.set, number);
        let known = claims.iter().filter_map(|(_, claim)| self.known.get(&claim.name_any()));
        known.filter_map(|claim| self.owned(claim, pod, is_condemned)).collect()
    }

    fn owned(&self, claim: &PersistentVolumeClaim, pod: &Pod, is_condemned: bool) -> Option<Write> {
        let policy =
            self.set.spec.as_ref()?.persistent_volume_claim_retention_policy.clone().unwrap_or_default();
        let deletes = |policy: &Option<String>| policy.as_deref() == Some("Delete");
        let (on_delete, on_scale) = (deletes(&policy.when_deleted), deletes(&policy.when_scaled));
        let (set_ref, pod_ref) = (owner_reference(self.set), owner_reference(pod));
        let old = claim.owner_references();
        let is_same = |a: &OwnerReference, b: &OwnerReference| a.kind == b.kind && a.name == b.name;
        let is_managed = |owner: &OwnerReference| is_same(owner, &set_ref) || is_same(owner, &pod_ref);
        let is_stale = |owner: &OwnerReference| {
            is_managed(owner) && owner.uid != set_ref.uid && owner.uid != pod_ref.uid
        };
        let is_others = |owner: &OwnerReference| !is_managed(owner) && owner.controller == Some(true);
        if old.iter().any(is_stale) || old.iter().any(is_others) {
            // It is about to be collected, or is somebody else's.
            return None;
        }
        let mut owners: Vec<OwnerReference> =
            old.iter().filter(|owner| !is_managed(owner)).cloned().collect();
        if on_scale && is_condemned {
            owners.push(pod_ref);
        } else if on_delete {
            owners.push(set_ref);
        }
        if owners == old {
            return None;
        }
        let mut claim = claim.clone();
        claim.metadata.owner_references = (!owners.is_empty()).then_some(owners);
        Some(Write::update(&claim).tolerating(404))
    }
}
