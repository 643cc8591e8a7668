//! The conditions of a pod that the kubelet owns.

use super::{Ending, Situation, is_sidecar};
use k8s_openapi::api::core::v1::{ContainerStatus, PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// The conditions that the kubelet alone says.
const OURS: [&str; 5] =
    ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];
/// A pod that the node had to end is said to be disrupted, with this reason.
const ENDED_BY_NODE: &str = "TerminationByKubelet";

/// Whether a condition is the kubelet's word; others belong to whoever said them.
pub(crate) fn is_ours(condition: &PodCondition) -> bool {
    OURS.contains(&condition.type_.as_str()) || condition.reason.as_deref() == Some(ENDED_BY_NODE)
}

/// What is said of one condition.
struct Said {
    holds: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

const YES: Said = Said { holds: true, reason: None, message: None };

fn no(reason: &'static str, message: Option<String>) -> Said {
    Said { holds: false, reason: Some(reason), message }
}

/// Sets the conditions in a status that has its phase and the statuses of containers.
pub(super) fn set(situation: Situation<'_>, ending: Option<&Ending>, status: &mut PodStatus) {
    let old = &situation.memory.status;
    let theirs = situation.pod.status.as_ref().and_then(|status| status.conditions.clone());
    let mut conditions: Vec<PodCondition> = theirs
        .unwrap_or_default()
        .into_iter()
        .filter(|condition| !OURS.contains(&condition.type_.as_str()))
        .collect();
    for kept in old.conditions.iter().flatten().filter(|condition| condition.type_ == "DisruptionTarget") {
        conditions.retain(|condition| condition.type_ != kept.type_);
        conditions.push(kept.clone());
    }
    if let Some(Ending::Failed { message, for_the_node: true, .. }) = ending
        && !conditions.iter().any(|condition| condition.type_ == "DisruptionTarget")
    {
        let said = Said { holds: true, reason: Some(ENDED_BY_NODE), message: Some(message.clone()) };
        conditions.push(condition(situation, "DisruptionTarget", said));
    }
    let sandbox = Said { holds: situation.sandbox().is_some(), reason: None, message: None };
    let containers_ready = containers_ready(situation, status);
    let ready = ready(situation, &containers_ready, &conditions);
    let initialized = initialized(situation, status);
    for (name, said) in [
        ("PodReadyToStartContainers", sandbox),
        ("Initialized", initialized),
        ("Ready", ready),
        ("ContainersReady", containers_ready),
        ("PodScheduled", YES),
    ] {
        conditions.push(condition(situation, name, said));
    }
    status.conditions = Some(conditions);
}

fn condition(situation: Situation<'_>, name: &str, said: Said) -> PodCondition {
    let value = if said.holds { "True" } else { "False" };
    let before = |status: Option<&PodStatus>| {
        let condition = status?.conditions.as_ref()?.iter().find(|condition| condition.type_ == name)?;
        (condition.status == value).then(|| condition.last_transition_time.clone()).flatten()
    };
    let since = before(Some(&situation.memory.status)).or_else(|| before(situation.pod.status.as_ref()));
    PodCondition {
        type_: name.into(),
        status: value.into(),
        reason: said.reason.map(Into::into),
        message: said.message,
        last_transition_time: Some(since.unwrap_or(Time(situation.now))),
        last_probe_time: None,
        observed_generation: situation.pod.metadata.generation,
    }
}

fn find<'a>(list: Option<&'a Vec<ContainerStatus>>, name: &str) -> Option<&'a ContainerStatus> {
    list.into_iter().flatten().find(|status| status.name == name)
}

fn listed(names: &[&str]) -> String {
    format!("[{}]", names.join(" "))
}

fn containers_ready(situation: Situation<'_>, status: &PodStatus) -> Said {
    let Some(spec) = &situation.pod.spec else { return no("UnknownContainerStatuses", None) };
    let sidecars = spec.init_containers.iter().flatten().filter(|container| is_sidecar(container));
    let sidecars = sidecars.map(|c| (&c.name, find(status.init_container_statuses.as_ref(), &c.name)));
    let regular =
        spec.containers.iter().map(|c| (&c.name, find(status.container_statuses.as_ref(), &c.name)));
    let (mut unknown, mut unready) = (Vec::new(), Vec::new());
    for (name, found) in sidecars.chain(regular) {
        match found {
            None => unknown.push(name.as_str()),
            Some(status) if !status.ready => unready.push(name.as_str()),
            Some(_) => {}
        }
    }
    match status.phase.as_deref() {
        Some("Succeeded") if unknown.is_empty() => return no("PodCompleted", None),
        Some("Failed") => return no("PodFailed", None),
        _ => {}
    }
    let mut messages = Vec::new();
    if !unknown.is_empty() {
        messages.push(format!("containers with unknown status: {}", listed(&unknown)));
    }
    if !unready.is_empty() {
        messages.push(format!("containers with unready status: {}", listed(&unready)));
    }
    if messages.is_empty() { YES } else { no("ContainersNotReady", Some(messages.join(", "))) }
}

fn ready(situation: Situation<'_>, containers: &Said, conditions: &[PodCondition]) -> Said {
    if !containers.holds {
        return Said { holds: false, reason: containers.reason, message: containers.message.clone() };
    }
    let gates = situation.pod.spec.as_ref().and_then(|spec| spec.readiness_gates.as_ref());
    let messages: Vec<String> = gates
        .into_iter()
        .flatten()
        .filter_map(|gate| {
            let name = &gate.condition_type;
            match conditions.iter().find(|condition| condition.type_ == *name) {
                None => {
                    Some(format!("corresponding condition of pod readiness gate \"{name}\" does not exist."))
                }
                Some(condition) if condition.status != "True" => Some(format!(
                    "the status of pod readiness gate \"{name}\" is not \"True\", but {}",
                    condition.status
                )),
                Some(_) => None,
            }
        })
        .collect();
    if messages.is_empty() { YES } else { no("ReadinessGatesNotReady", Some(messages.join(", "))) }
}

fn initialized(situation: Situation<'_>, status: &PodStatus) -> Said {
    let init = situation.pod.spec.as_ref().and_then(|spec| spec.init_containers.as_ref());
    let (mut unknown, mut incomplete) = (Vec::new(), Vec::new());
    for container in init.into_iter().flatten() {
        match find(status.init_container_statuses.as_ref(), &container.name) {
            None => unknown.push(container.name.as_str()),
            Some(found) => {
                let done = if is_sidecar(container) { found.started == Some(true) } else { found.ready };
                if !done {
                    incomplete.push(container.name.as_str());
                }
            }
        }
    }
    if status.phase.as_deref() == Some("Succeeded") && unknown.is_empty() {
        return Said { holds: true, reason: Some("PodCompleted"), message: None };
    }
    let regular_started = status.container_statuses.iter().flatten().any(|status| {
        let ran = |state: &k8s_openapi::api::core::v1::ContainerState| {
            state.running.is_some() || state.terminated.is_some()
        };
        status.state.as_ref().is_some_and(ran) || status.last_state.as_ref().is_some_and(ran)
    });
    if regular_started {
        return YES;
    }
    let mut messages = Vec::new();
    if !unknown.is_empty() {
        messages.push(format!("containers with unknown status: {}", listed(&unknown)));
    }
    if !incomplete.is_empty() {
        messages.push(format!("containers with incomplete status: {}", listed(&incomplete)));
    }
    if messages.is_empty() { YES } else { no("ContainersNotInitialized", Some(messages.join(", "))) }
}
