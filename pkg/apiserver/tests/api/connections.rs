//! Connections of clients that keep the server waiting, or come in numbers: they end, and nobody else notices.

use crate::{CONFIG_MAPS, config_map, secured};
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::time::Duration;
use testing::{Engine, TestServer, eventually, in_time};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// Objects that do not fit into what a socket holds of an answer that nobody reads.
const LARGE_OBJECTS: usize = 14;

/// A server that waits for nobody for more than a second.
async fn impatient() -> TestServer {
    let configure = |config: &mut apiserver::Config| {
        let limits = &mut config.connections;
        let second = Duration::from_secs(1);
        (limits.handshake, limits.headers, limits.idle, limits.unread) = (second, second, second, second);
    };
    TestServer::start_with(Engine::Embedded, configure).await
}

async fn with_large_objects(server: &TestServer) {
    let (http, value) = (server.http(), "x".repeat(900_000));
    for index in 0..LARGE_OBJECTS {
        http.post(CONFIG_MAPS, &config_map(&format!("large{index}"), &value)).await.expect(201);
    }
}

/// Waits until nobody but the one who asks is connected.
async fn everybody_else_is_gone(server: &TestServer, why: &str) {
    let http = server.http();
    eventually(why, || async {
        let page = http.get("/metrics").await.body;
        let page = String::from_utf8_lossy(&page).into_owned();
        page.lines().any(|line| line == "apiserver_open_connections 1").then_some(())
    })
    .await;
}

