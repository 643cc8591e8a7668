//! What keeps pods apart from each other and from the node: each is seen in a container, or the pod is refused by name.

use crate::machine::{Machine, is_ready, on_a_network_of_its_own};
use k8s_openapi::api::core::v1::{Event, Node};
use kube::Api;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use serde_json::{Value, json};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use testing::eventually;

const FOREVER: &str = "while true; do sleep 0.1; done";
/// Containers whose sub-path somebody races for, and how many of them a pod has; a twentieth of them unless `SOAK` is set.
const RACED: usize = 2_000;
const IN_A_POD: usize = 10;

fn shell(name: &str, line: &str) -> Value {
    json!({"name": name, "command": ["sh", "-c", line]})
}

/// The folder of a pod's emptyDir.
fn volume(machine: &Machine, pod: &Value, name: &str) -> std::path::PathBuf {
    let uid = pod["metadata"]["uid"].as_str().expect("a uid");
    machine.dir("kubelet/pods").join(uid).join("volumes/kubernetes.io~empty-dir").join(name)
}

#[test]
fn a_sub_path_is_its_volumes_and_goes_with_the_pod() {
    on_a_network_of_its_own(|| async {
        let mut machine = Machine::ready().await;
        let line = format!("echo mine > /own/file; stat -c '%a %u %g' /own; echo one > /all/file; {FOREVER}");
        let mut writes = shell("c", &line);
        writes["volumeMounts"] = json!([
            {"name": "v", "mountPath": "/own", "subPathExpr": "of/$(WHO)"},
            {"name": "v", "mountPath": "/all"},
            {"name": "v", "mountPath": "/one", "subPath": "file.d"},
        ]);
        writes["env"] = json!([{"name": "WHO", "value": "me"}]);
        writes["securityContext"] = json!({"runAsUser": 1000, "runAsGroup": 1000});
        let mut away = shell("away", "cat /out/passwd");
        away["volumeMounts"] = json!([{"name": "host", "mountPath": "/out", "subPath": "link"}]);
        std::fs::create_dir(machine.dir("shared")).expect("a folder");
        std::os::unix::fs::symlink("/etc", machine.dir("shared/link")).expect("a link");
        let spec = json!({"containers": [writes], "volumes": [{"name": "v", "emptyDir": {}}]});
        machine.create("own", spec).await;
        let host = json!({"name": "host", "hostPath": {"path": machine.dir("shared")}});
        machine.create("away", json!({"containers": [away], "volumes": [host]})).await;
        let own = machine.until("own", "it is ready", is_ready).await;
        eventually("it wrote", || async { machine.output("own", "c").contains("777 0 0").then_some(()) })
            .await;
        let folder = volume(&machine, &own, "v");
        assert_eq!(std::fs::read_to_string(folder.join("of/me/file")).expect("written"), "mine\n");
        machine
            .until("away", "it is refused", |pod| {
                let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
                waiting["reason"] == "CreateContainerConfigError"
                    && waiting["message"]
                        == "failed to prepare subPath for volumeMount \"host\" of container \"away\""
            })
            .await;
        // Mounts are found and removed by whoever comes after a crash, and the files in the volume with them.
        machine.kill();
        machine.start();
        machine.delete("own").await;
        machine.delete("away").await;
        machine.nothing_is_left().await;
        assert!(Path::new("/etc/passwd").exists());
    });
}

