//! The status of a pod, as upstream's kubelet would write it.

use super::{
    ADDRESSES, Ending, Kind, Situation, Work, conditions, containers, containers_of, end, is_running, phase,
    resize, should_restart,
};
use crate::allocation::{self, RESIZABLE};
use crate::runtime::{ContainerState as Runs, ContainerUser, ContainerView};
use api::kinds::pod_spec::requests::qos_class;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, ContainerUser as ApiContainerUser, HostIP, LinuxContainerUser, PodIP, PodStatus,
    ResourceRequirements, VolumeMount, VolumeMountStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Works it out.
pub(super) fn pod_status(
    situation: Situation<'_>,
    ending: Option<&Ending>,
    changes: &resize::Changes,
) -> PodStatus {
    let Situation { pod, memory, now, node, .. } = situation;
    let old = &memory.status;
    let api = pod.status.clone().unwrap_or_default();
    let mut status = PodStatus {
        start_time: old.start_time.clone().or(api.start_time.clone()).or(Some(seconds(now))),
        qos_class: old.qos_class.clone().or(api.qos_class.clone()).or_else(|| qos(situation)),
        nominated_node_name: None,
        observed_generation: pod.metadata.generation,
        resize: None,
        ..PodStatus::default()
    };
    set_containers(situation, ending, &mut status);
    set_phase(situation, ending, &api, &mut status);
    conditions::set(situation, ending, changes, &mut status);
    set_addresses(situation, &node.addresses, &mut status);
    status
}

fn qos(situation: Situation<'_>) -> Option<String> {
    let spec = serde_json::to_value(situation.pod.spec.as_ref()?).ok()?;
    Some(qos_class(&spec).to_owned())
}

/// The API knows whole seconds.
fn seconds(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).expect("within the range of its source"))
}

fn set_addresses(situation: Situation<'_>, node: &[String], status: &mut PodStatus) {
    let old = &situation.memory.status;
    status.host_ip = node.first().cloned();
    status.host_ips = Some(node.iter().map(|ip| HostIP { ip: ip.clone() }).collect());
    let is_host = situation.pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true);
    let newest = situation.view.sandboxes.iter().max_by_key(|sandbox| sandbox.spec.attempt);
    let own: Vec<String> = if is_host {
        if newest.is_some() || old.pod_ip.is_some() { node.to_vec() } else { Vec::new() }
    } else {
        let noted = newest.and_then(|sandbox| sandbox.spec.annotations.get(ADDRESSES));
        noted
            .into_iter()
            .flat_map(|list| list.split(','))
            .filter(|ip| !ip.is_empty())
            .map(Into::into)
            .collect()
    };
    if own.is_empty() {
        status.pod_ip = old.pod_ip.clone();
        status.pod_ips = old.pod_ips.clone();
    } else {
        status.pod_ip = own.first().cloned();
        status.pod_ips = Some(own.into_iter().map(|ip| PodIP { ip }).collect());
    }
}

fn set_phase(situation: Situation<'_>, ending: Option<&Ending>, api: &PodStatus, status: &mut PodStatus) {
    let Situation { pod, memory, .. } = situation;
    let old = &memory.status;
    let Some(spec) = &pod.spec else { return };
    let all: Vec<&ContainerStatus> = [&status.init_container_statuses, &status.container_statuses]
        .into_iter()
        .flatten()
        .flatten()
        .collect();
    let was_running = spec.containers.iter().any(|container| {
        situation.present(&container.name).is_some_and(|view| matches!(view.state, Runs::Running { .. }))
    });
    let is_terminal = ending.is_some() && end::all_ended(situation) && !situation.is_static();
    let mut now = phase::phase(spec, &all, is_terminal, was_running).to_owned();
    let terminal = |phase: Option<&String>| {
        phase.filter(|phase| matches!(phase.as_str(), "Succeeded" | "Failed")).cloned()
    };
    if let Some(before) = terminal(api.phase.as_ref()).or(terminal(old.phase.as_ref())) {
        now = before;
    }
    status.phase = Some(now);
    if status.phase == old.phase {
        status.reason = old.reason.clone().or(api.reason.clone());
        status.message = old.message.clone().or(api.message.clone());
    }
    if let Some(Ending::Failed { reason, message, .. }) = ending {
        status.phase = Some("Failed".into());
        status.reason = Some(reason.clone());
        status.message = Some(message.clone());
    }
}

