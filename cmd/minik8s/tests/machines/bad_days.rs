//! Machines on a bad day: programs of others, names that are taken, a control plane with a mistake in it, disks of their own,
//! and a control plane that moves away from its machines.

use crate::kubeadm::{refused, said};
use crate::support::{Node, traces};
use std::os::unix::fs::PermissionsExt;
use testing::Switch;

/// Where the first machine has a kubectl of its own.
const OTHERS: &str = "/opt/others";

#[test]
fn machines_on_a_bad_day() {
    let switch = Switch::new();
    let nodes = Node::boot_all(&switch, 3);
    let [first, second, third] = nodes.as_slice() else { panic!("three machines") };
    second.machine.run("sh", &["-c", "mkdir /var/log/pods && mount -t tmpfs logs /var/log/pods"]);
    let before: Vec<Vec<String>> = nodes.iter().map(traces).collect();

    let line = beside_a_kubectl_of_others(first);
    let join: Vec<&str> = line.split_whitespace().collect();
    names_that_are_taken_are_refused(second, &join, &before[1]);
    second.run(&join);
    joined_already(second, &join);
    refused(
        third,
        &[&join[..], &["--node-name", "m2"]].concat(),
        &["a node \"m2\" is in the cluster and Ready"],
    );
    what_does_not_work_says_why(first, second);

    // A disk of its own for logs stays, empty; the name is free at once, and the node is not Ready.
    let said = second.machine.output(second.program(), &["kubeadm", "reset", "--force"]);
    let said = crate::kubeadm::said(&said);
    assert!(said.contains("https://10.89.0.1:6443 knows that m2 is gone"), "{said}");
    assert_eq!(second.machine.run("ls", &["-A", "/var/log/pods"]), "");
    assert_eq!(ready(first, "m2"), "False kubeadm reset was called on its machine");
    second.leaves_only(&before[1]);
    second.run(&join);
    assert_eq!(ready(first, "m2"), "True kubelet is posting ready status");

    the_control_plane_moves(first, second, third);
    for (node, before) in nodes.iter().zip(&before).rev() {
        node.run(&["kubeadm", "reset", "--force"]);
        node.leaves_only(before);
    }
}

/// The status and the message of a node's Ready.
fn ready(control_plane: &Node, node: &str) -> String {
    let ready = ".status.conditions[?(@.type==\"Ready\")]";
    control_plane.get(&format!("node {node}"), &format!("{{{ready}.status}} {{{ready}.message}}"))
}

/// The line by which others join.
fn join_line(said: &str) -> String {
    said.lines().find(|line| line.trim().starts_with("kubeadm join")).expect("how to join").trim().to_owned()
}

