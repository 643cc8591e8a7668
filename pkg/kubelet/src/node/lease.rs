//! The node's lease: the sign of life that the node controller looks at.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

const NAMESPACE: &str = "kube-node-lease";
const DURATION_S: i32 = 40;
const RENEW_EVERY: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_millis(500);

/// Renews it for ever.
pub(super) async fn run(client: Client, node: String, mut known: watch::Receiver<Option<Arc<Node>>>) {
    let leases: Api<Lease> = Api::namespaced(client, NAMESPACE);
    loop {
        // A lease without its node would outlive it.
        let Ok(owner) = known.wait_for(Option::is_some).await.map(|node| node.clone()) else { return };
        match renew(&leases, &node, owner.as_deref()).await {
            Ok(()) => tokio::time::sleep(RENEW_EVERY).await,
            Err(error) => {
                tracing::debug!(error = crate::error::chain(&error), "renew the lease");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

async fn renew(leases: &Api<Lease>, node: &str, owner: Option<&Node>) -> Result<(), kube::Error> {
    let now = MicroTime(Timestamp::now());
    let patch = json!({"spec": {
        "holderIdentity": node, "leaseDurationSeconds": DURATION_S, "renewTime": now,
    }});
    match leases.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(_) => return Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(error) => return Err(error),
    }
    let uid = owner.and_then(|owner| owner.metadata.uid.clone());
    let lease = Lease {
        metadata: ObjectMeta {
            name: Some(node.to_owned()),
            namespace: Some(NAMESPACE.into()),
            owner_references: uid.map(|uid| {
                vec![OwnerReference {
                    api_version: "v1".into(),
                    kind: "Node".into(),
                    name: node.to_owned(),
                    uid,
                    ..OwnerReference::default()
                }]
            }),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(node.to_owned()),
            lease_duration_seconds: Some(DURATION_S),
            renew_time: Some(now),
            ..LeaseSpec::default()
        }),
    };
    leases.create(&PostParams::default(), &lease).await.map(drop)
}