#[test]
fn nobody_wins_the_race_for_a_sub_path_of_a_container() {
    on_a_network_of_its_own(|| async {
        let machine = Machine::ready_with(&["--max-pods", "200"]).await;
        let (volume, outside) = (machine.dir("volume"), machine.dir("outside"));
        for (folder, who) in [(volume.join("a/data"), "inside"), (outside.join("data"), "outside")] {
            std::fs::create_dir_all(&folder).expect("a folder");
            std::fs::write(folder.join("who"), who).expect("written");
        }
        std::os::unix::fs::symlink("../outside", volume.join("b")).expect("a link");
        let done = Arc::new(AtomicBool::new(false));
        let exchanging = {
            let (done, a, b) = (done.clone(), volume.join("a"), volume.join("b"));
            std::thread::spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    renameat2(AT_FDCWD, &a, AT_FDCWD, &b, RenameFlags::RENAME_EXCHANGE).expect("exchanged");
                }
            })
        };
        let containers = if std::env::var_os("SOAK").is_some() { RACED } else { RACED / 20 };
        let (mut inside, mut refused) = (0, 0);
        for number in 0..containers / IN_A_POD {
            let name = format!("raced{number}");
            let reads = |index: usize| {
                let mut reads = shell(&format!("c{index}"), "cat /v/who");
                reads["volumeMounts"] = json!([{"name": "v", "mountPath": "/v", "subPath": "a/data"}]);
                reads
            };
            let all: Vec<Value> = (0..IN_A_POD).map(reads).collect();
            let source = json!({"name": "v", "hostPath": {"path": volume}});
            let spec = json!({"containers": all, "volumes": [source], "restartPolicy": "Never"});
            machine.create(&name, spec).await;
            let is_settled = |status: &Value| {
                let state = &status["state"];
                state["terminated"].is_object() || state["waiting"]["reason"] == "CreateContainerConfigError"
            };
            let settled = |pod: &Value| {
                let list = pod["status"]["containerStatuses"].as_array();
                list.is_some_and(|list| list.len() == IN_A_POD && list.iter().all(is_settled))
            };
            let pod = machine.until(&name, "each container has run or is refused", settled).await;
            for status in pod["status"]["containerStatuses"].as_array().expect("statuses") {
                let container = status["name"].as_str().expect("a name");
                let output = machine.output(&name, container);
                assert!(!output.contains("outside"), "{name} {container} was won by the attacker");
                if status["state"]["terminated"].is_object() { inside += 1 } else { refused += 1 }
            }
            machine.delete(&name).await;
        }
        done.store(true, Ordering::Relaxed);
        exchanging.join().expect("it ends");
        assert!(inside > 0 && refused > 0, "both were seen: {inside} inside, {refused} refused");
        println!("{containers} containers: {inside} inside, {refused} refused, 0 outside");
        machine.nothing_is_left().await;
    });
}

#[test]
fn pods_that_ask_for_what_this_node_cannot_give() {
    on_a_network_of_its_own(|| async {
        let machine = Machine::ready_with(&["--allowed-unsafe-sysctls", "kernel.msg*"]).await;
        let with = |context: Value| json!({"containers": [shell("c", FOREVER)], "securityContext": context, "restartPolicy": "Never"});
        let sysctl = |name: &str| json!({"sysctls": [{"name": name, "value": "9000"}]});
        let refused = [
            (
                "sysctl",
                with(sysctl("kernel.sem")),
                "SysctlForbidden",
                "forbidden sysctl: \"kernel.sem\" not allowlisted",
            ),
            (
                "selinux",
                with(json!({"seLinuxOptions": {"type": "container_t"}})),
                "SELinux",
                "Cannot enforce SELinux: seLinuxOptions.type is set, and SELinux is not enabled on the host",
            ),
            (
                "windows",
                with(json!({"windowsOptions": {"runAsUserName": "me"}})),
                "PodOSNotSupported",
                "Failed to admit pod as windowsOptions are set and the node OS is linux",
            ),
        ];
        for (name, spec, reason, message) in refused {
            machine.create(name, spec).await;
            let pod = machine.until(name, "it is refused", |pod| pod["status"]["phase"] == "Failed").await;
            assert_eq!(pod["status"]["reason"], reason);
            assert_eq!(pod["status"]["message"], format!("Pod was rejected: {message}"));
            assert!(
                pod["status"]["containerStatuses"]
                    .as_array()
                    .is_none_or(|list| { list.iter().all(|status| status["containerID"].is_null()) })
            );
            machine.delete(name).await;
        }
        let has_app_armor = Path::new("/sys/module/apparmor/parameters/enabled").exists();
        if !has_app_armor {
            machine.create("armor", with(json!({"appArmorProfile": {"type": "RuntimeDefault"}}))).await;
            let pod = machine.until("armor", "it is refused", |pod| pod["status"]["phase"] == "Failed").await;
            assert_eq!(pod["status"]["reason"], "AppArmor");
            machine.delete("armor").await;
        }
        let mut users = with(json!({}));
        users["hostUsers"] = false.into();
        machine.create("users", users).await;
        let events: Api<Event> = Api::namespaced(machine.server().admin(), "default");
        let expected =
            "Failed to create pod sandbox: RuntimeClass handler \"\" does not support user namespaces";
        eventually("the event says why", || async {
            let list = events.list(&Default::default()).await.ok()?;
            list.items.iter().any(|event| event.message.as_deref() == Some(expected)).then_some(())
        })
        .await;
        let pod = machine.until("users", "it is there", |pod| !pod.is_null()).await;
        assert_eq!(pod["status"]["phase"], "Pending");
        machine.delete("users").await;
        let line = format!("cat /proc/sys/kernel/msgmax; {FOREVER}");
        let mut allowed = with(sysctl("kernel.msgmax"));
        allowed["containers"][0] = shell("c", &line);
        machine.create("allowed", allowed).await;
        eventually("it has what is allowed", || async {
            (machine.output("allowed", "c") == "9000\n").then_some(())
        })
        .await;
        machine.delete("allowed").await;
        machine.nothing_is_left().await;
    });
}