fn set_containers(situation: Situation<'_>, ending: Option<&Ending>, status: &mut PodStatus) {
    let (mut init, mut regular, mut ephemeral) = (Vec::new(), Vec::new(), Vec::new());
    let containers = containers_of(situation.pod);
    for (kind, container) in &containers {
        let made = container_status(situation, ending, *kind, container);
        let made = ended_for_good(situation, container, &made).unwrap_or(made);
        match kind {
            Kind::Init | Kind::Sidecar => init.push(made),
            Kind::Regular => regular.push(made),
            Kind::Ephemeral => ephemeral.push(made),
        }
    }
    regular.sort_by(|a, b| a.name.cmp(&b.name));
    ephemeral.sort_by(|a, b| a.name.cmp(&b.name));
    let filled = |list: Vec<ContainerStatus>| (!list.is_empty()).then_some(list);
    status.init_container_statuses = filled(init);
    status.container_statuses = filled(regular);
    status.ephemeral_container_statuses = filled(ephemeral);
}

/// What was said of a container that has ended and whose policy is that it does not run again. It may do so all the same,
/// as an init container does whose sandbox died; but it has ended in the API, which takes no other word of it.
fn ended_for_good(
    situation: Situation<'_>,
    container: &Container,
    made: &ContainerStatus,
) -> Option<ContainerStatus> {
    let old = old_status(&situation.memory.status, &container.name)?;
    let code = terminated(old)?.terminated?.exit_code;
    let runs_again = should_restart(container, situation.pod.spec.as_ref()?, code);
    (!runs_again && terminated(made).is_none()).then(|| old.clone())
}

fn old_status<'a>(status: &'a PodStatus, name: &str) -> Option<&'a ContainerStatus> {
    let lists =
        [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses];
    lists.into_iter().flatten().flatten().find(|status| status.name == name)
}

fn container_status(
    situation: Situation<'_>,
    ending: Option<&Ending>,
    kind: Kind,
    container: &Container,
) -> ContainerStatus {
    let old = old_status(&situation.memory.status, &container.name);
    let Some(view) = situation.newest(&container.name) else {
        return unseen(situation, ending, kind, container, old);
    };
    let mut state = state_of(situation, view);
    let mut last_state = situation
        .view
        .containers
        .iter()
        .filter(|other| other.name == view.name && other.attempt < view.attempt)
        .max_by_key(|other| other.attempt)
        .map(|previous| state_of(situation, previous))
        .or_else(|| old.filter(|old| old.container_id != id_of(situation, view)).and_then(terminated))
        .or_else(|| old.and_then(|old| old.last_state.clone()));
    if ending.is_none()
        && let Some(waiting) = waiting(situation, kind, container, view)
    {
        if state.terminated.is_some() {
            last_state = Some(state);
        }
        state = waiting;
    }
    let running = state.running.is_some();
    let probed = situation.memory.probed.get(&view.id).copied().unwrap_or_default();
    let started = situation.is_started(container, view);
    let ready = match kind {
        Kind::Init => matches!(view.state, Runs::Exited { code: 0, .. }),
        Kind::Ephemeral => false,
        _ => {
            let stopping = ending.is_some() && container.readiness_probe.is_some();
            running
                && started
                && !(stopping && probed.readiness != Some(true))
                && (container.readiness_probe.is_none() || probed.readiness == Some(true))
        }
    };
    ContainerStatus {
        name: container.name.clone(),
        image: view.image_ref.clone(),
        image_id: view.image.0.clone(),
        container_id: id_of(situation, view),
        restart_count: i32::try_from(view.attempt).unwrap_or(i32::MAX),
        state: Some(state),
        last_state: Some(last_state.unwrap_or_default()),
        ready,
        started: Some(if kind == Kind::Ephemeral { false } else { started }),
        resources: Some(resources(container, view)),
        allocated_resources: container.resources.as_ref().and_then(|resources| resources.requests.clone()),
        volume_mounts: mounts(situation, container),
        user: view.user.as_ref().map(user),
        ..ContainerStatus::default()
    }
}

fn user(user: &ContainerUser) -> ApiContainerUser {
    let linux = LinuxContainerUser {
        uid: user.uid.into(),
        gid: user.gid.into(),
        supplemental_groups: Some(user.groups.iter().copied().map(Into::into).collect()),
    };
    ApiContainerUser { linux: Some(linux) }
}

