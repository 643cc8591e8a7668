//! What an autoscaler reads from the apiserver: the scale of its target, and the use of pods.

use api::Quantity;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::{Client, ResourceExt};
use serde::Deserialize;
use std::collections::BTreeMap;

/// What pods use, by name.
pub type PodMetrics = BTreeMap<String, PodMetric>;

/// What one pod uses.
#[derive(Debug, Clone, PartialEq)]
pub struct PodMetric {
    /// When that was measured.
    pub at: Timestamp,
    /// Over how long.
    pub window: SignedDuration,
    /// By container and resource, in thousandths.
    pub usage: BTreeMap<String, BTreeMap<String, i64>>,
}

#[derive(Deserialize)]
struct List {
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    metadata: Metadata,
    timestamp: Timestamp,
    #[serde(default)]
    window: String,
    #[serde(default)]
    containers: Vec<Container>,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Deserialize)]
struct Container {
    name: String,
    #[serde(default)]
    usage: BTreeMap<String, String>,
}

/// What the pods that a selector matches use.
pub async fn of_pods(client: &Client, namespace: &str, selector: &str) -> Result<PodMetrics, String> {
    let selector: String = selector.bytes().map(escape).collect();
    let path = format!("/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods?labelSelector={selector}");
    let list: List = get(client, path)
        .await
        .map_err(|why| format!("unable to fetch metrics from resource metrics API: {why}"))?;
    if list.items.is_empty() {
        return Err("no metrics returned from resource metrics API".into());
    }
    let read = |item: Item| {
        let containers = item.containers.into_iter().map(|container| {
            let usage = container.usage.into_iter();
            let usage = usage
                .filter_map(|(name, amount)| Some((name, amount.parse::<Quantity>().ok()?.milli_value())));
            (container.name, usage.collect())
        });
        let window = item.window.parse().unwrap_or(SignedDuration::from_secs(60));
        (item.metadata.name, PodMetric { at: item.timestamp, window, usage: containers.collect() })
    };
    Ok(list.items.into_iter().map(read).collect())
}

fn escape(byte: u8) -> String {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    }
}

/// The scale of an autoscaler's target, and the name of its resource.
pub async fn scale(client: &Client, autoscaler: &HorizontalPodAutoscaler) -> Result<(String, Scale), String> {
    let spec = autoscaler.spec.as_ref().ok_or("no spec")?;
    let target = &spec.scale_target_ref;
    let api_version = target.api_version.as_deref().unwrap_or("v1");
    let prefix = if api_version.contains('/') { "/apis" } else { "/api" };
    let plural = match target.kind.as_str() {
        "Deployment" => "deployments".to_owned(),
        "ReplicaSet" => "replicasets".to_owned(),
        "StatefulSet" => "statefulsets".to_owned(),
        "ReplicationController" => "replicationcontrollers".to_owned(),
        kind => {
            let resources = match api_version.contains('/') {
                true => client.list_api_group_resources(api_version).await,
                false => client.list_core_api_resources(api_version).await,
            };
            let resources = resources.map_err(|error| error.to_string())?.resources;
            let found =
                resources.into_iter().find(|resource| resource.kind == kind && !resource.name.contains('/'));
            found.ok_or_else(|| format!("no matches for kind {kind:?} in version {api_version:?}"))?.name
        }
    };
    let namespace = autoscaler.namespace().unwrap_or_default();
    let path = format!("{prefix}/{api_version}/namespaces/{namespace}/{plural}/{}/scale", target.name);
    Ok((plural, get(client, path).await?))
}

async fn get<T: serde::de::DeserializeOwned>(client: &Client, path: String) -> Result<T, String> {
    let request = http::Request::get(path).body(Vec::new()).map_err(|error| error.to_string())?;
    client.request(request).await.map_err(|error| match error {
        kube::Error::Api(status) => status.message,
        error => error.to_string(),
    })
}
