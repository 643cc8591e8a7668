//! Who publishes: the one apiserver that holds the Lease `kube-system/minik8s-publisher`.
//!
//! Whoever takes it, or takes it again after having lost Redis, writes it; the revision of that write is the epoch of what is told
//! from then on. An annotation says up to where everything was told, so that the next one goes on from there.

use crate::error::{ApiError, Result};
use crate::peers::create_or;
use crate::server::Server;
use crate::storage::{Change, Outcome};
use api::Value;
use http::StatusCode;
use jiff::Timestamp;
use serde_json::json;
use std::time::Duration;
use store::Revision;
use tokio::time::Instant;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "minik8s-publisher";
const PUBLISHED: &str = "minik8s.io/published";
/// Who has not renewed for so long publishes no more.
const SECONDS: u64 = 15;
/// How often it is renewed, and looked at by others.
pub const RENEW_EVERY: Duration = Duration::from_secs(5);

/// What a holder knows.
pub struct Held {
    /// The revision of the write that took or renewed it.
    pub epoch: Revision,
    /// Up to here everything was told, by whoever held it before.
    pub published: Option<Revision>,
}

/// The lease as it was seen last, and since when it is so: clocks of other machines are not believed.
#[derive(Default)]
pub struct Observed(Option<(Value, Instant)>);

/// Takes or renews it. None: somebody else has it.
pub async fn hold(
    server: &Server,
    identity: &str,
    observed: &mut Observed,
    published: Option<Revision>,
) -> Result<Option<Held>> {
    let leases = server.registry.built_in("coordination.k8s.io", "leases");
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
    let mut before = None;
    let decide = |current: &Value| {
        if !observed.may_take(&current["spec"], identity) {
            return Ok(Change::Keep);
        }
        before = current["metadata"]["annotations"][PUBLISHED].as_str().and_then(|text| text.parse().ok());
        let mut next = current.clone();
        let was_ours = next["spec"]["holderIdentity"] == identity;
        let changes = next["spec"]["leaseTransitions"].as_i64().unwrap_or(0);
        if !was_ours {
            next["spec"]["acquireTime"] = json!(now);
            next["spec"]["leaseTransitions"] = json!(changes + 1);
        }
        next["spec"]["holderIdentity"] = json!(identity);
        next["spec"]["leaseDurationSeconds"] = json!(SECONDS);
        next["spec"]["renewTime"] = json!(now);
        if let Some(published) = published {
            next["metadata"]["annotations"][PUBLISHED] = json!(published.to_string());
        }
        Ok(Change::Put(Box::new(next), Vec::new()))
    };
    let lease = match server.modify(&leases, NAMESPACE, NAME, false, decide).await {
        Ok(Outcome::Stored(lease)) => lease,
        Ok(Outcome::Removed(_)) => return Ok(None),
        Err(ApiError { code: StatusCode::NOT_FOUND, .. }) => {
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": NAME, "namespace": NAMESPACE},
                "spec": {"holderIdentity": identity, "leaseDurationSeconds": SECONDS, "renewTime": now},
            });
            // Whoever made it first has it; this shows who.
            create_or(server, &leases, NAMESPACE, lease, |_| Ok(Change::Keep)).await?;
            return Box::pin(hold(server, identity, observed, published)).await;
        }
        Err(error) => return Err(error),
    };
    if lease["spec"]["holderIdentity"] != identity || lease["spec"]["renewTime"] != now {
        return Ok(None);
    }
    let epoch = lease["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok());
    Ok(epoch.map(|epoch| Held { epoch, published: before }))
}

impl Observed {
    fn may_take(&mut self, spec: &Value, identity: &str) -> bool {
        if self.0.as_ref().is_none_or(|(seen, _)| seen != spec) {
            self.0 = Some((spec.clone(), Instant::now()));
        }
        let unchanged = self.0.as_ref().map_or(Duration::ZERO, |(_, since)| since.elapsed());
        match spec["holderIdentity"].as_str() {
            None | Some("") => true,
            Some(holder) if holder == identity => true,
            Some(_) => unchanged > Duration::from_secs(SECONDS),
        }
    }
}
