//! `/portForward`: connections to ports in a pod's own network.
//!
//! ```text
//! kube-rs ── WebSocket, two channels for each port ──┐
//! kubectl ── WebSocket ── SPDY, two streams for each connection ──> Lane <──> TCP to 127.0.0.1 in the pod
//! upstream's apiserver ── SPDY ──┘
//! ```

mod dial;
mod lane;
mod tunnel;

use super::answer::{Answer, Refusal};
use super::route::{PodPath, Query};
use super::stream::channels::Protocol;
use super::stream::spdy;
use super::stream::websocket::{self, Named, Socket};
use super::{Server, pods};
use crate::runtime::PodRef;
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use http::{Request, StatusCode};
use hyper::body::Incoming;
use lane::Lane;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::Message;

/// Messages on their way to the client.
const WAITING: usize = 16;
/// Ports in one request.
const MOST_PORTS: usize = 64;

/// What is spoken on streams of SPDY.
const PROTOCOL: &str = "portforward.k8s.io";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wire {
    /// Two channels for each port that the query names.
    Channels(Protocol),
    /// SPDY inside.
    Tunnel,
}

impl Named for Wire {
    fn name(&self) -> &'static str {
        match self {
            Wire::Channels(protocol) => protocol.name(),
            Wire::Tunnel => "SPDY/3.1+portforward.k8s.io",
        }
    }
}

const WIRES: [Wire; 5] = [
    Wire::Tunnel,
    Wire::Channels(Protocol::V4),
    Wire::Channels(Protocol::V4Base64),
    Wire::Channels(Protocol::V1),
    Wire::Channels(Protocol::V1Base64),
];

/// Where connections are made.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pod: PodRef,
    /// The pod's network; `None` is the node's own.
    network: Option<PathBuf>,
}

/// Forwards ports until the client goes.
pub async fn handle(
    server: &Arc<Server>,
    path: &PodPath,
    query: &Query,
    request: Request<Incoming>,
) -> Result<Answer, Refusal> {
    let (_, pod) = pods::find(server, path)?;
    let place = place(server, pod).await?;
    let (shutdown, idle_timeout) = (server.shutdown.clone(), server.idle_timeout);
    if spdy::is_asked(request.headers()) {
        let spdy::Upgrade { answer, connection } = spdy::accept(request, PROTOCOL)?;
        server.streams.spawn(async move {
            let Some(connection) = connection.await else { return };
            let (sink, source) = spdy::messages(connection);
            tokio::select! {
                () = tunnel::run(sink, source, place, idle_timeout) => {}
                () = shutdown.cancelled() => {}
            }
        });
        return Ok(answer);
    }
    let upgrade = websocket::accept(request, &WIRES)?;
    let ports = match upgrade.protocol {
        Wire::Channels(_) => ports(query)?,
        Wire::Tunnel => Vec::new(),
    };
    let (wire, opening) = (upgrade.protocol, upgrade.socket);
    server.streams.spawn(async move {
        let Some(socket) = opening.await else { return };
        let work = async {
            match wire {
                Wire::Channels(protocol) => channels(socket, protocol, place, ports).await,
                Wire::Tunnel => {
                    let (sink, source) = socket.split();
                    let source = source.map(|message| message.unwrap_or(Message::Close(None)));
                    tunnel::run(sink, source, place, idle_timeout).await;
                }
            }
        };
        tokio::select! {
            () = work => {}
            () = shutdown.cancelled() => {}
        }
    });
    Ok(upgrade.answer)
}

async fn place(server: &Server, pod: PodRef) -> Result<Place, Refusal> {
    let network = server.provider.ports(&pod).await.map_err(|error| pods::failed(&error))?;
    Ok(Place { pod, network })
}

fn ports(query: &Query) -> Result<Vec<u16>, Refusal> {
    let bad = |text: String| (StatusCode::BAD_REQUEST, text);
    let texts: Vec<String> = query
        .all("ports")
        .into_iter()
        .chain(query.all("port"))
        .flat_map(|list| list.split(',').map(str::to_owned).collect::<Vec<_>>())
        .filter(|text| !text.is_empty())
        .collect();
    let ports: Result<Vec<u16>, Refusal> = texts
        .iter()
        .map(|text| {
            text.parse()
                .ok()
                .filter(|port| *port > 0)
                .ok_or_else(|| bad(format!("port {text:?} must be > 0 and <= 65535")))
        })
        .collect();
    match ports? {
        ports if ports.is_empty() => Err(bad("query parameter \"port\" is required".to_owned())),
        ports if ports.len() > MOST_PORTS => Err(bad(format!("no more than {MOST_PORTS} ports at once"))),
        ports => Ok(ports),
    }
}

/// One connection for each port, on channels 2n for bytes and 2n + 1 for errors.
async fn channels(socket: Socket, protocol: Protocol, place: Place, ports: Vec<u16>) {
    let (mut sink, mut source) = socket.split();
    let (to_client, mut messages) = mpsc::channel::<Message>(WAITING);
    let mut connections = JoinSet::new();
    let mut inputs = Vec::new();
    for (index, port) in ports.into_iter().enumerate() {
        let (input, from_client) = mpsc::channel::<Bytes>(lane::WAITING);
        inputs.push(Some(input));
        let data = u8::try_from(2 * index).expect("no more than 64 ports");
        let lane = Lane::Channels { protocol, data };
        connections.spawn(lane::run(lane, place.clone(), port, from_client, to_client.clone()));
    }
    drop(to_client);
    let listening = async {
        while let Some(Ok(message)) = source.next().await {
            use super::stream::channels::Received;
            match protocol.received(message) {
                Received::Data(channel, bytes) if channel % 2 == 0 => {
                    if let Some(Some(input)) = inputs.get(usize::from(channel / 2)) {
                        // A connection that has ended takes nothing more.
                        let _ = input.send(bytes).await;
                    }
                }
                Received::Gone => return,
                _ => {}
            }
        }
    };
    let writing = async {
        while let Some(message) = messages.recv().await {
            if sink.send(message).await.is_err() {
                return;
            }
        }
        let _ = sink.send(websocket::goodbye()).await;
    };
    tokio::select! {
        () = listening => {}
        () = writing => {}
    }
}
