//! Pods get another size while they run.

use crate::machine::{Machine, is_ready, on_a_network_of_its_own};
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use testing::eventually;

/// Says again and again how much memory it may use.
const SAYS: &str = "while true; do cat /sys/fs/cgroup/memory/memory.limit_in_bytes 2> /dev/null \
                    || cat /sys/fs/cgroup/memory.max; sleep 0.1; done";

fn container(name: &str, memory: &str) -> Value {
    let amounts = json!({"cpu": "100m", "memory": memory});
    json!({"name": name, "command": ["sh", "-c", SAYS],
        "resources": {"requests": {"cpu": "100m", "memory": "8Ki"}, "limits": amounts}})
}

fn condition<'a>(pod: &'a Value, name: &str) -> Option<&'a Value> {
    pod["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == name)
}

/// Whether the containers have these limits of memory, and nothing is under way.
fn has(pod: &Value, limits: [&str; 2]) -> bool {
    let statuses = pod["status"]["containerStatuses"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found: Vec<&Value> = statuses.iter().map(|status| &status["resources"]["limits"]["memory"]).collect();
    found == limits
        && is_ready(pod)
        && ["PodResizePending", "PodResizeInProgress"].iter().all(|name| condition(pod, name).is_none())
}

fn restarts(pod: &Value) -> Vec<i64> {
    let statuses = pod["status"]["containerStatuses"].as_array().expect("statuses");
    statuses.iter().filter_map(|status| status["restartCount"].as_i64()).collect()
}

#[test]
fn a_running_pod_gets_another_size() {
    on_a_network_of_its_own(|| async {
        let mut machine = Machine::ready().await;
        let mut anew = container("anew", "64Mi");
        anew["resizePolicy"] = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
        let spec =
            json!({"terminationGracePeriodSeconds": 1, "containers": [container("stays", "64Mi"), anew]});
        machine.create("sized", spec).await;
        machine.until("sized", "it is ready", is_ready).await;
        let resize = async |machine: &Machine, stays: &str, anew: &str| {
            let amounts =
                |name: &str, memory: &str| json!({"name": name, "resources": {"limits": {"memory": memory}}});
            let containers = [amounts("stays", stays), amounts("anew", anew)];
            let patch = Patch::Strategic(json!({"spec": {"containers": containers}}));
            let (pods, params) = (machine.pods(), PatchParams::default());
            pods.patch_subresource("resize", "sized", &params, &patch).await.expect("resized");
        };

        // Without a restart, and with one where the policy says so.
        resize(&machine, "96Mi", "48Mi").await;
        let pod = machine.until("sized", "it has another size", |pod| has(pod, ["48Mi", "96Mi"])).await;
        assert_eq!(restarts(&pod), [1, 0]);
        for (name, bytes) in [("stays", 96 << 20), ("anew", 48 << 20)] {
            eventually("the container sees it", || async {
                machine.output("sized", name).lines().any(|line| line == bytes.to_string()).then_some(())
            })
            .await;
        }

        // Not below what it uses; a restart of the kubelet forgets neither that nor what is in force.
        resize(&machine, "12Ki", "48Mi").await;
        let fails = |pod: &Value| {
            condition(pod, "PodResizeInProgress").is_some_and(|condition| condition["reason"] == "Error")
        };
        let pod = machine.until("sized", "it cannot be so small", fails).await;
        let said = condition(&pod, "PodResizeInProgress").expect("it fails");
        let message = said["message"].as_str().expect("it is said why");
        assert!(message.contains("memory limit (12288) below current usage"), "{message}");
        assert_eq!(said["observedGeneration"], 3);
        let of = |pod: &Value| pod["status"]["containerStatuses"][1]["resources"]["limits"]["memory"].clone();
        assert_eq!(of(&pod), "96Mi", "what is in force");
        machine.kill();
        machine.start();
        resize(&machine, "80Mi", "48Mi").await;
        let pod = machine.until("sized", "it fits again", |pod| has(pod, ["48Mi", "80Mi"])).await;
        assert_eq!(restarts(&pod), [1, 0], "nothing was restarted on the way");
        assert_eq!(pod["status"]["observedGeneration"], 4);

        let events: Api<Event> = Api::namespaced(machine.server().admin(), "default");
        eventually("its story is told", || async {
            let list = events.list(&Default::default()).await.expect("events");
            let told = |reason: &str| list.items.iter().any(|event| event.reason.as_deref() == Some(reason));
            ["ResizeStarted", "ResizeCompleted", "ResizeError"].into_iter().all(told).then_some(())
        })
        .await;
        machine.delete("sized").await;
        machine.nothing_is_left().await;
    });
}
