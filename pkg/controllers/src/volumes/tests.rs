//! Tables over the plans.

use super::binding::{ClaimView, plan_claim, plan_volume};
use super::{ephemeral, protection};
use crate::runtime::{Plan, Verb};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::{Value, json};
use std::sync::Arc;

fn merge(target: &mut Value, overlay: &Value) {
    match (target, overlay) {
        (Value::Object(target), Value::Object(overlay)) => {
            for (key, value) in overlay {
                merge(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (target, overlay) => *target = overlay.clone(),
    }
}

fn claim(more: Value) -> Arc<PersistentVolumeClaim> {
    let mut claim = json!({
        "metadata": {"name": "data", "namespace": "default", "uid": "c1"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "slow", "resources": {"requests": {"storage": "5Gi"}}},
        "status": {"phase": "Pending"},
    });
    merge(&mut claim, &more);
    Arc::new(serde_json::from_value(claim).unwrap())
}

fn volume(name: &str, size: &str, more: Value) -> Arc<PersistentVolume> {
    let mut volume = json!({
        "metadata": {"name": name, "uid": name},
        "spec": {"accessModes": ["ReadWriteOnce", "ReadOnlyMany"], "storageClassName": "slow", "capacity": {"storage": size}},
        "status": {"phase": "Available"},
    });
    merge(&mut volume, &more);
    Arc::new(serde_json::from_value(volume).unwrap())
}

fn class(provisioner: &str, mode: &str) -> Option<Arc<StorageClass>> {
    let class = json!({"metadata": {"name": "slow"}, "provisioner": provisioner, "volumeBindingMode": mode});
    Some(Arc::new(serde_json::from_value(class).unwrap()))
}

fn view(claim: Arc<PersistentVolumeClaim>, volumes: Vec<Arc<PersistentVolume>>) -> ClaimView {
    ClaimView { claim, named: None, volumes, class: None }
}

/// The volume that a plan takes.
fn taken(plan: &Plan) -> Option<String> {
    let write = plan.writes.first()?;
    assert_eq!((write.verb, write.target.kind.as_str()), (Verb::Update, "PersistentVolume"));
    assert_eq!(write.body["spec"]["claimRef"]["uid"], "c1");
    Some(write.target.key.name.clone())
}

#[test]
fn the_smallest_volume_that_fits_is_taken() {
    let labelled = json!({"spec": {"selector": {"matchLabels": {"tier": "gold"}}}});
    let gold = json!({"metadata": {"labels": {"tier": "gold"}}});
    let others = json!({"spec": {"claimRef": {"name": "other", "namespace": "default", "uid": "c2"}}});
    let reserved = json!({"spec": {"claimRef": {"name": "data", "namespace": "default"}}});
    let cases = [
        ("nothing there", claim(json!({})), vec![], None),
        (
            "the smallest",
            claim(json!({})),
            vec![
                volume("big", "9Gi", json!({})),
                volume("fits", "6Gi", json!({})),
                volume("small", "4Gi", json!({})),
            ],
            Some("fits"),
        ),
        (
            "of another class",
            claim(json!({"spec": {"storageClassName": "fast"}})),
            vec![volume("v", "9Gi", json!({}))],
            None,
        ),
        (
            "without a mode",
            claim(json!({"spec": {"accessModes": ["ReadWriteMany"]}})),
            vec![volume("v", "9Gi", json!({}))],
            None,
        ),
        (
            "block or file",
            claim(json!({"spec": {"volumeMode": "Block"}})),
            vec![volume("v", "9Gi", json!({}))],
            None,
        ),
        (
            "by label",
            claim(labelled),
            vec![volume("v", "6Gi", json!({})), volume("g", "9Gi", gold)],
            Some("g"),
        ),
        ("taken by another", claim(json!({})), vec![volume("v", "6Gi", others)], None),
        (
            "reserved for it",
            claim(json!({})),
            vec![volume("a", "5Gi", json!({})), volume("r", "9Gi", reserved)],
            Some("r"),
        ),
    ];
    for (name, claim, volumes, expected) in cases {
        assert_eq!(taken(&plan_claim(&view(claim, volumes))).as_deref(), expected, "{name}");
    }
}

#[test]
fn both_sides_become_bound_step_by_step() {
    let (mut claim, mut volume) = (claim(json!({})), volume("v", "6Gi", json!({})));
    let mut steps = Vec::new();
    for _ in 0..9 {
        let named = claim.spec.as_ref().unwrap().volume_name.is_some();
        let view = ClaimView {
            claim: claim.clone(),
            named: named.then(|| volume.clone()),
            volumes: vec![volume.clone()],
            class: None,
        };
        let plan = plan_claim(&view);
        let Some(write) = plan.writes.into_iter().chain(plan.status).next() else { break };
        steps.push(format!("{} {}", write.target.kind, write.target.subresource));
        match write.target.kind.as_str() {
            "PersistentVolume" => volume = Arc::new(serde_json::from_value(write.body).unwrap()),
            _ => claim = Arc::new(serde_json::from_value(write.body).unwrap()),
        }
    }
    let expected = [
        "PersistentVolume ",
        "PersistentVolume status",
        "PersistentVolumeClaim ",
        "PersistentVolumeClaim status",
    ];
    assert_eq!(steps, expected);
    let status = claim.status.as_ref().unwrap();
    assert_eq!(status.phase.as_deref(), Some("Bound"));
    assert_eq!(status.capacity.as_ref().unwrap()["storage"].0, "6Gi");
    let annotations = claim.metadata.annotations.as_ref().unwrap();
    assert_eq!(annotations["pv.kubernetes.io/bind-completed"], "yes");
    assert_eq!(annotations["pv.kubernetes.io/bound-by-controller"], "yes");
    assert_eq!(volume.status.as_ref().unwrap().phase.as_deref(), Some("Bound"));
}

#[test]
fn claims_say_what_they_wait_for() {
    let free = || vec![volume("v", "6Gi", json!({}))];
    let selected = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}});
    let bound = json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"volumeName": "gone"}});
    let late = || class("kubernetes.io/no-provisioner", "WaitForFirstConsumer");
    let cases = [
        (
            "a consumer",
            ClaimView { class: late(), ..view(claim(json!({})), free()) },
            Some("WaitForFirstConsumer"),
        ),
        ("none: it has one", ClaimView { class: late(), ..view(claim(selected), free()) }, None),
        (
            "a provisioner",
            ClaimView { class: class("example.com/nfs", "Immediate"), ..view(claim(json!({})), vec![]) },
            Some("ExternalProvisioning"),
        ),
        ("a volume", view(claim(json!({})), vec![]), Some("FailedBinding")),
        ("it is lost", view(claim(bound), vec![]), Some("ClaimLost")),
    ];
    for (name, view, reason) in cases {
        let plan = plan_claim(&view);
        assert_eq!(plan.events.first().map(|note| note.reason.as_str()), reason, "{name}");
        assert_eq!(plan.writes.is_empty(), reason.is_some(), "{name}");
    }
}

