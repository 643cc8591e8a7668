//! One kubelet for one Node: which one it is stands on the Node's lease, and whoever finds another's word there stops.
//!
//! ```text
//! lease: "<disk>.<boot>/<process>" ── nobody's, ours, or not renewed any more ──> ours
//!                                 └── somebody else's who renews it ───────────> Taken
//! ```
//!
//! A kubelet that is started again is its own successor at once, by what is on its disk. A copy of that disk on another
//! machine is not: that was started by another kernel.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::Api;
use std::path::Path;
use std::time::Duration;

/// The annotation of a lease.
pub(super) const CLAIM: &str = "minik8s.io/kubelet";
/// Where leases of nodes are.
pub(super) const NAMESPACE: &str = "kube-node-lease";
/// How often it is looked whether another kubelet is still there.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How soon an apiserver is asked again.
const RETRY: Duration = Duration::from_millis(200);
/// Where a kubelet's identity is in its folder.
const FILE: &str = "kubelet-id";

/// A kubelet among those that may claim a Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimant {
    /// The same for all kubelets that follow each other on a machine, until it is booted.
    machine: String,
    process: String,
}

/// Another kubelet has the Node.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// As it calls itself.
    pub by: String,
}

/// What a lease says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The Node is ours, or may be.
    Ours,
    /// Somebody else's, who renewed it then.
    Theirs { by: String, renewed: Option<Timestamp> },
}

impl Claimant {
    /// The kubelet of a folder, which remembers who it is.
    pub(crate) fn of(root: &Path) -> Claimant {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let file = root.join(FILE);
        let known = std::fs::read_to_string(&file).ok().filter(|id| !id.trim().is_empty());
        let disk = known.unwrap_or_else(|| {
            let new = uuid::Uuid::new_v4().to_string();
            let written = std::fs::create_dir_all(root).map_err(|error| error.to_string()).and_then(|()| {
                pki::file::write(&file, new.as_bytes(), pki::file::Mode::Public).map_err(|error| error.to_string())
            });
            if let Err(error) = written {
                tracing::warn!(error, file = %file.display(), "who this kubelet is will not be known when it starts again");
            }
            new
        });
        Claimant::named(&format!("{}.{}", disk.trim(), boot.trim()))
    }

    /// The kubelet that a folder has had, if it has had one.
    pub(super) fn known(root: &Path) -> Option<Claimant> {
        let disk = std::fs::read_to_string(root.join(FILE)).ok()?;
        (!disk.trim().is_empty()).then(|| Claimant::named(disk.trim()))
    }

    /// Whether a word on a lease is of this kubelet's disk, whenever it was booted. For one of [`Claimant::known`].
    pub(super) fn said(&self, word: &str) -> bool {
        let machine = word.split_once('/').map_or(word, |(machine, _)| machine);
        machine.strip_prefix(&self.machine).is_some_and(|boot| boot.is_empty() || boot.starts_with('.'))
    }

    /// A kubelet of a machine.
    pub(crate) fn named(machine: &str) -> Claimant {
        Claimant { machine: machine.to_owned(), process: uuid::Uuid::new_v4().simple().to_string() }
    }

    /// As the lease has it.
    pub(super) fn word(&self) -> String {
        format!("{}/{}", self.machine, self.process)
    }

    /// Whose a Node is by its lease. `has`: it was ours a moment ago.
    pub(super) fn judge(&self, lease: &Lease, has: bool, now: Timestamp) -> Verdict {
        let annotations = lease.metadata.annotations.as_ref();
        let Some(word) = annotations.and_then(|all| all.get(CLAIM)) else { return Verdict::Ours };
        let (machine, process) = word.split_once('/').unwrap_or((word, ""));
        let is_mine = machine == self.machine && (!has || process == self.process);
        let spec = lease.spec.as_ref();
        let renewed = spec.and_then(|spec| spec.renew_time.as_ref()).map(|time| time.0);
        let seconds = spec.and_then(|spec| spec.lease_duration_seconds).unwrap_or(0);
        let ends = renewed.map(|at| at.saturating_add(SignedDuration::from_secs(i64::from(seconds))));
        let is_over = ends.is_none_or(|ends| ends.is_ok_and(|ends| ends <= now));
        if is_mine || is_over {
            return Verdict::Ours;
        }
        Verdict::Theirs { by: machine.to_owned(), renewed }
    }

    /// Waits until the Node may be ours. An error: another kubelet is alive.
    pub(super) async fn wait(&self, client: &Client, node: &str, has: bool) -> Result<(), Taken> {
        let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
        let nodes: Api<Node> = Api::all(client.clone());
        let mut seen = None;
        loop {
            let lease = match leases.get_opt(node).await {
                Ok(Some(lease)) => lease,
                Ok(None) => return Ok(()),
                Err(error) => {
                    tracing::debug!(error = crate::error::chain(&error), "look at the lease of this node");
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
            };
            let Verdict::Theirs { by, renewed } = self.judge(&lease, has, Timestamp::now()) else {
                return Ok(());
            };
            // What outlives its Node for a moment is nobody's word.
            if matches!(nodes.get_opt(node).await, Ok(None)) {
                return Ok(());
            }
            match seen {
                None => tracing::info!(node, by, "another kubelet has had this node: is it there still?"),
                Some(before) if before != renewed => return Err(Taken { by }),
                Some(_) => {}
            }
            seen = Some(renewed);
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_node_is_whose_lease_is_renewed() {
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().expect("a time");
        let me = Claimant::named("disk.boot");
        let check = |word: Option<&str>, second: u32, has: bool, expected: bool| {
            let annotations = word.map(|word| json!({CLAIM: word}));
            let lease = json!({"metadata": {"annotations": annotations}, "spec": {"leaseDurationSeconds": 40,
                "renewTime": format!("2026-01-01T00:00:{second:02}.000000Z")}});
            let lease = serde_json::from_value(lease).expect("a lease");
            assert_eq!(me.judge(&lease, has, now) == Verdict::Ours, expected, "{word:?} {second} {has}");
        };
        check(None, 59, false, true);
        check(None, 59, true, true);
        // The kubelet that was here before.
        check(Some("disk.boot/other"), 59, false, true);
        // One that came after.
        check(Some("disk.boot/other"), 59, true, false);
        check(Some(&me.word()), 1, true, true);
        // Another machine, which lives, and which has not been heard of.
        check(Some("disk.another/x"), 59, false, false);
        check(Some("disk.another/x"), 59, true, false);
        check(Some("disk.another/x"), 10, false, true);
        // As it was before a backup was put back.
        check(Some("disk.boot/other"), 10, true, true);
    }

    #[test]
    fn a_kubelet_remembers_who_it_is() {
        let dir = tempfile::tempdir().expect("a folder");
        let (first, second) = (Claimant::of(dir.path()), Claimant::of(dir.path()));
        assert_eq!(first.machine, second.machine);
        assert_ne!(first.process, second.process);
        assert_ne!(first.machine, Claimant::of(&dir.path().join("another")).machine);
    }
}
