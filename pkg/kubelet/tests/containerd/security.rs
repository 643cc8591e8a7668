//! What containers may do, as they see it themselves.

use crate::node::Node;
use kubelet::runtime::{ContainerSpec, Error, Mount, Runtime, SandboxSpec, Seccomp, Security};

/// What a line of shell prints and returns, as it is run with these.
async fn run(
    node: &Node,
    name: &str,
    line: &str,
    change: impl FnOnce(&mut ContainerSpec),
) -> (i32, Vec<String>) {
    let pod = node.pod(name);
    let mut spec = node.shell(&pod, "main", line);
    change(&mut spec);
    let (_, container) = node.run(&pod, &spec).await;
    let (code, _) = node.end(&pod, &container.id).await;
    let said = testing::eventually("its log is whole", || async {
        // What it wrote is in the log when nobody writes any more.
        let lines = node.lines(&pod, "main");
        (lines.last().map(String::as_str) == Some("stdout F end")).then_some(lines)
    });
    let mut said = said.await;
    said.pop();
    let said =
        said.into_iter().map(|line| line.splitn(3, ' ').last().unwrap_or_default().to_owned()).collect();
    (code, said)
}

#[tokio::test(flavor = "multi_thread")]
async fn users_groups_and_capabilities() {
    let node = Node::start().await;
    let line =
        "id; grep -E 'CapEff|CapBnd|NoNewPrivs|Seccomp:' /proc/self/status | tr -s '\\t ' ' '; echo end";
    let as_web = |spec: &mut ContainerSpec| {
        spec.security = Security {
            user: Some(33),
            supplemental_groups: vec![4000],
            no_new_privileges: true,
            seccomp: Seccomp::RuntimeDefault,
            drop_capabilities: vec!["ALL".into()],
            add_capabilities: vec!["NET_BIND_SERVICE".into()],
            ..Security::default()
        };
    };
    let (code, said) = run(&node, "web", line, as_web).await;
    assert_eq!(code, 0);
    assert_eq!(
        said,
        [
            "uid=33(web) gid=33(web) groups=33(web),50(logs),4000",
            "CapEff: 0000000000000000",
            "CapBnd: 0000000000000400",
            "NoNewPrivs: 1",
            "Seccomp: 2",
        ]
    );
    let (_, said) = run(&node, "root", line, |_| {}).await;
    assert_eq!(said[0], "uid=0(root) gid=0(root) groups=0(root)");
    assert_eq!(said[1], "CapEff: 00000000a80425fb");
    assert_eq!(said[4], "Seccomp: 0");
    let pod = node.pod("must");
    let sandbox = node.runtime.start_sandbox(&pod, &node.sandbox(&pod)).await.expect("a sandbox").id;
    let security = Security { must_be_non_root: true, ..Security::default() };
    let spec = ContainerSpec { security, ..node.shell(&pod, "main", "") };
    let error = node.runtime.start_container(&pod, &sandbox, &spec).await.expect_err("it would be root");
    let expected = format!(
        "container has runAsNonRoot and image will run as root (pod: \"must_default({})\", container: main)",
        pod.uid
    );
    assert!(matches!(&error, Error::Container(text) if *text == expected), "{error}");
    assert_eq!(node.runtime.pod(&pod).await.expect("a view").containers, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn roots_mounts_and_what_is_hidden() {
    let node = Node::start().await;
    let host = node.config.root_dir.join("data");
    std::fs::create_dir_all(&host).expect("a folder");
    std::fs::write(host.join("file"), "from the node\n").expect("written");
    let mount = |path: &str, read_only| Mount {
        host_path: host.clone(),
        container_path: path.into(),
        read_only,
        ..Mount::default()
    };
    let line = "cat /data/file; touch /x 2>/dev/null || echo root is read-only; \
        touch /data/x 2>/dev/null || echo data is read-only; echo written > /rw/out; \
        (echo 8192 > /proc/sys/kernel/msgmax) 2>/dev/null || echo proc is read-only; mount -t tmpfs x /tmp 2>/dev/null || echo no mounts; echo end";
    let (code, said) = run(&node, "mounts", line, |spec| {
        spec.security.read_only_root = true;
        spec.mounts = vec![mount("/data", true), mount("/rw", false)];
    })
    .await;
    assert_eq!(code, 0);
    assert_eq!(
        said,
        ["from the node", "root is read-only", "data is read-only", "proc is read-only", "no mounts"]
    );
    assert_eq!(std::fs::read_to_string(host.join("out")).expect("it wrote"), "written\n");
    let line = "mount -t tmpfs x /tmp && echo mounted; test -e /dev/kmsg && echo devices; echo end";
    let (_, said) = run(&node, "privileged", line, |spec| spec.security.privileged = true).await;
    assert_eq!(said.first().map(String::as_str), Some("mounted"), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sysctls_and_the_namespaces_of_the_node() {
    let node = Node::start().await;
    let pod = node.pod("sysctl");
    let sandbox = SandboxSpec {
        sysctls: [("kernel.msgmax".to_owned(), "9000".to_owned())].into(),
        host_pid: true,
        ..node.sandbox(&pod)
    };
    let sandbox = node.runtime.start_sandbox(&pod, &sandbox).await.expect("a sandbox").id;
    let spec = ContainerSpec {
        env: vec![("A".into(), "b c".into())],
        working_dir: "/tmp".into(),
        ..node.shell(
            &pod,
            "main",
            "cat /proc/sys/kernel/msgmax; echo \"$A $PWD\"; readlink /proc/self/ns/pid; exit 4",
        )
    };
    let container = node.runtime.start_container(&pod, &sandbox, &spec).await.expect("a container");
    assert_eq!(node.end(&pod, &container.id).await.0, 4);
    let of_node = std::fs::read_link("/proc/self/ns/pid").expect("a namespace").display().to_string();
    let expected =
        ["stdout F 9000".to_owned(), "stdout F b c /tmp".to_owned(), format!("stdout F {of_node}")];
    testing::eventually("its lines", || async { (node.lines(&pod, "main") == expected).then_some(()) }).await;
}
