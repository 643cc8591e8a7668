//! Tables of situations: what is wanted, what is seen, and what follows.

use super::*;
use crate::runtime::{ImageId, PodRef, SandboxSpec};
use serde_json::{Value, json};

const NOW_S: i64 = 1_000_000;

fn at(offset_s: i64) -> Timestamp {
    Timestamp::from_second(NOW_S + offset_s).expect("a time")
}

/// A situation that is built up step by step.
struct Scene {
    pod: Pod,
    view: PodView,
    memory: Memory,
}

impl Scene {
    fn new(spec: Value) -> Scene {
        let pod = json!({"metadata": {"namespace": "default", "name": "p", "uid": "u", "generation": 1}, "spec": spec});
        let pod_ref = PodRef { namespace: "default".into(), name: "p".into(), uid: "u".into() };
        Scene {
            pod: serde_json::from_value(pod).expect("a pod"),
            view: PodView { pod: pod_ref, sandboxes: vec![], containers: vec![] },
            memory: Memory { volumes: Volumes::Ready, ..Memory::default() },
        }
    }

    fn sandbox(mut self, pid: Option<u32>) -> Scene {
        let annotations = BTreeMap::from([(ADDRESSES.to_owned(), "10.0.0.5".to_owned())]);
        self.view.sandboxes.push(SandboxView {
            id: SandboxId("s".into()),
            spec: SandboxSpec { annotations, ..SandboxSpec::default() },
            pid,
            created_at: at(-100),
        });
        self
    }

    fn container(mut self, name: &str, attempt: u32, state: ContainerState) -> Scene {
        self.view.containers.push(ContainerView {
            id: ContainerId(format!("{name}-{attempt}")),
            sandbox: SandboxId("s".into()),
            name: name.into(),
            attempt,
            image: ImageId("sha256:1".into()),
            image_ref: "busybox".into(),
            state,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            log_path: "/log".into(),
            user: None,
            created_at: at(-90),
        });
        self
    }

    fn running(self, name: &str) -> Scene {
        self.container(name, 0, ContainerState::Running { started_at: at(-80), pid: 7 })
    }

    fn exited(self, name: &str, attempt: u32, code: i32) -> Scene {
        let state = ContainerState::Exited {
            started_at: Some(at(-80)),
            finished_at: at(-1),
            code,
            out_of_memory: false,
            message: None,
        };
        self.container(name, attempt, state)
    }

    fn deleted(mut self, grace_s: i64) -> Scene {
        self.pod.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(0)));
        self.pod.metadata.deletion_grace_period_seconds = Some(grace_s);
        self
    }

    fn with(mut self, change: impl FnOnce(&mut Memory)) -> Scene {
        change(&mut self.memory);
        self
    }

    fn plan(&self) -> Plan {
        let node = NodeFacts {
            addresses: vec!["192.0.2.1".into()],
            runtime: "containerd".into(),
            ..NodeFacts::default()
        };
        plan_pod(Situation {
            pod: &self.pod,
            view: &self.view,
            memory: &self.memory,
            node: &node,
            now: at(0),
        })
    }

    #[track_caller]
    fn check(&self, actions: &[&str], phase: &str) -> Plan {
        let plan = self.plan();
        let said: Vec<String> = plan.actions.iter().map(say).collect();
        assert_eq!(said, actions);
        assert_eq!(plan.status.phase.as_deref(), Some(phase));
        plan
    }
}

fn say(action: &Action) -> String {
    match action {
        Action::MountVolumes => "mount".into(),
        Action::StartSandbox { attempt } => format!("sandbox {attempt}"),
        Action::StartContainer { name, attempt, .. } => format!("start {name} {attempt}"),
        Action::TellBackOff { name, .. } => format!("tell {name}"),
        Action::CancelStart(name) => format!("cancel {name}"),
        Action::StopContainer { id, grace_s, .. } => format!("stop {} {grace_s}", id.0),
        Action::Resize(steps) => format!("resize {}", steps.iter().map(step).collect::<Vec<_>>().join(", ")),
        Action::TellResized { .. } => "resized".into(),
        Action::ForgetContainer { id, .. } => format!("forget {}", id.0),
        Action::RemoveSandbox(id) => format!("remove {}", id.0),
        Action::CleanUp => "clean".into(),
    }
}

