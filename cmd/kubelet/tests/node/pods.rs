//! Pods that the apiserver has for the node.

use crate::machine::{Machine, is_ready, on_a_network_of_its_own};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use testing::eventually;

fn shell(name: &str, line: &str) -> Value {
    json!({"name": name, "command": ["sh", "-c", line]})
}

#[test]
fn a_pod_starts_runs_and_ends() {
    on_a_network_of_its_own(|| async {
        let machine = Machine::ready().await;
        let line = "echo hello from $(hostname); trap 'exit 0' TERM; while true; do sleep 0.1; done";
        machine.create("web", json!({"containers": [shell("c", line)]})).await;
        let pod = machine.until("web", "it is ready", is_ready).await;
        let status = &pod["status"];
        assert_eq!(status["phase"], "Running");
        assert!(status["podIP"].as_str().is_some_and(|ip| ip.starts_with("10.77.0.")), "{status:#}");
        assert_eq!(status["hostIP"], "192.168.77.1");
        let id = status["containerStatuses"][0]["containerID"].as_str().expect("an id");
        assert!(id.starts_with("containerd://"), "{id}");
        eventually("its log is written", || async {
            machine.output("web", "c").contains("hello from web").then_some(())
        })
        .await;
        let events: Api<Event> = Api::namespaced(machine.server().admin(), "default");
        eventually("its story is told", || async {
            let list = events.list(&Default::default()).await.expect("events");
            let about =
                list.items.iter().filter(|event| event.involved_object.name.as_deref() == Some("web"));
            let reasons: Vec<String> = about.filter_map(|event| event.reason.clone()).collect();
            ["Pulled", "Created", "Started"].iter().all(|r| reasons.contains(&(*r).to_owned())).then_some(())
        })
        .await;
        machine.delete("web").await;
        machine.nothing_is_left().await;
    });
}

#[test]
fn how_a_container_ended_is_seen() {
    on_a_network_of_its_own(|| async {
        let machine = Machine::ready().await;
        let init =
            json!([shell("first", "echo one > /work/steps"), shell("second", "echo two >> /work/steps")]);
        let mount = json!([{"name": "work", "mountPath": "/work"}]);
        let mut spec = json!({
            "restartPolicy": "Never",
            "initContainers": init,
            "containers": [shell("c", "cat /work/steps; echo last words > /dev/termination-log; exit 3")],
            "volumes": [{"name": "work", "emptyDir": {}}],
        });
        for list in ["initContainers", "containers"] {
            for container in spec[list].as_array_mut().expect("a list") {
                container["volumeMounts"] = mount.clone();
            }
        }
        machine.create("job", spec).await;
        let pod = machine.until("job", "it has failed", |pod| pod["status"]["phase"] == "Failed").await;
        let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
        assert_eq!((&ended["exitCode"], &ended["reason"]), (&json!(3), &json!("Error")));
        assert_eq!(ended["message"], "last words\n");
        for init in pod["status"]["initContainerStatuses"].as_array().expect("statuses") {
            assert_eq!(init["state"]["terminated"]["exitCode"], 0);
        }
        eventually("its log is written", || async {
            (machine.output("job", "c") == "one\ntwo\n").then_some(())
        })
        .await;

        machine.create("loops", json!({"containers": [shell("c", "exit 1")]})).await;
        let pod = machine
            .until("loops", "it waits", |pod| {
                pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
            })
            .await;
        assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 1);
        machine.create("nowhere", json!({"containers": [{"name": "c"}]})).await;
        machine.delete("nowhere").await;
        machine.delete("job").await;
        machine.delete("loops").await;
        machine.nothing_is_left().await;
    });
}

