//! Certificates that are about to end are renewed by those who show them, and nobody has to be restarted for it.

use crate::support::{Node, PATIENCE};
use jiff::{SignedDuration, Timestamp};
use pki::{Authority, Facts, Identity, Kubeconfig, LEAF_LIFETIME};
use std::path::Path;
use std::time::Instant;
use testing::Switch;

/// When a certificate must have been made that ends so soon.
fn made_to_end_in(seconds: i64) -> Timestamp {
    Timestamp::now() + SignedDuration::from_secs(seconds)
        - SignedDuration::try_from(LEAF_LIFETIME).expect("a year")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The certificate in a file, or in the kubeconfig that it is, lasts.
fn lasts(path: &Path) -> bool {
    let text = read(path);
    let pem = Kubeconfig::parse(&text).ok().and_then(|config| config.client_cert_pem).unwrap_or(text);
    Facts::from_pem(&pem).is_ok_and(|facts| facts.not_after - Timestamp::now().as_second() > 300 * 86_400)
}

#[test]
fn certificates_are_renewed_without_a_restart() {
    let switch = Switch::new();
    let node = Node::boot(&switch, "m1", 1);
    let etc = node.machine.path("/etc/kubernetes");
    let pki = etc.join("pki");

    // The kubelet begins with a certificate whose time is nearly over.
    let made = pki::ensure(&pki, &pki::Config::default(), Timestamp::now()).expect("keys");
    let short = |user: &str, groups: &[&str]| -> Identity {
        made.authority.client(user, groups, made_to_end_in(40)).expect("a certificate")
    };
    let identity = short("system:node:m1", &["system:nodes"]);
    let current = node.machine.path("/var/lib/kubelet/pki/kubelet-client-current.pem");
    std::fs::create_dir_all(current.parent().expect("a folder")).expect("a folder");
    std::fs::write(&current, format!("{}{}", identity.certificate, identity.key)).expect("written");
    node.init(&[]);
    let processes = || {
        node.machine.run(
            "sh",
            &["-c", "echo $(cat /run/minik8s/kubelet.pid); pgrep -f '^/(controller-manager|scheduler) '"],
        )
    };
    node.eventually("the control plane runs", |_| processes().lines().count() >= 3);
    let before = processes();

    // So are then those of the controller-manager, the scheduler, and of the API server itself.
    let files = ["controller-manager.conf", "scheduler.conf"].map(|file| etc.join(file));
    for (path, component) in files.iter().zip(&pki::COMPONENTS[2..]) {
        let config = Kubeconfig::parse(&read(path)).expect("a kubeconfig");
        let Identity { certificate, key } = short(component.user, component.groups);
        let text = pki::kubeconfig(&config.server, &config.ca_pem, component.user, &certificate, &key);
        std::fs::write(path, text).expect("written");
    }
    let authority = Authority::load(made.authority.pem(), made.authority.key_pem()).expect("an authority");
    let serving = authority.server("kube-apiserver", &[], made_to_end_in(40)).expect("a certificate");
    std::fs::write(pki.join("apiserver.key"), &serving.key).expect("written");
    std::fs::write(pki.join("apiserver.crt"), &serving.certificate).expect("written");
    let ends = made_to_end_in(45) + SignedDuration::try_from(LEAF_LIFETIME).expect("a year");

    // All get new ones.
    let all = [&files[0], &files[1], &current, &pki.join("apiserver.crt")];
    node.eventually("all certificates last", |_| all.iter().all(|path| lasts(path)));

    // When the old ones have ended, everybody makes new connections, and the cluster works.
    let patience = Instant::now() + PATIENCE;
    while Timestamp::now() < ends && Instant::now() < patience {
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert_eq!(processes(), before, "nobody was restarted");
    node.machine.run("pkill", &["-KILL", "-f", "^/apiserver "]);
    node.import("httpd");
    node.eventually("the API server is back", |node| node.try_kubectl(&["get", "nodes"]).contains("m1"));
    node.apply(include_str!("../../../../testcases/hello.yaml"));
    node.rolled_out("deployment/hello");
}
