//! SPDY, inside a WebSocket or by itself: any number of connections, each a pair of streams.

use super::Place;
use super::lane::{self, Lane};
use crate::server::stream::websocket::goodbye;
use bytes::Bytes;
use client::spdy::{self, Connection, Event};
use futures::{Sink, SinkExt, Stream, StreamExt};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::Message;

/// Connections at once; upstream leaves that to the client.
const MOST_CONNECTIONS: usize = 1024;

/// Forwards connections until the client goes.
pub async fn run(
    mut sink: impl Sink<Message> + Unpin,
    mut source: impl Stream<Item = Message> + Unpin,
    place: Place,
    idle_timeout: Duration,
) {
    let (to_client, mut messages) = mpsc::channel::<Message>(super::WAITING);
    let mut tunnel =
        Tunnel { place, to_client, pairs: HashMap::new(), open: HashMap::new(), running: JoinSet::new() };
    let listening = async {
        let mut connection = Connection::new();
        while let Ok(Some(message)) = tokio::time::timeout(idle_timeout, source.next()).await {
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
    /// By the stream of their bytes.
    open: HashMap<u32, Open>,
    running: JoinSet<()>,
}

/// A connection that is carried.
struct Open {
    /// The way in, until the client has said all.
    input: Option<mpsc::Sender<Bytes>>,
    /// The stream for errors.
    error: u32,
    running: tokio::task::AbortHandle,
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
                if let Some(Open { input: Some(input), .. }) = self.open.get(&stream) {
                    // A connection that has ended takes nothing more.
                    let _ = input.send(bytes).await;
                }
            }
            // The end of the input; what comes out is still carried.
            Event::Closed(stream) => {
                if let Some(open) = self.open.get_mut(&stream) {
                    open.input = None;
                }
            }
            Event::Reset(stream) => {
                if let Some(open) = self.open.remove(&stream)
                    && !open.running.is_finished()
                {
                    open.running.abort();
                    // kubectl waits for the end of this one, too.
                    let _ = self.to_client.send(Message::Binary(spdy::end(open.error))).await;
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
        self.open.retain(|_, open| !open.running.is_finished());
        self.open.insert(data, Open { input: Some(input), error, running });
    }

    async fn refuse(&self, stream: u32) {
        let _ = self.to_client.send(Message::Binary(spdy::refuse(stream))).await;
    }
}
