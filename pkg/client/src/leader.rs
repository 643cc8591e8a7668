//! Leader election on a Lease: of several replicas one leads, and another takes over when it no longer renews.
//!
//! ```text
//! acquire ──> lead(token) ∥ renew ──> lost: the token is cancelled, the run ends with an error
//!                                └──> shutdown: the token is cancelled, then the lease is released
//! ```
//!
//! Clocks of machines differ: a lease counts as expired when it has not *changed* for its duration by the clock here, as
//! upstream does it.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::PostParams;
use kube::{Api, Client};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How it is decided who leads.
#[derive(Debug, Clone)]
pub struct LeaderConfig {
    /// Of several replicas only one leads. Where this is not so, each does, at once.
    pub elects: bool,
    /// Where the lease is.
    pub namespace: String,
    /// What the lease is called.
    pub name: String,
    /// Who does not renew for so long has lost it.
    pub lease_duration: Duration,
    /// Who cannot renew for so long stops leading; less than the duration.
    pub renew_deadline: Duration,
    /// How often it is tried.
    pub retry_period: Duration,
}

/// One candidate for a lease.
#[derive(Clone)]
pub struct LeaderElection {
    /// Who asks.
    pub client: Client,
    /// What this candidate is called.
    pub identity: String,
    /// How it is decided.
    pub config: LeaderConfig,
}

/// Why a leader stopped.
#[derive(Debug, thiserror::Error)]
pub enum LeaderError {
    /// Somebody else may lead now.
    #[error("leaderelection lost: {0}")]
    Lost(String),
}

/// The lease as it was last seen, and when it changed by the clock here.
struct Observed {
    lease: Lease,
    at: Instant,
}

