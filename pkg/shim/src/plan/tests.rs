use super::*;
use serde_json::json;

const V1: Facts = Facts { is_cgroup_v1: true, moves_mounts: true };

/// A container such as the kubelet asks for.
fn ordinary() -> Value {
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0, "additionalGids": [50]},
            "args": ["sh"], "env": ["PATH=/bin"], "cwd": "/",
            "capabilities": {"bounding": ["CAP_KILL"], "effective": ["CAP_KILL"], "permitted": ["CAP_KILL"],
                             "inheritable": [], "ambient": []},
            "noNewPrivileges": true, "oomScoreAdj": 100
        },
        "root": {"path": "rootfs", "readonly": true},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"]},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
             "options": ["nosuid", "strictatime", "mode=755", "size=65536k"]},
            {"destination": "/dev/pts", "type": "devpts", "source": "devpts",
             "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"]},
            {"destination": "/data", "type": "bind", "source": "/srv", "options": ["rbind", "rprivate", "ro"]},
            {"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup", "options": ["nosuid", "ro"]}
        ],
        "annotations": {"anything": "at all"},
        "linux": {
            "namespaces": [{"type": "mount"}, {"type": "pid"}, {"type": "ipc", "path": "/proc/7/ns/ipc"}],
            "cgroupsPath": "/kubepods/pod1/abc",
            "resources": {"devices": [{"allow": false, "access": "rwm"}], "cpu": {"shares": 2},
                          "memory": {"limit": 1024, "swap": 1024}, "pids": {"limit": 10}},
            "seccomp": {"defaultAction": "SCMP_ACT_ALLOW", "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"]},
            "maskedPaths": ["/proc/kcore"], "readonlyPaths": ["/proc/sys"]
        }
    })
}

/// Why a container is runc's; nothing if it is ours.
fn reason(change: impl FnOnce(&mut Value)) -> Option<String> {
    let mut spec = ordinary();
    change(&mut spec);
    match decide(spec.to_string().as_bytes(), V1) {
        Decision::Setup(_) => None,
        Decision::HandToRunc(reason) => Some(reason),
    }
}

/// Sets what a path of the table names, whatever is there.
fn set(spec: &mut Value, path: &str, value: Value) {
    let mut at = spec;
    for part in path.split('.') {
        let (name, is_list) = match part.strip_suffix("[]") {
            Some(name) => (name, true),
            None => (part, false),
        };
        if at.is_null() {
            *at = json!({});
        }
        at = &mut at[name];
        if is_list {
            if at.as_array().is_none_or(Vec::is_empty) {
                *at = json!([null]);
            }
            at = &mut at[0];
        }
    }
    *at = value;
}

#[test]
fn what_the_kubelet_asks_for_is_ours() {
    assert_eq!(reason(|_| {}), None);
}

#[test]
fn every_field_that_is_runcs_goes_to_runc() {
    for (path, _) in fields::FIELDS.iter().filter(|(_, who)| *who == Who::Runc) {
        let said = reason(|spec| set(spec, path, json!({"anything": ["at all"]}))).expect(path);
        assert!(said.starts_with(path), "{path}: {said}");
        assert_eq!(reason(|spec| set(spec, path, Value::Null)), None, "{path} says nothing");
    }
}

#[test]
fn what_nobody_knows_goes_to_runc() {
    for path in
        ["fly", "process.fly", "linux.fly", "linux.resources.fly", "mounts[].fly", "linux.seccomp.fly"]
    {
        let said = reason(|spec| set(spec, path, json!("high"))).expect(path);
        assert_eq!(said, format!("{path} is not known"));
    }
    assert!(reason(|spec| set(spec, "process.env[]", json!("A=\0"))).is_some());
}

