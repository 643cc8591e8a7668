//! What kubeadm does besides `init` and `join` of everyday: other stores, backups, tokens, certificates, dry runs.

use crate::support::{Datastore, Node, traces};
use std::process::Output;
use testing::Switch;

/// What a command said, on both ways.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Fails, and says all of this.
pub fn refused(node: &Node, arguments: &[&str], reasons: &[&str]) {
    let output = node.attempt(arguments);
    let text = said(&output);
    assert!(!output.status.success(), "{arguments:?} succeeded: {text}");
    for reason in reasons {
        assert!(text.contains(reason), "{arguments:?} does not say {reason:?}: {text}");
    }
}

/// The control plane is there as pods, and so are the objects that the cluster held when it was saved.
fn holds_what_was_saved(node: &Node, pods: usize) {
    assert_eq!(node.get("configmap kept", "{.data.by}"), "backup");
    assert_eq!(node.get("secret kept", "{.data.key}"), "dmFsdWU=");
    node.eventually("the control plane's pods are Running", |node| {
        let phases = node.get("pods -n kube-system", "{.items[*].status.phase}");
        phases.split_whitespace().filter(|phase| *phase == "Running").count() == pods
    });
    // The controllers and the scheduler work on: what was asked for before the backup runs again.
    node.eventually("the saved Deployment has its pods", |node| {
        node.get("deployment hello", "{.status.readyReplicas} {.status.replicas}") == "2 2"
    });
}

#[test]
fn a_cluster_on_etcd_is_saved_and_moves_between_stores() {
    let switch = Switch::new();
    let node = Node::boot(&switch, "m1", 1);
    let before = traces(&node);

    // Without doing anything it says what it would do.
    let dry = said(&node.attempt(&["kubeadm", "init", "--dry-run", "--datastore", "etcd"]));
    for expected in [
        "would write /etc/kubernetes/manifests/etcd.yaml",
        "would import minik8s.io/etcd",
        "would start the supervisor",
    ] {
        assert!(dry.contains(expected), "{dry}");
    }
    assert_eq!(traces(&node), before);

    // On an etcd of its own.
    node.run(&["kubeadm", "init", "--datastore", "etcd"]);
    node.import("httpd");
    node.apply(include_str!("../../../../testcases/hello.yaml"));
    node.kubectl(&["create", "configmap", "kept", "--from-literal=by=backup"]);
    node.kubectl(&["create", "secret", "generic", "kept", "--from-literal=key=value"]);
    holds_what_was_saved(&node, Datastore::Etcd.pods());
    assert!(!node.machine.path("/var/lib/minik8s/store").exists(), "nothing is in the embedded store");
    hears_over_redis(&node);
    let backup = "/var/lib/cluster.tar";
    assert!(node.run(&["kubeadm", "backup", backup]).contains("Keep it safe"));
    refused(&node, &["kubeadm", "backup", backup], &["make /var/lib/cluster.tar"]);
    refused(&node, &["kubeadm", "restore", backup], &["kubeadm reset"]);
    node.run(&["kubeadm", "reset", "--force"]);
    refused(&node, &["kubeadm", "restore", "/etc/hostname"], &["/etc/hostname is not a whole backup"]);

    // From etcd to the embedded store.
    let next = node.run(&["kubeadm", "restore", backup]);
    assert!(next.contains("\n  kubeadm init\n"), "{next}");
    refused(&node, &["kubeadm", "init", "--datastore", "etcd"], &["/var/lib/minik8s/store", "--datastore"]);
    node.run(&["kubeadm", "init"]);
    holds_what_was_saved(&node, Datastore::Embedded.pods());
    node.run(&["kubeadm", "backup", "/var/lib/second.tar"]);
    node.run(&["kubeadm", "reset", "--force"]);

    // From the embedded store to etcd.
    let next = node.run(&["kubeadm", "restore", "/var/lib/second.tar", "--datastore", "etcd"]);
    assert!(next.contains("\n  kubeadm init --datastore etcd\n"), "{next}");
    refused(&node, &["kubeadm", "init"], &["/var/lib/minik8s/etcd", "--datastore"]);
    node.run(&["kubeadm", "init", "--datastore", "etcd"]);
    holds_what_was_saved(&node, Datastore::Etcd.pods());
    node.run(&["kubeadm", "reset", "--force"]);

    // To an etcd that somebody else runs.
    node.machine.run(
        "sh",
        &["-c", "setsid etcd --data-dir /var/lib/others --listen-client-urls http://127.0.0.1:3379 --advertise-client-urls \
                 http://127.0.0.1:3379 --listen-peer-urls http://127.0.0.1:3380 >/dev/null 2>&1 </dev/null &"],
    );
    let servers = "http://127.0.0.1:3379";
    node.eventually("the other etcd answers", |node| {
        node.machine.output("curl", &["-fs", &format!("{servers}/health")]).status.success()
    });
    node.run(&["kubeadm", "restore", backup, "--etcd-servers", servers]);
    node.run(&["kubeadm", "init", "--etcd-servers", servers]);
    holds_what_was_saved(&node, Datastore::Embedded.pods());
    node.run(&["kubeadm", "reset", "--force"]);
    node.machine.run("pkill", &["-TERM", "-x", "etcd"]);
    node.machine.run("rm", &["-r", "/var/lib/others", backup, "/var/lib/second.tar"]);
    node.leaves_only(&before);
}

