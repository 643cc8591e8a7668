//! Which containers of a pod that shall run are to be started, stopped and forgotten.

use super::{
    Action, CRASH_FIRST_S, HASH, Kind, Plan, STATIC_FIRST_S, Situation, Volumes, Work, is_running,
    resize::{self, Changes},
    status::has_run,
};
use crate::hash;
use crate::runtime::{ContainerState, ContainerView, SandboxId};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use std::borrow::Cow;

/// Ended containers of a name that are kept beside the newest: what `kubectl logs --previous` reads.
const KEPT_ENDED: usize = 1;
/// Why a container is made anew: it is another one by now,
const CHANGED: &str = "definition changed";
/// or cannot get its new size while it runs.
const RESIZED: &str = "resize requires restart";

/// All containers of a pod, in the order in which they start.
pub fn containers_of(pod: &Pod) -> Vec<(Kind, Cow<'_, Container>)> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let init = spec.init_containers.iter().flatten().map(|container| {
        (if is_sidecar(container) { Kind::Sidecar } else { Kind::Init }, Cow::Borrowed(container))
    });
    let regular = spec.containers.iter().map(|container| (Kind::Regular, Cow::Borrowed(container)));
    let ephemeral = spec.ephemeral_containers.iter().flatten().filter_map(|container| {
        // The same fields under another name, and one more.
        let container = serde_json::to_value(container).and_then(serde_json::from_value).ok()?;
        Some((Kind::Ephemeral, Cow::Owned(container)))
    });
    init.chain(regular).chain(ephemeral).collect()
}

/// A container by its name.
pub fn container_of<'a>(pod: &'a Pod, name: &str) -> Option<(Kind, Cow<'a, Container>)> {
    containers_of(pod).into_iter().find(|(_, container)| container.name == name)
}

/// Whether an init container runs beside the others.
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Whether a container that ended with this code is started again.
pub fn should_restart(container: &Container, spec: &PodSpec, code: i32) -> bool {
    for rule in container.restart_policy_rules.iter().flatten() {
        let Some(codes) = &rule.exit_codes else { continue };
        let listed = codes.values.iter().flatten().any(|value| *value == code);
        if listed == (codes.operator == "In") && rule.action == "Restart" {
            return true;
        }
    }
    match container.restart_policy.as_deref().or(spec.restart_policy.as_deref()) {
        Some("Never") => false,
        Some("OnFailure") => code != 0,
        _ => true,
    }
}

/// Plans a pod that shall run; says whether it is done.
pub(super) fn plan(situation: Situation<'_>, changes: &Changes, plan: &mut Plan) -> bool {
    let Situation { pod, memory, now, .. } = situation;
    let Some(spec) = &pod.spec else { return false };
    let starting = memory.busy.contains(&Work::Volumes);
    match memory.volumes {
        Volumes::None if !starting => plan.actions.push(Action::MountVolumes),
        Volumes::Failed(at) if !starting && now >= at => plan.actions.push(Action::MountVolumes),
        Volumes::Failed(at) if !starting => plan.at(at),
        Volumes::Ready if !starting => match memory.refresh_at {
            Some(at) if now >= at => plan.actions.push(Action::MountVolumes),
            Some(at) => plan.at(at),
            None => {}
        },
        _ => {}
    }
    if situation.sandbox().is_none() {
        return plan_sandbox(situation, spec, plan);
    }
    let runs = |id: &SandboxId| situation.view.sandboxes.iter().any(|one| one.id == *id && one.pid.is_some());
    for old in situation.view.all_sandboxes().into_iter().filter(|id| !runs(id)) {
        remove(situation, old, plan);
    }
    resize::plan(situation, changes, plan);
    if memory.volumes != Volumes::Ready {
        return false;
    }
    for (kind, container) in containers_of(pod) {
        if kind == Kind::Ephemeral && situation.newest(&container.name).is_none() {
            start(situation, &container, plan);
        }
        forget_old(situation, &container.name, plan);
    }
    match plan_init(situation, spec, changes, plan) {
        Init::Failed => true,
        Init::Pending => false,
        Init::Done => plan_regular(situation, spec, changes, plan),
    }
}