fn one() -> Value {
    json!({"restartPolicy": "Always", "containers": [{"name": "c", "image": "busybox"}]})
}

fn policy(policy: &str) -> Value {
    let mut spec = one();
    spec["restartPolicy"] = policy.into();
    spec
}

#[test]
fn a_new_pod_gets_volumes_and_a_sandbox_at_once_and_then_its_containers() {
    Scene::new(one()).with(|memory| memory.volumes = Volumes::None).check(&["mount", "sandbox 0"], "Pending");
    let busy = |memory: &mut Memory| {
        memory.volumes = Volumes::None;
        memory.busy = [Work::Volumes, Work::Sandbox].into();
    };
    Scene::new(one()).with(busy).check(&[], "Pending");
    Scene::new(one()).sandbox(Some(1)).check(&["start c 0"], "Pending");
    let plan = Scene::new(one()).sandbox(Some(1)).running("c").check(&[], "Running");
    assert_eq!(plan.status.pod_ip.as_deref(), Some("10.0.0.5"));
    let ready = plan.status.conditions.expect("conditions");
    assert!(ready.iter().all(|condition| condition.status == "True"), "{ready:#?}");
}

#[test]
fn restart_policies() {
    for (restart, code, actions, phase) in [
        ("Always", 0, vec!["start c 1"], "Running"),
        ("OnFailure", 1, vec!["start c 1"], "Running"),
        ("OnFailure", 0, vec!["remove s"], "Succeeded"),
        ("Never", 0, vec!["remove s"], "Succeeded"),
        ("Never", 1, vec!["remove s"], "Failed"),
    ] {
        Scene::new(policy(restart)).sandbox(Some(1)).exited("c", 0, code).check(&actions, phase);
    }
}

#[test]
fn a_container_that_crashes_again_waits() {
    let crashed = |memory: &mut Memory| {
        let backoff = BackOff::default().next(at(-30), at(-20), CRASH_FIRST_S);
        memory.containers.entry("c".into()).or_default().backoff = backoff;
    };
    let plan =
        Scene::new(one()).sandbox(Some(1)).exited("c", 1, 1).with(crashed).check(&["tell c"], "Running");
    assert_eq!(plan.look_again, Some(at(9)));
    let status = &plan.status.container_statuses.expect("statuses")[0];
    let waiting = status.state.as_ref().and_then(|state| state.waiting.clone()).expect("it waits");
    assert_eq!(waiting.reason.as_deref(), Some("CrashLoopBackOff"));
    let message = "back-off 10s restarting failed container=c pod=p_default(u)";
    assert_eq!(waiting.message.as_deref(), Some(message));
    assert_eq!(status.restart_count, 1);
    let starting = |memory: &mut Memory| {
        crashed(memory);
        memory.busy = [Work::Start("c".into())].into();
    };
    let plan = Scene::new(one()).sandbox(Some(1)).exited("c", 0, 1).with(starting).check(&[], "Running");
    let state = plan.status.container_statuses.expect("statuses")[0].state.clone().expect("a state");
    assert!(state.terminated.is_some(), "one that is being started waits for nothing");
}

#[test]
fn init_containers_run_in_order_and_sidecars_beside_them() {
    let spec = json!({"restartPolicy": "Always", "containers": [{"name": "c"}], "initContainers": [
        {"name": "a"}, {"name": "side", "restartPolicy": "Always"}, {"name": "b"}]});
    let scene = || Scene::new(spec.clone()).sandbox(Some(1));
    scene().check(&["start a 0"], "Pending");
    scene().running("a").check(&[], "Pending");
    scene().exited("a", 0, 1).check(&["start a 1"], "Pending");
    scene().exited("a", 0, 0).check(&["start side 0"], "Pending");
    scene().exited("a", 0, 0).running("side").check(&["start b 0"], "Pending");
    let ready = scene().exited("a", 0, 0).running("side").exited("b", 0, 0);
    ready.check(&["start c 0"], "Pending");
    ready.running("c").check(&[], "Running");
    let died = scene().exited("a", 0, 0).exited("side", 0, 1).exited("b", 0, 0).running("c");
    died.check(&["start side 1"], "Running");
}

