//! Pods start, run, end, and leave nothing.

use crate::node::{Node, next};
use kubelet::runtime::{ContainerSpec, ContainerState, Error, Event, Runtime, SandboxSpec};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use testing::eventually;

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_starts_and_stops() {
    let node = Node::start().await;
    let pod = node.pod("one");
    let mut events = node.runtime.events();
    assert_eq!(next(&mut events).await, Event::Lost);
    let (sandbox, container) = node.run(&pod, &node.shell(&pod, "main", "echo hello; sleep 1000")).await;
    assert!(matches!(container.state, ContainerState::Running { .. }), "{container:?}");
    let view = node.runtime.pod(&pod).await.expect("a view");
    assert_eq!(view.sandboxes[0].spec, node.sandbox(&pod));
    assert!(view.sandboxes[0].pid.is_some());
    assert_eq!(view.containers, std::slice::from_ref(&container));
    assert_eq!(node.runtime.pods().await.expect("a list"), [view]);
    eventually("it says hello", || async { (!node.lines(&pod, "main").is_empty()).then_some(()) }).await;
    node.runtime.stop_container(&container.id, Duration::ZERO).await.expect("it stops");
    assert_eq!(next(&mut events).await, Event::Changed(pod.clone()));
    assert_eq!(node.end(&pod, &container.id).await, (137, false));
    assert_eq!(node.lines(&pod, "main"), ["stdout F hello"]);
    node.runtime.remove_sandbox(&sandbox).await.expect("it goes");
    node.runtime.remove_sandbox(&sandbox).await.expect("what is gone is no error");
    assert_eq!(node.runtime.pods().await.expect("a list"), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn ends_are_told_with_their_codes_and_last_lines() {
    let node = Node::start().await;
    let pod = node.pod("codes");
    let mut events = node.runtime.events();
    assert_eq!(next(&mut events).await, Event::Lost);
    let sandbox = node.runtime.start_sandbox(&pod, &node.sandbox(&pod)).await.expect("a sandbox").id;
    let killed = "sleep 1000 & kill -TERM $!; wait $!";
    for (attempt, (line, code)) in [("exit 0", 0), ("exit 3", 3), (killed, 143)].iter().enumerate() {
        let line = format!("echo last words; {line}");
        let spec = ContainerSpec { attempt: attempt as u32, ..node.shell(&pod, "main", &line) };
        let container = node.runtime.start_container(&pod, &sandbox, &spec).await.expect("a container");
        assert_eq!(next(&mut events).await, Event::Changed(pod.clone()));
        let state = node.state(&pod, &container.id).await;
        let ContainerState::Exited { started_at, finished_at, code: ended, out_of_memory, message } = state
        else {
            panic!("{state:?}")
        };
        assert_eq!((ended, out_of_memory, message), (*code, false, None));
        assert!(started_at.expect("it had started") <= finished_at);
        // Told means that the log is whole.
        let lines = node.lines(&pod, "main");
        assert_eq!(
            lines.iter().filter(|line| *line == "stdout F last words").count(),
            attempt + 1,
            "{lines:?}"
        );
    }
    assert_eq!(node.runtime.pod(&pod).await.expect("a view").containers.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_made_again_find_what_is_there() {
    let node = Node::start().await;
    let pod = node.pod("again");
    let spec = node.shell(&pod, "main", "sleep 1000");
    let (sandbox, container) = node.run(&pod, &spec).await;
    let (sandbox_again, container_again) = node.run(&pod, &spec).await;
    assert_eq!((sandbox_again, container_again.clone()), (sandbox.clone(), container.clone()));
    node.runtime.stop_container(&container.id, Duration::ZERO).await.expect("it stops");
    node.runtime.stop_container(&container.id, Duration::from_secs(1)).await.expect("it has stopped");
    assert_eq!(node.end(&pod, &container.id).await.0, 137);
    let ended = node.runtime.start_container(&pod, &sandbox, &spec).await.expect("it was started");
    assert!(matches!(ended.state, ContainerState::Exited { code: 137, .. }), "{ended:?}");
    node.runtime.remove_container(&container.id).await.expect("it goes");
    node.runtime.remove_container(&container.id).await.expect("it is gone");
    // The same name and attempt, but a new one.
    let fresh = node.runtime.start_container(&pod, &sandbox, &spec).await.expect("a container");
    assert!(matches!(fresh.state, ContainerState::Running { .. }), "{fresh:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_not_there_is_told_as_upstream_tells_it() {
    let node = Node::start().await;
    let pod = node.pod("missing");
    let sandbox = node.runtime.start_sandbox(&pod, &node.sandbox(&pod)).await.expect("a sandbox").id;
    let spec = ContainerSpec { command: vec!["/no/such".into()], ..node.shell(&pod, "main", "") };
    let error = node.runtime.start_container(&pod, &sandbox, &spec).await.expect_err("no such program");
    let text = error.to_string();
    assert!(
        text.starts_with(
            "failed to create containerd task: failed to create shim task: OCI runtime create failed"
        ),
        "{text}"
    );
    assert!(text.contains("no such file or directory"), "{text}");
    let view = node.runtime.pod(&pod).await.expect("a view");
    let ContainerState::Exited { code: 128, message: Some(message), started_at: None, .. } =
        &view.containers[0].state
    else {
        panic!("{view:?}")
    };
    assert_eq!(*message, text);
    let unknown = SandboxSpec { handler: "nope".into(), ..node.sandbox(&pod) };
    let error = node.runtime.start_sandbox(&pod, &unknown).await.expect_err("no such runtime");
    assert_eq!(error.to_string(), "failed to get sandbox runtime: no runtime for \"nope\" is configured");
    let missing = node.runtime.image("nothing-of-this-name").await.expect("an answer");
    assert_eq!(missing, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_containers_of_a_pod_share_what_pods_share() {
    let node = Node::start().await;
    let pod = node.pod("shared");
    let sandbox = SandboxSpec { share_processes: true, ..node.sandbox(&pod) };
    let sandbox = node.runtime.start_sandbox(&pod, &sandbox).await.expect("a sandbox").id;
    let writer =
        node.shell(&pod, "writer", "echo $(hostname) > /dev/shm/name; cat /etc/hostname; exec sleep 1234");
    node.runtime.start_container(&pod, &sandbox, &writer).await.expect("a writer");
    let line = "until cat /dev/shm/name 2>/dev/null; do usleep 1000; done; until ps -o args | grep -q '^sleep 1234'; do usleep 1000; done; ps -o pid,args | grep '[/]pause'";
    let reader = node
        .runtime
        .start_container(&pod, &sandbox, &node.shell(&pod, "reader", line))
        .await
        .expect("a reader");
    assert_eq!(node.end(&pod, &reader.id).await.0, 0);
    let told = eventually("its lines", || async {
        Some(node.lines(&pod, "reader")).filter(|lines| lines.len() == 2)
    });
    assert_eq!(told.await, ["stdout F shared", "stdout F     1 /pause"]);
    assert_eq!(node.lines(&pod, "writer"), ["stdout F shared"]);
    // One shim for all of them.
    assert_eq!(node.containerd.shims(&node.config.namespace).len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_is_asked_before_it_is_killed() {
    let node = Node::start().await;
    let pod = node.pod("polite");
    let line = "trap 'echo bye; exit 7' TERM; echo ready; while :; do usleep 10000; done";
    let (_, container) = node.run(&pod, &node.shell(&pod, "main", line)).await;
    eventually("it is ready", || async { (!node.lines(&pod, "main").is_empty()).then_some(()) }).await;
    node.runtime.stop_container(&container.id, Duration::from_secs(60)).await.expect("it stops");
    assert_eq!(node.end(&pod, &container.id).await, (7, false));
    eventually("its last line", || async { (node.lines(&pod, "main").len() == 2).then_some(()) }).await;
    // One that does not listen is killed when its time is over.
    let deaf = ContainerSpec {
        attempt: 1,
        ..node.shell(&pod, "deaf", "trap '' TERM; while :; do usleep 10000; done")
    };
    let sandbox = node.runtime.pod(&pod).await.expect("a view").sandboxes[0].id.clone();
    let deaf = node.runtime.start_container(&pod, &sandbox, &deaf).await.expect("a container");
    node.runtime.stop_container(&deaf.id, Duration::from_millis(100)).await.expect("it is killed");
    assert_eq!(node.end(&pod, &deaf.id).await, (137, false));
    let signalled =
        node.shell(&pod, "signalled", "trap 'exit 5' USR1; echo ready; while :; do usleep 10000; done");
    let signalled = node.runtime.start_container(&pod, &sandbox, &signalled).await.expect("a container");
    eventually("it is ready", || async { (!node.lines(&pod, "signalled").is_empty()).then_some(()) }).await;
    node.runtime.signal_container(&signalled.id, 10).await.expect("a signal");
    assert_eq!(node.end(&pod, &signalled.id).await, (5, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn removing_a_pod_leaves_nothing() {
    let node = Node::start().await;
    let (gone, stays) = (node.pod("gone"), node.pod("stays"));
    let (sandbox, _) = node.run(&gone, &node.shell(&gone, "main", "sleep 1000")).await;
    let done = node
        .runtime
        .start_container(&gone, &sandbox, &node.shell(&gone, "done", "exit 0"))
        .await
        .expect("one");
    node.end(&gone, &done.id).await;
    let (kept, kept_container) = node.run(&stays, &node.shell(&stays, "main", "sleep 1000")).await;
    node.runtime.remove_sandbox(&sandbox).await.expect("it goes");
    let list = |what: &[&str]| {
        let output = Command::new("ctr")
            .arg("--address")
            .arg(&node.config.socket)
            .args(["--namespace", &node.config.namespace])
            .args(what)
            .output()
            .expect("ctr");
        String::from_utf8(output.stdout).expect("text")
    };
    let mut left: Vec<String> = list(&["containers", "ls", "-q"]).lines().map(str::to_owned).collect();
    let mut expected = vec![kept.0.clone(), kept_container.id.0.clone()];
    left.sort();
    expected.sort();
    assert_eq!(left, expected, "containers");
    assert_eq!(list(&["tasks", "ls", "-q"]).lines().count(), 2, "tasks");
    assert_eq!(list(&["snapshots", "ls"]).matches("Active").count(), 1, "snapshots");
    assert_eq!(list(&["leases", "ls", "-q"]), "", "leases");
    let ours = format!("/{}/", node.config.namespace);
    let of_gone = |path: &PathBuf| {
        let path = path.display().to_string();
        path.contains(&ours) && path.contains(&sandbox.0)
    };
    assert_eq!(node.containerd.mounts().iter().filter(|path| of_gone(path)).count(), 0, "mounts");
    let group = format!("pod{}", gone.uid);
    let groups = node.containerd.cgroups();
    assert!(!groups.iter().any(|path| path.display().to_string().contains(&group)), "{groups:?}");
    assert!(groups.iter().any(|path| path.display().to_string().contains(&format!("pod{}", stays.uid))));
    eventually("its shim is gone", || async {
        (node.containerd.shims(&node.config.namespace).len() == 1).then_some(())
    })
    .await;
    for folder in ["io", "exec", "sandboxes"] {
        let entries = std::fs::read_dir(node.config.state_dir.join(folder)).expect("a folder");
        let names: Vec<String> =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        assert!(names.iter().all(|name| expected.contains(name)), "{folder}: {names:?}");
    }
    let error = node.runtime.start_container(&gone, &sandbox, &node.shell(&gone, "main", "")).await;
    assert!(matches!(error, Err(Error::NotFound(_))), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn how_a_container_ended_is_never_lost_with_it() {
    let node = Node::start().await;
    for number in 0..40 {
        let pod = node.pod(&format!("ends{number}"));
        let (sandbox, container) = node.run(&pod, &node.shell(&pod, "main", "exit 1")).await;
        // Whoever looks while it goes sees it run, or ended as it has: by itself, or killed.
        let removing = node.runtime.remove_sandbox(&sandbox);
        let looking = async {
            loop {
                let view = node.runtime.pod(&pod).await.expect("a view");
                let Some(main) = view.containers.iter().find(|other| other.id == container.id) else {
                    return;
                };
                if let ContainerState::Exited { code, .. } = main.state {
                    assert!([1, 137].contains(&code), "ended with {code}");
                }
            }
        };
        let (removed, ()) = tokio::join!(removing, looking);
        removed.expect("it goes");
    }
}
