//! Pods of a folder, with and without an apiserver.

use crate::machine::{Machine, is_ready, on_a_network_of_its_own};
use serde_json::Value;
use testing::eventually;

fn manifest(line: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\nspec:\n  terminationGracePeriodSeconds: 2\n  containers:\n  \
         - name: c\n    image: busybox\n    imagePullPolicy: IfNotPresent\n    command: [sh, -c, '{line}']\n"
    )
}

const FOREVER: &str = "while true; do sleep 0.1; done";

#[test]
fn a_folder_of_pods_without_an_apiserver() {
    on_a_network_of_its_own(|| async {
        let mut machine = Machine::new(false).await;
        machine.start();
        let file = machine.manifests().join("web.yaml");
        let said = |what: &'static str| {
            let machine = &machine;
            async move {
                eventually(what, || async { machine.output("web-n1", "c").contains(what).then_some(()) })
                    .await;
            }
        };
        std::fs::write(&file, manifest(&format!("echo first; {FOREVER}"))).expect("written");
        said("first").await;
        // A broken file leaves the pod alone.
        std::fs::write(&file, "kind: Pod\nspec: [").expect("written");
        eventually("the broken file is complained about", || async {
            machine.log().contains("static pod manifest").then_some(())
        })
        .await;
        assert!(!machine.shims().is_empty(), "it runs on");
        std::fs::write(&file, manifest(&format!("echo second; {FOREVER}"))).expect("written");
        said("second").await;
        // One that dies is back soon.
        std::fs::write(&file, manifest("echo third; sleep 1")).expect("written");
        eventually("it comes back", || async {
            (machine.output("web-n1", "c").matches("third").count() >= 2).then_some(())
        })
        .await;
        // One whose file is taken away and put back while it ends is started again.
        let slow = manifest(&format!("trap \"echo asked to end; sleep 1000\" TERM; echo fourth; {FOREVER}"));
        std::fs::write(&file, &slow).expect("written");
        said("fourth").await;
        std::fs::remove_file(&file).expect("removed");
        said("asked to end").await;
        std::fs::write(&file, &slow).expect("written");
        eventually("it is back", || async {
            let output = machine.output("web-n1", "c");
            (output.contains("fourth") && !output.contains("asked to end")).then_some(())
        })
        .await;
        std::fs::remove_file(&file).expect("removed");
        machine.nothing_is_left().await;
    });
}

#[test]
fn a_static_pod_has_a_mirror() {
    on_a_network_of_its_own(|| async {
        let machine = Machine::ready().await;
        let file = machine.manifests().join("web.yaml");
        std::fs::write(&file, manifest(FOREVER)).expect("written");
        let pod = machine.until("web-n1", "its mirror is ready", is_ready).await;
        let annotations = &pod["metadata"]["annotations"];
        assert_eq!(annotations["kubernetes.io/config.source"], "file");
        assert_eq!(annotations["kubernetes.io/config.mirror"], annotations["kubernetes.io/config.hash"]);
        assert_eq!(pod["metadata"]["ownerReferences"][0]["kind"], "Node");
        let id = |pod: &Value| pod["status"]["containerStatuses"][0]["containerID"].clone();
        // Whoever deletes the mirror gets another one of the same pod.
        machine.pods().delete("web-n1", &Default::default()).await.expect("deleted");
        let uid = pod["metadata"]["uid"].clone();
        let again = machine
            .until("web-n1", "the mirror is back", |now| is_ready(now) && now["metadata"]["uid"] != uid)
            .await;
        assert_eq!(id(&again), id(&pod), "the container was not disturbed");
        std::fs::remove_file(&file).expect("removed");
        machine.until("web-n1", "the mirror is gone", Value::is_null).await;
        machine.nothing_is_left().await;
    });
}