#[test]
fn in_a_pod_with_init_containers_all_wait_for_the_same() {
    let spec = json!({"restartPolicy": "Always", "containers": [{"name": "c"}],
        "initContainers": [{"name": "a"}, {"name": "b"}]});
    let status = Scene::new(spec).sandbox(Some(1)).running("a").check(&[], "Pending").status;
    let reason = |statuses: &Option<Vec<k8s_openapi::api::core::v1::ContainerStatus>>, name: &str| {
        let status = statuses.iter().flatten().find(|status| status.name == name)?;
        status.state.as_ref()?.waiting.as_ref()?.reason.clone()
    };
    assert_eq!(reason(&status.init_container_statuses, "b").as_deref(), Some("PodInitializing"));
    assert_eq!(reason(&status.container_statuses, "c").as_deref(), Some("PodInitializing"));
}

#[test]
fn an_init_container_that_fails_for_good_fails_the_pod() {
    let spec =
        json!({"restartPolicy": "Never", "containers": [{"name": "c"}], "initContainers": [{"name": "a"}]});
    let scene = Scene::new(spec).sandbox(Some(1)).exited("a", 0, 1);
    scene.check(&["remove s"], "Failed");
}

#[test]
fn a_pod_ends_step_by_step() {
    let scene = || Scene::new(one()).deleted(5);
    scene().sandbox(Some(1)).running("c").check(&["stop c-0 5"], "Running");
    let stopping = |memory: &mut Memory| {
        memory.stopping.insert(ContainerId("c-0".into()), at(5));
        memory.ending_since = Some(at(0));
    };
    scene().sandbox(Some(1)).running("c").with(stopping).check(&[], "Running");
    Scene::new(one())
        .deleted(1)
        .sandbox(Some(1))
        .running("c")
        .with(stopping)
        .check(&["stop c-0 1"], "Running");
    scene().sandbox(Some(1)).exited("c", 0, 0).check(&["remove s"], "Succeeded");
    scene().check(&["clean"], "Pending");
    let plan = scene().with(|memory| memory.cleaned = true).check(&[], "Pending");
    assert!(plan.finished);
    let starting = |memory: &mut Memory| memory.busy = [Work::Start("c".into())].into();
    scene().sandbox(Some(1)).with(starting).check(&["cancel c"], "Pending");
}

#[test]
fn sidecars_end_last_and_in_reverse() {
    let spec = json!({"restartPolicy": "Always", "containers": [{"name": "c"}], "initContainers": [
        {"name": "one", "restartPolicy": "Always"}, {"name": "two", "restartPolicy": "Always"}]});
    let scene = || Scene::new(spec.clone()).deleted(5).sandbox(Some(1)).running("one");
    scene().running("two").running("c").check(&["stop c-0 5"], "Running");
    scene().running("two").exited("c", 0, 0).check(&["stop two-0 5"], "Running");
    scene().exited("two", 0, 0).exited("c", 0, 0).check(&["stop one-0 5"], "Running");
}

#[test]
fn a_dead_sandbox_is_replaced_and_what_ran_runs_again() {
    let dead = Scene::new(one()).sandbox(None).exited("c", 0, 137);
    let plan = dead.check(&["remove s"], "Running");
    let gone = Scene::new(one()).with(|memory| memory.status = plan.status.clone());
    gone.check(&["sandbox 1"], "Running");
    let again = Scene::new(one()).sandbox(Some(2)).with(|memory| memory.status = plan.status.clone());
    again.check(&["start c 1"], "Running");
    Scene::new(policy("Never")).sandbox(None).exited("c", 0, 137).check(&["remove s"], "Failed");
    // Nothing is being made in it while it goes.
    let starting = |memory: &mut Memory| memory.busy = [Work::Start("c".into())].into();
    Scene::new(one()).sandbox(None).with(starting).check(&["cancel c"], "Pending");
}