fn remove(situation: Situation<'_>, sandbox: &SandboxId, plan: &mut Plan) {
    if !situation.memory.busy.contains(&Work::RemoveSandbox(sandbox.clone())) {
        plan.actions.push(Action::RemoveSandbox(sandbox.clone()));
    }
}

fn plan_sandbox(situation: Situation<'_>, spec: &PodSpec, plan: &mut Plan) -> bool {
    let Situation { view, memory, now, .. } = situation;
    let ended = |container: &Container| match situation.newest(&container.name).map(|view| &view.state) {
        Some(ContainerState::Exited { code, .. }) => Some(*code),
        _ => None,
    };
    let attempt = view.sandboxes.iter().map(|sandbox| sandbox.spec.attempt + 1).max().unwrap_or(0);
    let never = spec.restart_policy.as_deref() == Some("Never");
    let all_done = spec
        .containers
        .iter()
        .all(|container| ended(container).is_some_and(|code| !should_restart(container, spec, code)));
    let ran = memory.status.container_statuses.iter().flatten().any(|status| status.container_id.is_some());
    let had_containers = (attempt > 0 && !view.containers.is_empty()) || (attempt == 0 && ran);
    if all_done || (never && had_containers) {
        return true;
    }
    // One that is being removed takes the pod off the network when it is gone.
    let removing = memory.busy.iter().any(|work| matches!(work, Work::RemoveSandbox(_)));
    if removing || memory.busy.contains(&Work::Sandbox) {
        return false;
    }
    let starting: Vec<&String> = memory.busy.iter().filter_map(Work::starts).collect();
    if !starting.is_empty() {
        // Nothing is made in a sandbox while it goes: it would be left behind.
        plan.actions.extend(starting.into_iter().cloned().map(Action::CancelStart));
        return false;
    }
    if !view.is_empty() {
        // The pod's address and namespaces are freed before they are taken again.
        view.all_sandboxes().into_iter().for_each(|old| remove(situation, old, plan));
        return false;
    }
    match memory.sandbox_retry_at {
        Some(at) if at > now => plan.at(at),
        _ => plan.actions.push(Action::StartSandbox { attempt: next_sandbox(situation) }),
    }
    false
}

/// Sandboxes that are gone are not counted by the view; containers tell that there were some.
fn next_sandbox(situation: Situation<'_>) -> u32 {
    let had = situation.memory.status.container_statuses.iter().flatten().any(|s| s.container_id.is_some());
    u32::from(had)
}

enum Init {
    Done,
    Pending,
    Failed,
}

fn plan_init(situation: Situation<'_>, spec: &PodSpec, changes: &Changes, plan: &mut Plan) -> Init {
    let init: Vec<&Container> = spec.init_containers.iter().flatten().collect();
    let was_done = spec.containers.iter().any(|container| {
        situation.present(&container.name).is_some_and(|view| {
            matches!(view.state, ContainerState::Running { .. } | ContainerState::Created)
        })
    });
    for (index, container) in init.iter().enumerate() {
        let sidecar = is_sidecar(container);
        if was_done && !sidecar {
            continue;
        }
        let next_exists = init.get(index + 1).is_some_and(|next| situation.present(&next.name).is_some());
        let Some(view) = situation.present(&container.name) else {
            start(situation, container, plan);
            if was_done {
                continue;
            }
            return Init::Pending;
        };
        match &view.state {
            ContainerState::Created => {
                start(situation, container, plan);
                return Init::Pending;
            }
            ContainerState::Running { .. } if !sidecar => return Init::Pending,
            ContainerState::Running { .. } => {
                if let Some(why) = why_kill(situation, container, view, changes) {
                    let whose = if why == RESIZED { "Container" } else { "Init container" };
                    let message = format!("{whose} {} {why}", container.name);
                    stop(situation, container, view, &message, why, plan);
                }
                if !situation.is_started(container, view) && !was_done && !next_exists {
                    return Init::Pending;
                }
            }
            ContainerState::Exited { .. } if sidecar => {
                start(situation, container, plan);
                if !was_done && !next_exists {
                    return Init::Pending;
                }
            }
            ContainerState::Exited { code: 0, .. } => {}
            ContainerState::Exited { code, .. } => {
                if !should_restart(container, spec, *code) {
                    return Init::Failed;
                }
                start(situation, container, plan);
                return Init::Pending;
            }
        }
    }
    Init::Done
}

