use super::super::{Mount, Propagation, Security};
use super::*;
use serde_json::{Value, json};

fn node() -> Node {
    Node {
        capabilities: Available::of_this_process(),
        lowest_oom_score_adj: 0,
        is_cgroup_v2: false,
        limits_swap: true,
    }
}

fn sandbox_spec() -> SandboxSpec {
    SandboxSpec {
        hostname: "web-0".into(),
        network_namespace: Some("/run/netns/one".into()),
        ..SandboxSpec::default()
    }
}

fn image() -> ImageConfig {
    ImageConfig {
        entrypoint: vec!["/entry".into()],
        cmd: vec!["run".into()],
        env: vec!["PATH=/bin".into(), "COLOR=red".into()],
        working_dir: "/srv".into(),
        ..ImageConfig::default()
    }
}

fn built(sandbox: &SandboxSpec, spec: &ContainerSpec) -> Value {
    let sandbox = Sandbox {
        id: "s1",
        spec: sandbox,
        pid: 7,
        shm: Path::new("/run/shm"),
        hostname_file: Path::new("/run/hostname"),
    };
    let user = User { uid: 3, gid: 4, additional_gids: vec![5], home: Some("/home/web".into()) };
    let spec =
        container(node(), &sandbox, spec, &image(), &user, "/kubepods/pod1/c1").expect("a good container");
    serde_json::to_value(spec).expect("JSON")
}

fn mount<'a>(spec: &'a Value, destination: &str) -> &'a Value {
    let mounts = spec["mounts"].as_array().expect("mounts");
    let mut found = mounts.iter().filter(|mount| mount["destination"] == destination);
    let mount = found.next().unwrap_or_else(|| panic!("no mount at {destination}"));
    assert!(found.next().is_none(), "two mounts at {destination}");
    mount
}

#[test]
fn command_and_arguments_replace_those_of_the_image() {
    let args = |command: &[&str], args: &[&str]| {
        let list = |list: &[&str]| list.iter().map(|item| (*item).to_owned()).collect();
        let spec = ContainerSpec { command: list(command), args: list(args), ..ContainerSpec::default() };
        arguments(&spec, &image()).join(" ")
    };
    assert_eq!(args(&[], &[]), "/entry run");
    assert_eq!(args(&[], &["x"]), "/entry x");
    assert_eq!(args(&["sh"], &[]), "sh");
    assert_eq!(args(&["sh"], &["x"]), "sh x");
}

#[test]
fn a_container_joins_its_sandbox() {
    let spec = built(&sandbox_spec(), &ContainerSpec::default());
    assert_eq!(
        spec["linux"]["namespaces"],
        json!([
            {"type": "mount"},
            {"type": "network", "path": "/proc/7/ns/net"},
            {"type": "ipc", "path": "/proc/7/ns/ipc"},
            {"type": "uts", "path": "/proc/7/ns/uts"},
            {"type": "pid"},
        ])
    );
    assert_eq!(spec["annotations"][GROUP], "s1");
    assert_eq!(spec["linux"]["cgroupsPath"], "/kubepods/pod1/c1");
    assert_eq!(mount(&spec, "/dev/shm")["source"], "/run/shm");
    assert_eq!(mount(&spec, "/etc/hostname")["source"], "/run/hostname");
    assert_eq!(spec["process"]["user"], json!({"uid": 3, "gid": 4, "additionalGids": [5]}));
    assert_eq!(spec["process"]["cwd"], "/srv");
    assert_eq!(spec["process"]["rlimits"], Value::Null);
    assert_eq!(spec["hostname"], Value::Null);
}

#[test]
fn a_pod_of_the_node_shares_the_namespaces_of_the_node() {
    let sandbox = SandboxSpec { host_pid: true, host_ipc: true, ..SandboxSpec::default() };
    let spec = built(&sandbox, &ContainerSpec::default());
    assert_eq!(spec["linux"]["namespaces"], json!([{"type": "mount"}]));
    let pause =
        serde_json::to_value(pause(node(), "s1", &sandbox, "/p").expect("a good sandbox")).expect("JSON");
    assert_eq!(pause["linux"]["namespaces"], json!([{"type": "mount"}]));
    assert_eq!(pause["hostname"], Value::Null);
}

#[test]
fn the_environment_is_set_by_image_then_pod() {
    let spec = ContainerSpec {
        env: vec![("COLOR".into(), "blue".into()), ("A".into(), "1=2".into())],
        ..ContainerSpec::default()
    };
    let spec = built(&sandbox_spec(), &spec);
    assert_eq!(
        spec["process"]["env"],
        json!(["HOSTNAME=web-0", "HOME=/home/web", "PATH=/bin", "COLOR=blue", "A=1=2"])
    );
}

#[test]
fn what_is_asked_for_replaces_what_everybody_has() {
    let asked = |path: &str, propagation| Mount {
        host_path: "/host".into(),
        container_path: path.into(),
        read_only: true,
        recursive_read_only: propagation == Propagation::None,
        propagation,
    };
    let spec = ContainerSpec {
        mounts: vec![asked("/data/in", Propagation::HostToContainer), asked("/dev/shm/", Propagation::None)],
        ..ContainerSpec::default()
    };
    let spec = built(&sandbox_spec(), &spec);
    assert_eq!(mount(&spec, "/dev/shm")["source"], "/host");
    assert_eq!(mount(&spec, "/dev/shm")["options"], json!(["rbind", "rprivate", "rro"]));
    assert_eq!(mount(&spec, "/data/in")["options"], json!(["rbind", "rslave", "ro"]));
    assert_eq!(spec["linux"]["rootfsPropagation"], "rslave");
}

#[test]
fn privileged_containers_see_everything() {
    let security =
        Security { privileged: true, seccomp: super::super::Seccomp::RuntimeDefault, ..Security::default() };
    let spec = built(&sandbox_spec(), &ContainerSpec { security, ..ContainerSpec::default() });
    assert_eq!(spec["linux"]["maskedPaths"], json!([]));
    assert_eq!(spec["linux"]["seccomp"], Value::Null);
    assert_eq!(spec["linux"]["resources"]["devices"], json!([{"allow": true, "access": "rwm"}]));
    assert!(mount(&spec, "/sys")["options"].as_array().expect("options").contains(&json!("rw")));
    let plain = built(&sandbox_spec(), &ContainerSpec::default());
    assert_eq!(plain["linux"]["resources"]["devices"], json!([{"allow": false, "access": "rwm"}]));
    assert!(plain["linux"]["maskedPaths"].as_array().expect("paths").contains(&json!("/proc/kcore")));
}

#[test]
fn limits_are_there_where_they_are_asked_for() {
    let limited = Resources {
        cpu_shares: 102,
        cpu_quota_us: 10_000,
        cpu_period_us: 100_000,
        memory_limit_bytes: 1 << 20,
        pids_limit: 10,
        oom_score_adj: Some(-997),
        ..Resources::default()
    };
    let spec = built(&sandbox_spec(), &ContainerSpec { resources: limited, ..ContainerSpec::default() });
    let resources = &spec["linux"]["resources"];
    assert_eq!(resources["cpu"], json!({"shares": 102, "quota": 10_000, "period": 100_000}));
    assert_eq!(resources["memory"], json!({"limit": 1 << 20, "swap": 1 << 20}));
    assert_eq!(resources["pids"], json!({"limit": 10}));
    // As low as this node can, not lower.
    assert_eq!(spec["process"]["oomScoreAdj"], 0);
    let plain = built(&sandbox_spec(), &ContainerSpec::default());
    assert_eq!(plain["linux"]["resources"]["memory"], Value::Null);
}