#[test]
fn every_field_of_the_specification_is_in_the_table() {
    // Its whole text would be as long as the table: that of each level, as the specification lists it.
    for path in [
        "ociVersion",
        "process.user.umask",
        "process.scheduler.policy",
        "process.ioPriority.class",
        "process.execCPUAffinity.initial",
        "root.readonly",
        "hostname",
        "domainname",
        "mounts[].uidMappings[].size",
        "hooks.prestart[].path",
        "hooks.createRuntime[].path",
        "annotations.x",
        "linux.uidMappings[].size",
        "linux.timeOffsets.monotonic.secs",
        "linux.sysctl.x",
        "linux.resources.hugepageLimits[].limit",
        "linux.resources.blockIO.weight",
        "linux.resources.network.classID",
        "linux.resources.rdma.x.hcaHandles",
        "linux.resources.unified.x",
        "linux.resources.memory.checkBeforeUpdate",
        "linux.resources.cpu.idle",
        "linux.cgroupsPath",
        "linux.namespaces[].path",
        "linux.devices[].gid",
        "linux.netDevices.eth0.name",
        "linux.seccomp.listenerPath",
        "linux.rootfsPropagation",
        "linux.maskedPaths[]",
        "linux.readonlyPaths[]",
        "linux.mountLabel",
        "linux.intelRdt.closID",
        "linux.memoryPolicy.mode",
        "linux.personality.domain",
        "solaris.milestone",
        "windows.layerFolders[]",
        "vm.kernel.path",
        "zos.namespaces[].type",
    ] {
        assert!(who(path).is_some(), "{path}");
    }
}

#[test]
fn values_that_are_not_surely_right_go_to_runc() {
    let check = |path: &str, value: Value, expected: &str| {
        assert_eq!(reason(|spec| set(spec, path, value)).as_deref(), Some(expected), "{path}");
    };
    check("linux.namespaces[]", json!({"type": "user"}), "namespace user");
    check("linux.namespaces[]", json!({"type": "mount", "path": "/x"}), "namespace mount");
    check("linux.cgroupsPath", json!("system.slice:runc:abc"), "control group system.slice:runc:abc");
    check("linux.cgroupsPath", json!("/a/../../b"), "control group /a/../../b");
    check("linux.rootfsPropagation", json!("rshared"), "propagation rshared");
    check("linux.maskedPaths[]", json!("/"), "path \"/\"");
    check("linux.sysctl", json!({"kernel.hostname": "x"}), "sysctl kernel.hostname");
    check("linux.sysctl", json!({"net.ipv4.x": "1"}), "sysctl net.ipv4.x");
    check("linux.devices[]", json!({"type": "c", "path": "/etc/x"}), "device /etc/x");
    check("linux.devices[]", json!({"type": "c", "path": "/dev/../etc/x"}), "device /dev/../etc/x");
    check("linux.resources.devices", json!([{"allow": true, "type": "c"}]), "rules of devices");
    check("mounts[].options", json!(["rshared"]), "mount /proc with option rshared");
    check("mounts[]", json!({"destination": "/x", "type": "nfs"}), "mount /x with type \"nfs\"");
    check("mounts[]", json!({"destination": "/", "type": "tmpfs"}), "mount / with this place");
    let in_proc = json!({"destination": "/proc/./sys", "type": "bind", "source": "/x", "options": ["bind"]});
    check("mounts[]", in_proc, "mount /proc/sys with this place");
    let said = reason(|spec| {
        set(spec, "process.terminal", json!(true));
        spec["mounts"].as_array_mut().expect("a list").remove(2);
    });
    assert_eq!(said.as_deref(), Some("a terminal without devpts"));
}

#[test]
fn nodes_that_we_do_not_know_are_runcs() {
    for facts in [Facts { is_cgroup_v1: false, ..V1 }, Facts { moves_mounts: false, ..V1 }] {
        let decision = decide(ordinary().to_string().as_bytes(), facts);
        assert!(matches!(decision, Decision::HandToRunc(_)), "{facts:?}");
    }
}

#[test]
fn attributes_and_propagation_of_mounts() {
    let plan = |options: &[&str]| {
        let mount = crate::oci::Mount {
            destination: "/a/../b/".into(),
            kind: "bind".into(),
            source: "/s".into(),
            options: options.iter().map(|option| (*option).to_owned()).collect(),
        };
        mounts::plan(&mount).expect("ours")
    };
    assert_eq!(plan(&[]).destination, Path::new("/b"));
    assert_eq!(plan(&["ro", "nosuid"]).attributes, 3);
    assert_eq!(plan(&["rro"]).recursive_attributes, 1);
    assert_eq!(plan(&["rslave"]).propagation, Some((nix::libc::MS_SLAVE, true)));
    assert_eq!(plan(&["rbind"]).what, What::Bind { source: "/s".into(), is_recursive: true });
}
