//! Images that serve HTTP: what goes both ways at once, and what goes on in another protocol.

use crate::support::Functions;
use axum::body::Body;
use bytes::Bytes;
use futures::channel::mpsc;
use futures::{SinkExt, StreamExt};
use http_body_util::BodyExt;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn start() -> Functions {
    let functions = Functions::start().await;
    let spec = json!({"image": "server", "port": 8099, "public": true, "concurrency": 10, "idleSeconds": 1});
    functions.register_with("server", spec).await;
    functions
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_goes_on_in_another_protocol() {
    let functions = start().await;
    let mut stream = functions.raw().await;
    let head = "GET /functions/default/server/socket HTTP/1.1\r\nHost: knative\r\nConnection: keep-alive, Upgrade\r\n\
        Upgrade: websocket\r\n\r\n";
    stream.write_all(head.as_bytes()).await.expect("sent");
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.expect("an answer"));
    }
    let answer = String::from_utf8(answer).expect("text").to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 101") && answer.contains("upgrade: websocket"), "{answer}");
    for word in [b"one", b"two"] {
        stream.write_all(word).await.expect("sent");
        let mut back = [0; 3];
        stream.read_exact(&mut back).await.expect("sent back");
        assert_eq!(&back, word);
    }
    functions.runs(1).await;
    drop(stream);
    functions.runs(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pieces_go_both_ways_as_they_come() {
    let functions = start().await;
    let caller = functions.inside("").await.expect("connected");
    let (mut pieces, body) = mpsc::channel::<Result<Bytes, std::io::Error>>(1);
    let answering = caller.begin("POST", "/functions/default/server/a/b?c=d", Body::from_stream(body));
    let (answer, ()) = tokio::join!(answering, async { pieces.send(Ok("one".into())).await.expect("sent") });
    let answer = answer.expect("answered");
    assert_eq!(answer.headers()["x-path"], "/a/b?c=d");
    let mut back = answer.into_body().into_data_stream();
    assert_eq!(back.next().await.expect("a piece").expect("a piece"), "one");
    pieces.send(Ok("two".into())).await.expect("sent");
    assert_eq!(back.next().await.expect("a piece").expect("a piece"), "two");
    drop(pieces);
    let rest: Vec<Bytes> = back.map(|piece| piece.expect("a piece")).collect().await;
    assert!(rest.iter().all(Bytes::is_empty), "{rest:?}");
}
