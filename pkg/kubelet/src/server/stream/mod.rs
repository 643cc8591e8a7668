//! `/exec` and `/attach`: a WebSocket with a channel for each of a process's streams, or SPDY with a stream for each.
//!
//! ```text
//! client ── WebSocket ──┬─ 0 stdin ──> process ──> stdout 1, stderr 2 ──┬──> client
//!        or SPDY        └─ 4 resize                  how it ended 3 ────┘
//! ```

pub mod channels;
mod command;
pub mod spdy;
pub mod websocket;

use super::answer::{Answer, Refusal};
use super::route::{PodPath, Query};
use super::{Server, pods};
use crate::runtime::{ExecSpec, Session};
use channels::{Protocol, Received};
use command::Task;
use futures::{FutureExt, StreamExt};
use http::{Request, StatusCode};
use hyper::body::Incoming;
use std::sync::Arc;
use websocket::Named;

/// The protocols that are spoken, the best first.
const PROTOCOLS: [Protocol; 5] =
    [Protocol::V5, Protocol::V4, Protocol::V4Base64, Protocol::V1, Protocol::V1Base64];

/// Executes something in a container.
pub async fn exec(
    server: &Arc<Server>,
    path: &PodPath,
    query: &Query,
    request: Request<Incoming>,
) -> Result<Answer, Refusal> {
    let spec = spec(query)?;
    let (found, pod) = pods::find(server, path)?;
    pods::must_run(&found, &path.container)?;
    let upgrade = accept(request, &spec)?;
    // What cannot be executed is told on the error channel: by then the client waits there.
    let session = server.provider.exec(&pod, &path.container, &spec).await;
    Ok(start(server, upgrade, session, Task { spec, is_attached: false }))
}

/// Attaches to a container's own process.
pub async fn attach(
    server: &Arc<Server>,
    path: &PodPath,
    query: &Query,
    request: Request<Incoming>,
) -> Result<Answer, Refusal> {
    let mut spec = spec(query)?;
    let (found, pod) = pods::find(server, path)?;
    pods::must_run(&found, &path.container)?;
    let upgrade = accept(request, &spec)?;
    // Whether there is a terminal is decided when the container is made, not by who looks at it.
    spec.tty = has_terminal(&found, &path.container);
    let session = server.provider.attach(&pod, &path.container, spec.stdin).await;
    Ok(start(server, upgrade, session, Task { spec, is_attached: true }))
}

/// A handshake that was accepted.
enum Upgrade {
    WebSocket(websocket::Upgrade<Protocol>),
    /// With the channels that the client will open streams for.
    Spdy(spdy::Upgrade, Vec<u8>),
}

fn accept(request: Request<Incoming>, spec: &ExecSpec) -> Result<Upgrade, Refusal> {
    if !spdy::is_asked(request.headers()) {
        return Ok(Upgrade::WebSocket(websocket::accept(request, &PROTOCOLS)?));
    }
    let wanted = [
        (true, channels::ERROR),
        (spec.stdin, channels::STDIN),
        (spec.stdout, channels::STDOUT),
        (spec.stderr, channels::STDERR),
        (spec.tty, channels::RESIZE),
    ];
    let wanted = wanted.iter().filter(|(is_wanted, _)| *is_wanted).map(|(_, channel)| *channel).collect();
    Ok(Upgrade::Spdy(spdy::accept(request, Protocol::V4.name())?, wanted))
}

fn start(
    server: &Arc<Server>,
    upgrade: Upgrade,
    session: Result<Session, crate::runtime::Error>,
    task: Task,
) -> Answer {
    let (shutdown, idle_timeout) = (server.shutdown.clone(), server.idle_timeout);
    let (answer, work) = match upgrade {
        Upgrade::WebSocket(websocket::Upgrade { answer, protocol, socket }) => {
            let work = async move {
                let Some(socket) = socket.await else { return };
                let (sink, source) = socket.split();
                let source = source
                    .map(|message| message.map_or(Received::Gone, |message| protocol.received(message)));
                command::run(sink, source, protocol, session, task, idle_timeout).await;
            };
            (answer, work.boxed())
        }
        Upgrade::Spdy(spdy::Upgrade { answer, connection }, wanted) => {
            let work = async move {
                let Some(connection) = connection.await else { return };
                let Some((sink, source)) = spdy::channels(connection, &wanted).await else { return };
                command::run(sink, source, Protocol::V4, session, task, idle_timeout).await;
            };
            (answer, work.boxed())
        }
    };
    server.streams.spawn(async move {
        tokio::select! {
            () = work => {}
            () = shutdown.cancelled() => {}
        }
    });
    answer
}

fn spec(query: &Query) -> Result<ExecSpec, Refusal> {
    let tty = query.flag("tty");
    let spec = ExecSpec {
        command: query.all("command"),
        tty,
        stdin: query.flag("input") || query.flag("stdin"),
        stdout: query.flag("output") || query.flag("stdout"),
        // A terminal has one output.
        stderr: !tty && (query.flag("error") || query.flag("stderr")),
    };
    if !spec.stdin && !spec.stdout && !spec.stderr {
        return Err((
            StatusCode::BAD_REQUEST,
            "you must specify at least 1 of stdin, stdout, stderr".to_owned(),
        ));
    }
    Ok(spec)
}

fn has_terminal(pod: &k8s_openapi::api::core::v1::Pod, container: &str) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let plain = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let plain = plain.filter(|one| one.name == container).filter_map(|one| one.tty);
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    plain.chain(ephemeral.filter(|one| one.name == container).filter_map(|one| one.tty)).any(|tty| tty)
}
