//! Watches: every change once, in order, from any moment on.

use crate::{CONFIG_MAPS, config_map, version};
use futures::StreamExt;
use futures::future::join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};
use std::time::Duration;
use testing::{Engine, Event, Http, TestServer, Watch, in_time};

/// Events in short: `ADDED a`, `BOOKMARK `.
fn told(events: &[Event]) -> Vec<String> {
    events.iter().map(|event| format!("{} {}", event.kind, event.name())).collect()
}

async fn take(watch: &mut Watch, count: usize) -> Vec<Event> {
    let mut events = Vec::new();
    while events.len() < count {
        events.push(watch.next().await.expect("the watch goes on"));
    }
    events
}

async fn set(http: &Http, name: &str, data: &str) -> Value {
    let patch = json!({"data": {"key": data}});
    http.patch(&format!("{CONFIG_MAPS}/{name}"), "merge", &patch).await.expect(200)
}

async fn label(http: &Http, name: &str, value: Value) -> Value {
    let patch = json!({"metadata": {"labels": {"color": value}}});
    http.patch(&format!("{CONFIG_MAPS}/{name}"), "merge", &patch).await.expect(200)
}

#[tokio::test]
async fn a_watch_resumes_from_any_moment() {
    for engine in Engine::both() {
        let server = TestServer::start_on(engine).await;
        let http = server.http();
        let start = http.get(CONFIG_MAPS).await.expect(200);
        let mut moments = vec![version(&start).to_owned()];
        let mut history = Vec::new();
        for name in ["a", "b"] {
            moments
                .push(version(&http.post(CONFIG_MAPS, &config_map(name, "1")).await.expect(201)).to_owned());
            history.push(format!("ADDED {name}"));
        }
        moments.push(version(&set(&http, "a", "2").await).to_owned());
        history.push("MODIFIED a".into());
        http.delete(&format!("{CONFIG_MAPS}/b"), &Value::Null).await.expect(200);
        history.push("DELETED b".into());

        for (seen, moment) in moments.iter().enumerate() {
            let mut watch = http.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={moment}")).await;
            let events = take(&mut watch, history.len() - seen).await;
            assert_eq!(told(&events), history[seen..], "from {moment}");
            let versions: Vec<u64> = events.iter().map(|event| event.version().parse().unwrap()).collect();
            assert!(
                versions.is_sorted() && versions[0] > moment.parse().unwrap(),
                "{versions:?} from {moment}"
            );
        }
    }
}

#[tokio::test]
async fn a_watch_without_a_moment_begins_with_what_is_there() {
    let server = TestServer::start().await;
    let http = server.http();
    http.post(CONFIG_MAPS, &config_map("a", "1")).await.expect(201);
    for query in ["watch=true", "watch=1&resourceVersion=0"] {
        let mut watch = http.watch(&format!("{CONFIG_MAPS}?{query}&fieldSelector=metadata.name%3Da")).await;
        assert_eq!(told(&take(&mut watch, 1).await), ["ADDED a"]);
    }
    let mut old_path = http.watch("/api/v1/watch/namespaces/default/configmaps/a").await;
    assert_eq!(told(&take(&mut old_path, 1).await), ["ADDED a"]);
}

