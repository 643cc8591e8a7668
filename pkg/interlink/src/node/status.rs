//! The status of a pod, from what is said of its containers elsewhere. Pure.

use crate::wire::PodState;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateWaiting, ContainerStatus, HostIP, Pod, PodCondition, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// What the ids of containers begin with: all that is known of them is their names.
const ID: &str = "interlink://";
/// The container before this one, by its id.
const BEFORE: &str = ".previous";

/// Whether nothing will change any more.
pub(super) fn is_over(status: &PodStatus) -> bool {
    matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

/// The container that an id names, and whether the one before it is meant.
pub(super) fn of_id(id: &str) -> (&str, bool) {
    let name = id.rsplit("://").next().unwrap_or_default();
    name.strip_suffix(BEFORE).map_or((name, false), |name| (name, true))
}

/// A pod that was given away, and nobody has said anything of yet.
pub(super) fn given(pod: &Pod, address: &str, now: Timestamp) -> PodStatus {
    let before = pod.status.clone().unwrap_or_default();
    told(pod, &PodState::default(), &before, address, now)
}

/// A pod that waits here, and why.
pub(super) fn waiting(pod: &Pod, reason: &str, message: &str) -> PodStatus {
    let before = pod.status.clone().unwrap_or_default();
    PodStatus {
        phase: Some("Pending".into()),
        reason: Some(reason.into()),
        message: Some(message.into()),
        start_time: None,
        ..before
    }
}

/// A pod that has failed as a whole.
pub(super) fn failed(
    pod: &Pod,
    before: &PodStatus,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> PodStatus {
    let status = PodStatus { phase: Some("Failed".into()), ..before.clone() };
    let conditions = conditions(pod, &status, false, now);
    PodStatus {
        reason: Some(reason.into()),
        message: Some(message.into()),
        start_time: before.start_time.clone().or(Some(Time(now))),
        conditions: Some(conditions),
        ..status
    }
}

/// A pod as its containers are.
pub(super) fn told(
    pod: &Pod,
    state: &PodState,
    before: &PodStatus,
    address: &str,
    now: Timestamp,
) -> PodStatus {
    let Some(spec) = &pod.spec else { return before.clone() };
    let is_never = spec.restart_policy.as_deref() == Some("Never");
    let all = |specs: &[Container], said: &[ContainerStatus], before: &Option<Vec<ContainerStatus>>| {
        let one = |spec: &Container| {
            let was = before.iter().flatten().find(|was| was.name == spec.name);
            container(spec, said.iter().find(|said| said.name == spec.name), was)
        };
        specs.iter().map(one).collect::<Vec<_>>()
    };
    let init_specs = spec.init_containers.clone().unwrap_or_default();
    let containers = all(&spec.containers, &state.containers, &before.container_statuses);
    let init = all(&init_specs, &state.init_containers, &before.init_container_statuses);
    let status = PodStatus {
        phase: Some(phase(&containers, &init, is_never).into()),
        reason: None,
        message: None,
        host_ip: Some(address.to_owned()),
        host_ips: Some(vec![HostIP { ip: address.to_owned() }]),
        start_time: before.start_time.clone().or(Some(Time(now))),
        container_statuses: Some(containers),
        init_container_statuses: (!init.is_empty()).then_some(init),
        observed_generation: pod.metadata.generation,
        ..before.clone()
    };
    // A newer program may say nothing of init containers: those that must have ended have.
    let is_initialized = status.init_container_statuses.iter().flatten().all(has_ended_well)
        || status.container_statuses.iter().flatten().any(|it| !is_waiting(it));
    let conditions = conditions(pod, &status, is_initialized, now);
    PodStatus { conditions: Some(conditions), ..status }
}

fn state_of(status: &ContainerStatus) -> ContainerState {
    status.state.clone().unwrap_or_default()
}

fn is_waiting(status: &ContainerStatus) -> bool {
    let state = state_of(status);
    state.running.is_none() && state.terminated.is_none()
}

fn has_ended_well(status: &ContainerStatus) -> bool {
    state_of(status).terminated.is_some_and(|ended| ended.exit_code == 0)
}

fn phase(containers: &[ContainerStatus], init: &[ContainerStatus], is_never: bool) -> &'static str {
    let codes = |list: &[ContainerStatus]| -> Vec<Option<i32>> {
        list.iter().map(|status| state_of(status).terminated.map(|ended| ended.exit_code)).collect()
    };
    if is_never && codes(init).iter().flatten().any(|code| *code != 0) {
        return "Failed";
    }
    let codes = codes(containers);
    if !codes.is_empty() && codes.iter().all(Option::is_some) {
        return if codes.iter().flatten().all(|code| *code == 0) { "Succeeded" } else { "Failed" };
    }
    if containers.iter().all(is_waiting) { "Pending" } else { "Running" }
}

/// One container, with all that the API wants of a status.
fn container(
    spec: &Container,
    said: Option<&ContainerStatus>,
    was: Option<&ContainerStatus>,
) -> ContainerStatus {
    let id = format!("{ID}{}", spec.name);
    let mut state = said.and_then(|said| said.state.clone()).unwrap_or_default();
    // What has ended does not run again by itself, whatever is forgotten there.
    let ended = was.and_then(|was| was.state.as_ref()?.terminated.clone());
    if let Some(ended) = ended
        && said.is_none()
    {
        state.terminated = Some(ended);
    }
    if let Some(ended) = &mut state.terminated {
        let reason = if ended.exit_code == 0 { "Completed" } else { "Error" };
        ended.reason.get_or_insert_with(|| reason.to_owned());
        ended.container_id = Some(id.clone());
        (state.running, state.waiting) = (None, None);
    } else if let Some(running) = &mut state.running {
        let since = was.and_then(|was| was.state.as_ref()?.running.as_ref()?.started_at.clone());
        running.started_at = running.started_at.take().or(since);
        state.waiting = None;
    } else if state.waiting.is_none() {
        let waiting = ContainerStateWaiting { reason: Some("ContainerCreating".into()), message: None };
        state.waiting = Some(waiting);
    }
    let runs = state.running.is_some();
    let mut last = said.and_then(|said| said.last_state.clone());
    if let Some(ended) = last.as_mut().and_then(|last| last.terminated.as_mut()) {
        ended.container_id = Some(format!("{id}{BEFORE}"));
    }
    let has_probe = spec.readiness_probe.is_some();
    ContainerStatus {
        name: spec.name.clone(),
        image: said
            .map(|said| said.image.clone())
            .filter(|image| !image.is_empty())
            .or(spec.image.clone())
            .unwrap_or_default(),
        image_id: said.map(|said| said.image_id.clone()).unwrap_or_default(),
        // Who runs no probes has nothing else to say of a container that runs.
        ready: runs && (!has_probe || said.is_some_and(|said| said.ready)),
        started: Some(runs && said.and_then(|said| said.started).unwrap_or(true)),
        restart_count: said.map_or(0, |said| said.restart_count),
        container_id: state.waiting.is_none().then_some(id),
        state: Some(state),
        last_state: last,
        ..ContainerStatus::default()
    }
}

fn conditions(pod: &Pod, status: &PodStatus, is_initialized: bool, now: Timestamp) -> Vec<PodCondition> {
    let phase = status.phase.as_deref().unwrap_or_default();
    let unready: Vec<&str> = status
        .container_statuses
        .iter()
        .flatten()
        .filter(|it| !it.ready)
        .map(|it| it.name.as_str())
        .collect();
    let is_ready = unready.is_empty() && phase == "Running";
    let not_ready = |is: bool| match phase {
        _ if is => (None, None),
        "Succeeded" => (Some("PodCompleted"), None),
        "Failed" => (Some("PodFailed"), None),
        _ => (
            Some("ContainersNotReady"),
            Some(format!("containers with unready status: [{}]", unready.join(" "))),
        ),
    };
    let initialized = is_initialized || phase == "Succeeded";
    let own = [
        ("Initialized", initialized, (!initialized).then_some("ContainersNotInitialized"), None),
        ("Ready", is_ready, not_ready(is_ready).0, not_ready(is_ready).1),
        ("ContainersReady", is_ready, not_ready(is_ready).0, not_ready(is_ready).1),
    ];
    let before = pod.status.iter().chain([status]).flat_map(|status| status.conditions.iter().flatten());
    let before: Vec<&PodCondition> = before.collect();
    let mut all: Vec<PodCondition> = Vec::new();
    for (type_, holds, reason, message) in own {
        let holds = if holds { "True" } else { "False" };
        let old = before.iter().rev().find(|old| old.type_ == type_ && old.status == holds);
        all.push(PodCondition {
            type_: type_.into(),
            status: holds.into(),
            reason: reason.map(str::to_owned),
            message,
            last_transition_time: old.and_then(|old| old.last_transition_time.clone()).or(Some(Time(now))),
            ..PodCondition::default()
        });
    }
    // Those of others are theirs.
    for other in before {
        if !all.iter().any(|known| known.type_ == other.type_) {
            all.push(other.clone());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"restartPolicy": "Never", "initContainers": [{"name": "i", "image": "x"}],
                "containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "y"}]},
            "status": {"conditions": [{"type": "PodScheduled", "status": "True"}]},
        }))
        .unwrap()
    }

    fn tell(containers: Value, init: Value) -> PodStatus {
        let body = json!([{"name": "p", "namespace": "n", "UID": "u", "containers": containers, "initContainers": init}]);
        let state = crate::wire::decode_states(body.to_string().as_bytes()).unwrap().remove(0).unwrap();
        let pod = pod();
        told(&pod, &state, &pod.status.clone().unwrap(), "192.0.2.1", Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn a_pod_is_as_its_containers_are() {
        let ended =
            |name: &str, code: i32| json!({"name": name, "state": {"terminated": {"exitCode": code}}});
        let runs = |name: &str| json!({"name": name, "state": {"running": {}}});
        let check = |containers: Value, init: Value, phase: &str, ready: &str| {
            let status = tell(containers.clone(), init);
            assert_eq!(status.phase.as_deref(), Some(phase), "{containers}");
            let found = status.conditions.unwrap().into_iter().find(|it| it.type_ == "Ready").unwrap();
            assert_eq!(found.status, ready, "{containers}");
        };
        check(json!([]), json!([]), "Pending", "False");
        check(json!([]), json!([runs("i")]), "Pending", "False");
        check(json!([]), json!([ended("i", 2)]), "Failed", "False");
        check(json!([runs("a")]), json!([ended("i", 0)]), "Running", "False");
        check(json!([runs("a"), runs("b")]), json!([ended("i", 0)]), "Running", "True");
        check(json!([ended("a", 0), runs("b")]), json!([]), "Running", "False");
        check(json!([ended("a", 0), ended("b", 0)]), json!([]), "Succeeded", "False");
        check(json!([ended("a", 0), ended("b", 7)]), json!([]), "Failed", "False");
    }

    #[test]
    fn what_was_known_is_not_forgotten() {
        let status = tell(json!([{"name": "a", "state": {"terminated": {"exitCode": 3}}}]), json!([]));
        let ended = status.container_statuses.as_ref().unwrap()[0].state.clone().unwrap().terminated.unwrap();
        assert_eq!((ended.exit_code, ended.reason.as_deref()), (3, Some("Error")));
        assert_eq!(of_id(ended.container_id.as_deref().unwrap()), ("a", false));
        assert_eq!(of_id("interlink://a.previous"), ("a", true));
        // The next answer says nothing of it.
        let next = told(&pod(), &PodState::default(), &status, "192.0.2.1", Timestamp::UNIX_EPOCH);
        assert_eq!(
            next.container_statuses.as_ref().unwrap()[0].state.clone().unwrap().terminated.unwrap().exit_code,
            3
        );
        assert!(next.conditions.unwrap().iter().any(|it| it.type_ == "PodScheduled"));
        let odd =
            tell(json!([{"name": "a", "state": {"running": {}, "terminated": {"exitCode": 0}}}]), json!([]));
        assert!(odd.container_statuses.unwrap()[0].state.clone().unwrap().running.is_none());
    }
}
