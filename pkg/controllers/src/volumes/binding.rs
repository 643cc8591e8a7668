//! Binding of claims to volumes that an administrator made.
//!
//! One write at a time, in the order volume, claim; each is seen before the next. So wherever it is interrupted, what is
//! there says how to go on: the volume names the claim first, and nobody else takes it.

use crate::runtime::{Note, Plan, Write};
use api::Quantity;
use api::selector::LabelSelector;
use client::reference;
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use std::collections::BTreeMap;
use std::sync::Arc;

const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// What is known of a claim.
#[derive(Debug)]
pub struct ClaimView {
    /// The claim.
    pub claim: Arc<PersistentVolumeClaim>,
    /// The volume it names, if it names one that is there.
    pub named: Option<Arc<PersistentVolume>>,
    /// The volumes it could have.
    pub volumes: Vec<Arc<PersistentVolume>>,
    /// Its class.
    pub class: Option<Arc<StorageClass>>,
}

/// What to do about a claim.
pub fn plan_claim(view: &ClaimView) -> Plan {
    let claim = view.claim.as_ref();
    if claim.metadata.deletion_timestamp.is_some() && volume_name(claim).is_none() {
        return Plan::default();
    }
    if volume_name(claim).is_some() {
        return match &view.named {
            Some(volume) if is_for(volume, claim) || volume_claim(volume).is_none() => bind(volume, claim),
            Some(_) if is_completed(claim) => lost(
                claim,
                "ClaimMisbound",
                "Two claims are bound to the same volume, this one is bound incorrectly",
            ),
            None if is_completed(claim) => lost(
                claim,
                "ClaimLost",
                "Bound claim has lost its PersistentVolume. Data on the volume is lost!",
            ),
            Some(_) => {
                let mut plan = pending(claim);
                let message = format!(
                    "volume {:?} already bound to a different claim.",
                    volume_name(claim).unwrap_or_default()
                );
                plan.tell(Note::warning(reference(claim), "FailedBinding", message));
                plan
            }
            None => pending(claim),
        };
    }
    let reserved = view.volumes.iter().find(|volume| is_for(volume, claim));
    let waits = view.class.as_ref().and_then(|class| class.volume_binding_mode.as_deref())
        == Some("WaitForFirstConsumer")
        && super::annotation(claim, SELECTED_NODE).is_none();
    match reserved.or_else(|| if waits { None } else { best(&view.volumes, claim) }) {
        Some(volume) => bind(volume, claim),
        None => waiting(view, waits),
    }
}

/// What to do about a volume, given whether its claim is there.
pub fn plan_volume(volume: &PersistentVolume, claim_is_there: bool) -> Option<Write> {
    let phase = match volume_claim(volume) {
        None => "Available",
        Some(claim) if claim.uid.as_deref().unwrap_or_default().is_empty() => "Available",
        // Bound when the claim says so as well, which is the claim's business.
        Some(_) if claim_is_there => return None,
        Some(_) => "Released",
    };
    let now = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    (now != Some(phase)).then(|| set_phase(volume, phase))
}

fn set_phase(volume: &PersistentVolume, phase: &str) -> Write {
    let mut next = volume.clone();
    next.status.get_or_insert_default().phase = Some(phase.to_owned());
    Write::update_status(&next)
}

fn volume_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty())
}

fn volume_claim(volume: &PersistentVolume) -> Option<&ObjectReference> {
    volume.spec.as_ref()?.claim_ref.as_ref()
}

fn is_completed(claim: &PersistentVolumeClaim) -> bool {
    super::annotation(claim, BIND_COMPLETED).is_some()
}

/// Whether a volume names this claim: by its uid, or, where somebody reserved it, by its name.
fn is_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    volume_claim(volume).is_some_and(|named| {
        named.name == claim.metadata.name
            && named.namespace == claim.metadata.namespace
            && named
                .uid
                .as_deref()
                .is_none_or(|uid| uid.is_empty() || Some(uid) == claim.metadata.uid.as_deref())
    })
}

/// The smallest volume that is free and has what the claim asks for.
fn best<'a>(
    volumes: &'a [Arc<PersistentVolume>],
    claim: &PersistentVolumeClaim,
) -> Option<&'a Arc<PersistentVolume>> {
    let fits = |volume: &&Arc<PersistentVolume>| {
        volume.metadata.deletion_timestamp.is_none()
            && volume_claim(volume).is_none()
            && satisfies(volume, claim)
    };
    volumes.iter().filter(fits).min_by_key(|volume| (capacity(volume), volume.metadata.name.clone()))
}

