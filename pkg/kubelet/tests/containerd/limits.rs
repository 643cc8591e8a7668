//! What containers may use, seen where the kernel keeps it.

use crate::node::{Node, next};
use kubelet::runtime::cgroups::Version;
use kubelet::runtime::{ContainerSpec, Event, Resources, Runtime, SandboxSpec};
use testing::eventually;

fn limits() -> Resources {
    Resources {
        cpu_shares: 512,
        cpu_quota_us: 50_000,
        cpu_period_us: 100_000,
        memory_limit_bytes: 64 << 20,
        pids_limit: 50,
        oom_score_adj: Some(900),
        ..Resources::default()
    }
}

/// What the kernel says of a group: shares or weight, quota, memory, processes.
fn seen(node: &Node, group: &str) -> Vec<String> {
    let cgroups = node.runtime.cgroups();
    let read = |controller: &str, file: &str| {
        let path = cgroups.folder(controller, group).join(file);
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        text.trim().to_owned()
    };
    match cgroups.version() {
        Version::V1 => vec![
            read("cpu", "cpu.shares"),
            format!("{} {}", read("cpu", "cpu.cfs_quota_us"), read("cpu", "cpu.cfs_period_us")),
            read("memory", "memory.limit_in_bytes"),
            read("pids", "pids.max"),
        ],
        Version::V2 => vec![
            if read("cpu", "cpu.weight") == "20" { "512".into() } else { read("cpu", "cpu.weight") },
            read("cpu", "cpu.max"),
            read("memory", "memory.max"),
            read("pids", "pids.max"),
        ],
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_of_pods_and_containers_reach_the_kernel() {
    let node = Node::start().await;
    let pod = node.pod("limited");
    let of_pod = Resources { memory_limit_bytes: 128 << 20, pids_limit: 100, ..limits() };
    let sandbox = SandboxSpec { resources: of_pod, ..node.sandbox(&pod) };
    let sandbox = node.runtime.start_sandbox(&pod, &sandbox).await.expect("a sandbox").id;
    let spec = ContainerSpec {
        resources: limits(),
        ..node.shell(&pod, "main", "cat /proc/self/oom_score_adj; exec sleep 1000")
    };
    let container = node.runtime.start_container(&pod, &sandbox, &spec).await.expect("a container");
    let group = node.cgroup(&pod);
    assert_eq!(seen(&node, &group), ["512", "50000 100000", "134217728", "100"]);
    let own = format!("{group}/{}", container.id.0);
    assert_eq!(seen(&node, &own), ["512", "50000 100000", "67108864", "50"]);
    eventually("it says its score", || async {
        (node.lines(&pod, "main") == ["stdout F 900"]).then_some(())
    })
    .await;
    let less = Resources { memory_limit_bytes: 32 << 20, pids_limit: 20, ..limits() };
    node.runtime.update_container(&container.id, &less).await.expect("less");
    assert_eq!(seen(&node, &own), ["512", "50000 100000", "33554432", "20"]);
    let usage = node.runtime.usage(&pod).await.expect("figures");
    assert!(
        usage["main"].memory_bytes > 0 && usage["main"].pids >= 1 && usage["main"].cpu_ns > 0,
        "{usage:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn another_size_reaches_the_kernel_and_is_found_again() {
    let node = Node::start().await;
    let pod = node.pod("grows");
    let sandbox = SandboxSpec { resources: limits(), ..node.sandbox(&pod) };
    let sandbox = node.runtime.start_sandbox(&pod, &sandbox).await.expect("a sandbox").id;
    let spec = ContainerSpec { resources: limits(), ..node.shell(&pod, "main", "exec sleep 1000") };
    let container = node.runtime.start_container(&pod, &sandbox, &spec).await.expect("a container");
    let group = node.cgroup(&pod);
    let own = format!("{group}/{}", container.id.0);
    let more = Resources { cpu_quota_us: 100_000, memory_limit_bytes: 128 << 20, ..limits() };
    for (size, expected) in [
        (&more, ["512", "100000 100000", "134217728", "50"]),
        (&limits(), ["512", "50000 100000", "67108864", "50"]),
    ] {
        let note = [("size".to_owned(), size.memory_limit_bytes.to_string())].into();
        // No more than its pod may have: larger from the outside, smaller from the inside.
        if *size == more {
            node.runtime.update_sandbox(&sandbox, size, &note).await.expect("more");
        }
        node.runtime.update_container(&container.id, size).await.expect("another size");
        node.runtime.annotate_container(&container.id, &note).await.expect("a note");
        if *size != more {
            node.runtime.update_sandbox(&sandbox, size, &note).await.expect("less");
        }
        assert_eq!(
            (seen(&node, &group), seen(&node, &own)),
            (expected.map(Into::into).to_vec(), expected.map(Into::into).to_vec())
        );
        let view = node.restarted().pod(&pod).await.expect("a view");
        let spec = &view.sandboxes[0].spec;
        assert_eq!((&spec.resources, spec.annotations.get("size")), (size, note.get("size")));
        assert_eq!(view.containers[0].annotations.get("size"), note.get("size"));
        assert_eq!(view.containers[0].id, container.id, "the same one runs");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_uses_more_memory_than_allowed_is_killed_and_it_is_said_why() {
    let node = Node::start().await;
    let pod = node.pod("greedy");
    let mut events = node.runtime.events();
    assert_eq!(next(&mut events).await, Event::Lost);
    // The limit is for all: `tail` of an endless line keeps it in memory.
    let resources = Resources { memory_limit_bytes: 16 << 20, ..Resources::default() };
    let spec = ContainerSpec { resources, ..node.shell(&pod, "main", "exec tail /dev/zero") };
    let (_, container) = node.run(&pod, &spec).await;
    assert_eq!(node.end(&pod, &container.id).await, (137, true));
    assert_eq!(next(&mut events).await, Event::Changed(pod.clone()));
    // Also when it has been written down, and its control group is gone.
    let group = node.runtime.cgroups().folder("memory", &format!("{}/{}", node.cgroup(&pod), container.id.0));
    let mut drive = Box::pin(async {
        loop {
            next(&mut events).await;
        }
    });
    tokio::select! {
        () = &mut drive => {}
        () = eventually("its group is given back", || async { (!group.exists()).then_some(()) }) => {}
    }
    assert_eq!(node.end(&pod, &container.id).await, (137, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_forks_without_end_has_its_limit() {
    let node = Node::start().await;
    let pod = node.pod("forks");
    let resources = Resources { pids_limit: 10, ..Resources::default() };
    let line =
        "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 1000 & done; exec sleep 1000";
    let spec = ContainerSpec { resources, ..node.shell(&pod, "main", line) };
    let (sandbox, container) = node.run(&pod, &spec).await;
    eventually("it cannot fork", || async {
        let said = node.lines(&pod, "main");
        said.iter().any(|line| line.contains("can't fork")).then_some(())
    })
    .await;
    let usage = node.runtime.usage(&pod).await.expect("figures");
    assert!(usage.get("main").is_none_or(|usage| usage.pids <= 10), "{usage:?}");
    drop(container);
    node.runtime.remove_sandbox(&sandbox).await.expect("all of them go");
}
