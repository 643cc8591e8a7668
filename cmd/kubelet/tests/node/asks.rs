//! What a pod may ask for, each seen where it counts.

use crate::machine::{Machine, archive, is_ready, on_a_network_of_its_own};
use crate::registry::Registry;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use oci_client::secrets::RegistryAuth;
use serde_json::{Value, json};
use std::process::Command;
use testing::eventually;

const FOREVER: &str = "while true; do sleep 0.1; done";

fn shell(line: &str) -> Value {
    json!({"name": "c", "command": ["sh", "-c", line]})
}

async fn post(machine: &Machine, path: &str, object: Value) {
    machine.server().http().post(path, &object).await.expect(201);
}

#[test]
fn volumes_ports_classes_and_sysctls() {
    on_a_network_of_its_own(|| async {
        let machine = Machine::ready().await;
        // A local volume that is bound: the controller that binds is not here.
        std::fs::create_dir_all(machine.dir("disk/sub")).expect("a folder");
        std::fs::write(machine.dir("disk/sub/file"), "from the volume").expect("written");
        let node = json!({"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}]}]});
        let size = json!({"storage": "1Mi"});
        let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"}, "spec": {
            "capacity": size, "accessModes": ["ReadWriteOnce"], "local": {"path": machine.dir("disk")},
            "nodeAffinity": {"required": node}, "storageClassName": "local",
            "claimRef": {"namespace": "default", "name": "mine"},
        }});
        post(&machine, "/api/v1/persistentvolumes", volume).await;
        let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "mine"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": size}, "volumeName": "disk", "storageClassName": "local",
        }});
        let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
        post(&machine, claims, claim).await;
        let bound = json!({"status": {"phase": "Bound"}});
        machine.server().http().patch(&format!("{claims}/mine/status"), "merge", &bound).await.expect(200);
        for (name, handler) in [("usual", "runc"), ("unusual", "nobodys")] {
            let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": handler});
            post(&machine, "/apis/node.k8s.io/v1/runtimeclasses", class).await;
        }

        let line = "echo $(cat /v/file) $(cat /proc/sys/kernel/shm_rmid_forced) $(df -k /mem | tail -n 1 | awk '{print $1, $2}'); \
                    mkdir /www; echo served > /www/index.html; exec busybox httpd -f -p 8080 -h /www";
        let mut asks = shell(line);
        asks["volumeMounts"] =
            json!([{"name": "v", "mountPath": "/v", "subPath": "sub"}, {"name": "mem", "mountPath": "/mem"}]);
        asks["ports"] = json!([{"containerPort": 8080, "hostPort": 18080}]);
        let spec = json!({
            "containers": [asks], "runtimeClassName": "usual",
            "securityContext": {"sysctls": [{"name": "kernel.shm_rmid_forced", "value": "1"}]},
            "volumes": [
                {"name": "v", "persistentVolumeClaim": {"claimName": "mine"}},
                {"name": "mem", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
            ],
        });
        machine.create("asks", spec).await;
        machine.create("never", json!({"containers": [shell(FOREVER)], "runtimeClassName": "unusual"})).await;
        machine.create("late", json!({"containers": [shell(FOREVER)], "activeDeadlineSeconds": 1})).await;
        machine.until("asks", "it is ready", is_ready).await;
        eventually("all of it is there", || async {
            machine.output("asks", "c").contains("from the volume 1 tmpfs 1024").then_some(())
        })
        .await;
        eventually("its port of the node answers", || async {
            let got =
                Command::new("busybox").args(["wget", "-qO-", "http://192.168.77.1:18080/"]).output().ok()?;
            String::from_utf8_lossy(&got.stdout).contains("served").then_some(())
        })
        .await;
        let late = machine.until("late", "its time is over", |pod| pod["status"]["phase"] == "Failed").await;
        assert_eq!(late["status"]["reason"], "DeadlineExceeded");
        let never = machine.until("never", "it is there", |pod| !pod.is_null()).await;
        assert!(!is_ready(&never), "of a class whose runtime this node does not have");

        // Somebody looks in.
        let debugger = json!({"spec": {"ephemeralContainers": [{
            "name": "debugger", "image": "busybox", "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", "echo looking in; sleep 1000"],
        }]}});
        let pods: Api<Pod> = machine.pods();
        let patch = Patch::Strategic(debugger);
        pods.patch_ephemeral_containers("asks", &PatchParams::default(), &patch).await.expect("patched");
        machine
            .until("asks", "the debugger runs", |pod| {
                pod["status"]["ephemeralContainerStatuses"][0]["state"]["running"].is_object()
            })
            .await;
        for name in ["asks", "never", "late"] {
            machine.delete(name).await;
        }
        machine.nothing_is_left().await;
    });
}

