//! Logs, through the apiserver.

use crate::node::Cluster;
use crate::processes::log_line;
use futures::{AsyncBufReadExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::LogParams;
use testing::{eventually, in_time};

const POD: &str = "/api/v1/namespaces/default/pods/web";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_is_read_as_the_options_say() {
    let cluster = Cluster::start().await;
    let id = cluster.run("web", "cat").await;
    let log = cluster.node.log(&id);
    for (stream, text) in [("stdout", "one"), ("stderr", "two"), ("stdout", "three")] {
        log_line(&log, stream, text);
    }
    let http = cluster.server.http();
    for (query, expected) in [
        ("", "one\ntwo\nthree\n"),
        ("?container=c&tailLines=2", "two\nthree\n"),
        ("?tailLines=0", ""),
        ("?limitBytes=5", "one\nt"),
        ("?stream=Stderr", "two\n"),
        ("?sinceTime=2999-01-01T00:00:00Z", ""),
        ("?sinceSeconds=3600", "one\ntwo\nthree\n"),
    ] {
        let answer = http.get(&format!("{POD}/log{query}")).await;
        assert_eq!((answer.code, answer.text().as_str()), (200, expected), "{query}");
        assert_eq!(answer.headers["content-type"], "text/plain");
    }
    let stamped = http.get(&format!("{POD}/log?timestamps=true&tailLines=1")).await.text();
    let (time, text) = stamped.split_once(' ').unwrap();
    assert!(time.parse::<jiff::Timestamp>().is_ok() && time.len() == 30 && text == "three\n", "{stamped}");
    for (path, code, message) in [
        ("web/log?previous=true", 400, "previous terminated container \"c\" in pod \"web\" not found"),
        ("web/log?container=x", 400, "container x is not valid for pod web"),
        (
            "web/log?tailLines=-1",
            422,
            "PodLogOptions \"web\" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0",
        ),
        ("nobody/log", 404, "pods \"nobody\" not found"),
    ] {
        let answer = http.get(&format!("/api/v1/namespaces/default/pods/{path}")).await;
        assert_eq!((answer.code, answer.message().as_str()), (code, message), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_was_rotated_just_now_is_read_from_before() {
    let cluster = Cluster::start().await;
    let id = cluster.run("web", "cat").await;
    let log = cluster.node.log(&id);
    let http = cluster.server.http();
    let check = async |query: &str, expected: &str| {
        let answer = http.get(&format!("{POD}/log{query}")).await;
        assert_eq!((answer.code, answer.text().as_str()), (200, expected), "{query}");
    };
    log_line(&log, "stdout", "packed");
    std::fs::rename(&log, log.with_extension("log.20260101-000000.gz")).unwrap();
    log_line(&log, "stdout", "one");
    log_line(&log, "stdout", "two");
    std::fs::rename(&log, log.with_extension("log.20260101-000001")).unwrap();
    // Nobody has opened the next one yet.
    check("", "one\ntwo\n").await;
    check("?tailLines=1", "two\n").await;
    std::fs::write(&log, "").unwrap();
    check("", "one\ntwo\n").await;
    log_line(&log, "stdout", "three");
    check("", "one\ntwo\nthree\n").await;
    check("?tailLines=1", "three\n").await;
    check("?tailLines=2", "two\nthree\n").await;
    check("?tailLines=9", "one\ntwo\nthree\n").await;
    check("?tailLines=0", "").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_is_followed_across_rotation_until_the_container_ends() {
    let cluster = Cluster::start().await;
    let id = cluster.run("web", "cat").await;
    let log = cluster.node.log(&id);
    cluster.node.runtime.tell(&id, "one\n").await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.server.admin());
    let follow = LogParams { follow: true, ..LogParams::default() };
    // What comes before the first line is waited for: the file is made by the container.
    eventually("the container has written", || async { log.exists().then_some(()) }).await;
    let mut lines = in_time("the log", pods.log_stream("web", &follow)).await.unwrap().lines();
    let mut next = async || in_time("a line", lines.try_next()).await.unwrap();
    assert_eq!(next().await.as_deref(), Some("one"));
    cluster.node.runtime.tell(&id, "two\n").await;
    assert_eq!(next().await.as_deref(), Some("two"));
    std::fs::rename(&log, log.with_extension("log.1")).unwrap();
    cluster.node.runtime.tell(&id, "three\nfour\n").await;
    assert_eq!(next().await.as_deref(), Some("three"));
    assert_eq!(next().await.as_deref(), Some("four"));
    cluster.node.runtime.kill(&id);
    assert_eq!(next().await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_end_when_either_server_drains() {
    let mut cluster = Cluster::start().await;
    let id = cluster.run("web", "cat").await;
    log_line(&cluster.node.log(&id), "stdout", "one");
    let pods: Api<Pod> = Api::default_namespaced(cluster.server.admin());
    let follow = LogParams { follow: true, ..LogParams::default() };
    let mut first = pods.log_stream("web", &follow).await.unwrap().lines();
    assert_eq!(in_time("a line", first.try_next()).await.unwrap().as_deref(), Some("one"));
    cluster.node.stop().await;
    assert!(!matches!(in_time("the end", first.try_next()).await, Ok(Some(_))));
    let answer = cluster.server.http().get(&format!("{POD}/log")).await;
    assert_eq!(answer.code, 500, "{}", answer.text());
    assert!(answer.message().contains("onnection refused"), "{}", answer.message());
    cluster.server.stop().await;
}
