//! The shim is killed at every point of a pod's life: nothing of the pod is left, and the next pod runs.

use crate::node::Node;
use kubelet::runtime::{ContainerState, Runtime};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use testing::eventually;

/// With `SOAK` a thousand.
const KILLS: u64 = 50;
const SOAK_KILLS: u64 = 1000;
/// A pod's start takes about so long: the points lie evenly in it.
const POINTS: u64 = 25;
const BETWEEN_POINTS: Duration = Duration::from_millis(4);

/// The keepers of a shim, by the file that they write to.
fn keepers(folder: &Path) -> Vec<i32> {
    let of = |pid: i32| std::fs::read_link(format!("/proc/{pid}/fd/1")).unwrap_or_default();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| of(*pid).starts_with(folder)).collect()
}

/// The folders of shims that serve this containerd: their names are hashes, so they are found by what is served there.
fn shim_folders(socket: &str) -> Vec<PathBuf> {
    let bundles = PathBuf::from(socket).with_file_name("state/io.containerd.runtime.v2.task");
    let entries =
        |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let addresses = entries(bundles)
        .flat_map(entries)
        .filter_map(|bundle| std::fs::read_to_string(bundle.join("address")).ok());
    addresses
        .filter_map(|address| {
            Some(PathBuf::from(address.trim().strip_prefix("unix://")?).parent()?.to_owned())
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shim_may_be_killed_at_any_point_of_a_pod() {
    let node = Node::on(Arc::new(testing::Containerd::start())).await;
    let kills = if std::env::var_os("SOAK").is_some() { SOAK_KILLS } else { KILLS };
    let pod = node.pod("first");
    node.run(&pod, &node.shell(&pod, "main", "exec sleep 1000")).await;
    let folder = shim_folders(&node.config.socket.display().to_string()).pop().expect("it serves");
    for number in 0..kills {
        let pod = node.pod(&format!("pod{number}"));
        let spec = node.shell(&pod, "main", "exec sleep 1000");
        let starts = async {
            let sandbox = node.runtime.start_sandbox(&pod, &node.sandbox(&pod)).await.ok()?.id;
            node.runtime.start_container(&pod, &sandbox, &spec).await.ok()
        };
        let kills = async {
            tokio::time::sleep(BETWEEN_POINTS * (number % POINTS) as u32).await;
            for shim in node.containerd.shims(&node.config.namespace) {
                // One that has ended by itself is as good.
                let _ = kill(Pid::from_raw(shim), Signal::SIGKILL);
            }
        };
        tokio::join!(starts, kills);
        eventually("all of them go", || async {
            for view in node.runtime.pods().await.ok()? {
                for sandbox in view.sandboxes {
                    node.runtime.remove_sandbox(&sandbox.id).await.ok()?;
                }
            }
            node.runtime.pods().await.ok()?.is_empty().then_some(())
        })
        .await;
    }
    assert_eq!(node.containerd.cgroups(), Vec::<PathBuf>::new());
    assert_eq!(node.containerd.mounts(), Vec::<PathBuf>::new());
    eventually("no keeper is left", || async { keepers(&folder).is_empty().then_some(()) }).await;
    let pod = node.pod("last");
    let (_, container) = node.run(&pod, &node.shell(&pod, "main", "exit 9")).await;
    assert_eq!(node.end(&pod, &container.id).await, (9, false));
    assert!(matches!(node.state(&pod, &container.id).await, ContainerState::Exited { .. }));
}
