//! Registers the node: makes it, or brings what the kubelet owns of it up to date.

use super::leave::GIVEN_BACK;
use super::status::{architecture, node_status};
use super::{Facts, Settings};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use std::collections::BTreeMap;

/// The node as it is in the API afterwards.
pub(super) async fn register(
    client: &Client,
    settings: &Settings,
    facts: &Facts,
) -> Result<Node, kube::Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let mut labels = labels(settings);
    for (key, value) in &facts.now.labels {
        labels.entry(key.clone()).or_insert_with(|| value.clone());
    }
    let taints = settings.taints.clone();
    let node = Node {
        metadata: ObjectMeta {
            name: Some(settings.name.clone()),
            labels: Some(labels.clone()),
            annotations: Some(BTreeMap::from([(
                "volumes.kubernetes.io/controller-managed-attach-detach".to_owned(),
                "true".to_owned(),
            )])),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec { taints: (!taints.is_empty()).then_some(taints), ..NodeSpec::default() }),
        status: Some(node_status(facts, &NodeStatus::default(), Timestamp::now())),
    };
    match nodes.create(&PostParams::default(), &node).await {
        Ok(node) => Ok(node),
        Err(kube::Error::Api(status)) if status.code == 409 => {
            // Whoever had the name before may have given it back.
            let patch = json!({"metadata": {"labels": labels, "annotations": {GIVEN_BACK: null}}});
            nodes.patch(&settings.name, &PatchParams::default(), &Patch::Strategic(patch)).await
        }
        Err(error) => Err(error),
    }
}

fn labels(settings: &Settings) -> BTreeMap<String, String> {
    let mut labels = settings.labels.clone();
    for (key, value) in [
        ("kubernetes.io/hostname", settings.hostname.as_str()),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", architecture()),
        ("beta.kubernetes.io/os", "linux"),
        ("beta.kubernetes.io/arch", architecture()),
    ] {
        labels.insert(key.to_owned(), value.to_owned());
    }
    labels
}
