//! The node's lease: the sign of life that the node controller looks at, and the word of which kubelet gives it.

use super::claim::{CLAIM, Claimant, NAMESPACE, Taken};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

const DURATION_S: i32 = 40;
const RENEW_EVERY: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_millis(500);

/// A lease that is kept, as it was written last.
struct Kept<'a> {
    client: Client,
    leases: Api<Lease>,
    node: &'a str,
    claimant: &'a Claimant,
    version: Option<String>,
    /// It was ours.
    has: bool,
}

/// Renews it until another kubelet does.
pub(super) async fn run(
    client: Client,
    node: &str,
    claimant: &Claimant,
    mut known: watch::Receiver<Option<Arc<Node>>>,
) -> Taken {
    let leases = Api::namespaced(client.clone(), NAMESPACE);
    let mut kept = Kept { client, leases, node, claimant, version: None, has: false };
    loop {
        // A lease without its node would outlive it.
        let Ok(owner) = known.wait_for(Option::is_some).await.map(|node| node.clone()) else {
            return std::future::pending().await;
        };
        match kept.renew(owner.as_deref()).await {
            Ok(Ok(())) => tokio::time::sleep(RENEW_EVERY).await,
            Ok(Err(taken)) => return taken,
            Err(error) => {
                tracing::debug!(error = crate::error::chain(&error), "renew the lease");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

impl Kept<'_> {
    /// Writes it as it was last; what somebody else has written is looked at first.
    async fn renew(&mut self, owner: Option<&Node>) -> Result<Result<(), Taken>, kube::Error> {
        if self.version.is_none() {
            if let Err(taken) = self.claimant.wait(&self.client, self.node, self.has).await {
                return Ok(Err(taken));
            }
            match self.leases.get_opt(self.node).await? {
                None => return self.create(owner).await.map(Ok),
                Some(lease) => self.version = lease.metadata.resource_version,
            }
        }
        // Only over what was seen: who else writes is noticed.
        let patch = json!({
            "metadata": {"resourceVersion": self.version, "annotations": {CLAIM: self.claimant.word()}},
            "spec": {
                "holderIdentity": self.node, "leaseDurationSeconds": DURATION_S,
                "renewTime": MicroTime(Timestamp::now()),
            },
        });
        match self.leases.patch(self.node, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(lease) => self.wrote(lease),
            Err(error) => {
                if matches!(&error, kube::Error::Api(status) if matches!(status.code, 404 | 409)) {
                    self.version = None;
                }
                return Err(error);
            }
        }
        Ok(Ok(()))
    }

    fn wrote(&mut self, lease: Lease) {
        self.version = lease.metadata.resource_version;
        self.has = true;
    }

    async fn create(&mut self, owner: Option<&Node>) -> Result<(), kube::Error> {
        let uid = owner.and_then(|owner| owner.metadata.uid.clone());
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.node.to_owned()),
                namespace: Some(NAMESPACE.into()),
                annotations: Some(BTreeMap::from([(CLAIM.to_owned(), self.claimant.word())])),
                owner_references: uid.map(|uid| {
                    vec![OwnerReference {
                        api_version: "v1".into(),
                        kind: "Node".into(),
                        name: self.node.to_owned(),
                        uid,
                        ..OwnerReference::default()
                    }]
                }),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(self.node.to_owned()),
                lease_duration_seconds: Some(DURATION_S),
                renew_time: Some(MicroTime(Timestamp::now())),
                ..LeaseSpec::default()
            }),
        };
        let made = self.leases.create(&PostParams::default(), &lease).await?;
        self.wrote(made);
        Ok(())
    }
}