#[test]
fn images_of_a_registry_and_networks_of_others() {
    on_a_network_of_its_own(|| async {
        let mut machine = Machine::new(true).await;
        let registry = Registry::start(true);
        let auth = RegistryAuth::Basic("me".into(), "secret".into());
        registry.push(&archive(machine.containerd.dir()), "private:1", &auth).await;
        std::fs::create_dir_all(machine.dir("cni")).expect("a folder");
        let network = json!({"cniVersion": "0.4.0", "name": "others", "plugins": [{
            "type": "bridge", "bridge": "others0", "isGateway": true,
            "ipam": {"type": "host-local", "subnet": "10.88.0.0/24", "dataDir": machine.dir("cni-data")},
        }]});
        std::fs::write(machine.dir("cni/10-others.conflist"), network.to_string()).expect("written");
        machine.start();
        machine.until_node("Ready", "True").await;
        let login = BASE64_STANDARD.encode("me:secret");
        let config = json!({"auths": {registry.address.clone(): {"auth": login}}}).to_string();
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login"},
            "type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": BASE64_STANDARD.encode(config)}});
        post(&machine, "/api/v1/namespaces/default/secrets", secret).await;
        let mut container = shell(FOREVER);
        container["image"] = format!("{}/private:1", registry.address).into();
        let with = json!({"containers": [container.clone()], "imagePullSecrets": [{"name": "login"}]});
        machine.create("without", json!({"containers": [container]})).await;
        machine
            .until("without", "it is not let in", |pod| {
                let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
                waiting["reason"] == "ErrImagePull" || waiting["reason"] == "ImagePullBackOff"
            })
            .await;
        machine.create("with", with).await;
        let pod = machine.until("with", "it is ready", is_ready).await;
        let address = pod["status"]["podIP"].as_str().expect("an address");
        assert!(address.starts_with("10.88.0."), "{address}");
        // The image is here now, but only for those who have what brought it: those who ask, and after a restart.
        let mut others = json!({"containers": [shell(FOREVER)]});
        others["containers"][0]["image"] = format!("{}/private:1", registry.address).into();
        machine.kill();
        machine.start();
        machine.until_node("Ready", "True").await;
        machine.create("others", others.clone()).await;
        machine
            .until("others", "it is not let in", |pod| {
                let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
                let reason = waiting["reason"].as_str().unwrap_or_default();
                ["ErrImagePull", "ImagePullBackOff"].contains(&reason)
                    && waiting["message"].as_str().is_some_and(|text| text.contains("pull access denied"))
            })
            .await;
        machine.create_never("never", others.clone()).await;
        machine
            .until("never", "it is not let in", |pod| {
                let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
                waiting["reason"] == "ErrImageNeverPull"
            })
            .await;
        others["imagePullSecrets"] = json!([{"name": "login"}]);
        machine.create_never("same", others).await;
        machine.until("same", "it has the credentials", is_ready).await;
        for name in ["with", "without", "others", "never", "same"] {
            machine.delete(name).await;
        }
        machine.nothing_is_left().await;
        let given = std::fs::read_dir(machine.dir("cni-data/others")).expect("a folder").flatten();
        let given: Vec<String> =
            given.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        assert!(!given.iter().any(|name| name.starts_with("10.")), "addresses are held: {given:?}");
    });
}

#[test]
fn a_pod_whose_image_was_broken_runs_once_it_is_whole() {
    on_a_network_of_its_own(|| async {
        let machine = Machine::ready().await;
        let registry = Registry::start(false);
        // One that is no archive, and one that is not what its manifest says.
        registry.push_layer("extract:1", b"this is no archive", None).await;
        registry.damage(&registry.push_layer("fetch:1", b"this will be other bytes", None).await);
        let waiting = |pod: &Value| pod["status"]["containerStatuses"][0]["state"]["waiting"].clone();
        for name in ["extract", "fetch"] {
            let mut container = shell(FOREVER);
            container["image"] = format!("{}/{name}:1", registry.address).into();
            machine.create(name, json!({"containers": [container]})).await;
        }
        for (name, expected) in [("extract", "failed to extract layer"), ("fetch", "sha256:")] {
            let pod =
                machine.until(name, "its image is broken", |pod| waiting(pod)["message"].is_string()).await;
            let told = waiting(&pod);
            assert!(
                ["ErrImagePull", "ImagePullBackOff"].contains(&told["reason"].as_str().expect("text")),
                "{told}"
            );
            assert!(told["message"].as_str().expect("text").contains(expected), "{told}");
            machine.until(name, "it waits", |pod| waiting(pod)["reason"] == "ImagePullBackOff").await;
        }
        let busybox = archive(machine.containerd.dir());
        for name in ["extract", "fetch"] {
            registry.push(&busybox, &format!("{name}:1"), &RegistryAuth::Anonymous).await;
        }
        for name in ["extract", "fetch"] {
            machine.until(name, "it runs by itself", is_ready).await;
            machine.delete(name).await;
        }
        machine.nothing_is_left().await;
    });
}