/// What a container may use: where it runs, what is in force for it of what can change.
fn resources(container: &Container, view: &ContainerView) -> ResourceRequirements {
    let allocated = container.resources.clone().unwrap_or_default();
    let in_force = Some(view).filter(|view| is_running(view)).and_then(resize::in_force);
    let Some(in_force) = in_force.filter(|in_force| !allocation::is_same(in_force, &allocated)) else {
        return allocated;
    };
    let merged = |allocated: Option<_>, in_force: Option<_>| {
        let is_compute = |name: &str| RESIZABLE.contains(&name);
        let mut all: std::collections::BTreeMap<String, _> = allocated.unwrap_or_default();
        all.retain(|name, _| !is_compute(name));
        all.extend(in_force.into_iter().flatten().filter(|(name, _): &(String, _)| is_compute(name)));
        (!all.is_empty()).then_some(all)
    };
    ResourceRequirements {
        limits: merged(allocated.limits, in_force.limits),
        requests: merged(allocated.requests, in_force.requests),
        claims: allocated.claims,
    }
}

fn image_of(container: &Container) -> &str {
    container.image.as_deref().unwrap_or_default()
}

fn mounts(situation: Situation<'_>, container: &Container) -> Option<Vec<VolumeMountStatus>> {
    let mounts = container.volume_mounts.as_ref()?;
    let handler = situation.sandbox().map_or("", |sandbox| sandbox.spec.handler.as_str());
    let features = situation.node.handlers.get(handler).copied().unwrap_or_default();
    let mode = |mount: &VolumeMount| match crate::host::is_recursive_read_only(mount, features) {
        Ok(true) => "Enabled",
        Ok(false) | Err(_) => "Disabled",
    };
    Some(
        mounts
            .iter()
            .map(|mount| VolumeMountStatus {
                name: mount.name.clone(),
                mount_path: mount.mount_path.clone(),
                read_only: mount.read_only.filter(|read_only| *read_only),
                recursive_read_only: (mount.read_only == Some(true)).then(|| mode(mount).into()),
            })
            .collect(),
    )
}

fn id_of(situation: Situation<'_>, view: &ContainerView) -> Option<String> {
    Some(format!("{}://{}", situation.node.runtime, view.id.0))
}

/// Why a container waits that nothing has gone wrong with: in a pod with init containers all of them say the same.
fn first_wait(situation: Situation<'_>) -> &'static str {
    let spec = situation.pod.spec.as_ref();
    let has_init = spec.and_then(|spec| spec.init_containers.as_ref()).is_some_and(|init| !init.is_empty());
    if has_init { "PodInitializing" } else { "ContainerCreating" }
}

/// The state of a container that nothing has gone wrong with, before it runs.
fn first_state(situation: Situation<'_>) -> ContainerState {
    ContainerState {
        waiting: Some(ContainerStateWaiting {
            reason: Some(first_wait(situation).into()),
            ..ContainerStateWaiting::default()
        }),
        ..ContainerState::default()
    }
}

fn terminated(status: &ContainerStatus) -> Option<ContainerState> {
    status.state.clone().filter(|state| state.terminated.is_some())
}

/// The status of a container that the runtime does not know.
fn unseen(
    situation: Situation<'_>,
    ending: Option<&Ending>,
    kind: Kind,
    container: &Container,
    old: Option<&ContainerStatus>,
) -> ContainerStatus {
    let remembered = situation.memory.containers.get(&container.name);
    let (reason, message) =
        match remembered.and_then(|memory| memory.waits(image_of(container), situation.now)) {
            Some((reason, message)) => (reason, Some(message).filter(|message| !message.is_empty())),
            None => (first_wait(situation).to_owned(), None),
        };
    let waiting = ContainerState {
        waiting: Some(ContainerStateWaiting { reason: Some(reason), message }),
        ..ContainerState::default()
    };
    let mut status = ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        state: Some(waiting),
        last_state: Some(ContainerState::default()),
        started: Some(false),
        resources: container.resources.clone(),
        allocated_resources: container.resources.as_ref().and_then(|resources| resources.requests.clone()),
        volume_mounts: mounts(situation, container),
        ..ContainerStatus::default()
    };
    let Some(old) = old.filter(|old| old.container_id.is_some() && has_run(old)) else { return status };
    let ended = terminated(old).unwrap_or_else(|| lost(old, ending.is_some()));
    let code = ended.terminated.as_ref().map_or(137, |ended| ended.exit_code);
    let again = ending.is_none()
        && match kind {
            Kind::Init | Kind::Sidecar => true,
            Kind::Regular => {
                situation.pod.spec.as_ref().is_some_and(|spec| should_restart(container, spec, code))
            }
            Kind::Ephemeral => false,
        };
    status.restart_count = old.restart_count;
    status.container_id = old.container_id.clone();
    status.image = old.image.clone();
    status.image_id = old.image_id.clone();
    if again {
        status.last_state = Some(ended);
    } else {
        status.ready = kind == Kind::Init && code == 0;
        status.last_state = old.last_state.clone().or(Some(ContainerState::default()));
        status.state = Some(ended);
    }
    status
}

