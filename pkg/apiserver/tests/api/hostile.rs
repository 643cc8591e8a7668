//! Clients that mean no good, or no longer live: what they begin ends, and nobody else waits for them.

use crate::{CONFIG_MAPS, config_map, secured};
use flate2::read::GzDecoder;
use serde_json::{Map, Value, json};
use std::io::Read;
use std::time::{Duration, Instant};
use testing::{Engine, Http, TestServer, in_time};
use tokio::io::AsyncWriteExt;

/// More than all writes that are answered at once.
const HALF_WRITES: usize = 210;

/// A write whose body does not come.
fn half_a_write() -> String {
    format!(
        "POST {CONFIG_MAPS} HTTP/1.1\r\nHost: s\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{{\"meta"
    )
}

#[tokio::test]
async fn writes_whose_bodies_never_come_hold_up_nobody() {
    let configure = |config: &mut apiserver::Config| config.request_timeout = Duration::from_secs(3);
    let server = TestServer::start_with(Engine::Embedded, configure).await;
    let mut halves = Vec::new();
    for _ in 0..HALF_WRITES {
        let mut stream = secured::open(&server, "http/1.1", true).await;
        secured::send(&mut stream, &half_a_write()).await;
        halves.push(stream);
    }
    server.http().post(CONFIG_MAPS, &config_map("whole", "1")).await.expect(201);
    for stream in &mut halves {
        let answer = secured::rest(stream).await;
        assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
        assert!(answer.contains("Timeout: request did not complete within the allotted timeout"), "{answer}");
    }
}

#[tokio::test]
async fn bodies_on_their_way_take_no_more_memory_than_they_may() {
    let configure = |config: &mut apiserver::Config| config.max_bytes_in_flight = 32 << 20;
    let server = TestServer::start_with(Engine::Embedded, configure).await;
    let head = format!(
        "POST {CONFIG_MAPS} HTTP/1.1\r\nHost: s\r\nContent-Type: application/json\r\nContent-Length: 3000000\r\n\r\n"
    );
    let mut answers = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let mut stream = secured::open(&server, "http/1.1", true).await;
        let part = format!("{head}{}", " ".repeat(1_048_000));
        answers.spawn(async move {
            // Whoever is refused may not come to the end of it.
            let _ = stream.write_all(part.as_bytes()).await;
            let _ = stream.flush().await;
            secured::rest(&mut stream).await
        });
    }
    // A quarter of all is for bodies, and three eighths of that for one user: three of these.
    for _ in 0..3 {
        let answer = in_time("one more is refused", answers.join_next()).await.unwrap().unwrap();
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 429 "), "{answer}");
    }
    server.http().post(CONFIG_MAPS, &config_map("small", "1")).await.expect(201);
    assert_eq!(answers.len(), 3);
    drop(answers);
    let large = config_map("large", &"x".repeat(900_000));
    testing::eventually("what they took is given back", || async {
        (server.http().post(CONFIG_MAPS, &large).await.code == 201).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_request_may_say_how_long_it_may_take() {
    let server = TestServer::start().await;
    let http = server.http();
    http.get(&format!("{CONFIG_MAPS}?timeout=32s")).await.expect(200);
    let wrong = http.get(&format!("{CONFIG_MAPS}?timeout=soon")).await;
    wrong.expect(400);
    let sentence = "invalid timeout specified in the request URL - time: invalid duration \"soon\"";
    assert_eq!(wrong.message(), sentence);
    let mut stream = secured::open(&server, "http/1.1", true).await;
    let began = Instant::now();
    secured::send(&mut stream, &half_a_write().replace(" HTTP/", "?timeout=1s HTTP/")).await;
    let answer = secured::rest(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
    assert!(began.elapsed() >= Duration::from_secs(1));
}

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
const YAML: &str = "application/yaml";

/// Twenty megabytes in forty objects.
async fn with_twenty_megabytes(server: &TestServer) {
    let http = server.http();
    let data: Map<String, Value> =
        (0..4000).map(|key| (format!("key-{key:05}"), Value::from("some text ".repeat(11)))).collect();
    for index in 0..40 {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("large{index:02}")}, "data": data});
        http.post(CONFIG_MAPS, &object).await.expect(201);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_lists_in_every_encoding_hold_up_nobody() {
    let server = TestServer::start().await;
    with_twenty_megabytes(&server).await;
    let http = server.http();
    let mut asking = tokio::task::JoinSet::new();
    for (accept, gzip) in [(YAML, false), (TABLE, false), (METADATA, false), (YAML, true), (TABLE, true)] {
        for _ in 0..8 {
            let http = Http::new(server.user("mallory", &["system:masters"]));
            let coding = if gzip { "gzip" } else { "identity" };
            asking.spawn(async move {
                let headers = [("accept", accept), ("accept-encoding", coding)];
                let mut answer = http.send("GET", CONFIG_MAPS, &headers, "").await;
                assert_eq!(answer.code, 200);
                if gzip {
                    let mut whole = Vec::new();
                    GzDecoder::new(&*answer.body).read_to_end(&mut whole).unwrap();
                    answer.body = whole.into();
                }
                assert_eq!(items(accept, &answer.body), 40, "{accept}");
            });
        }
    }
    let mut written = 0;
    while !asking.is_empty() {
        while let Some(ended) = asking.try_join_next() {
            ended.unwrap();
        }
        let name = format!("small{written}");
        http.post(CONFIG_MAPS, &config_map(&name, "1")).await.expect(201);
        http.delete(&format!("{CONFIG_MAPS}/{name}"), &Value::Null).await.expect(200);
        written += 1;
    }
    assert!(written > 20, "others write meanwhile: {written}");
}

/// How many of the large objects there are in a list.
fn items(accept: &str, body: &[u8]) -> usize {
    if accept == YAML {
        let text = std::str::from_utf8(body).unwrap();
        return text.lines().filter(|line| line.starts_with("    name: large")).count();
    }
    let list: Value = serde_json::from_slice(body).unwrap();
    let rows = list["rows"].as_array().map(|rows| rows.iter().map(|row| &row["object"]).collect());
    let items: Vec<&Value> = rows.unwrap_or_else(|| list["items"].as_array().unwrap().iter().collect());
    let is_large = |item: &&&Value| item["metadata"]["name"].as_str().unwrap().starts_with("large");
    items.iter().filter(is_large).count()
}