#[test]
fn volumes_and_environment() {
    on_a_network_of_its_own(|| async {
        let machine = Machine::ready().await;
        let client = machine.server().admin();
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
        let map = json!({"metadata": {"name": "settings"}, "data": {"color": "red", "size": "7"}});
        let map = serde_json::from_value(map).expect("a map");
        maps.create(&PostParams::default(), &map).await.expect("a map");
        let secrets: Api<Secret> = Api::namespaced(client, "default");
        let secret = json!({"metadata": {"name": "keys"}, "stringData": {"key": "s3cret"}});
        let secret = serde_json::from_value(secret).expect("a secret");
        secrets.create(&PostParams::default(), &secret).await.expect("a secret");
        let shared = machine.dir("shared");
        let line = "cat /map/color /secret/key /down/labels; echo \" $COLOR $POD $SIZE $NODE\"; \
                    echo from the pod > /host/file; cat /one; test -s /token/token && echo has a token; \
                    while true; do sleep 0.1; done";
        let mut container = shell("c", line);
        container["env"] = json!([
            {"name": "COLOR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "color"}}},
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "NODE", "value": "$(POD)@n1"},
        ]);
        container["envFrom"] = json!([{"configMapRef": {"name": "settings"}, "prefix": ""}]);
        container["env"][2]["value"] = "$(POD)@n1".into();
        container["command"][2] = line.replace("$SIZE", "$size").into();
        container["volumeMounts"] = json!([
            {"name": "map", "mountPath": "/map"}, {"name": "secret", "mountPath": "/secret", "readOnly": true},
            {"name": "down", "mountPath": "/down"}, {"name": "host", "mountPath": "/host"},
            {"name": "map", "mountPath": "/one", "subPath": "size"}, {"name": "token", "mountPath": "/token"},
        ]);
        machine
            .create(
                "full",
                json!({"containers": [container], "volumes": [
                    {"name": "map", "configMap": {"name": "settings"}},
                    {"name": "secret", "secret": {"secretName": "keys", "defaultMode": 0o400}},
                    {"name": "down", "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.name"}}]}},
                    {"name": "host", "hostPath": {"path": shared, "type": "DirectoryOrCreate"}},
                    {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
                ]}),
            )
            .await;
        machine.until("full", "it is ready", is_ready).await;
        eventually("all of it is there", || async {
            let output = machine.output("full", "c");
            let expected = "reds3cretfull red full 7 full@n1";
            (output.contains(expected) && output.contains("7has a token")).then_some(())
        })
        .await;
        eventually("the host sees the file", || async {
            std::fs::read_to_string(machine.dir("shared/file")).ok().filter(|text| text == "from the pod\n")
        })
        .await;

        let patch = Patch::Merge(json!({"data": {"color": "blue"}}));
        maps.patch("settings", &PatchParams::default(), &patch).await.expect("patched");
        let uid = machine.until("full", "it is there", |pod| !pod.is_null()).await["metadata"]["uid"].clone();
        let file = machine
            .dir("kubelet/pods")
            .join(uid.as_str().expect("a uid"))
            .join("volumes/kubernetes.io~configmap/map/color");
        eventually("the volume follows", || async {
            std::fs::read_to_string(&file).ok().filter(|text| text == "blue")
        })
        .await;
        machine.delete("full").await;
        machine.nothing_is_left().await;
    });
}

#[test]
fn probes_decide() {
    on_a_network_of_its_own(|| async {
        let machine = Machine::ready().await;
        let line =
            "mkdir /www; echo ok > /www/ok; busybox httpd -p 8080 -h /www; while true; do sleep 0.1; done";
        let mut serves = shell("c", line);
        serves["readinessProbe"] = json!({"httpGet": {"path": "/ok", "port": 8080}, "periodSeconds": 1});
        serves["startupProbe"] =
            json!({"tcpSocket": {"port": 8080}, "periodSeconds": 1, "failureThreshold": 60});
        machine.create("serves", json!({"containers": [serves]})).await;
        machine.until("serves", "it is ready", is_ready).await;

        let mut dies = shell("c", "touch /tmp/alive; while true; do sleep 0.1; done");
        dies["command"][2] = "if [ ! -e /keep/was ]; then touch /keep/was; else touch /tmp/alive; fi; while true; do sleep 0.1; done".into();
        dies["livenessProbe"] = json!({"exec": {"command": ["test", "-e", "/tmp/alive"]}, "periodSeconds": 1, "failureThreshold": 1});
        dies["volumeMounts"] = json!([{"name": "keep", "mountPath": "/keep"}]);
        let volumes = json!([{"name": "keep", "emptyDir": {}}]);
        machine.create("dies", json!({"containers": [dies], "volumes": volumes})).await;
        let pod = machine
            .until("dies", "it was killed and runs again", |pod| {
                let status = &pod["status"]["containerStatuses"][0];
                status["restartCount"] == 1 && status["state"]["running"].is_object()
            })
            .await;
        assert_eq!(pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"], 137);
        machine.delete("serves").await;
        machine.delete("dies").await;
        machine.nothing_is_left().await;
    });
}
