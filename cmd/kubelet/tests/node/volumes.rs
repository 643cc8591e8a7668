//! Volumes whose contents change while somebody reads them.

use crate::machine::{Machine, is_ready, on_a_network_of_its_own};
use serde_json::json;
use std::path::{Path, PathBuf};
use testing::eventually;

const CHANGES: u32 = 20;

/// Reads again and again: all that one version holds together, and then what is there by its plain names.
const READER: &str = r#"last=; while true; do
    version=/all/$(readlink /all/..data)
    first=$(cat $version/first 2>/dev/null) && second=$(cat $version/second 2>/dev/null) \
        && [ "$first" != "$second" ] && echo "a mix: $first and $second"
    token=$(cat $version/token 2>/dev/null) && [ -z "$token" ] && echo "no token"
    now="$(cat /all/first) $(cat /all/nested/key) $(cat /all/annotation)"
    [ "$now" = "$last" ] || echo "now $now"
    last=$now
done 2>&1"#;

fn versions(volume: &Path) -> (PathBuf, usize) {
    let entries = std::fs::read_dir(volume).expect("a folder").flatten();
    let is_version = |name: &str| name.starts_with("..") && name != "..data";
    let count = entries.filter(|entry| is_version(&entry.file_name().to_string_lossy())).count();
    (std::fs::read_link(volume.join("..data")).expect("a link"), count)
}

#[test]
fn a_projected_volume_changes_as_a_whole() {
    on_a_network_of_its_own(|| async {
        let machine = Machine::ready().await;
        let http = machine.server().http();
        let default = "/api/v1/namespaces/default";
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "map"},
            "data": {"first": "0", "second": "0"}});
        http.post(&format!("{default}/configmaps"), &map).await.expect(201);
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "secret"},
            "stringData": {"key": "key0"}});
        http.post(&format!("{default}/secrets"), &secret).await.expect(201);
        let annotation =
            json!({"path": "annotation", "fieldRef": {"fieldPath": "metadata.annotations['version']"}});
        let sources = json!([
            {"configMap": {"name": "map"}},
            {"secret": {"name": "secret", "items": [{"key": "key", "path": "nested/key"}]}},
            {"downwardAPI": {"items": [annotation]}},
            {"serviceAccountToken": {"path": "token"}},
        ]);
        let reader = json!({"name": "c", "command": ["sh", "-c", READER],
            "volumeMounts": [{"name": "all", "mountPath": "/all"}]});
        let volume = json!({"name": "all", "projected": {"sources": sources}});
        machine.create("reads", json!({"containers": [reader], "volumes": [volume]})).await;
        let pod = machine.until("reads", "it is ready", is_ready).await;
        let uid = pod["metadata"]["uid"].as_str().expect("a uid").to_owned();
        let volume = machine.dir("kubelet/pods").join(uid).join("volumes/kubernetes.io~projected/all");
        let said = async |line: String| {
            eventually(&line.clone(), || async {
                machine.output("reads", "c").contains(&line).then_some(())
            })
            .await;
        };
        said("now 0 key0 \n".into()).await;
        let (before, _) = versions(&volume);

        for number in 1..=CHANGES {
            let text = number.to_string();
            let map = json!({"data": {"first": text, "second": text}});
            http.patch(&format!("{default}/configmaps/map"), "merge", &map).await.expect(200);
            let secret = json!({"stringData": {"key": format!("key{number}")}});
            http.patch(&format!("{default}/secrets/secret"), "merge", &secret).await.expect(200);
            let pod = json!({"metadata": {"annotations": {"version": format!("v{number}")}}});
            http.patch(&format!("{default}/pods/reads"), "merge", &pod).await.expect(200);
        }
        said(format!("now {CHANGES} key{CHANGES} v{CHANGES}\n")).await;
        let (after, count) = versions(&volume);
        assert_ne!(after, before);
        assert_eq!(count, 1, "versions that nobody needs are removed");
        let output = machine.output("reads", "c");
        assert!(!output.contains("a mix") && !output.contains("no token"), "{output}");
        machine.delete("reads").await;
        machine.nothing_is_left().await;
    });
}
