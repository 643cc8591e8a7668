//! Restarts of ours, of containerd, of shims: all pods are found again, all ends are known.

use crate::node::{Node, next};
use futures::{FutureExt, StreamExt};
use kubelet::runtime::{ContainerState, Event, Runtime};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::sync::Arc;
use std::time::Duration;
use testing::{eventually, in_time};

#[tokio::test(flavor = "multi_thread")]
async fn a_new_kubelet_finds_all_pods_and_the_ends_it_missed() {
    let node = Node::start().await;
    let pod = node.pod("found");
    let first = node.restarted();
    let sandbox = first.start_sandbox(&pod, &node.sandbox(&pod)).await.expect("a sandbox").id;
    let runs = first
        .start_container(&pod, &sandbox, &node.shell(&pod, "runs", "exec sleep 1000"))
        .await
        .expect("one");
    let ends = first.start_container(&pod, &sandbox, &node.shell(&pod, "ends", "exit 9")).await.expect("one");
    drop(first);
    assert_eq!(node.end(&pod, &ends.id).await, (9, false));
    let mut events = node.runtime.events();
    assert_eq!(next(&mut events).await, Event::Lost);
    let view = node.runtime.pods().await.expect("a list").remove(0);
    assert_eq!(view.pod, pod);
    assert_eq!(view.sandboxes[0].id, sandbox);
    let state = |id| view.containers.iter().find(|one| one.id == id).expect("it").state.clone();
    assert_eq!(state(runs.id.clone()), runs.state);
    assert!(matches!(state(ends.id), ContainerState::Exited { code: 9, .. }));
    // It goes on hearing of it.
    node.runtime.stop_container(&runs.id, Duration::ZERO).await.expect("it stops");
    assert_eq!(next(&mut events).await, Event::Changed(pod.clone()));
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_nobody_reads_hold_up_nobody() {
    let node = Node::start().await;
    let runtime = node.restarted();
    let mut events = runtime.events();
    // It begins to connect, and is left at that.
    assert!(events.next().now_or_never().is_none());
    in_time("the pods are listed", runtime.pods()).await.expect("a list");
}

#[tokio::test(flavor = "multi_thread")]
async fn containerd_may_be_killed() {
    // One that is hurt cannot be shared.
    let node = Node::on(Arc::new(testing::Containerd::start())).await;
    let Node { runtime, config, image, containerd } = node;
    let mut containerd = Arc::into_inner(containerd).expect("nobody else has it");
    let pod =
        kubelet::runtime::PodRef { namespace: "default".into(), name: "kept".into(), uid: "kept".into() };
    let sandbox = kubelet::runtime::SandboxSpec {
        hostname: "kept".into(),
        cgroup_parent: format!("{}/podkept", containerd.cgroup()),
        ..Default::default()
    };
    let spec = |name: &str, line: &str| kubelet::runtime::ContainerSpec {
        name: name.into(),
        image: image.clone(),
        command: ["sh", "-c", line].map(str::to_owned).into(),
        log_path: config.root_dir.join(format!("{name}.log")),
        ..Default::default()
    };
    let mut events = runtime.events();
    assert_eq!(next(&mut events).await, Event::Lost);
    let sandbox = runtime.start_sandbox(&pod, &sandbox).await.expect("a sandbox").id;
    let go = config.root_dir.join("go");
    let mut waits = spec("waits", "until [ -e /node/go ]; do usleep 1000; done; echo went; exit 5");
    waits.mounts.push(kubelet::runtime::Mount {
        host_path: config.root_dir.clone(),
        container_path: "/node".into(),
        read_only: true,
        ..kubelet::runtime::Mount::default()
    });
    let ends = runtime.start_container(&pod, &sandbox, &waits).await.expect("one that ends meanwhile");
    let runs = runtime.start_container(&pod, &sandbox, &spec("runs", "exec sleep 1000")).await.expect("one");
    containerd.kill();
    assert!(runtime.version().await.is_err(), "it is away");
    std::fs::write(go, "").expect("written");
    let log = config.root_dir.join("waits.log");
    eventually("it ends while containerd is away", || async {
        std::fs::read_to_string(&log).is_ok_and(|text| text.contains("went")).then_some(())
    })
    .await;
    containerd.start_again();
    assert_eq!(next(&mut events).await, Event::Lost);
    eventually("its end is known", || async {
        let view = runtime.pod(&pod).await.ok()?;
        let of = |id| view.containers.iter().find(|one| one.id == id).map(|one| one.state.clone());
        assert_eq!(of(runs.id.clone()), Some(runs.state.clone()), "the other runs on");
        matches!(of(ends.id.clone()), Some(ContainerState::Exited { code: 5, .. })).then_some(())
    })
    .await;
    runtime.remove_sandbox(&sandbox).await.expect("it goes");
    assert_eq!(containerd.cgroups(), Vec::<std::path::PathBuf>::new());
    eventually("no shim is left", || async { containerd.shims(&config.namespace).is_empty().then_some(()) })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_shim_died_has_ended() {
    let node = Node::start().await;
    let pod = node.pod("shim");
    let mut events = node.runtime.events();
    assert_eq!(next(&mut events).await, Event::Lost);
    let (sandbox, container) = node.run(&pod, &node.shell(&pod, "main", "sleep 1000")).await;
    let shims = node.containerd.shims(&node.config.namespace);
    assert_eq!(shims.len(), 1);
    kill(Pid::from_raw(shims[0]), Signal::SIGKILL).expect("killed");
    assert_eq!(next(&mut events).await, Event::Changed(pod.clone()));
    let (code, out_of_memory) = node.end(&pod, &container.id).await;
    assert!(code == 137 || code == 255, "{code}");
    assert!(!out_of_memory);
    eventually("the sandbox is seen to be dead", || async {
        node.runtime.pod(&pod).await.expect("a view").sandboxes[0].pid.is_none().then_some(())
    })
    .await;
    eventually("it can be removed", || async { node.runtime.remove_sandbox(&sandbox).await.ok() }).await;
    assert_eq!(node.runtime.pods().await.expect("a list"), []);
    let group = format!("pod{}", pod.uid);
    assert!(!node.containerd.cgroups().iter().any(|path| path.display().to_string().contains(&group)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shim_that_does_not_answer_is_not_taken_for_a_dead_one() {
    let node = Node::start().await;
    let pod = node.pod("silent");
    let (sandbox, container) = node.run(&pod, &node.shell(&pod, "main", "exec sleep 1000")).await;
    let shim = Pid::from_raw(node.containerd.shims(&node.config.namespace)[0]);
    kill(shim, Signal::SIGSTOP).expect("it stands still");
    let seen = node.runtime.pod(&pod).await;
    kill(shim, Signal::SIGCONT).expect("it goes on");
    let said = seen.expect_err("nobody knows how the pod is").to_string();
    assert!(said.contains(&sandbox.0) && said.contains("does not answer"), "{said}");
    eventually("it answers again", || async {
        let view = node.runtime.pod(&pod).await.ok()?;
        assert!(view.sandboxes[0].pid.is_some(), "{view:?}");
        (view.containers[0].state == container.state).then_some(())
    })
    .await;
    node.runtime.remove_sandbox(&sandbox).await.expect("it goes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_made_while_its_sandbox_goes_leaves_nothing() {
    let node = Node::start().await;
    let pod = node.pod("races");
    let tries = if std::env::var_os("SOAK").is_some() { 100 } else { 5 };
    for attempt in 0..tries {
        let spec = kubelet::runtime::SandboxSpec { attempt, ..node.sandbox(&pod) };
        let sandbox = node.runtime.start_sandbox(&pod, &spec).await.expect("a sandbox").id;
        let shell = node.shell(&pod, "main", "exec sleep 1000");
        let starting = node.runtime.start_container(&pod, &sandbox, &shell);
        let removing = async {
            tokio::time::sleep(Duration::from_millis(u64::from(attempt) * 10 % 50)).await;
            node.runtime.remove_sandbox(&sandbox).await
        };
        let (_, removed) = tokio::join!(starting, removing);
        removed.expect("it goes");
        let left = node.runtime.pod(&pod).await.expect("a view");
        assert!(left.is_empty(), "try {attempt}: {left:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_answers_that_nobody_reads_hold_up_nobody() {
    let node = Node::start().await;
    let pod = node.pod("many");
    let mut events = node.runtime.events();
    assert_eq!(next(&mut events).await, Event::Lost);
    let sandbox = node.runtime.start_sandbox(&pod, &node.sandbox(&pod)).await.expect("a sandbox").id;
    // Each end is looked into, and nobody asks for what was found.
    for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        let ends = node.runtime.start_container(&pod, &sandbox, &node.shell(&pod, name, "exit 0")).await;
        node.end(&pod, &ends.expect("one").id).await;
        let _ = events.next().now_or_never();
    }
    let view = in_time("the pod is looked at", node.runtime.pod(&pod)).await.expect("a view");
    assert_eq!(view.containers.len(), 8);
    in_time("it goes", node.runtime.remove_sandbox(&sandbox)).await.expect("removed");
}