/// Whether a container, or one before it, was ever started. One that was only made is not missed.
pub(super) fn has_run(status: &ContainerStatus) -> bool {
    let states = [&status.state, &status.last_state].into_iter().flatten();
    states.into_iter().any(|state| state.running.is_some() || state.terminated.is_some())
}

/// What is said of a container that was there and is not any more.
fn lost(old: &ContainerStatus, is_ending: bool) -> ContainerState {
    let message = if is_ending {
        "The container could not be located when the pod was terminated"
    } else {
        "The container could not be located when the pod was deleted.  The container used to be Running"
    };
    ContainerState {
        terminated: Some(ContainerStateTerminated {
            exit_code: 137,
            reason: Some("ContainerStatusUnknown".into()),
            message: Some(message.into()),
            container_id: old.container_id.clone(),
            ..ContainerStateTerminated::default()
        }),
        ..ContainerState::default()
    }
}

/// Why a container that is to be started again does not run yet, if there is more to say than how it ended.
fn waiting(
    situation: Situation<'_>,
    kind: Kind,
    container: &Container,
    view: &ContainerView,
) -> Option<ContainerState> {
    let spec = situation.pod.spec.as_ref()?;
    let Runs::Exited { finished_at, code, .. } = &view.state else { return None };
    // Whatever it ended with, its pod is not done.
    if containers::is_made_anew(situation, view) {
        return Some(first_state(situation));
    }
    let again = match kind {
        Kind::Ephemeral => false,
        Kind::Init => *code != 0 && should_restart(container, spec, *code),
        Kind::Sidecar => true,
        Kind::Regular => should_restart(container, spec, *code),
    };
    // One that is being started again has waited enough.
    let starting = situation.memory.busy.contains(&Work::Start(container.name.clone()));
    if !again || starting {
        return None;
    }
    let remembered = situation.memory.containers.get(&container.name)?;
    let (reason, message) = match remembered.backoff.until(*finished_at) {
        Some(until) if until > situation.now => {
            let delay = go_duration(remembered.backoff.delay_s());
            let meta = &situation.pod.metadata;
            let pod = format!(
                "{}_{}({})",
                meta.name.as_deref().unwrap_or_default(),
                meta.namespace.as_deref().unwrap_or_default(),
                meta.uid.as_deref().unwrap_or_default()
            );
            let message =
                format!("back-off {delay} restarting failed container={} pod={pod}", container.name);
            ("CrashLoopBackOff".to_owned(), message)
        }
        _ => remembered.waits(image_of(container), situation.now)?,
    };
    Some(ContainerState {
        waiting: Some(ContainerStateWaiting { reason: Some(reason), message: Some(message) }),
        ..ContainerState::default()
    })
}

/// Seconds as Go prints them: `10s`, `1m20s`, `5m0s`.
pub(crate) fn go_duration(seconds: i64) -> String {
    if seconds < 60 { format!("{seconds}s") } else { format!("{}m{}s", seconds / 60, seconds % 60) }
}

fn state_of(situation: Situation<'_>, view: &ContainerView) -> ContainerState {
    let mut state = ContainerState::default();
    match &view.state {
        Runs::Created => state = first_state(situation),
        Runs::Running { started_at, .. } => {
            state.running = Some(ContainerStateRunning { started_at: Some(seconds(*started_at)) });
        }
        Runs::Exited { started_at, finished_at, code, out_of_memory, message } => {
            let reason = match (out_of_memory, code, started_at) {
                (_, _, None) => "StartError",
                (true, ..) => "OOMKilled",
                (_, 0, _) => "Completed",
                _ => "Error",
            };
            state.terminated = Some(ContainerStateTerminated {
                exit_code: *code,
                reason: Some(reason.into()),
                message: message
                    .clone()
                    .or_else(|| situation.memory.messages.get(&view.id).cloned())
                    .filter(|message| !message.is_empty()),
                started_at: started_at.or(Some(view.created_at)).map(seconds),
                finished_at: Some(seconds(*finished_at)),
                container_id: id_of(situation, view),
                signal: None,
            });
        }
    }
    state
}