fn plan_regular(situation: Situation<'_>, spec: &PodSpec, changes: &Changes, plan: &mut Plan) -> bool {
    let mut alive = false;
    for container in &spec.containers {
        let view = situation.present(&container.name);
        match view.map(|view| (&view.state, view)) {
            None => {
                // Ended in an earlier sandbox, for good.
                if is_done_before(situation, container, spec) {
                    continue;
                }
                alive = true;
                start(situation, container, plan);
            }
            Some((ContainerState::Created, _)) => {
                alive = true;
                start(situation, container, plan);
            }
            Some((ContainerState::Exited { code, .. }, view)) => {
                if should_restart(container, spec, *code) || is_made_anew(situation, view) {
                    alive = true;
                    start(situation, container, plan);
                }
            }
            Some((ContainerState::Running { .. }, view)) => {
                alive = true;
                let Some(why) = why_kill(situation, container, view, changes) else { continue };
                let restart = should_restart(container, spec, 1) || why == CHANGED;
                let restarted = if restart && why != RESIZED { ", will be restarted" } else { "" };
                let message = format!("Container {} {why}{restarted}", container.name);
                stop(situation, container, view, &message, why, plan);
            }
        }
    }
    !alive
}

fn is_done_before(situation: Situation<'_>, container: &Container, spec: &PodSpec) -> bool {
    let old = situation.memory.status.container_statuses.iter().flatten().find(|s| s.name == container.name);
    let ended = old.and_then(|status| status.state.as_ref()?.terminated.as_ref());
    ended.is_some_and(|ended| !should_restart(container, spec, ended.exit_code))
}

fn why_kill(
    situation: Situation<'_>,
    container: &Container,
    view: &ContainerView,
    changes: &Changes,
) -> Option<&'static str> {
    let probed = situation.memory.probed.get(&view.id).copied().unwrap_or_default();
    if view.annotations.get(HASH).is_some_and(|made| *made != hash::of_container(container)) {
        Some(CHANGED)
    } else if changes.restarts.contains(&container.name) {
        Some(RESIZED)
    } else if probed.liveness == Some(false) {
        Some("failed liveness probe")
    } else if probed.startup == Some(false) {
        Some("failed startup probe")
    } else {
        None
    }
}

/// Whether a container ended because another one is to take its place.
pub(super) fn is_made_anew(situation: Situation<'_>, view: &ContainerView) -> bool {
    let remembered = situation.memory.containers.get(&view.name);
    remembered.is_some_and(|remembered| remembered.anew.as_ref() == Some(&view.id))
}

fn stop(
    situation: Situation<'_>,
    container: &Container,
    view: &ContainerView,
    message: &str,
    why: &str,
    plan: &mut Plan,
) {
    if situation.memory.stopping.contains_key(&view.id) {
        return;
    }
    let probe = situation.memory.probed.get(&view.id).and_then(|probed| {
        if probed.startup == Some(false) {
            container.startup_probe.as_ref()
        } else {
            container.liveness_probe.as_ref()
        }
    });
    let own = probe.and_then(|probe| probe.termination_grace_period_seconds);
    let spec = situation.pod.spec.as_ref();
    let grace_s = own.or(spec.and_then(|spec| spec.termination_grace_period_seconds)).unwrap_or(30);
    plan.actions.push(Action::StopContainer {
        id: view.id.clone(),
        name: container.name.clone(),
        grace_s,
        message: message.to_owned(),
        hook: true,
        anew: matches!(why, CHANGED | RESIZED),
    });
}

