//! The link to the interLink API: which generation it speaks, whether it answers, and what it says of the node.

use super::VirtualNode;
use crate::caller::CallError;
use crate::wire::{self, Generation, Pong};
use api::Quantity;
use http::Method;
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::api::{Api, Patch, PatchParams};
use kubelet::host::Capacity;
use kubelet::provider::Change;
use parking_lot::Mutex;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// How often it is asked whether it is there.
const EVERY: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(9);
/// Before anybody has ever answered.
const FIRST_EVERY: Duration = Duration::from_secs(1);
/// So many answers may fail to come before the node is called dead.
const MISSES: u32 = 3;
/// Taints that no plugin takes away.
const OWN_TAINT: &str = "virtual-node.interlink/no-schedule";
const SYSTEM: &[&str] = &["node.kubernetes.io/", "node.cloudprovider.kubernetes.io/"];

/// What is known of it.
#[derive(Default)]
pub(super) struct Link(Mutex<State>);

#[derive(Default)]
struct State {
    generation: Option<Generation>,
    misses: u32,
    why: String,
    pong: Option<Pong>,
}

impl Link {
    /// Which generation it speaks, once that is known.
    pub fn generation(&self) -> Option<Generation> {
        self.0.lock().generation
    }

    /// Whether it answers; if not, why.
    pub fn state(&self) -> Result<(), String> {
        let state = self.0.lock();
        match state.generation {
            Some(_) if state.misses < MISSES => Ok(()),
            _ if state.why.is_empty() => Err("the interLink API has not answered yet".into()),
            _ => Err(state.why.clone()),
        }
    }

    /// The node's size: as configured, and over that what the other side tells.
    pub fn size(&self, configured: &Capacity) -> Capacity {
        let state = self.0.lock();
        let mut size = configured.clone();
        if let Some(resources) = state.pong.as_ref().and_then(|pong| pong.resources.as_ref()) {
            let basic = [("cpu", &resources.cpu), ("memory", &resources.memory), ("pods", &resources.pods)];
            let basic = basic.map(|(name, amount)| (name.to_owned(), amount));
            let special = resources.accelerators.iter().map(|it| (it.resource.clone(), &it.available));
            for (name, amount) in basic.into_iter().chain(special) {
                // Negative, or no quantity: the site does not know.
                let amount = amount.parse::<Quantity>().ok().filter(|amount| amount.value() >= 0);
                if let Some(amount) = amount.filter(|_| !name.is_empty()) {
                    size.insert(name, amount);
                }
            }
        }
        size
    }
}

/// Asks until the end of the program.
pub(super) async fn keep(node: Arc<VirtualNode>) {
    loop {
        let was = node.link.state();
        let before = node.link.0.lock().pong.clone();
        let answer = ping(&node).await;
        let is_back = {
            let mut state = node.link.0.lock();
            match answer {
                Ok((generation, pong)) => {
                    let is_back = state.generation != Some(generation) || state.misses >= MISSES;
                    if state.generation != Some(generation) {
                        tracing::info!(?generation, api = node.api.base(), "the interLink API answers");
                    }
                    (state.generation, state.misses) = (Some(generation), 0);
                    if pong.is_some() {
                        state.pong = pong;
                    }
                    is_back
                }
                Err(why) => {
                    state.misses = state.misses.saturating_add(1);
                    if state.why != why {
                        tracing::warn!(error = why, "the interLink API does not answer");
                        state.why = why;
                    }
                    false
                }
            }
        };
        if is_back {
            // It may be another one, or have forgotten what it was given.
            if let Some(handover) = &node.handover {
                handover.again();
            }
            node.wake.notify_waiters();
        }
        let pong = node.link.0.lock().pong.clone();
        if node.link.state() != was || pong != before {
            node.outbox.put(Change::Node);
        }
        if let Some(taints) = pong.and_then(|pong| pong.taints) {
            set_taints(&node, &taints).await;
        }
        let is_known = node.link.generation().is_some();
        tokio::time::sleep(if is_known { EVERY } else { FIRST_EVERY }).await;
    }
}