async fn http2(server: &TestServer, as_admin: bool, window: u32) -> SendRequest<Empty<Bytes>> {
    let stream = secured::open(server, "h2", as_admin).await;
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(window).max_concurrent_reset_streams(0);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn get(path: &str) -> Request<Empty<Bytes>> {
    Request::builder().uri(format!("https://127.0.0.1{path}")).body(Empty::new()).unwrap()
}

async fn ask(sender: &mut SendRequest<Empty<Bytes>>, path: &str) -> http::Response<Incoming> {
    in_time("an answer", sender.send_request(get(path))).await.unwrap()
}

#[tokio::test]
async fn who_says_nothing_is_left() {
    let server = impatient().await;
    let mut before_tls = TcpStream::connect(server.address()).await.unwrap();
    let mut before_http = secured::open(&server, "http/1.1", true).await;
    let mut before_http2 = secured::open(&server, "h2", true).await;
    let mut half_a_header = secured::open(&server, "http/1.1", true).await;
    secured::send(&mut half_a_header, "GET /livez HTTP/1.1\r\nHost: s\r\nX-Half: ").await;
    let mut idle = secured::open(&server, "http/1.1", true).await;
    secured::send(&mut idle, "GET /livez HTTP/1.1\r\nHost: s\r\n\r\n").await;
    let mut nothing = Vec::new();
    let _ = in_time("the socket is closed", before_tls.read_to_end(&mut nothing)).await;
    for stream in [&mut before_http, &mut before_http2, &mut half_a_header] {
        assert!(!secured::rest(stream).await.contains("200 OK"));
    }
    assert!(secured::rest(&mut idle).await.starts_with("HTTP/1.1 200 OK"));
}

#[tokio::test]
async fn an_idle_http2_connection_ends_and_one_with_a_watch_stays() {
    let server = impatient().await;
    let (mut idle, mut watching) = (http2(&server, true, 65_535).await, http2(&server, true, 65_535).await);
    ask(&mut idle, "/livez").await.into_body().collect().await.unwrap();
    let mut watch = ask(&mut watching, &format!("{CONFIG_MAPS}?watch=1")).await.into_body();
    eventually("the idle connection ends", || async { idle.is_closed().then_some(()) }).await;
    server.http().post(CONFIG_MAPS, &config_map("late", "1")).await.expect(201);
    loop {
        let frame = in_time("an event", watch.frame()).await.expect("the watch goes on").unwrap();
        if String::from_utf8_lossy(frame.data_ref().unwrap()).contains("\"late\"") {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_nobody_reads_end() {
    let server = impatient().await;
    with_large_objects(&server).await;
    let mut not_reading = Vec::new();
    for path in [CONFIG_MAPS.to_owned(), format!("{CONFIG_MAPS}?watch=1")] {
        let mut stream = secured::open(&server, "http/1.1", true).await;
        secured::send(&mut stream, &format!("GET {path} HTTP/1.1\r\nHost: s\r\n\r\n")).await;
        not_reading.push(stream);
    }
    everybody_else_is_gone(&server, "who reads nothing of HTTP/1 is left").await;
    // These take no byte of a body, but all that HTTP/2 says beside.
    let mut held = Vec::new();
    for path in [
        CONFIG_MAPS.to_owned(),
        format!("{CONFIG_MAPS}?watch=1"),
        format!("{CONFIG_MAPS}/large0"),
        "/livez".to_owned(),
    ] {
        let mut sender = http2(&server, true, 1).await;
        let answer = ask(&mut sender, &path).await;
        held.push((sender, answer));
    }
    everybody_else_is_gone(&server, "who gives no room of HTTP/2 is left").await;
    drop((not_reading, held));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_reads_slowly_gets_everything() {
    let server = impatient().await;
    with_large_objects(&server).await;
    let mut sender = http2(&server, true, 65_535).await;
    let mut body = ask(&mut sender, CONFIG_MAPS).await.into_body();
    let (mut received, mut slowly) = (0, 0);
    // For longer than the server waits for one that takes nothing.
    let mut pauses = tokio::time::interval(Duration::from_millis(50));
    while let Some(frame) = body.frame().await {
        received += frame.unwrap().data_ref().map_or(0, Bytes::len);
        while slowly < received.min(1_000_000) {
            slowly += 16 * 1024;
            pauses.tick().await;
        }
    }
    assert!(received > LARGE_OBJECTS * 900_000, "{received}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_in_numbers_keep_nobody_out() {
    const STRANGERS: usize = 300;
    let configure = |config: &mut apiserver::Config| config.connections.most = 256;
    let server = TestServer::start_with(Engine::Embedded, configure).await;
    let mut known = http2(&server, true, 65_535).await;
    let token = server.service_account_token("default", "default").await;
    let mut with_token = secured::open(&server, "http/1.1", false).await;
    let ask_again = format!("GET /livez HTTP/1.1\r\nHost: s\r\nAuthorization: Bearer {token}\r\n\r\n");
    secured::send(&mut with_token, &ask_again).await;
    ask(&mut known, "/livez").await.into_body().collect().await.unwrap();
    let mut buffer = vec![0; 64 * 1024];
    let read = in_time("an answer", with_token.read(&mut buffer)).await.unwrap();
    assert!(buffer[..read].starts_with(b"HTTP/1.1 200"));
    // From here on, some before TLS and some after it.
    let mut silent = Vec::new();
    for _ in 0..STRANGERS {
        silent.push(TcpStream::connect(server.address()).await.unwrap());
    }
    let mut secured_ones = Vec::new();
    for _ in 0..20 {
        secured_ones.push(secured::open(&server, "http/1.1", false).await);
    }
    // An eighth of a quarter is what one address may have.
    let mut open = 0;
    for stream in &mut silent {
        let closed = tokio::time::timeout(Duration::from_millis(5), stream.read(&mut buffer)).await;
        open += usize::from(closed.is_err());
    }
    assert!(open <= 8, "{open} strangers of one address are still there");
    // Who was known before, and who comes and says who it is, notices nothing.
    ask(&mut known, "/livez").await.into_body().collect().await.unwrap();
    secured::send(&mut with_token, &ask_again).await;
    let read = in_time("an answer", with_token.read(&mut buffer)).await.unwrap();
    assert!(buffer[..read].starts_with(b"HTTP/1.1 200"));
    server.http().post(CONFIG_MAPS, &config_map("new", "1")).await.expect(201);
    drop((silent, secured_ones));
}

#[tokio::test]
async fn who_has_not_said_who_it_is_gets_fewer_streams() {
    let configure = |config: &mut apiserver::Config| config.connections.streams = 40;
    let server = TestServer::start_with(Engine::Embedded, configure).await;
    for (as_admin, expected) in [(true, 40), (false, 10)] {
        let stream = secured::open(&server, "h2", as_admin).await;
        let builder = http2::Builder::new(TokioExecutor::new());
        let (mut sender, mut connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
        tokio::select! {
            ended = &mut connection => panic!("it ended: {ended:?}"),
            _ = ask(&mut sender, "/livez") => {}
        }
        assert_eq!(connection.current_max_send_streams(), expected);
    }
}