/// Starts a container, unless it is being started or has to wait.
fn start(situation: Situation<'_>, container: &Container, plan: &mut Plan) {
    let Situation { memory, now, .. } = situation;
    let name = &container.name;
    // Not into a pod that is just given another size: it may be too small for it still.
    let resizes = plan.actions.iter().any(|action| matches!(action, Action::Resize(_)));
    if memory.busy.contains(&Work::Start(name.clone())) || memory.busy.contains(&Work::Resize) || resizes {
        return;
    }
    let remembered = memory.containers.get(name).cloned().unwrap_or_default();
    if let Some(at) = remembered.retry_at.filter(|at| *at > now) {
        plan.at(at);
        if let Some(waits) = remembered.next_waiting.filter(|_| remembered.told.is_none()) {
            if now >= waits {
                plan.actions.push(Action::TellBackOff { name: name.clone(), after: waits, of_image: true });
            } else {
                plan.at(waits);
            }
        }
        return;
    }
    let newest = situation.newest(name);
    let mut backoff = remembered.backoff;
    // One that was stopped for another to take its place has not crashed.
    let ended = newest.filter(|view| !is_made_anew(situation, view)).map(|view| &view.state);
    if let Some(ContainerState::Exited { finished_at, .. }) = ended {
        if let Some(until) = remembered.backoff.until(*finished_at).filter(|until| *until > now) {
            plan.at(until);
            if remembered.told != Some(*finished_at) {
                plan.actions.push(Action::TellBackOff {
                    name: name.clone(),
                    after: *finished_at,
                    of_image: false,
                });
            }
            return;
        }
        let first_s = if situation.is_static() { STATIC_FIRST_S } else { CRASH_FIRST_S };
        backoff = remembered.backoff.next(*finished_at, now, first_s);
    }
    let attempt = next_attempt(situation, name);
    plan.actions.push(Action::StartContainer { name: name.clone(), attempt, backoff });
}

/// Which container of its name this will be. What the runtime has forgotten is in the status.
fn next_attempt(situation: Situation<'_>, name: &str) -> u32 {
    if let Some(view) = situation.newest(name) {
        return if view.state == ContainerState::Created { view.attempt } else { view.attempt + 1 };
    }
    let status = &situation.memory.status;
    let lists = [&status.container_statuses, &status.init_container_statuses];
    let old = lists.into_iter().flatten().flatten().find(|status| status.name == name);
    match old {
        Some(old) if has_run(old) || old.restart_count > 0 => {
            u32::try_from(old.restart_count).unwrap_or(0) + 1
        }
        _ => 0,
    }
}

fn forget_old(situation: Situation<'_>, name: &str, plan: &mut Plan) {
    let mut ended: Vec<&ContainerView> =
        situation.view.containers.iter().filter(|view| view.name == name && !is_running(view)).collect();
    ended.sort_by_key(|view| std::cmp::Reverse(view.attempt));
    let newest = situation.newest(name).map(|view| view.attempt);
    let older = ended.iter().filter(|view| Some(view.attempt) != newest).skip(KEPT_ENDED);
    for view in older.filter(|view| !situation.memory.busy.contains(&Work::Forget(view.id.clone()))) {
        plan.actions.push(Action::ForgetContainer {
            id: view.id.clone(),
            name: name.to_owned(),
            attempt: view.attempt,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn restart_policies_and_rules() {
        let rule = json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]);
        for (pod, own, rules, code, expected) in [
            ("Always", None, json!(null), 0, true),
            ("OnFailure", None, json!(null), 0, false),
            ("OnFailure", None, json!(null), 1, true),
            ("Never", None, json!(null), 1, false),
            ("Never", Some("Always"), json!(null), 0, true),
            ("Never", Some("Never"), rule.clone(), 42, true),
            ("Never", Some("Never"), rule, 1, false),
        ] {
            let container: Container = serde_json::from_value(
                json!({"name": "c", "restartPolicy": own, "restartPolicyRules": rules}),
            )
            .expect("a container");
            let spec: PodSpec =
                serde_json::from_value(json!({"containers": [], "restartPolicy": pod})).expect("a spec");
            assert_eq!(should_restart(&container, &spec, code), expected, "{pod} {own:?} {code}");
        }
    }
}
