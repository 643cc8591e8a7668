//! Pods start, run, end, and leave nothing.

use crate::node::{Node, next};
use kubelet::runtime::{ContainerState, Event, Runtime};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_starts_and_stops() {
    let node = Node::start().await;
    let pod = node.pod("one");
    let mut events = node.runtime.events();
    assert_eq!(next(&mut events).await, Event::Lost);
    let (sandbox, container) = node.run(&pod, &node.shell(&pod, "main", "echo hello; sleep 1000")).await;
    assert!(matches!(container.state, ContainerState::Running { .. }), "{container:?}");
    let view = node.runtime.pod(&pod).await.expect("a view");
    assert!(view.sandboxes[0].pid.is_some());
    assert_eq!(view.containers, [container.clone()]);
    node.runtime.stop_container(&container.id, Duration::ZERO).await.expect("it stops");
    assert_eq!(next(&mut events).await, Event::Changed(pod.clone()));
    assert_eq!(node.end(&pod, &container.id).await, (137, false));
    assert_eq!(node.lines(&pod, "main"), ["stdout F hello"]);
    node.runtime.remove_sandbox(&sandbox).await.expect("it goes");
    assert_eq!(node.runtime.pods().await.expect("a list"), []);
}
