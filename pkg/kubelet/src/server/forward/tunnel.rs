//! SPDY inside a WebSocket: any number of connections, each a pair of streams.

use super::Place;
use super::lane::{self, Lane};
use crate::server::spdy::connection::{self as spdy, Connection, Event};
use crate::server::stream::websocket::{Socket, goodbye};
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::Message;

/// Connections at once; upstream leaves that to the client.
const MOST_CONNECTIONS: usize = 1024;

/// Forwards connections until the client goes.
pub async fn run(socket: Socket, place: Place, idle_timeout: Duration) {
    let (mut sink, mut source) = socket.split();
    let (to_client, mut messages) = mpsc::channel::<Message>(super::WAITING);
    let mut tunnel =
        Tunnel { place, to_client, pairs: HashMap::new(), open: HashMap::new(), running: JoinSet::new() };
    let listening = async {
        let mut connection = Connection::new();
        while let Ok(Some(Ok(message))) = tokio::time::timeout(idle_timeout, source.next()).await {
            let bytes = match message {
                Message::Binary(bytes) => bytes,
                Message::Close(_) => return,
                _ => continue,
            };
            let (events, answers) = match connection.receive(&bytes) {
                Ok(received) => received,
                Err(error) => return tracing::debug!(%error, "a port-forward ended"),
            };
            for answer in answers {
                if tunnel.to_client.send(Message::Binary(answer)).await.is_err() {
                    return;
                }
            }
            for event in events {
                if event == Event::GoAway {
                    return;
                }
                tunnel.apply(event).await;
            }
        }
    };
    let writing = async {
        while let Some(message) = messages.recv().await {
            if sink.send(message).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = listening => {}
        () = writing => {}
    }
    let _ = sink.send(goodbye()).await;
}

struct Tunnel {
    place: Place,
    to_client: mpsc::Sender<Message>,
    /// Streams that wait for their other half, by the request they belong to.
    pairs: HashMap<String, Pair>,
    /// The way in of each connection (none once the client has said all), by its stream.
    open: HashMap<u32, (Option<mpsc::Sender<Bytes>>, tokio::task::AbortHandle)>,
    running: JoinSet<()>,
}

#[derive(Default)]
struct Pair {
    data: Option<u32>,
    error: Option<u32>,
    port: u16,
}

impl Tunnel {
    async fn apply(&mut self, event: Event) {
        while self.running.try_join_next().is_some() {}
        match event {
            Event::Opened(stream, headers) => self.opened(stream, &headers).await,
            Event::Data(stream, bytes) => {
                if let Some((Some(input), _)) = self.open.get(&stream) {
                    // A connection that has ended takes nothing more.
                    let _ = input.send(bytes).await;
                }
            }
            // The end of the input; what comes out is still carried.
            Event::Closed(stream) => {
                if let Some((input, _)) = self.open.get_mut(&stream) {
                    *input = None;
                }
            }
            Event::Reset(stream) => {
                if let Some((_, running)) = self.open.remove(&stream) {
                    running.abort();
                }
            }
            Event::GoAway => {}
        }
    }

    async fn opened(&mut self, stream: u32, headers: &BTreeMap<String, String>) {
        let header = |name: &str| headers.get(name).map(String::as_str).unwrap_or_default();
        let port = header("port").parse::<u16>().ok().filter(|port| *port > 0);
        let (Some(port), kind @ ("data" | "error")) = (port, header("streamtype")) else {
            return self.refuse(stream).await;
        };
        if self.running.len() >= MOST_CONNECTIONS || self.pairs.len() >= MOST_CONNECTIONS {
            return self.refuse(stream).await;
        }
        let id = header("requestid").to_owned();
        let pair = self.pairs.entry(id.clone()).or_default();
        pair.port = port;
        match kind {
            "data" => pair.data = Some(stream),
            _ => pair.error = Some(stream),
        }
        let (Some(data), Some(error)) = (pair.data, pair.error) else { return };
        self.pairs.remove(&id);
        let (input, from_client) = mpsc::channel(lane::WAITING);
        let lane = Lane::Streams { data, error };
        let running = self.running.spawn(lane::run(
            lane,
            self.place.clone(),
            port,
            from_client,
            self.to_client.clone(),
        ));
        self.open.retain(|_, (_, running)| !running.is_finished());
        self.open.insert(data, (Some(input), running));
    }

    async fn refuse(&self, stream: u32) {
        let _ = self.to_client.send(Message::Binary(spdy::refuse(stream))).await;
    }
}
