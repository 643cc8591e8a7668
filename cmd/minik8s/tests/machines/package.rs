//! What `make package` makes, from the built program: the same bytes each time, and all that a machine needs.

use crate::support::{BUILT, Node};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use testing::Switch;

/// The archives, by name.
fn packaged(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/package");
    let output = Command::new(script).arg(&*BUILT).arg(folder).output().expect("scripts/package runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let archive = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().expect("a name");
        (name, std::fs::read(entry.path()).expect("read"))
    };
    std::fs::read_dir(folder).expect("a folder").map(|entry| archive(entry.expect("an entry"))).collect()
}

/// What a command prints; it must succeed.
fn printed(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().expect("it runs");
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_package_is_the_same_each_time_and_all_that_a_machine_needs() {
    let (one, two) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let packages = packaged(one.path());
    let again = packaged(two.path());
    assert_eq!(packages.keys().collect::<Vec<_>>(), again.keys().collect::<Vec<_>>());
    assert!(packages == again, "two packages of one program differ");

    let find = |ending: &str| {
        let name = packages.keys().find(|name| name.ends_with(ending)).expect("made");
        one.path().join(name).to_str().expect("a path").to_owned()
    };
    let (deb, tarball) = (find(".deb"), find(".tar.gz"));
    let inside = printed("dpkg-deb", &["--contents", &deb]);
    for file in [
        "./usr/bin/kubelet -> minik8s",
        "./usr/share/man/man1/kubectl-get.1.gz",
        "./usr/share/man/man1/apiserver.1.gz",
        "./usr/share/bash-completion/completions/kubectl",
        "./usr/share/zsh/vendor-completions/_kubeadm",
        "./usr/share/doc/minik8s/CONTENTS",
        "./usr/share/doc/minik8s/copyright",
    ] {
        assert!(inside.contains(file), "{file} is not in {inside}");
    }
    assert!(inside.lines().all(|line| line.contains(" root/root ")), "{inside}");
    assert!(printed("dpkg-deb", &["--field", &deb, "Depends"]).contains("containerd"));

    let switch = Switch::new();
    let node = Node::boot(&switch, "m1", 1);
    std::fs::remove_file(node.machine.path(node.program())).expect("removed");
    let opt = node.machine.path("/opt");
    printed("tar", &["-xzf", &tarball, "--strip-components=1", "-C", opt.to_str().expect("a path")]);
    assert!(node.machine.run("/opt/bin/kubeadm", &["init"]).contains("kubeadm join"));
    node.machine.run(
        "/opt/bin/kubectl",
        &[
            "--kubeconfig",
            "/etc/kubernetes/admin.conf",
            "wait",
            "node/m1",
            "--for=condition=Ready",
            "--timeout=60s",
        ],
    );
    let contents = std::fs::read_to_string(opt.join("share/doc/minik8s/CONTENTS")).expect("there");
    assert!(contents.contains("\ntokio v"), "{contents}");
    node.machine.run("/opt/bin/kubeadm", &["reset", "--force"]);
}