#[test]
fn a_container_whose_sandbox_went_while_it_was_made_goes_as_well() {
    let orphan = || Scene::new(one()).exited("c", 0, 128);
    orphan().check(&["remove s"], "Running");
    orphan().deleted(5).check(&["remove s"], "Failed");
    let removing = |memory: &mut Memory| memory.busy = [Work::RemoveSandbox(SandboxId("s".into()))].into();
    let plan = orphan().deleted(5).with(removing).with(|memory| memory.cleaned = true).check(&[], "Failed");
    assert!(!plan.finished, "a record is left");
    let mut beside = Scene::new(one()).sandbox(Some(1)).exited("c", 0, 128).running("c");
    beside.view.containers[0].sandbox = SandboxId("gone".into());
    beside.view.containers[1].attempt = 1;
    beside.check(&["remove gone"], "Running");
}

#[test]
fn what_has_ended_for_good_has_ended_for_the_api_even_if_it_runs_again() {
    let mut spec = policy("OnFailure");
    spec["initContainers"] = json!([{"name": "i", "image": "busybox"}]);
    let before = Scene::new(spec.clone()).sandbox(Some(1)).exited("i", 0, 0).running("c");
    let status = before.check(&[], "Running").status;
    let code = |plan: &Plan| {
        let init = plan.status.init_container_statuses.as_ref().expect("statuses")[0].clone();
        init.state.and_then(|state| state.terminated).map(|ended| ended.exit_code)
    };
    // Its sandbox died, and everything begins anew.
    let anew = || Scene::new(spec.clone()).sandbox(Some(2)).with(|memory| memory.status = status.clone());
    for plan in [anew().check(&["start i 1"], "Running"), anew().running("i").plan()] {
        assert_eq!(code(&plan), Some(0));
    }
    // One whose policy lets it run again says that it does.
    let mut always = anew();
    always.pod.spec.as_mut().expect("a spec").restart_policy = Some("Always".into());
    assert_eq!(code(&always.running("i").plan()), None);
}

#[test]
fn a_container_that_was_never_started_is_not_lost() {
    let made = Scene::new(policy("Never")).sandbox(Some(1)).container("c", 0, ContainerState::Created);
    let status = made.plan().status;
    let again = Scene::new(policy("Never")).sandbox(Some(1)).with(|memory| memory.status = status);
    again.check(&["start c 0"], "Pending");
}

#[test]
fn probes_kill_and_hold_back() {
    let mut spec = one();
    spec["containers"][0]["livenessProbe"] = json!({"exec": {"command": ["x"]}});
    spec["containers"][0]["readinessProbe"] = json!({"exec": {"command": ["x"]}});
    spec["terminationGracePeriodSeconds"] = 9.into();
    let probed = |liveness, readiness| {
        let spec = spec.clone();
        Scene::new(spec).sandbox(Some(1)).running("c").with(move |memory| {
            let probed = Probed { liveness, readiness, startup: None };
            memory.probed.insert(ContainerId("c-0".into()), probed);
        })
    };
    let ready = |plan: &Plan| plan.status.container_statuses.as_ref().expect("statuses")[0].ready;
    assert!(!ready(&probed(None, None).check(&[], "Running")), "not ready until it is asked");
    assert!(ready(&probed(Some(true), Some(true)).check(&[], "Running")));
    let killed = probed(Some(false), Some(true)).check(&["stop c-0 9"], "Running");
    let Action::StopContainer { message, .. } = &killed.actions[0] else { panic!("a stop") };
    assert_eq!(message, "Container c failed liveness probe, will be restarted");
}

#[test]
fn a_deadline_ends_a_pod() {
    let mut spec = one();
    spec["activeDeadlineSeconds"] = 60.into();
    let started = |offset: i64| {
        move |memory: &mut Memory| {
            memory.status.start_time = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(offset)));
        }
    };
    let plan =
        Scene::new(spec.clone()).sandbox(Some(1)).running("c").with(started(-10)).check(&[], "Running");
    assert_eq!(plan.look_again, Some(at(50)));
    let late = Scene::new(spec).sandbox(Some(1)).running("c").with(started(-60));
    let plan = late.check(&["stop c-0 30"], "Failed");
    assert_eq!(plan.status.reason.as_deref(), Some("DeadlineExceeded"));
}