fn beside_a_kubectl_of_others(node: &Node) -> String {
    let file = node.machine.path(&format!("{OTHERS}/kubectl"));
    std::fs::create_dir(file.parent().expect("a folder")).expect("made");
    std::fs::write(&file, "#!/bin/sh\necho another\n").expect("written");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).expect("executable");
    let path = format!("PATH={OTHERS}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    let on_path = |words: &[&str]| node.machine.output("env", &[&[path.as_str()], words].concat());
    let init = on_path(&[node.program(), "kubeadm", "init"]);
    let told = said(&init);
    assert!(init.status.success(), "{told}");
    for part in
        ["/opt/others/kubectl stays, ours is called `minik8s kubectl`", "\n  minik8s kubectl get nodes\n"]
    {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert_eq!(said(&on_path(&["kubectl", "get", "nodes"])), "another\n");
    let ours = on_path(&["minik8s", "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "get", "nodes"]);
    assert!(said(&ours).contains("m1 "), "{}", said(&ours));
    join_line(&told)
}

fn names_that_are_taken_are_refused(node: &Node, join: &[&str], before: &[String]) {
    let by = |name: &'static str| [join, &["--node-name", name]].concat();
    refused(node, &by("Bad_Name"), &["--node-name: \"Bad_Name\"", "--node-name bad-name would do"]);
    let expected =
        ["a node \"m1\" is in the cluster and Ready (the machine at 10.89.0.1)", "kubectl delete node m1"];
    refused(node, &by("m1"), &expected);
    refused(node, &[join, &["--node-name", "m1", "--replace-node"]].concat(), &expected);
    assert_eq!(traces(node), before);
}

fn joined_already(node: &Node, join: &[&str]) {
    assert!(
        node.run(join).contains("a node of the cluster at https://10.89.0.1:6443 already, m2: nothing to do")
    );
    let mut elsewhere = join.to_vec();
    elsewhere[2] = "10.89.0.9:6443";
    refused(
        node,
        &elsewhere,
        &["is a node already, m2 of the cluster at https://10.89.0.1:6443", "kubeadm reset"],
    );
}

/// Waits until `kubeadm status` has all these words on one of its lines.
fn status_says(node: &Node, words: &[&str]) {
    node.eventually(&format!("its status says {words:?}"), |node| {
        let told = said(&node.attempt(&["kubeadm", "status"]));
        told.lines().any(|line| words.iter().all(|word| line.contains(word)))
    });
}

fn what_does_not_work_says_why(first: &Node, second: &Node) {
    for node in [first, second] {
        node.eventually("all of it works", |node| node.attempt(&["kubeadm", "status"]).status.success());
    }
    let told = first.run(&["kubeadm", "status"]);
    for part in ["containerd", "kubelet", "kubeproxy", "kube-apiserver", "kube-scheduler", "API", "node m2"] {
        assert!(told.lines().any(|line| line.starts_with(&format!("{part} "))), "{part}: {told}");
    }

    let mistyped = |pod: &str, program: &str| {
        let file = first.machine.path(&format!("/etc/kubernetes/manifests/{pod}.yaml"));
        let right = std::fs::read_to_string(&file).expect("the manifest");
        let entry = format!("- {program}\n");
        let at = right.find(&entry).unwrap_or_else(|| panic!("{entry}: {right}"));
        let indent = right[..at].rsplit('\n').next().expect("a line").to_owned();
        let wrong = right.replacen(&entry, &format!("{entry}{indent}- --bogus=1\n"), 1);
        std::fs::write(&file, wrong).expect("written");
        (file, right)
    };
    let (file, right) = mistyped("kube-scheduler", "/scheduler");
    status_says(first, &["unexpected argument '--bogus'"]);
    status_says(first, &["kube-scheduler", "mend /etc/kubernetes/manifests/kube-scheduler.yaml"]);
    std::fs::write(file, right).expect("written");

    let (file, right) = mistyped("kube-apiserver", "/apiserver");
    status_says(first, &["kube-apiserver", "mend /etc/kubernetes/manifests/kube-apiserver.yaml"]);
    status_says(first, &["API", "no answer", "https://10.89.0.1:6443"]);
    status_says(first, &["unexpected argument '--bogus'"]);
    status_says(second, &["API", "does kubeadm status on the control plane find it well"]);
    let log = std::fs::read_to_string(first.machine.path("/var/log/minik8s/kubelet.log")).expect("the log");
    assert!(log.contains("--bogus"), "the kubelet's log says why: {log}");
    std::fs::write(file, right).expect("written");
    for node in [first, second] {
        node.eventually("all of it works again", |node| {
            node.attempt(&["kubeadm", "status"]).status.success()
        });
    }
}

fn the_control_plane_moves(first: &Node, second: &Node, third: &Node) {
    let backup = "/opt/cluster.tar";
    first.run(&["kubeadm", "backup", backup]);
    std::fs::copy(first.machine.path(backup), third.machine.path(backup)).expect("copied");
    first.run(&["kubeadm", "reset", "--force"]);
    third.run(&["kubeadm", "restore", backup]);
    let told = third.run(&["kubeadm", "init"]);
    for part in
        ["at 10.89.0.1:6443, where it was, and must join again:\n\n  m1, m2\n", "kubeadm reset --force\n"]
    {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(ready(third, "m2").starts_with("Unknown the control plane has moved"), "{}", ready(third, "m2"));
    let status = said(&third.attempt(&["kubeadm", "status"]));
    assert!(status.contains("node m2: on its machine: kubeadm reset"), "{status}");
    status_says(second, &["API", "If it has moved: kubeadm reset, then join again"]);

    let reset = said(&second.attempt(&["kubeadm", "reset", "--force"]));
    assert!(reset.contains("https://10.89.0.1:6443 was not reached"), "{reset}");
    second.run(&join_line(&told).split_whitespace().collect::<Vec<_>>());
    assert_eq!(ready(third, "m2"), "True kubelet is posting ready status");
    let deleted =
        third.attempt(&["kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "delete", "node", "m1"]);
    assert!(said(&deleted).contains("kubeadm reset on its machine"), "{}", said(&deleted));
    third.eventually("all of it works", |node| node.attempt(&["kubeadm", "status"]).status.success());
}