impl LeaderConfig {
    /// An election for this lease in `kube-system`, with upstream's times.
    pub fn of(name: &str) -> LeaderConfig {
        LeaderConfig {
            elects: true,
            namespace: "kube-system".to_owned(),
            name: name.to_owned(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }

    /// No election.
    pub fn alone() -> LeaderConfig {
        LeaderConfig { elects: false, ..LeaderConfig::of("") }
    }

    /// Leads until shutdown, or until `lead` ends, or until the lease is lost; after waiting for the lease, if there is one.
    pub async fn lead<T>(
        &self,
        client: &Client,
        host: &str,
        shutdown: CancellationToken,
        lead: impl AsyncFnOnce(CancellationToken) -> T,
    ) -> Result<Option<T>, LeaderError> {
        if !self.elects {
            return Ok(Some(lead(shutdown).await));
        }
        LeaderElection::new(client.clone(), self.clone(), host).run(shutdown, lead).await
    }
}

impl LeaderElection {
    /// A candidate with a name that nobody else has.
    pub fn new(client: Client, config: LeaderConfig, host: &str) -> LeaderElection {
        LeaderElection { client, identity: format!("{host}_{}", uuid::Uuid::new_v4()), config }
    }

    /// Waits for the lease, then leads until shutdown, or until `lead` ends, or until the lease is lost.
    pub async fn run<T>(
        &self,
        shutdown: CancellationToken,
        lead: impl AsyncFnOnce(CancellationToken) -> T,
    ) -> Result<Option<T>, LeaderError> {
        let mut observed = None;
        while !self.try_once(&mut observed).await.is_ok_and(|leads| leads) {
            let jitter = 1.0 + 0.2 * fastrand::f64();
            tokio::select! {
                () = tokio::time::sleep(self.config.retry_period.mul_f64(jitter)) => {}
                () = shutdown.cancelled() => return Ok(None),
            }
        }
        tracing::info!(lease = self.config.name, identity = self.identity, "leading");
        let token = shutdown.child_token();
        let leading = lead(token.clone());
        tokio::pin!(leading);
        let lost = tokio::select! {
            result = &mut leading => {
                self.release(observed).await;
                return Ok(Some(result));
            }
            why = self.renew(&mut observed, &token) => why,
        };
        token.cancel();
        let result = leading.await;
        match lost {
            Some(why) => Err(LeaderError::Lost(why)),
            None => {
                self.release(observed).await;
                Ok(Some(result))
            }
        }
    }

    /// Renews until shutdown (`None`), or until it has failed for too long.
    async fn renew(&self, observed: &mut Option<Observed>, token: &CancellationToken) -> Option<String> {
        let mut renewed = Instant::now();
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.config.retry_period) => {}
                () = token.cancelled() => return None,
            }
            let deadline = renewed + self.config.renew_deadline;
            let why = match tokio::time::timeout_at(deadline, self.try_once(observed)).await {
                Ok(Ok(true)) => {
                    renewed = Instant::now();
                    continue;
                }
                Ok(Ok(false)) => return Some("another holder has the lease".to_owned()),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "the apiserver did not answer in time".to_owned(),
            };
            tracing::warn!(lease = self.config.name, why, "the lease was not renewed");
            if Instant::now() >= deadline {
                return Some(why);
            }
        }
    }

    /// Takes or renews the lease, if it may be taken. Says whether it is held.
    async fn try_once(&self, observed: &mut Option<Observed>) -> kube::Result<bool> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.config.namespace);
        let now = Timestamp::now();
        let Some(lease) = leases.get_opt(&self.config.name).await? else {
            let mut lease = Lease::default();
            lease.metadata.name = Some(self.config.name.clone());
            lease.metadata.namespace = Some(self.config.namespace.clone());
            lease.spec = Some(self.spec(&LeaseSpec::default(), now));
            let lease = leases.create(&PostParams::default(), &lease).await?;
            *observed = Some(Observed { lease, at: Instant::now() });
            return Ok(true);
        };
        let spec = lease.spec.clone().unwrap_or_default();
        if observed.as_ref().is_none_or(|observed| observed.lease.spec != lease.spec) {
            *observed = Some(Observed { lease: lease.clone(), at: Instant::now() });
        }
        let at = observed.as_ref().expect("set above").at;
        if !may_take(&spec, &self.identity, at.elapsed()) {
            return Ok(false);
        }
        let mut lease = lease;
        lease.spec = Some(self.spec(&spec, now));
        let lease = leases.replace(&self.config.name, &PostParams::default(), &lease).await?;
        *observed = Some(Observed { lease, at: Instant::now() });
        Ok(true)
    }

    fn spec(&self, old: &LeaseSpec, now: Timestamp) -> LeaseSpec {
        let was_ours = old.holder_identity.as_deref() == Some(&self.identity);
        let changes = old.lease_transitions.unwrap_or(0);
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(self.config.lease_duration.as_secs()).ok(),
            acquire_time: if was_ours { old.acquire_time.clone() } else { Some(MicroTime(now)) },
            renew_time: Some(MicroTime(now)),
            lease_transitions: Some(if was_ours || old.holder_identity.is_none() {
                changes
            } else {
                changes + 1
            }),
            ..LeaseSpec::default()
        }
    }

    /// Lets others have it at once.
    async fn release(&self, observed: Option<Observed>) {
        let Some(Observed { mut lease, .. }) = observed else { return };
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.config.namespace);
        let now = Timestamp::now();
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(MicroTime(now));
        spec.acquire_time = Some(MicroTime(now));
        // If it fails, others wait until it expires.
        let params = PostParams::default();
        let released = tokio::time::timeout(
            self.config.retry_period,
            leases.replace(&self.config.name, &params, &lease),
        )
        .await;
        if !matches!(released, Ok(Ok(_))) {
            tracing::debug!(lease = self.config.name, "the lease was not released");
        }
    }
}

/// Whether a lease that has not changed for so long may be taken.
fn may_take(lease: &LeaseSpec, identity: &str, unchanged: Duration) -> bool {
    match lease.holder_identity.as_deref() {
        None | Some("") => true,
        Some(holder) if holder == identity => true,
        Some(_) => {
            let seconds = u64::try_from(lease.lease_duration_seconds.unwrap_or(0)).unwrap_or(0);
            unchanged > Duration::from_secs(seconds)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_taken_when_nobody_holds_it() {
        let lease = |holder: Option<&str>| LeaseSpec {
            holder_identity: holder.map(str::to_owned),
            lease_duration_seconds: Some(15),
            ..LeaseSpec::default()
        };
        let second = Duration::from_secs(1);
        assert!(may_take(&lease(None), "me", second));
        assert!(may_take(&lease(Some("")), "me", second));
        assert!(may_take(&lease(Some("me")), "me", second));
        assert!(!may_take(&lease(Some("you")), "me", 15 * second));
        assert!(may_take(&lease(Some("you")), "me", 16 * second));
    }
}