#[test]
fn only_the_newest_ended_containers_are_kept() {
    let scene = Scene::new(one()).sandbox(Some(1)).exited("c", 0, 1).exited("c", 1, 1).exited("c", 2, 1);
    let running = scene.container("c", 3, ContainerState::Running { started_at: at(-5), pid: 9 });
    let plan = running.plan();
    let mut said: Vec<String> = plan.actions.iter().map(say).collect();
    said.sort();
    assert_eq!(said, ["forget c-0", "forget c-1"]);
    let status = &plan.status.container_statuses.expect("statuses")[0];
    assert_eq!(status.restart_count, 3);
    assert!(status.last_state.as_ref().is_some_and(|state| state.terminated.is_some()));
}

#[test]
fn a_failed_pull_becomes_a_pull_that_waits() {
    let failed = |memory: &mut Memory| {
        let container = memory.containers.entry("c".into()).or_default();
        container.waiting = Some(("ErrImagePull".into(), "no such image".into()));
        container.retry_at = Some(at(10));
        container.pull_delay_s = 10;
        container.next_waiting = Some(at(1));
    };
    let reason = |plan: &Plan| {
        let status = plan.status.container_statuses.clone().expect("statuses").remove(0);
        status.state.and_then(|state| state.waiting).and_then(|waiting| waiting.reason).expect("a reason")
    };
    let first = Scene::new(one()).sandbox(Some(1)).with(failed).check(&[], "Pending");
    assert_eq!(reason(&first), "ErrImagePull");
    let waits = |memory: &mut Memory| {
        failed(memory);
        memory.containers.entry("c".into()).or_default().next_waiting = Some(at(0));
    };
    let then = Scene::new(one()).sandbox(Some(1)).with(waits).check(&["tell c"], "Pending");
    assert_eq!(reason(&then), "ImagePullBackOff");
}

/// A step in a word: whose limits, of memory and of CPU, and what is written down.
fn step(step: &Step) -> String {
    let limits = |resources: &crate::runtime::Resources| {
        format!("{}Mi/{}us", resources.memory_limit_bytes >> 20, resources.cpu_quota_us)
    };
    match step {
        Step::Pod { resources, .. } => format!("pod {}", limits(resources)),
        Step::Container { name, resources, .. } => format!("{name} {}", limits(resources)),
    }
}

fn amounts(cpu: &str, memory: &str) -> Value {
    let amounts = json!({"cpu": cpu, "memory": memory});
    json!({"limits": amounts, "requests": amounts})
}

/// A pod of two that run with half a core and 64 MiB each, and have been given something else.
fn resized(policy: Value, a: Value, b: Value) -> Scene {
    let half = amounts("500m", "64Mi");
    let containers = |a: &Value, b: &Value| {
        json!({"restartPolicy": "OnFailure", "containers": [
            {"name": "a", "resources": a, "resizePolicy": policy}, {"name": "b", "resources": b}]})
    };
    let before = Scene::new(containers(&half, &half)).pod;
    let mut scene = Scene::new(containers(&a, &b)).sandbox(Some(1)).running("a").running("b");
    scene.view.sandboxes[0].spec.resources = crate::host::resources::of_pod(&before, 100);
    let given = crate::allocation::written(&crate::allocation::of(&before));
    scene.view.sandboxes[0].spec.annotations.insert(crate::allocation::ALLOCATED.into(), given);
    for view in &mut scene.view.containers {
        view.annotations.insert(IN_FORCE.into(), half.to_string());
    }
    scene.memory.resize.generation = Some(2);
    scene
}

fn restarts(resource: &str) -> Value {
    json!([{"resourceName": resource, "restartPolicy": "RestartContainer"}])
}

fn condition<'a>(plan: &'a Plan, name: &str) -> Option<&'a k8s_openapi::api::core::v1::PodCondition> {
    plan.status.conditions.iter().flatten().find(|condition| condition.type_ == name)
}