#[test]
fn volumes_say_whether_they_can_be_had() {
    let of = |uid: Value| json!({"spec": {"claimRef": {"name": "data", "namespace": "default", "uid": uid}}, "status": {"phase": "Bound"}});
    let cases = [
        ("new", volume("v", "1Gi", json!({"status": {"phase": null}})), false, Some("Available")),
        ("free", volume("v", "1Gi", json!({})), false, None),
        ("in use", volume("v", "1Gi", of(json!("c1"))), true, None),
        ("its claim is gone", volume("v", "1Gi", of(json!("c1"))), false, Some("Released")),
        ("reserved", volume("v", "1Gi", of(Value::Null)), false, Some("Available")),
    ];
    for (name, volume, there, phase) in cases {
        let write = plan_volume(&volume, there);
        let found = write.map(|write| write.body["status"]["phase"].as_str().unwrap().to_owned());
        assert_eq!(found.as_deref(), phase, "{name}");
    }
}

fn pod(volumes: Value, node: &str) -> Arc<Pod> {
    let pod = json!({"metadata": {"name": "p", "namespace": "default", "uid": "p1"}, "spec": {"nodeName": node, "containers": [], "volumes": volumes}});
    Arc::new(serde_json::from_value(pod).unwrap())
}

#[test]
fn what_is_used_stays() {
    let held = json!({"metadata": {"finalizers": ["kubernetes.io/pvc-protection"]}});
    let mut going = held.clone();
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let using =
        |node: &str| vec![pod(json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]), node)];
    let cases = [
        ("new", claim(json!({})), vec![], Some(1)),
        ("held", claim(held), vec![], None),
        ("going, unused", claim(going.clone()), vec![], Some(0)),
        ("going, used", claim(going.clone()), using("n1"), None),
        ("going, wanted by a pod without a node", claim(going), using(""), Some(0)),
    ];
    for (name, claim, pods, finalizers) in cases {
        let write = protection::plan_claim(&claim, &pods);
        let found = write.map(|write| write.body["metadata"]["finalizers"].as_array().map_or(0, Vec::len));
        assert_eq!(found, finalizers, "{name}");
    }
    let bound = json!({"metadata": {"finalizers": ["kubernetes.io/pv-protection"], "deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Bound"}});
    assert_eq!(protection::plan_volume(&volume("v", "1Gi", bound)), None);
}

#[test]
fn ephemeral_volumes_get_claims_of_their_pod() {
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let pod = pod(json!([{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]), "");
    let (writes, foreign) = ephemeral::plan(&pod, |_| None);
    assert!(foreign.is_empty());
    assert_eq!(writes[0].body["metadata"]["name"], "p-scratch");
    assert_eq!(writes[0].body["metadata"]["labels"], json!({"a": "b"}));
    let owner = json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p1", "controller": true, "blockOwnerDeletion": true}]);
    assert_eq!(writes[0].body["metadata"]["ownerReferences"], owner);
    let own: PersistentVolumeClaim = serde_json::from_value(writes[0].body.clone()).unwrap();
    let own = Arc::new(own);
    assert_eq!(ephemeral::plan(&pod, |_| Some(own.clone())), (vec![], vec![]));
    assert_eq!(ephemeral::plan(&pod, |_| Some(claim(json!({})))), (vec![], vec!["p-scratch".to_owned()]));
}
