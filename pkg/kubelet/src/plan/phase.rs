//! The phase of a pod, from the statuses of its containers.

use super::{is_sidecar, should_restart};
use k8s_openapi::api::core::v1::{ContainerStatus, PodSpec};

#[derive(Default)]
struct Count {
    unknown: usize,
    running: usize,
    waiting: usize,
    stopped: usize,
    for_good: usize,
    succeeded: usize,
}

/// Decides. `is_terminal`: none of the containers will run again, whatever the restart policy says. `was_running`: a
/// regular container is alive, so that the init containers are done.
pub(super) fn phase(
    spec: &PodSpec,
    statuses: &[&ContainerStatus],
    is_terminal: bool,
    was_running: bool,
) -> &'static str {
    let find = |name: &str| statuses.iter().find(|status| status.name == name).copied();
    let Ok(pending_init) = pending_init(spec, find) else { return "Failed" };
    let mut count = Count::default();
    let mut pending_sidecars = 0;
    for container in spec.init_containers.iter().flatten().filter(|container| is_sidecar(container)) {
        match find(&container.name) {
            None => count.unknown += 1,
            Some(status) if is_running(status) => {
                pending_sidecars += usize::from(status.started != Some(true));
                count.running += 1;
            }
            Some(status) if ended(status).is_some() => {}
            Some(_) => {
                pending_sidecars += 1;
                count.waiting += 1;
            }
        }
    }
    for container in &spec.containers {
        match find(&container.name) {
            None => count.unknown += 1,
            Some(status) if is_running(status) => count.running += 1,
            Some(status) => match ended(status) {
                None => count.waiting += 1,
                Some(code) => {
                    count.stopped += 1;
                    count.for_good += usize::from(!should_restart(container, spec, code));
                    // One that waits to be started again has not succeeded.
                    count.succeeded += usize::from(code == 0 && is_terminated(status));
                }
            },
        }
    }
    if pending_init > 0 || (pending_sidecars > 0 && !was_running) || count.waiting > 0 {
        return "Pending";
    }
    if count.unknown > 0 || (count.running == 0 && count.stopped == 0) {
        return "Pending";
    }
    if count.running > 0 || (!is_terminal && count.stopped != count.for_good) {
        return "Running";
    }
    if count.stopped == count.succeeded { "Succeeded" } else { "Failed" }
}

/// Init containers that have to run yet. An error: one failed for good.
fn pending_init<'a>(spec: &PodSpec, find: impl Fn(&str) -> Option<&'a ContainerStatus>) -> Result<usize, ()> {
    let mut pending = 0;
    for container in spec.init_containers.iter().flatten().filter(|container| !is_sidecar(container)) {
        match find(&container.name).and_then(ended) {
            None => pending += 1,
            Some(0) => {}
            Some(code) if !should_restart(container, spec, code) => return Err(()),
            Some(_) => {}
        }
    }
    Ok(pending)
}

fn is_running(status: &ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|state| state.running.is_some())
}

fn is_terminated(status: &ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|state| state.terminated.is_some())
}

/// The code it ended with, also if it waits to be started again.
fn ended(status: &ContainerStatus) -> Option<i32> {
    let state = status.state.as_ref()?;
    if let Some(terminated) = &state.terminated {
        return Some(terminated.exit_code);
    }
    state.waiting.as_ref()?;
    Some(status.last_state.as_ref()?.terminated.as_ref()?.exit_code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn running() -> Value {
        json!({"running": {}})
    }
    fn exited(code: i32) -> Value {
        json!({"terminated": {"exitCode": code}})
    }
    fn waiting() -> Value {
        json!({"waiting": {"reason": "ContainerCreating"}})
    }

    #[track_caller]
    fn check(policy: &str, init: &[(&str, Value)], regular: &[Value], terminal: bool, expected: &str) {
        let mut statuses = Vec::new();
        let mut status = |name: &str, state: &Value| {
            let value = json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "started": true, "state": state});
            statuses.push(serde_json::from_value::<ContainerStatus>(value).expect("a status"));
        };
        let mut init_specs = Vec::new();
        for (index, (kind, state)) in init.iter().enumerate() {
            let policy = (*kind == "sidecar").then_some("Always");
            init_specs.push(json!({"name": format!("i{index}"), "restartPolicy": policy}));
            status(&format!("i{index}"), state);
        }
        let mut specs = Vec::new();
        for (index, state) in regular.iter().enumerate() {
            specs.push(json!({"name": format!("c{index}")}));
            status(&format!("c{index}"), state);
        }
        let spec = json!({"restartPolicy": policy, "initContainers": init_specs, "containers": specs});
        let spec: PodSpec = serde_json::from_value(spec).expect("a spec");
        let statuses: Vec<&ContainerStatus> = statuses.iter().collect();
        assert_eq!(phase(&spec, &statuses, terminal, false), expected);
    }

    #[test]
    fn phases() {
        check("Always", &[], &[running(), running()], false, "Running");
        check("Always", &[], &[running(), waiting()], false, "Pending");
        check("Always", &[], &[exited(0), exited(1)], false, "Running");
        check("Always", &[], &[exited(0), exited(0)], true, "Succeeded");
        check("Always", &[], &[exited(0), exited(1)], true, "Failed");
        check("OnFailure", &[], &[exited(0), exited(0)], false, "Succeeded");
        check("OnFailure", &[], &[exited(0), exited(1)], false, "Running");
        check("Never", &[], &[exited(0), exited(1)], false, "Failed");
        check("Never", &[], &[exited(0), running()], false, "Running");
    }

    #[test]
    fn phases_with_init_containers() {
        check("Always", &[("init", waiting())], &[waiting()], false, "Pending");
        check("Always", &[("init", exited(1))], &[waiting()], false, "Pending");
        check("Never", &[("init", exited(1))], &[waiting()], false, "Failed");
        check("Never", &[("init", exited(0))], &[running()], false, "Running");
        check("Never", &[("sidecar", running())], &[exited(0)], false, "Running");
        check("Never", &[("sidecar", exited(137))], &[exited(0)], false, "Succeeded");
    }
}