#[tokio::test]
async fn initial_events_end_with_a_bookmark() {
    let server = TestServer::start().await;
    let http = server.http();
    for name in ["a", "b"] {
        http.post(CONFIG_MAPS, &config_map(name, "1")).await.expect(201);
    }
    let query =
        "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = http.watch(&format!("{CONFIG_MAPS}?{query}")).await;
    let events = take(&mut watch, 3).await;
    assert_eq!(told(&events), ["ADDED a", "ADDED b", "BOOKMARK "]);
    let bookmark = &events[2].object;
    assert_eq!(bookmark["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!((&bookmark["kind"], &bookmark["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
    let moment = version(bookmark).to_owned();
    set(&http, "a", "2").await;
    assert_eq!(told(&take(&mut watch, 1).await), ["MODIFIED a"]);
    let mut resumed = http.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={moment}")).await;
    assert_eq!(told(&take(&mut resumed, 1).await), ["MODIFIED a"]);

    for (query, code) in [
        ("sendInitialEvents=true", 422),
        ("resourceVersionMatch=NotOlderThan", 422),
        ("resourceVersion=x", 400),
    ] {
        let answer = http.get(&format!("{CONFIG_MAPS}?watch=true&{query}")).await;
        assert_eq!(answer.code, code, "{query}: {}", answer.text());
    }
}

#[tokio::test]
async fn a_watch_ends_when_it_was_asked_to_with_a_last_bookmark() {
    let server = TestServer::start().await;
    let http = server.http();
    let start = http.get(CONFIG_MAPS).await.expect(200);
    let query = format!("watch=true&timeoutSeconds=1&resourceVersion={}", version(&start));
    let events = http.watch(&format!("{CONFIG_MAPS}?{query}")).await.rest().await;
    assert!(events.is_empty(), "{events:?}");
    let events = http.watch(&format!("{CONFIG_MAPS}?{query}&allowWatchBookmarks=true")).await.rest().await;
    assert_eq!(told(&events), ["BOOKMARK "]);
}

#[tokio::test]
async fn a_selector_turns_changes_into_arrivals_and_departures() {
    let server = TestServer::start().await;
    let http = server.http();
    let start = http.get(CONFIG_MAPS).await.expect(200);
    let query = format!("watch=true&resourceVersion={}&labelSelector=color%3Dred", version(&start));
    let mut watch = http.watch(&format!("{CONFIG_MAPS}?{query}")).await;
    http.post(CONFIG_MAPS, &config_map("a", "1")).await.expect(201);
    label(&http, "a", json!("red")).await;
    set(&http, "a", "2").await;
    let left = label(&http, "a", json!("blue")).await;
    label(&http, "a", json!("red")).await;
    http.delete(&format!("{CONFIG_MAPS}/a"), &Value::Null).await.expect(200);
    let events = take(&mut watch, 5).await;
    assert_eq!(told(&events), ["ADDED a", "MODIFIED a", "DELETED a", "ADDED a", "DELETED a"]);
    assert_eq!(events[2].version(), version(&left), "a departure carries the version of the change");
    assert_eq!(events[2].object["metadata"]["labels"]["color"], "red", "and the last state that was seen");
}

#[track_caller]
fn is_history(status: &Value) {
    assert_eq!((&status["kind"], &status["status"]), (&json!("Status"), &json!("Failure")), "{status}");
    assert_eq!((&status["code"], &status["reason"]), (&json!(410), &json!("Expired")), "{status}");
    let message = status["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("too old resource version: "), "{status}");
}

/// As upstream's: whoever may watch and asks well is answered 200, and by events.
#[tokio::test]
async fn that_a_watch_cannot_begin_there_is_its_only_event() {
    for engine in Engine::both() {
        let mut server = TestServer::start_on(engine).await;
        let first = server.http().post(CONFIG_MAPS, &config_map("a", "1")).await.expect(201);
        server.forget().await;
        let http = server.http();
        let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
        let past = format!("resourceVersion={}", version(&first));
        for (path, headers) in [
            (format!("{CONFIG_MAPS}?watch=true&{past}"), &[][..]),
            (
                format!("{CONFIG_MAPS}?watch=true&{past}&allowWatchBookmarks=true&labelSelector=a%3Db"),
                &[][..],
            ),
            (format!("/api/v1/watch/namespaces/default/configmaps/a?{past}"), &[][..]),
            (format!("{CONFIG_MAPS}?watch=true&{past}"), &table[..]),
        ] {
            let answer = http.send("GET", &path, headers, "").await;
            assert_eq!(answer.code, 200, "{path}: {}", answer.text());
            let event: Value = serde_json::from_str(&answer.text()).expect("one event");
            assert_eq!(event["type"], "ERROR", "{path}");
            is_history(&event["object"]);
        }

        let future = "resourceVersion=9999999";
        for query in [
            format!("watch=true&{future}"),
            format!("watch=true&{future}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"),
        ] {
            let mut watch = http.watch(&format!("{CONFIG_MAPS}?{query}")).await;
            let event = watch.next().await.expect("an event");
            assert_eq!((&*event.kind, &event.object["code"]), ("ERROR", &json!(504)), "{query}");
            assert_eq!(event.object["details"]["causes"][0]["reason"], "ResourceVersionTooLarge", "{query}");
            assert!(watch.next().await.is_none(), "{query}");
        }

        // Lists are answered with the code itself.
        let exact = format!("{CONFIG_MAPS}?resourceVersionMatch=Exact&{past}");
        is_history(&http.get(&exact).await.expect(410));
    }
}

/// What clients in Rust follow objects with, ours and everybody's.
#[tokio::test]
async fn kube_lists_again_what_is_history() {
    let mut server = TestServer::start().await;
    server.http().post(CONFIG_MAPS, &config_map("a", "1")).await.expect(201);
    let api = Api::<ConfigMap>::default_namespaced(server.admin());
    let only = watcher::Config::default().fields("metadata.name=a");
    #[expect(clippy::disallowed_methods, reason = "others use it")]
    let events = watcher::watcher(api, only).default_backoff();
    let mut events = std::pin::pin!(events);
    let is = |map: &ConfigMap, wanted: &str| map.data.as_ref().is_some_and(|data| data["key"] == wanted);
    let mut lists = 0;
    let mut until = async |wanted: &str| loop {
        match in_time(wanted, events.next()).await.expect("it goes on for ever") {
            Ok(watcher::Event::InitApply(map) | watcher::Event::Apply(map)) if is(&map, wanted) => {
                return lists;
            }
            Ok(watcher::Event::Init) => lists += 1,
            _ => {}
        }
    };
    assert_eq!(until("1").await, 1);
    server.forget().await;
    set(&server.http(), "a", "2").await;
    assert_eq!(until("2").await, 2);
}

#[tokio::test]
async fn a_moment_that_is_forgotten_is_gone() {
    let mut server = TestServer::start_with(Engine::Embedded, |config| {
        config.compaction_interval = Duration::from_millis(20);
    })
    .await;
    let mut http = server.http();
    let first = http.post(CONFIG_MAPS, &config_map("a", "1")).await.expect(201);
    let path = format!("{CONFIG_MAPS}?watch=true&timeoutSeconds=1&resourceVersion={}", version(&first));
    let status = loop {
        set(&http, "a", &format!("{:?}", std::time::Instant::now())).await;
        // A server that has just started remembers nothing but what the store does.
        server.restart().await;
        http = server.http();
        let answer = http.get(&path).await;
        if answer.code != 200 {
            break answer.json();
        }
        let text = answer.text();
        if let Some(event) = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .find(|event| event["type"] == "ERROR")
        {
            break event["object"].clone();
        }
    };
    is_history(&status);
    let exact = http
        .get(&format!("{CONFIG_MAPS}?resourceVersionMatch=Exact&resourceVersion={}", version(&first)))
        .await;
    assert_eq!((exact.code, exact.reason().as_str()), (410, "Expired"), "{}", exact.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_watches_see_every_change_in_order() {
    const WATCHES: usize = 1000;
    const CHANGES: usize = 20;
    let server = TestServer::start().await;
    let http = server.http();
    let start = http.get(CONFIG_MAPS).await.expect(200);
    let path = format!("{CONFIG_MAPS}?watch=true&resourceVersion={}", version(&start));
    let mut watches = Vec::new();
    for _ in 0..WATCHES / 50 {
        watches.extend(join_all((0..50).map(|_| http.watch(&path))).await);
    }
    let expected: Vec<String> = (0..CHANGES).map(|index| format!("ADDED c{index}")).collect();
    for index in 0..CHANGES {
        http.post(CONFIG_MAPS, &config_map(&format!("c{index}"), "1")).await.expect(201);
    }
    let all = join_all(watches.iter_mut().map(|watch| take(watch, CHANGES))).await;
    for events in all {
        assert_eq!(told(&events), expected);
    }
}

#[tokio::test]
async fn a_watcher_that_does_not_read_does_not_slow_writers() {
    let server = TestServer::start().await;
    let http = server.http();
    let start = http.get(CONFIG_MAPS).await.expect(200);
    // Never read from: what is written fills its socket and then its window.
    let stuck = http.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={}", version(&start))).await;
    let large = "x".repeat(500_000);
    http.post(CONFIG_MAPS, &config_map("big", &large)).await.expect(201);
    // Twice what a window holds, and no more: each waits for the disk.
    in_time("writes beside a stuck watcher", async {
        for round in 0..64 {
            set(&http, "big", &format!("{round}{large}")).await;
        }
    })
    .await;
    drop(stuck);
    assert_eq!(server.http().get("/readyz").await.text(), "ok");
}

#[tokio::test]
async fn tables_and_metadata_can_be_watched_too() {
    let server = TestServer::start().await;
    let http = server.http();
    http.post(CONFIG_MAPS, &config_map("a", "1")).await.expect(201);
    let path = format!("{CONFIG_MAPS}?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3Da");
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let answer = http.send("GET", &path, &table, "").await;
    let event: Value = serde_json::from_str(answer.text().lines().next().unwrap()).unwrap();
    assert_eq!((&event["type"], &event["object"]["kind"]), (&json!("ADDED"), &json!("Table")), "{event}");
    assert_eq!(event["object"]["rows"][0]["cells"][0], "a");
    assert_eq!(event["object"]["columnDefinitions"][0]["name"], "Name");
    let partial = [("accept", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")];
    let answer = http.send("GET", &path, &partial, "").await;
    let event: Value = serde_json::from_str(answer.text().lines().next().unwrap()).unwrap();
    assert_eq!(event["object"]["kind"], "PartialObjectMetadata");
    assert!(event["object"].get("data").is_none());
}

#[tokio::test]
async fn large_objects_are_told_whole_between_small_ones() {
    let server = TestServer::start().await;
    let http = server.http();
    for (name, length) in [("a", 1), ("b", 100_000), ("c", 1), ("d", 30_000), ("e", 60_000)] {
        http.post(CONFIG_MAPS, &config_map(name, &"x".repeat(length))).await.expect(201);
    }
    let mut watch = http.watch(&format!("{CONFIG_MAPS}?watch=1")).await;
    http.post(CONFIG_MAPS, &config_map("f", "1")).await.expect(201);
    for (name, length) in [("a", 1), ("b", 100_000), ("c", 1), ("d", 30_000), ("e", 60_000), ("f", 1)] {
        let event = watch.next().await.expect("the watch goes on");
        assert_eq!((&*event.kind, &event.object["metadata"]["name"]), ("ADDED", &Value::from(name)));
        assert_eq!(event.object["data"]["key"].as_str().unwrap().len(), length);
    }
}
