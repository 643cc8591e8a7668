//! Clients that mean no good, or no longer live: what they begin ends, and nobody else waits for them.

use crate::{CONFIG_MAPS, config_map, secured};
use std::time::{Duration, Instant};
use testing::{Engine, TestServer};

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
    let mut streams = Vec::new();
    // A quarter of all is for bodies, and three eighths of that for one user.
    for _ in 0..3 {
        let mut stream = secured::open(&server, "http/1.1", true).await;
        secured::send(&mut stream, &format!("{head}{}", " ".repeat(1_048_000))).await;
        streams.push(stream);
    }
    testing::eventually("one more is refused", || async {
        let mut one_more = secured::open(&server, "http/1.1", true).await;
        secured::send(&mut one_more, &format!("{head}{}", " ".repeat(4_000))).await;
        let answer = tokio::time::timeout(Duration::from_millis(300), secured::rest(&mut one_more)).await;
        answer.ok().filter(|answer| answer.starts_with("HTTP/1.1 429 "))
    })
    .await;
    server.http().post(CONFIG_MAPS, &config_map("small", "1")).await.expect(201);
    drop(streams);
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
