//! Ways out of containers that other runtimes had: each is tried, by a container that is root.

use crate::node::Node;
use kubelet::runtime::{
    ContainerSpec, ContainerState, ExecSpec, Mount, PodRef, Runtime, SandboxSpec, Security,
};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use testing::{eventually, in_time};
use tokio::io::AsyncReadExt;

/// What a line of shell prints in a pod of its own; what the runtime says if it does not get so far.
async fn run(
    node: &Node,
    name: &str,
    line: &str,
    change: impl FnOnce(&mut ContainerSpec),
) -> Result<Vec<String>, String> {
    let pod = node.pod(name);
    let mut spec = node.shell(&pod, "main", &format!("{line}; echo end"));
    change(&mut spec);
    let sandbox = node.runtime.start_sandbox(&pod, &node.sandbox(&pod)).await.expect("a sandbox").id;
    said(
        node,
        &pod,
        &node.runtime.start_container(&pod, &sandbox, &spec).await.map_err(|error| error.to_string())?.id,
    )
    .await
}

async fn said(node: &Node, pod: &PodRef, id: &kubelet::runtime::ContainerId) -> Result<Vec<String>, String> {
    node.end(pod, id).await;
    let whole = eventually("its log is whole", || async {
        let lines = node.lines(pod, "main");
        lines.last().is_some_and(|line| line.trim_end().ends_with(" end")).then_some(lines)
    });
    Ok(whole
        .await
        .iter()
        .map(|line| line.splitn(3, ' ').last().unwrap_or_default().trim_end().to_owned())
        .collect())
}

async fn exec(
    node: &Node,
    id: &kubelet::runtime::ContainerId,
    line: &str,
    tty: bool,
) -> Result<String, String> {
    let command = ["sh", "-c", line].map(str::to_owned).into();
    let spec = ExecSpec { command, stdout: true, tty, ..ExecSpec::default() };
    let mut session = node.runtime.exec(id, &spec).await.map_err(|error| error.to_string())?;
    let mut text = String::new();
    let mut stdout = session.stdout.take().expect("an output");
    in_time("it ends", async { tokio::join!(stdout.read_to_string(&mut text), session.exit) })
        .await
        .1
        .expect("a code");
    Ok(text)
}

fn bind(host: &Path, container: &str) -> Mount {
    Mount { host_path: host.to_owned(), container_path: container.into(), ..Mount::default() }
}

/// A root of busybox, for what no image of ours has.
fn laid_out(node: &Node, name: &str) -> PathBuf {
    let root = node.config.root_dir.join(name);
    for folder in ["bin", "proc", "sys", "dev", "run", "tmp"] {
        std::fs::create_dir_all(root.join(folder)).expect("a folder");
    }
    std::fs::copy("/bin/busybox", root.join("bin/busybox")).expect("busybox");
    root
}

