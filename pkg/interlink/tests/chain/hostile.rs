//! What nobody should send, sent to the API server and to the plugin.

use crate::world::World;
use http::Method;
use interlink::caller::Caller;
use interlink::config::TlsFiles;
use serde_json::{Value, json};
use std::time::Duration;
use testing::eventually;

const PATHS: &[&str] = &["/create", "/delete", "/status", "/getLogs"];

async fn code(caller: &Caller, path: &'static str, body: impl Into<Vec<u8>>) -> u16 {
    match caller.call(path, Method::POST, body.into(), Duration::from_secs(30)).await {
        Ok(_) => 200,
        Err(error) => error.code().unwrap_or_else(|| panic!("{path}: {error}")),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_is_sent_ends_a_server() {
    let world = World::start().await;
    let (plugin, api) = (world.plugin(world.config()), world.api(world.config()));
    for port in [world.api_port.number(), world.plugin_port.number()] {
        let caller = world.caller(port);
        eventually("it serves", || async {
            caller.call("/status", Method::GET, b"[]".to_vec(), Duration::from_secs(5)).await.ok()
        })
        .await;
        let deep = "[".repeat(100_000);
        for path in PATHS {
            for body in ["{", "7", "\"x\"", "null", "\u{0}", deep.as_str(), r#"{"pod": 7}"#, r#"{"Opts": 7}"#]
            {
                // Pods that are none are left out of what is told.
                let expected = if *path == "/status" && body.contains(": 7") { 200 } else { 400 };
                assert_eq!(code(&caller, path, body).await, expected, "{path} {body:.40}");
            }
            // It is not read: who sends it learns why, or finds the connection closed.
            let much = vec![b' '; (32 << 20) + 1];
            let refused = caller.call(path, Method::POST, much, Duration::from_secs(30)).await;
            assert!(matches!(refused.expect_err("too much").code(), Some(413) | None), "{path}");
        }
        assert_eq!(code(&caller, "/etc/passwd", "").await, 404);
        for (key, bad) in
            [("uid", "../../../tmp/x"), ("uid", ".."), ("uid", "a/b"), ("namespace", "../x"), ("name", "")]
        {
            let mut pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": {"containers": [{"name": "c"}]}});
            pod["metadata"][key] = bad.into();
            assert_eq!(code(&caller, "/create", json!({"pod": pod}).to_string()).await, 400, "{key} {bad}");
            assert_eq!(code(&caller, "/delete", json!([pod]).to_string()).await, 400, "{key} {bad}");
        }
        let both = json!({"Namespace": "n", "PodUID": "u", "PodName": "p", "ContainerName": "c"});
        for opts in
            [json!({"Tail": 1, "Bytes": 1}), json!({"SinceSeconds": 1, "SinceTime": "2026-01-01T00:00:00Z"})]
        {
            let mut asked = both.clone();
            asked["Opts"] = opts;
            assert_eq!(code(&caller, "/getLogs", asked.to_string()).await, 400);
        }
        assert_ne!(code(&caller, "/getLogs", both.to_string()).await, 200);
        let wrong = world.dir.path().join("wrong");
        std::fs::write(&wrong, "guessed").expect("a token");
        for token in [None, Some(wrong.as_path())] {
            let stranger =
                Caller::new("http://127.0.0.1", port, &TlsFiles::default(), token).expect("a caller");
            for path in PATHS {
                assert_eq!(code(&stranger, path, "[]").await, 401, "{path}");
            }
        }
        caller
            .call("/status", Method::GET, b"[]".to_vec(), Duration::from_secs(5))
            .await
            .expect("it serves still");
    }
    api.stop().await;
    plugin.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_bad_pod_fails_no_other() {
    let world = World::start().await;
    let (plugin, api) = (world.plugin(world.config()), world.api(world.config()));
    let caller = world.caller(world.api_port.number());
    eventually("it serves", || async {
        caller.call("/pinglink", Method::POST, Vec::new(), Duration::from_secs(5)).await.ok()
    })
    .await;
    let pod = |name: &str, spec: Value| json!({"metadata": {"name": name, "namespace": "n", "uid": name}, "spec": spec});
    let good = |name: &str| pod(name, json!({"containers": [{"name": "stays", "image": "i"}]}));
    let refused = pod("refused", json!({"hostPID": true, "containers": [{"name": "stays"}]}));
    let batch = json!([good("a"), {"metadata": "none"}, refused, good("b")]);
    let error =
        caller.call("/create", Method::POST, batch.to_string().into_bytes(), Duration::from_secs(30)).await;
    let error = error.expect_err("two of four").to_string();
    assert!(error.contains("not a pod to create") && error.contains("spec.hostPID"), "{error}");
    let asked = json!([good("a"), 7, {"metadata": {}}, good("b")]).to_string().into_bytes();
    eventually("the good ones run", || async {
        let answer = caller
            .call("/status", Method::GET, asked.clone(), Duration::from_secs(5))
            .await
            .expect("statuses");
        let states: Value = serde_json::from_slice(&answer).expect("JSON");
        let runs = |state: &&Value| state["containers"][0]["state"].get("running").is_some();
        (states.as_array()?.iter().filter(runs).count() == 2).then_some(())
    })
    .await;
    api.stop().await;
    plugin.stop().await;
}