fn satisfies(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let (Some(has), Some(wants)) = (&volume.spec, &claim.spec) else { return false };
    let modes = has.access_modes.as_deref().unwrap_or_default();
    let mode = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "Filesystem".to_owned());
    let selected = match &wants.selector {
        None => true,
        Some(selector) => {
            let selector = serde_json::to_value(selector).ok();
            let selector = selector.and_then(|selector| LabelSelector::from_json(&selector).ok());
            let none = BTreeMap::new();
            selector
                .is_some_and(|selector| selector.matches(volume.metadata.labels.as_ref().unwrap_or(&none)))
        }
    };
    selected
        && has.storage_class_name.as_deref().unwrap_or_default()
            == wants.storage_class_name.as_deref().unwrap_or_default()
        && wants.access_modes.iter().flatten().all(|mode| modes.contains(mode))
        && mode(&has.volume_mode) == mode(&wants.volume_mode)
        && capacity(volume) >= requested(claim)
}

fn capacity(volume: &PersistentVolume) -> Quantity {
    let capacity = volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref()?.get("storage"));
    capacity.and_then(|amount| amount.0.parse().ok()).unwrap_or_default()
}

fn requested(claim: &PersistentVolumeClaim) -> Quantity {
    let requests = claim.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_ref());
    let request = requests.and_then(|requests| requests.get("storage"));
    request.and_then(|amount| amount.0.parse().ok()).unwrap_or_default()
}

/// The next step that makes the two one.
fn bind(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Plan {
    let step = bind_volume(volume, claim).or_else(|| bind_claim(volume, claim));
    match step {
        Some(write) => Plan { writes: vec![write], ..Plan::default() },
        None => Plan { status: bound_status(volume, claim), ..Plan::default() },
    }
}

fn bind_volume(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<Write> {
    let complete = volume_claim(volume).is_some_and(|named| named.uid == claim.metadata.uid);
    if !complete {
        let mut next = volume.clone();
        if volume_claim(volume).is_none() {
            let annotations = next.metadata.annotations.get_or_insert_default();
            annotations.insert(BOUND_BY_CONTROLLER.to_owned(), "yes".to_owned());
        }
        next.spec.get_or_insert_default().claim_ref = Some(reference(claim));
        return Some(Write::update(&next));
    }
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    (phase != Some("Bound")).then(|| set_phase(volume, "Bound"))
}

fn bind_claim(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<Write> {
    let named = volume_name(claim).is_some();
    if named && is_completed(claim) {
        return None;
    }
    let mut next = claim.clone();
    let annotations = next.metadata.annotations.get_or_insert_default();
    annotations.insert(BIND_COMPLETED.to_owned(), "yes".to_owned());
    if !named {
        annotations.insert(BOUND_BY_CONTROLLER.to_owned(), "yes".to_owned());
    }
    next.spec.get_or_insert_default().volume_name = volume.metadata.name.clone();
    Some(Write::update(&next))
}

fn bound_status(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<Write> {
    let mut next = claim.clone();
    let status = next.status.get_or_insert_default();
    let spec = volume.spec.as_ref();
    if status.phase.as_deref() == Some("Bound") {
        return None;
    }
    status.phase = Some("Bound".to_owned());
    status.access_modes = spec.and_then(|spec| spec.access_modes.clone());
    status.capacity = spec.and_then(|spec| spec.capacity.clone());
    Some(Write::update_status(&next))
}

fn set_claim_phase(claim: &PersistentVolumeClaim, phase: &str) -> Option<Write> {
    let mut next = claim.clone();
    let old = next.status.get_or_insert_default().phase.replace(phase.to_owned());
    (old.as_deref() != Some(phase)).then(|| Write::update_status(&next))
}

fn pending(claim: &PersistentVolumeClaim) -> Plan {
    Plan { status: set_claim_phase(claim, "Pending"), ..Plan::default() }
}

fn lost(claim: &PersistentVolumeClaim, reason: &str, message: &str) -> Plan {
    let mut plan = Plan { status: set_claim_phase(claim, "Lost"), ..Plan::default() };
    if plan.status.is_some() {
        plan.tell(Note::warning(reference(claim), reason, message));
    }
    plan
}

/// Nothing fits yet: people are told what it waits for.
fn waiting(view: &ClaimView, for_consumer: bool) -> Plan {
    let mut plan = pending(&view.claim);
    let regarding = reference(view.claim.as_ref());
    let provisioner = view.class.as_ref().map(|class| class.provisioner.as_str());
    plan.tell(match provisioner.filter(|name| *name != NO_PROVISIONER) {
        _ if for_consumer => Note::normal(
            regarding,
            "WaitForFirstConsumer",
            "waiting for first consumer to be created before binding",
        ),
        Some(name) => Note::normal(
            regarding,
            "ExternalProvisioning",
            format!("Waiting for a volume to be created either by the external provisioner '{name}' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered."),
        ),
        None => Note::normal(
            regarding,
            "FailedBinding",
            "no persistent volumes available for this claim and no storage class is set",
        ),
    });
    plan
}