/// What a program prints that is run in such a root, and whether it could be.
fn run_in(node: &Node, root: &Path, name: &str, more: &[&str], command: &[&str]) -> (bool, String) {
    let shim = crate::node::SHIM.expect("these are the shim's tests");
    let done = Command::new("ctr")
        .args(["-a", &node.config.socket.display().to_string(), "-n", &node.config.namespace, "run", "--rm"])
        .args(["--cgroup", &format!("{}/{name}", node.containerd.cgroup())])
        .args(["--runtime", shim])
        .args(more)
        .arg("--rootfs")
        .args([root.display().to_string().as_str(), name])
        .args(command)
        .output()
        .expect("ctr runs");
    (done.status.success(), String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_that_enters_a_container_cannot_be_changed_or_reached() {
    let node = Node::start().await;
    let pod = node.pod("self");
    // It writes to the program of whatever shows in its processes.
    let line = "while true; do for p in /proc/[0-9]*; do l=$(readlink $p/exe 2>/dev/null); case \"$l\" in \
        /bin/*|'') ;; *memfd*) (echo x > $p/exe) 2>/dev/null && echo WRITTEN $l;; *) echo FOUND $l;; esac; done; done";
    let (_, container) = node.run(&pod, &node.shell(&pod, "main", line)).await;
    for number in 0..20 {
        let said = exec(&node, &container.id, &format!("echo {number}"), false).await;
        assert_eq!(said.as_deref(), Ok(format!("{number}\n").as_str()));
    }
    assert_eq!(node.lines(&pod, "main"), Vec::<String>::new());
    // One that asks to be what sets it up is a program that does nothing, from memory.
    let spec = ContainerSpec { command: vec!["/proc/self/exe".into()], ..node.shell(&pod, "itself", "") };
    let sandbox = container.sandbox.clone();
    let itself = node.runtime.start_container(&pod, &sandbox, &spec).await.expect("it can be run");
    assert_eq!(node.end(&pod, &itself.id).await.0, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_descriptor_or_folder_of_the_node_is_left_open() {
    let node = Node::start().await;
    let found = run(&node, "fds", "ls /proc/self/fd | tr '\\n' ' '; echo", |_| {}).await.expect("it runs");
    // The third is the folder that is listed.
    assert_eq!(found[0], "0 1 2 3");
    for number in 3..12 {
        let name = format!("cwd{number}");
        let refused = run(&node, &name, "pwd", |spec| {
            spec.working_dir = format!("/proc/self/fd/{number}");
        });
        let error = refused.await.expect_err("it is no folder of the container");
        assert!(error.contains("working directory") || error.contains("chdir"), "{error}");
    }
    let pod = node.pod("exec");
    let (_, container) = node.run(&pod, &node.shell(&pod, "main", "sleep 1000")).await;
    let found = exec(&node, &container.id, "ls /proc/self/fd | tr '\\n' ' '", false).await.expect("it runs");
    assert_eq!(found.trim(), "0 1 2 3");
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_are_masked_by_the_nodes_own_null_device() {
    let node = Node::start().await;
    let fake = node.config.root_dir.join("fake");
    std::fs::write(&fake, "not null\n").expect("written");
    let line = "cat /dev/null; stat -c '%t:%T' /proc/keys; cat /proc/keys; ls /proc/acpi /sys/firmware | wc -l; \
        (echo x > /proc/sysrq-trigger) 2>/dev/null || echo refused";
    let found = run(&node, "masks", line, |spec| spec.mounts = vec![bind(&fake, "/dev/null")]).await;
    let found = found.expect("it runs");
    assert_eq!(found[..2], ["not null", "1:3"], "{found:?}");
    assert_eq!(found[found.len() - 2], "refused", "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_console_is_the_containers_own_terminal_wherever_names_lead() {
    let node = Node::start().await;
    let bait = node.config.root_dir.join("bait");
    std::fs::write(&bait, "untouched").expect("written");
    let line = "stat -c %t:%T /dev/console; test -t 0 && echo terminal; tty; echo x > /dev/console";
    let found = run(&node, "console", line, |spec| {
        spec.tty = true;
        spec.mounts = vec![bind(&bait, "/dev/console")];
    });
    let found = found.await.expect("it runs");
    assert_eq!(found[..3], ["88:0", "terminal", "/dev/pts/0"], "{found:?}");
    assert_eq!(std::fs::read_to_string(&bait).expect("it is there"), "untouched");
    let root = laid_out(&node, "links");
    // Where its terminals are said to be leads elsewhere.
    std::fs::remove_dir(root.join("dev")).expect("removed");
    std::os::unix::fs::symlink("/tmp", root.join("dev")).expect("a link");
    let (good, said) = run_in(&node, &root, "links", &[], &["/bin/busybox", "true"]);
    assert!(!good && said.contains("error mounting"), "{said}");
    assert_eq!(std::fs::read_dir(root.join("tmp")).expect("a folder").count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_to_procfs_goes_nowhere_else() {
    let node = Node::start().await;
    let root = laid_out(&node, "proc");
    std::fs::remove_dir(root.join("proc")).expect("removed");
    std::fs::create_dir_all(root.join("tmp/self")).expect("a folder");
    std::os::unix::fs::symlink("/tmp", root.join("proc")).expect("a link");
    let (good, said) = run_in(&node, &root, "proc", &[], &["/bin/busybox", "true"]);
    assert!(!good && said.contains("error mounting \"proc\""), "{said}");
    // A volume that a link of the image would lead onto procfs.
    let root = laid_out(&node, "onto");
    std::os::unix::fs::symlink("/proc/self", root.join("data")).expect("a link");
    let volume = node.config.root_dir.join("volume");
    std::fs::create_dir_all(&volume).expect("a folder");
    let mount = format!("type=bind,src={},dst=/data,options=rbind:rw", volume.display());
    let (good, said) = run_in(&node, &root, "onto", &["--mount", &mount], &["/bin/busybox", "true"]);
    assert!(!good && said.contains("error mounting"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn mounts_never_follow_links_out_of_the_container() {
    let node = Node::start().await;
    let (volume, other) = (node.config.root_dir.join("linked"), node.config.root_dir.join("other"));
    let outside = node.config.root_dir.join("outside");
    for folder in [&volume, &other, &outside] {
        std::fs::create_dir_all(folder).expect("a folder");
    }
    std::fs::write(other.join("file"), "of the volume\n").expect("written");
    std::os::unix::fs::symlink(&outside, volume.join("absolute")).expect("a link");
    std::os::unix::fs::symlink("../../../../../../../../../tmp", volume.join("up")).expect("a link");
    let line = format!("cat {}/in/file; cat /tmp/in/file", outside.display());
    let found = run(&node, "links", &line, |spec| {
        spec.mounts = vec![bind(&volume, "/v"), bind(&other, "/v/absolute/in"), bind(&other, "/v/up/in")];
    });
    // The first leads to a place that the container does not have: it may be refused, but never made on the node.
    match found.await {
        Ok(found) => assert_eq!(found[..2], ["of the volume", "of the volume"]),
        Err(error) => assert!(error.contains("error mounting"), "{error}"),
    }
    assert_eq!(std::fs::read_dir(&outside).expect("a folder").count(), 0);
    assert!(!Path::new("/tmp/in").exists());
    let found = run(&node, "up", "cat /tmp/in/file", |spec| {
        spec.mounts = vec![bind(&volume, "/v"), bind(&other, "/v/up/in")];
    });
    assert_eq!(found.await.expect("it runs")[0], "of the volume");
    assert!(!Path::new("/tmp/in").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn executing_in_a_container_that_lies_believes_nothing_of_it() {
    let node = Node::start().await;
    let pod = node.pod("lies");
    let line =
        "mount -t tmpfs x /proc; mount -t tmpfs x /dev/pts; touch /dev/pts/ptmx; echo ready; exec sleep 1000";
    let spec = ContainerSpec {
        security: Security { privileged: true, ..Security::default() },
        ..node.shell(&pod, "main", line)
    };
    let (_, container) = node.run(&pod, &spec).await;
    eventually("it lies", || async { (!node.lines(&pod, "main").is_empty()).then_some(()) }).await;
    assert_eq!(exec(&node, &container.id, "echo hello", false).await.as_deref(), Ok("hello\n"));
    let error = exec(&node, &container.id, "echo hello", true).await.expect_err("that is no terminal");
    assert!(error.contains("/dev/pts/ptmx"), "{error}");
    assert!(matches!(node.state(&pod, &container.id).await, ContainerState::Running { .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_container_can_trace_a_keeper_or_use_its_files() {
    let node = Node::start().await;
    let pod = node.pod("keeper");
    // As near as it can come: root, among the node's processes.
    let sandbox = SandboxSpec { host_pid: true, ..node.sandbox(&pod) };
    let sandbox = node.runtime.start_sandbox(&pod, &sandbox).await.expect("a sandbox").id;
    let line = "n=0; for p in /proc/[0-9]*; do if (tr '\\0' ' ' < $p/cmdline) 2>/dev/null | grep -q '^/proc/self/fd/'; then \
        n=$((n+1)); readlink $p/fd/1 >/dev/null 2>&1 && echo FDS; cat $p/environ >/dev/null 2>&1 && echo ENVIRON; \
        (echo x > $p/fd/1) 2>/dev/null && echo FORGED; dd if=$p/mem bs=1 count=1 >/dev/null 2>&1 && echo MEM; \
        ls $p/root/ >/dev/null 2>&1 && echo ROOT; fi; done; test $n -gt 0 && echo looked; ls /run/minik8s 2>/dev/null; echo end";
    let container =
        node.runtime.start_container(&pod, &sandbox, &node.shell(&pod, "main", line)).await.expect("one");
    assert_eq!(said(&node, &pod, &container.id).await.expect("it runs"), ["looked", "end"]);
    // Nor can other users of the node come near.
    for folder in std::fs::read_dir("/run/minik8s/shim").expect("the shims' folder").flatten() {
        let mode = folder.metadata().map(|found| found.mode() & 0o777);
        assert!(mode.is_err() || mode.is_ok_and(|mode| mode == 0o700), "{folder:?}");
    }
    // Where a pod shares its processes, the keeper is not among them.
    let pod = node.pod("shared");
    let sandbox = SandboxSpec { share_processes: true, ..node.sandbox(&pod) };
    let sandbox = node.runtime.start_sandbox(&pod, &sandbox).await.expect("a sandbox").id;
    let line = "ps -o args | grep -c '/proc/self/f[d]'; echo end";
    let container =
        node.runtime.start_container(&pod, &sandbox, &node.shell(&pod, "main", line)).await.expect("one");
    assert_eq!(said(&node, &pod, &container.id).await.expect("it runs"), ["0", "end"]);
}
