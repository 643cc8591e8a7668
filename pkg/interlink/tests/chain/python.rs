//! The chain with a plugin in Python, made to the letter of the published interface: testcases/interlink/plugin.py.

use crate::world::World;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use testing::testcases;

struct Plugin(Child);

impl Drop for Plugin {
    fn drop(&mut self) {
        // It may have ended, which is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(world: &World) -> Plugin {
    let python = environment(&testcases().join("interlink/requirements.txt"));
    let folder = world.dir.path().join("python");
    std::fs::create_dir_all(&folder).expect("a folder");
    let mut command = Command::new(python);
    command
        .arg(testcases().join("interlink/plugin.py"))
        .arg(world.plugin_port.number().to_string())
        .arg(folder);
    Plugin(command.spawn().expect("python"))
}

fn asked(world: &World) -> Vec<Value> {
    let text = std::fs::read_to_string(world.dir.path().join("python/asked")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn shell(script: &str) -> Value {
    json!({"containers": [{"name": "c", "image": "i", "command": ["sh", "-c", script]}]})
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_run_behind_a_plugin_in_python() {
    let world = World::start().await;
    let maps: Api<ConfigMap> = Api::namespaced(world.server.admin(), "default");
    let map = serde_json::from_value(json!({"metadata": {"name": "empty"}})).unwrap();
    maps.create(&PostParams::default(), &map).await.expect("a ConfigMap without data");
    let plugin = start(&world);
    let (api, node) = (world.api(world.config()), world.node());
    // It answers 500 to a ping, which is an answer.
    world.node_is(true).await;
    world.create("says", shell("echo one; echo two; exit 3")).await;
    let ended = world.phase("says", "Failed").await;
    assert_eq!(ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 3);
    assert_eq!(world.logs("says", "").await, (200, "one\ntwo\n".to_owned()));
    assert_eq!(world.logs("says", "?follow=true").await, (200, "one\ntwo\n".to_owned()));
    assert_eq!(world.logs("says", "?limitBytes=5").await, (200, "one\nt".to_owned()));
    // Everything that it insists on, in one pod.
    let mut spec = json!({"containers": [{"name": "c", "image": "i", "command": ["true"],
        "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]});
    spec["volumes"] = json!([{"name": "v", "configMap": {"name": "empty", "items": [{"key": "k", "path": "p"}], "optional": true}}]);
    world.create("fields", spec).await;
    world.phase("fields", "Succeeded").await;
    let mut spec = shell("true");
    spec["containers"][0]["image"] = "refused".into();
    world.create("unwelcome", spec).await;
    let refused = world.phase("unwelcome", "Failed").await;
    assert!(
        refused["status"]["message"].as_str().expect("a message").contains("not welcome here"),
        "{refused}"
    );
    // It answers only for the first of several.
    for number in 0..4 {
        world.create(&format!("many-{number}"), shell("sleep 0.5")).await;
    }
    for number in 0..4 {
        world.phase(&format!("many-{number}"), "Succeeded").await;
    }
    world.create("long", shell("sleep 600")).await;
    world.phase("long", "Running").await;
    world.delete("long").await;
    let all = asked(&world);
    let uids: Vec<&Value> =
        all.iter().filter(|it| it[0] == "create").map(|it| &it[1]["pod"]["metadata"]["uid"]).collect();
    let different: std::collections::BTreeSet<String> = uids.iter().map(ToString::to_string).collect();
    // One that is refused may be offered again in the words of the other generation.
    assert_eq!(different.len(), 8);
    assert!(uids.len() <= 9, "{uids:?}");
    node.stop().await;
    api.stop().await;
    drop(plugin);
}

/// The interpreter of a virtual environment with the packages, kept in the target directory.
fn environment(requirements: &Path) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interlink-plugin");
    let python = dir.join("bin/python");
    let wanted = std::fs::read_to_string(requirements).expect("requirements");
    let made_of = dir.join("made-of");
    if std::fs::read_to_string(&made_of).is_ok_and(|made_of| made_of == wanted) {
        return python;
    }
    succeed(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&dir));
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"];
    succeed(Command::new(&python).args(install).arg(requirements));
    std::fs::write(made_of, wanted).expect("a note of what was installed");
    python
}

fn succeed(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