/// The newer generation's ping first: who does not know it is asked by the other's.
async fn ping(node: &VirtualNode) -> Result<(Generation, Option<Pong>), String> {
    let newer = async {
        match node.api.call("/pinglink", Method::POST, Vec::new(), PATIENCE).await {
            Ok(answer) => Ok(Some((Generation::Objects, wire::decode_pong(&answer)))),
            Err(error) if error.is_unknown_path() => Ok(None),
            Err(error) => Err(error),
        }
    };
    let first = async {
        let answer = node.api.call("/ping", Method::POST, Vec::new(), PATIENCE).await?;
        Ok::<_, CallError>((Generation::Arrays, wire::decode_pong(&answer)))
    };
    let text = |error: CallError| match error.code() {
        Some(401 | 403) => format!("the interLink API does not let this node in (VKTokenFile, TLS): {error}"),
        _ => format!("the interLink API does not answer: {error}"),
    };
    if node.link.generation() == Some(Generation::Arrays)
        && let Ok(answered) = first.await
    {
        return Ok(answered);
    } else if let Some(answered) = newer.await.map_err(text)? {
        return Ok(answered);
    }
    let answer = node.api.call("/ping", Method::POST, Vec::new(), PATIENCE).await.map_err(text)?;
    Ok((Generation::Arrays, wire::decode_pong(&answer)))
}

/// The node's taints: the system's, its own, and those that the other side tells.
fn wanted_taints(present: &[Taint], told: &[Taint]) -> Vec<Taint> {
    let is_ours =
        |taint: &Taint| taint.key != OWN_TAINT && !SYSTEM.iter().any(|system| taint.key.starts_with(system));
    let mut wanted: Vec<Taint> = present.iter().filter(|taint| !is_ours(taint)).cloned().collect();
    let is_known = |effect: &str| matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute");
    wanted.extend(told.iter().filter(|taint| is_ours(taint) && is_known(&taint.effect)).cloned());
    wanted
}

async fn set_taints(node: &VirtualNode, told: &[Taint]) {
    let Some(seen) = node.seen.read().clone() else { return };
    let present = seen.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let wanted = wanted_taints(&present, told);
    let same = |one: &[Taint], other: &[Taint]| {
        let key = |taint: &Taint| {
            (taint.key.clone(), taint.value.clone().unwrap_or_default(), taint.effect.clone())
        };
        one.iter().map(key).eq(other.iter().map(key))
    };
    if same(&present, &wanted) {
        return;
    }
    let nodes: Api<Node> = Api::all(node.client.clone());
    let version = seen.metadata.resource_version.clone();
    let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"taints": wanted}});
    if let Err(error) = nodes.patch(&node.name, &PatchParams::default(), &Patch::Merge(patch)).await {
        tracing::debug!(error = kubelet::error::chain(&error), "set the taints of the node");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taint(key: &str, effect: &str) -> Taint {
        Taint { key: key.into(), effect: effect.into(), ..Taint::default() }
    }

    #[test]
    fn told_taints_replace_all_but_the_systems() {
        let present = [
            taint(OWN_TAINT, "NoSchedule"),
            taint("node.kubernetes.io/unreachable", "NoExecute"),
            taint("old", "NoSchedule"),
        ];
        let told =
            [taint("new", "NoSchedule"), taint("odd", "Often"), taint("node.kubernetes.io/x", "NoSchedule")];
        let wanted: Vec<_> = wanted_taints(&present, &told).into_iter().map(|taint| taint.key).collect();
        assert_eq!(wanted, [OWN_TAINT, "node.kubernetes.io/unreachable", "new"]);
    }

    #[test]
    fn a_size_that_is_told_counts_as_far_as_it_makes_sense() {
        let link = Link::default();
        let body = json!({"resources": {"cpu": 64, "memory": "oops", "pods": "-1",
            "accelerators": [{"resourceType": "nvidia.com/gpu", "available": 4}, {"resourceType": "", "available": 1}]}});
        link.0.lock().pong = wire::decode_pong(body.to_string().as_bytes());
        let configured = Capacity::from([
            ("memory".into(), "1Gi".parse().unwrap()),
            ("pods".into(), "10".parse().unwrap()),
        ]);
        let size = link.size(&configured);
        let shown: Vec<String> = size.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
        assert_eq!(shown, ["cpu=64", "memory=1Gi", "nvidia.com/gpu=4", "pods=10"]);
    }

    #[test]
    fn nobody_is_called_dead_for_one_odd_answer() {
        let link = Link::default();
        assert!(link.state().is_err());
        link.0.lock().generation = Some(Generation::Objects);
        for misses in 0..MISSES {
            link.0.lock().misses = misses;
            assert!(link.state().is_ok());
        }
        link.0.lock().misses = MISSES;
        assert!(link.state().is_err());
    }
}