#[test]
fn what_is_given_is_seen_in_the_container_and_told() {
    on_a_network_of_its_own(|| async {
        let machine = Machine::ready().await;
        let nodes: Api<Node> = Api::all(machine.server().admin());
        let node = serde_json::to_value(nodes.get("n1").await.expect("the node")).expect("JSON");
        assert_eq!(node["status"]["features"], json!({"supplementalGroupsPolicy": true}));
        let features = json!({"recursiveReadOnlyMounts": true, "userNamespaces": false});
        let of = |name: &str| json!({"name": name, "features": features});
        assert_eq!(node["status"]["runtimeHandlers"], json!([of(""), of("runc")]));

        // A disk below the folder that is mounted.
        let tree = machine.dir("tree");
        std::fs::create_dir_all(tree.join("disk")).expect("a folder");
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "mode=755", "disk"])
            .arg(tree.join("disk"))
            .status();
        assert!(mounted.expect("mount").success());
        let line = format!(
            "for at in /plain /whole /perhaps; do touch $at/disk/x 2>/dev/null && echo $at is written; done; \
                            id -G; {FOREVER}"
        );
        let mut reads = shell("c", &line);
        let mount = |path: &str, mode: &str| json!({"name": "tree", "mountPath": path, "readOnly": true, "recursiveReadOnly": mode});
        reads["volumeMounts"] =
            json!([mount("/plain", "Disabled"), mount("/whole", "Enabled"), mount("/perhaps", "IfPossible")]);
        reads["securityContext"] = json!({"runAsUser": 33});
        let context = |policy: &str| json!({"supplementalGroups": [4000], "supplementalGroupsPolicy": policy, "fsGroup": 5000});
        for policy in ["Merge", "Strict"] {
            let source = json!({"name": "tree", "hostPath": {"path": tree}});
            let mut spec =
                json!({"containers": [reads], "volumes": [source], "securityContext": context(policy)});
            if policy == "Merge" {
                // The tmpfs is root's.
                spec["containers"][0]["securityContext"]["runAsUser"] = 0.into();
            }
            machine.create(&policy.to_lowercase(), spec).await;
        }
        let merge = machine.until("merge", "it is ready", is_ready).await;
        let strict = machine.until("strict", "it is ready", is_ready).await;
        eventually("both have said it", || async {
            let said = ["merge", "strict"].map(|name| machine.output(name, "c"));
            (said == ["/plain is written\n0 4000 5000\n", "33 4000 5000\n"]).then_some(())
        })
        .await;
        let user = |pod: &Value| pod["status"]["containerStatuses"][0]["user"]["linux"].clone();
        assert_eq!(user(&merge), json!({"uid": 0, "gid": 0, "supplementalGroups": [0, 4000, 5000]}));
        assert_eq!(user(&strict), json!({"uid": 33, "gid": 33, "supplementalGroups": [33, 4000, 5000]}));
        let mounts = merge["status"]["containerStatuses"][0]["volumeMounts"].as_array().expect("mounts");
        let told = |path: &str| {
            mounts.iter().find(|mount| mount["mountPath"] == path).expect("it")["recursiveReadOnly"].clone()
        };
        assert_eq!([told("/plain"), told("/whole"), told("/perhaps")], ["Disabled", "Enabled", "Enabled"]);
        machine.delete("merge").await;
        machine.delete("strict").await;
        machine.nothing_is_left().await;
        let _ = std::process::Command::new("umount").arg("-l").arg(tree.join("disk")).status();
    });
}