#[test]
fn no_container_is_ever_allowed_more_than_its_pod() {
    let check = |a: (&str, &str), b: (&str, &str), expected: &str| {
        let scene = resized(Value::Null, amounts(a.0, a.1), amounts(b.0, b.1));
        let expected: Vec<&str> = Some(expected).into_iter().filter(|steps| !steps.is_empty()).collect();
        scene.check(&expected, "Running")
    };
    let plan = check(("500m", "64Mi"), ("500m", "64Mi"), "");
    assert_eq!(condition(&plan, "PodResizeInProgress"), None);
    // More: the pod first. Less: the pod last.
    check(("1", "128Mi"), ("500m", "64Mi"), "resize pod 192Mi/150000us, a 128Mi/100000us");
    check(("250m", "32Mi"), ("500m", "64Mi"), "resize pod 128Mi/100000us, a 32Mi/25000us, pod 96Mi/75000us");
    // Who gives back comes before who takes.
    check(("1", "64Mi"), ("250m", "64Mi"), "resize pod 128Mi/125000us, b 64Mi/25000us, a 64Mi/100000us");
    // One of either.
    let plan = check(
        ("1", "32Mi"),
        ("500m", "64Mi"),
        "resize pod 128Mi/150000us, a 32Mi/100000us, pod 96Mi/150000us",
    );
    let said = condition(&plan, "PodResizeInProgress").expect("it is in progress");
    assert_eq!((said.status.as_str(), said.observed_generation, &said.reason), ("True", Some(2), &None));
    let status = &plan.status.container_statuses.as_ref().expect("two")[0];
    let of = |list: Option<&BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>>| {
        list.expect("amounts")["cpu"].0.clone()
    };
    assert_eq!(of(status.allocated_resources.as_ref()), "1", "allocated");
    let in_force = status.resources.as_ref().expect("in force");
    assert_eq!(
        (of(in_force.requests.as_ref()), of(in_force.limits.as_ref())),
        ("500m".into(), "500m".into())
    );
}

#[test]
fn what_failed_is_tried_again_later_and_something_else_at_once() {
    let scene = resized(Value::Null, amounts("500m", "32Mi"), amounts("500m", "64Mi"));
    let Some(Action::Resize(steps)) = scene.plan().actions.pop() else { panic!("it is resized") };
    let failed = |steps| ResizeFailure { steps, message: "no".into(), retry_at: at(7) };
    let scene = scene.with(|memory| memory.resize.failed = Some(failed(steps.clone())));
    let plan = scene.check(&[], "Running");
    assert_eq!(plan.look_again, Some(at(7)));
    let said = condition(&plan, "PodResizeInProgress").expect("it is in progress");
    assert_eq!((said.reason.as_deref(), said.message.as_deref()), (Some("Error"), Some("no")));
    let scene = scene.with(|memory| memory.resize.failed = Some(failed(steps[..1].to_vec())));
    let again = "resize pod 128Mi/100000us, a 32Mi/50000us, pod 96Mi/100000us";
    let plan = scene.check(&[again], "Running");
    assert_eq!(condition(&plan, "PodResizeInProgress").expect("it is").reason, None);
    scene.with(|memory| memory.busy = [Work::Resize].into()).check(&[], "Running");
}

