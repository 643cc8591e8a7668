//! HTTP/2: many requests on one connection, and so many watches that they would not fit otherwise.

use crate::{CONFIG_MAPS, config_map, secured};
use bytes::{Bytes, BytesMut};
use futures::future::join_all;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use testing::{TestServer, in_time};

/// One HTTP/2 connection, as admin.
#[derive(Clone)]
struct Connection(SendRequest<Full<Bytes>>);

impl Connection {
    async fn open(server: &TestServer) -> Connection {
        let stream = secured::open(server, "h2", true).await;
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]), "the server speaks HTTP/2");
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.initial_connection_window_size(16 << 20);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
        // It ends when the last sender is gone.
        tokio::spawn(connection);
        Connection(sender)
    }

    async fn send(&self, method: &str, path: &str, body: &str) -> (StatusCode, Incoming) {
        let request = Request::builder()
            .method(method)
            .uri(format!("https://127.0.0.1{path}"))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body.to_owned())))
            .unwrap();
        let mut sender = self.0.clone();
        let exchange = async {
            sender.ready().await.unwrap();
            sender.send_request(request).await.unwrap()
        };
        let response = in_time(path, exchange).await;
        assert_eq!(response.version(), http::Version::HTTP_2);
        (response.status(), response.into_body())
    }

    async fn json(&self, method: &str, path: &str, body: &str) -> (StatusCode, Value) {
        let (status, body) = self.send(method, path, body).await;
        let bytes = in_time("the whole answer", body.collect()).await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap())
    }
}

/// The names of so many events.
async fn names(mut body: Incoming, count: usize) -> Vec<String> {
    let (mut received, mut names) = (BytesMut::new(), Vec::new());
    while names.len() < count {
        let frame = in_time("the next event", body.frame()).await.expect("the watch goes on").unwrap();
        received.extend_from_slice(frame.data_ref().unwrap());
        while let Some(end) = received.iter().position(|byte| *byte == b'\n') {
            let event: Value = serde_json::from_slice(&received.split_to(end + 1)).unwrap();
            names.push(event["object"]["metadata"]["name"].as_str().unwrap().to_owned());
        }
    }
    names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_share_a_connection() {
    let server = TestServer::start().await;
    let connection = Connection::open(&server).await;
    let create = |index: usize| {
        let (connection, body) = (connection.clone(), config_map(&format!("c{index:02}"), "1").to_string());
        async move { connection.json("POST", CONFIG_MAPS, &body).await }
    };
    for (status, object) in join_all((0..50).map(create)).await {
        assert_eq!(status, StatusCode::CREATED, "{object}");
    }
    let (status, list) = connection.json("GET", CONFIG_MAPS, "").await;
    assert_eq!((status, list["items"].as_array().unwrap().len()), (StatusCode::OK, 50));
    let (status, missing) = connection.json("GET", &format!("{CONFIG_MAPS}/none"), "").await;
    assert_eq!((status, &missing["reason"]), (StatusCode::NOT_FOUND, &Value::from("NotFound")));
    // A large answer, over many frames and more than one window.
    let large = config_map("large", &"x".repeat(900_000)).to_string();
    let (status, made) = connection.json("POST", CONFIG_MAPS, &large).await;
    assert_eq!(status, StatusCode::CREATED);
    let (_, read) = connection.json("GET", &format!("{CONFIG_MAPS}/large"), "").await;
    assert!(read == made);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_thousand_watches_see_every_change_in_order() {
    const CONNECTIONS: usize = 10;
    const WATCHES_EACH: usize = 500;
    const CHANGES: usize = 5;
    let server = TestServer::start().await;
    let http = server.http();
    let start = http.get(CONFIG_MAPS).await.expect(200);
    let path = format!("{CONFIG_MAPS}?watch=true&resourceVersion={}", crate::version(&start));
    let mut watches = Vec::new();
    for _ in 0..CONNECTIONS {
        let connection = Connection::open(&server).await;
        for (status, body) in join_all((0..WATCHES_EACH).map(|_| connection.send("GET", &path, ""))).await {
            assert_eq!(status, StatusCode::OK);
            watches.push(body);
        }
    }
    let expected: Vec<String> = (0..CHANGES).map(|index| format!("c{index}")).collect();
    for name in &expected {
        http.post(CONFIG_MAPS, &config_map(name, "1")).await.expect(201);
    }
    assert_eq!(watches.len(), 5000);
    for seen in join_all(watches.into_iter().map(|watch| names(watch, CHANGES))).await {
        assert_eq!(seen, expected);
    }
}