#[test]
fn nobody_else_of_the_node_gets_at_secrets() {
    on_a_network_of_its_own(|| async {
        let machine = Machine::ready().await;
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}, "stringData": {"key": "s"}});
        machine.server().http().post("/api/v1/namespaces/default/secrets", &secret).await.expect(201);
        let mut reads = shell("c", &format!("echo $(cat /keys/key); {FOREVER}"));
        reads["volumeMounts"] = json!([{"name": "keys", "mountPath": "/keys"}]);
        reads["securityContext"] = json!({"runAsUser": 1000});
        let source = json!({"name": "keys", "secret": {"secretName": "keys"}});
        machine.create("reads", json!({"containers": [reads], "volumes": [source]})).await;
        let pod = machine.until("reads", "it is ready", is_ready).await;
        eventually("it reads", || async { machine.output("reads", "c").starts_with('s').then_some(()) })
            .await;
        let root = machine.dir("kubelet");
        let of_pod = root.join("pods").join(pod["metadata"]["uid"].as_str().expect("a uid"));
        let tmpfs = of_pod.join("volumes/kubernetes.io~secret/keys");
        let mode = |path: &Path| std::fs::metadata(path).expect("there").mode() & 0o7777;
        for folder in
            [&root, &root.join("pods"), &of_pod, &of_pod.join("volumes"), &of_pod.join("containers")]
        {
            assert_eq!(mode(folder), 0o750, "{}", folder.display());
        }
        assert_eq!(mode(&machine.dir("kubelet-run/runtime")), 0o700);
        assert_eq!((mode(&tmpfs), mode(&tmpfs.join("key"))), (0o755, 0o644));
        let as_nobody = std::process::Command::new("setpriv")
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "cat"])
            .arg(tmpfs.join("key"))
            .output()
            .expect("setpriv");
        assert!(!as_nobody.status.success() && as_nobody.stdout.is_empty(), "{as_nobody:?}");
        machine.delete("reads").await;
        machine.nothing_is_left().await;
    });
}

#[test]
fn mounts_cross_between_the_node_and_containers() {
    on_a_network_of_its_own(|| async {
        let machine = Machine::ready().await;
        let shared = machine.dir("kubelet/crossing");
        let host = json!({"name": "v", "hostPath": {"path": shared, "type": "DirectoryOrCreate"}});
        let mount =
            |propagation: &str| json!([{"name": "v", "mountPath": "/v", "mountPropagation": propagation}]);
        let mut makes = shell(
            "c",
            &format!("mkdir -p /v/of && mount -t tmpfs x /v/of && echo made > /v/of/file; {FOREVER}"),
        );
        makes["securityContext"] = json!({"privileged": true});
        makes["volumeMounts"] = mount("Bidirectional");
        let mut sees =
            shell("c", &format!("until [ -e /v/of/file ]; do sleep 0.1; done; cat /v/of/file; {FOREVER}"));
        sees["volumeMounts"] = mount("HostToContainer");
        let mut alone = shell("c", FOREVER);
        alone["volumeMounts"] = mount("None");
        let pod = |container: Value| json!({"containers": [container], "volumes": [host]});
        machine.create("sees", pod(sees)).await;
        machine.create("alone", pod(alone)).await;
        machine.until("sees", "it is ready", is_ready).await;
        machine.until("alone", "it is ready", is_ready).await;
        machine.create("makes", pod(makes)).await;
        eventually("the other sees it", || async { (machine.output("sees", "c") == "made\n").then_some(()) })
            .await;
        eventually("the node sees it", || async { shared.join("of/file").exists().then_some(()) }).await;
        machine.delete("makes").await;
        machine.delete("sees").await;
        machine.delete("alone").await;
        let unmounted = std::process::Command::new("umount").arg(shared.join("of")).status().expect("umount");
        assert!(unmounted.success(), "it outlives the pod, as whoever made it there wants");
        machine.nothing_is_left().await;
    });
}
