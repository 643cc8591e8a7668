//! How a pod ends: its containers are stopped, sidecars last and in reverse order, then the sandbox goes, then what
//! the pod leaves on the node.

use super::{Action, Ending, Kind, Plan, Situation, Work, after, containers_of, is_running};
use crate::runtime::{ContainerState, ContainerView};

/// Even when all grace is used up, a sidecar gets this long.
const LEAST_GRACE_S: i64 = 2;

/// Plans a pod that has to end.
pub(super) fn plan(situation: Situation<'_>, ending: &Ending, plan: &mut Plan) {
    let Situation { view, memory, .. } = situation;
    plan.actions.extend(memory.busy.iter().filter_map(Work::starts).cloned().map(Action::CancelStart));
    let starting =
        memory.busy.iter().any(|work| matches!(work, Work::Start(_) | Work::Sandbox | Work::Volumes));
    let running = view.containers.iter().any(is_running);
    if running {
        stop_containers(situation, ending, plan);
        return;
    }
    if starting {
        return;
    }
    if !view.is_empty() {
        for sandbox in view.all_sandboxes() {
            if !memory.busy.contains(&Work::RemoveSandbox(sandbox.clone())) {
                plan.actions.push(Action::RemoveSandbox(sandbox.clone()));
            }
        }
        return;
    }
    let removing = memory.busy.iter().any(|work| matches!(work, Work::RemoveSandbox(_)));
    if !memory.cleaned {
        if !removing && !memory.busy.contains(&Work::CleanUp) {
            plan.actions.push(Action::CleanUp);
        }
        return;
    }
    plan.finished = true;
}

/// How many seconds a pod has to end.
pub(super) fn grace_s(situation: Situation<'_>, ending: &Ending) -> i64 {
    let pod = situation.pod;
    let own = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(30);
    match ending {
        Ending::Deleted | Ending::Gone => pod.metadata.deletion_grace_period_seconds.unwrap_or(own),
        Ending::Failed { grace_s, .. } => grace_s.unwrap_or(own),
        Ending::Completed => own,
    }
    .max(1)
}

fn stop_containers(situation: Situation<'_>, ending: &Ending, plan: &mut Plan) {
    let Situation { pod, view, memory, now, .. } = situation;
    let since = memory.ending_since.unwrap_or(now);
    let deadline = after(since, grace_s(situation, ending));
    let kinds = containers_of(pod);
    let sidecar_index = |view: &ContainerView| {
        kinds.iter().position(|(kind, c)| *kind == Kind::Sidecar && c.name == view.name)
    };
    let (sidecars, others): (Vec<&ContainerView>, Vec<&ContainerView>) =
        view.containers.iter().filter(|c| is_running(c)).partition(|c| sidecar_index(c).is_some());
    let (now_due, least_s) = if others.is_empty() {
        let last = sidecars.iter().filter_map(|view| sidecar_index(view)).max();
        (sidecars.into_iter().filter(|view| sidecar_index(view) == last).collect(), LEAST_GRACE_S)
    } else {
        (others, 0)
    };
    for container in now_due {
        let earlier = memory.stopping.get(&container.id).is_none_or(|planned| deadline < *planned);
        if !earlier {
            continue;
        }
        let grace_s = (deadline.as_second() - now.as_second()).max(least_s);
        plan.actions.push(Action::StopContainer {
            id: container.id.clone(),
            name: container.name.clone(),
            grace_s,
            message: format!("Stopping container {}", container.name),
            hook: !memory.stopping.contains_key(&container.id),
            anew: false,
        });
    }
}

/// Whether every container of the pod has ended or was never started.
pub(super) fn all_ended(situation: Situation<'_>) -> bool {
    let busy = situation.memory.busy.iter().any(|work| matches!(work, Work::Start(_) | Work::Sandbox));
    !busy
        && situation
            .view
            .containers
            .iter()
            .all(|c| matches!(c.state, ContainerState::Exited { .. } | ContainerState::Created))
}