/// As docs/redis.md says: every program hears over the Redis beside etcd, each as a user of its own.
fn hears_over_redis(node: &Node) {
    for (program, port) in
        [("controller-manager", 10257), ("scheduler", 10259), ("kubeproxy", 10249), ("knative", 10272)]
    {
        node.eventually(&format!("{program} hears over Redis"), |node| {
            let page = node.machine.output("curl", &["-s", &format!("http://127.0.0.1:{port}/metrics")]);
            let page = String::from_utf8_lossy(&page.stdout).into_owned();
            let over = |line: &&str| line.starts_with("minik8s_informers{transport=\"redis\"}");
            page.lines().find(over).is_some_and(|line| !line.ends_with(" 0"))
        });
    }
    let metrics = "/api/v1/nodes/m1/proxy/metrics";
    node.eventually("the kubelet hears over Redis", |node| {
        let page = node.attempt(&["kubectl", "get", "--raw", metrics]);
        let page = String::from_utf8_lossy(&page.stdout).into_owned();
        let over = |line: &&str| line.starts_with("minik8s_informers{transport=\"redis\"}");
        page.lines().find(over).is_some_and(|line| !line.ends_with(" 0"))
    });
    let shown = node.run(&["kubectl", "get", "--raw", "/api/v1/nodes/m1/redis"]);
    assert!(shown.contains("\"user\":\"minik8s:node:m1\""), "{shown}");
    let users = node.run(&["kubeadm", "redis-users"]);
    let lines: Vec<&str> = users.lines().collect();
    assert_eq!(lines.len(), 5, "{users}");
    assert!(lines[4].starts_with("ACL SETUSER minik8s:node:m1 reset on #"), "{users}");
    let first = node.run(&["kubeadm", "redis-users", "--without-nodes"]);
    assert_eq!(first.lines().count(), 4, "{first}");
}