#[test]
fn a_container_is_started_again_if_its_policy_says_so() {
    let more = || amounts("1", "128Mi");
    let half = || amounts("500m", "64Mi");
    // A policy counts for what changes.
    let scene = resized(restarts("memory"), amounts("1", "64Mi"), half());
    scene.check(&["resize pod 128Mi/150000us, a 64Mi/100000us"], "Running");
    let mut scene = resized(restarts("memory"), more(), half());
    let plan = scene.check(&["resize pod 192Mi/150000us", "stop a-0 30"], "Running");
    let told = plan.actions.iter().find_map(|action| match action {
        Action::StopContainer { message, anew, .. } => Some((message.as_str(), *anew)),
        _ => None,
    });
    assert_eq!(told, Some(("Container a resize requires restart", true)));
    // It ends well; its pod is not done, and it need not wait.
    scene.view.containers.remove(0);
    let spec = &mut scene.view.sandboxes[0].spec;
    spec.resources = crate::host::resources::of_pod(&scene.pod, 100);
    let given = crate::allocation::written(&crate::allocation::of(&scene.pod));
    spec.annotations.insert(crate::allocation::ALLOCATED.into(), given);
    let scene = scene.exited("a", 0, 0).with(|memory| {
        let remembered = memory.containers.entry("a".into()).or_default();
        remembered.anew = Some(ContainerId("a-0".into()));
        remembered.backoff = BackOff::default().next(at(-20), at(-20), CRASH_FIRST_S);
    });
    let plan = scene.check(&["start a 1"], "Running");
    let state = plan.status.container_statuses.as_ref().expect("two")[0].state.as_ref();
    assert!(state.is_some_and(|state| state.waiting.is_some()), "{state:?}");
    // Not before the pod is large enough for it.
    scene.with(|memory| memory.busy = [Work::Resize].into()).check(&[], "Running");
}

#[test]
fn a_pod_gives_back_when_those_that_have_too_much_have_ended() {
    let mut scene = resized(restarts("cpu"), amounts("250m", "64Mi"), amounts("500m", "64Mi"));
    scene.check(&["resize pod 128Mi/100000us", "stop a-0 30"], "Running");
    let given = crate::allocation::written(&crate::allocation::of(&scene.pod));
    scene.view.sandboxes[0].spec.annotations.insert(crate::allocation::ALLOCATED.into(), given);
    scene.check(&["stop a-0 30"], "Running");
    scene.view.containers.remove(0);
    scene.exited("a", 0, 137).check(&["resize pod 128Mi/75000us"], "Running");
}

#[test]
fn conditions_of_a_resize_come_and_go() {
    let half = || amounts("500m", "64Mi");
    let pending = crate::allocation::Pending {
        reason: "Deferred",
        message: "no room".into(),
        generation: Some(2),
        since: at(-5),
    };
    let scene = resized(Value::Null, half(), half()).with(|memory| memory.resize.pending = Some(pending));
    let plan = scene.check(&[], "Running");
    let said = condition(&plan, "PodResizePending").expect("it waits").clone();
    assert_eq!(
        (said.reason.as_deref(), said.message.as_deref(), said.observed_generation),
        (Some("Deferred"), Some("no room"), Some(2))
    );
    // A condition that was there when the kubelet started, of a size that is in force by now.
    let in_progress = serde_json::from_value(json!({"type": "PodResizeInProgress", "status": "True",
        "observedGeneration": 2}));
    let scene = scene.with(|memory| {
        memory.resize.pending = None;
        memory.status.conditions = Some(vec![in_progress.expect("a condition"), said]);
    });
    let plan = scene.check(&["resized"], "Running");
    assert_eq!(plan.actions, [Action::TellResized { generation: Some(2) }]);
    assert_eq!(condition(&plan, "PodResizePending"), None);
    assert_eq!(condition(&plan, "PodResizeInProgress"), None);
}

#[test]
fn no_limit_of_memory_goes_below_what_is_used() {
    let scene = resized(Value::Null, amounts("500m", "32Mi"), amounts("500m", "64Mi"));
    let Some(Action::Resize(steps)) = scene.plan().actions.pop() else { panic!("it is resized") };
    let usage = |a: u64, b: u64| {
        let of = |memory_bytes| crate::runtime::Usage { memory_bytes, ..Default::default() };
        BTreeMap::from([("a".to_owned(), of(a << 20)), ("b".to_owned(), of(b << 20))])
    };
    let below = |a, b| resize::below_usage(&steps, &usage(a, b));
    assert_eq!(below(31, 64), None);
    let one = "cannot decrease memory limits: attempting to set container \"a\" memory limit (33554432) below current usage (41943040)";
    assert_eq!(below(40, 1).as_deref(), Some(one));
    let two = below(40, 64).expect("too little");
    assert!(
        two.starts_with("cannot decrease memory limits: [attempting")
            && two.contains("pod memory limit (100663296) below"),
        "{two}"
    );
}