#[test]
fn tokens_certificates_images_and_versions_are_shown_and_changed() {
    let switch = Switch::new();
    let node = Node::boot(&switch, "m1", 1);
    refused(
        &node,
        &["kubeadm", "token", "list"],
        &["/etc/kubernetes/admin.conf", "is this the control plane"],
    );
    let ranges = ["--service-cidr", "222.222.0.0/16", "--pod-network-cidr", "10.55.0.0/16"];
    node.init(&[&ranges[..], &["--token", "abcdef.0123456789abcdef", "--token-ttl", "2h"]].concat());

    // Tokens.
    let list = node.run(&["kubeadm", "token", "list"]);
    assert!(
        list.contains("abcdef.0123456789abcdef   2h") && list.contains("authentication,signing"),
        "{list}"
    );
    let line = node.run(&[
        "kubeadm",
        "token",
        "create",
        "--ttl",
        "0",
        "--description",
        "spare",
        "--print-join-command",
    ]);
    assert!(line.starts_with("kubeadm join 10.89.0.1:6443 --token "), "{line}");
    let token = line.split_whitespace().nth(4).expect("a token");
    let list = node.run(&["kubeadm", "token", "list"]);
    assert!(
        list.lines()
            .any(|line| line.starts_with(token) && line.contains("<forever>") && line.contains("spare")),
        "{list}"
    );
    node.run(&["kubeadm", "token", "delete", token]);
    assert!(!node.run(&["kubeadm", "token", "list"]).contains(token));
    refused(&node, &["kubeadm", "token", "delete", "zzzzzz"], &["zzzzzz", "not found"]);
    refused(&node, &["kubeadm", "token", "create", "short"], &["short"]);

    // What it was told, what it has, what it is.
    let config = node.run(&["kubeadm", "config", "print"]);
    for expected in ["kind: ClusterConfiguration", "serviceSubnet: 222.222.0.0/16", "podSubnet: 10.55.0.0/16"]
    {
        assert!(config.contains(expected), "{config}");
    }
    assert!(node.get("service kubernetes", "{.spec.clusterIP}").starts_with("222.222.0.1"));
    let range = node.get("node m1", "{.spec.podCIDR}");
    assert!(range.starts_with("10.55."), "{range}");
    let images = node.run(&["kubeadm", "image", "list"]);
    assert!(images.contains("minik8s.io/minik8s"), "{images}");
    node.import("busybox");
    assert!(node.run(&["kubeadm", "image", "list"]).contains("busybox:latest"));
    refused(&node, &["kubeadm", "image", "import", "/etc/hostname"], &["import /etc/hostname"]);
    assert!(node.run(&["kubeadm", "version", "-o", "json"]).contains("\"major\": \"1\""));
    assert!(node.run(&["kubeadm", "version", "-o", "yaml"]).contains("gitVersion: v1.35"));
    assert_eq!(node.run(&["kubeadm", "version", "-o", "short"]), "v1.35.0\n");

    // Who administers is whom a binding says, and can be taken back; one file can repair that.
    let with = |file: &str, arguments: &[&str]| {
        let kubeconfig = format!("/etc/kubernetes/{file}");
        let output = node.attempt(&[&["kubectl", "--kubeconfig", &kubeconfig], arguments].concat());
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    };
    let binding = "clusterrolebinding/kubeadm:cluster-admins";
    let saved = with("admin.conf", &["get", binding, "-o", "json"]);
    assert!(saved.contains("\"cluster-admin\""), "{saved}");
    with("super-admin.conf", &["delete", binding]);
    node.eventually("the administrator may do nothing", |_| {
        with("admin.conf", &["get", "nodes"]).contains("Error from server (Forbidden)")
    });
    let groups = ["create", "clusterrolebinding", "kubeadm:cluster-admins", "--clusterrole=cluster-admin"];
    with("super-admin.conf", &[&groups[..], &["--group=kubeadm:cluster-admins"]].concat());
    node.eventually("and everything again", |_| with("admin.conf", &["get", "nodes"]).contains("m1"));

    // Certificates.
    let shown = node.run(&["kubeadm", "certs", "check-expiration"]);
    for name in [
        "admin.conf",
        "super-admin.conf",
        "controller-manager.conf",
        "scheduler.conf",
        "kubelet.conf",
        "apiserver",
        "ca",
    ] {
        assert!(
            shown.lines().any(|line| line.starts_with(&format!("{name} ")) && line.contains('d')),
            "{name}: {shown}"
        );
    }
    let serving = || {
        std::fs::read_to_string(node.machine.path("/etc/kubernetes/pki/apiserver.crt"))
            .expect("a certificate")
    };
    let old = serving();
    let renewed = node.run(&["kubeadm", "certs", "renew", "scheduler.conf"]);
    assert_eq!(renewed, "certificate scheduler.conf renewed\n");
    assert_eq!(old, serving());
    let renewed = node.run(&["kubeadm", "certs", "renew", "all"]);
    for name in ["apiserver", "admin.conf", "super-admin.conf", "controller-manager.conf"] {
        assert!(renewed.contains(&format!("certificate {name} renewed\n")), "{renewed}");
    }
    assert_ne!(old, serving());
    refused(
        &node,
        &["kubeadm", "certs", "renew", "ca.conf"],
        &["no certificate \"ca.conf\"", "check-expiration"],
    );
    // The new certificate has the names of the old one, and the server shows it without a restart.
    node.eventually("the server shows its new certificate", |node| {
        let shown = "openssl s_client -connect 10.89.0.1:6443 </dev/null 2>/dev/null | openssl x509 -fingerprint -noout";
        let file = "openssl x509 -fingerprint -noout -in /etc/kubernetes/pki/apiserver.crt";
        node.machine.run("sh", &["-c", shown]) == node.machine.run("sh", &["-c", file])
    });
    assert_eq!(node.get("nodes", "{.items[*].metadata.name}"), "m1");

    // What stands in the way is named, with what mends it.
    refused(&node, &["kubeadm", "init"], &["port 6443 is in use", "kubeadm reset"]);
    node.run(&["kubeadm", "reset", "--force"]);
    refused(
        &node,
        &["kubeadm", "init", "--cri-socket", "/run/none.sock"],
        &["containerd does not answer at /run/none.sock", "systemctl start containerd"],
    );
    refused(&node, &["kubeadm", "init", "--skip-phases", "nothing"], &["no phase \"nothing\"", "preflight"]);
    refused(&node, &["kubeadm", "reset"], &["--force"]);
}
