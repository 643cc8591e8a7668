//! One forwarded connection, in a WebSocket of its own, so that none waits for another.
//!
//! ```text
//! client ── TCP ──> SPDY's stream DATA ──> pod     either side may say that it has said all, and go on listening
//!                   SPDY's stream ERROR <── what went wrong
//! ```

use crate::connection::Socket;
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use client::spdy::{self, Connection, Event};
use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;

/// What is spoken inside the WebSocket.
pub const PROTOCOL: &str = "SPDY/3.1+portforward.k8s.io";

const ERROR: u32 = 1;
const DATA: u32 = 3;
const BLOCK: usize = 32 << 10;
/// Frames on their way to the pod.
const WAITING: usize = 4;

/// Carries a connection to a port until both sides have said all.
pub async fn carry(client: TcpStream, socket: Socket, port: u16) -> Result<()> {
    let (mut sink, mut source) = socket.split();
    let (mut from_client, mut to_client) = client.into_split();
    let (to_pod, mut frames) = mpsc::channel::<Bytes>(WAITING);
    let mut connection = Connection::new();
    let port = port.to_string();
    let mut open =
        |stream, kind| connection.open(stream, &[("streamType", kind), ("port", &port), ("requestID", "0")]);
    let opening = [open(ERROR, "error"), spdy::end(ERROR), open(DATA, "data")].concat();
    sink.send(Message::binary(opening)).await.context("lost connection to pod")?;
    let writing = async {
        while let Some(frame) = frames.recv().await {
            if sink.send(Message::Binary(frame)).await.is_err() {
                break;
            }
        }
    };
    let inwards = async {
        let mut block = vec![0; BLOCK];
        while let Ok(count @ 1..) = from_client.read(&mut block).await {
            if to_pod.send(spdy::data(DATA, Bytes::copy_from_slice(&block[..count]))).await.is_err() {
                break;
            }
        }
        let _ = to_pod.send(spdy::end(DATA)).await;
    };
    let outwards = async {
        let (mut error, mut ended) = (Vec::new(), Vec::new());
        while ![DATA, ERROR].iter().all(|stream| ended.contains(stream)) {
            let Some(Ok(message)) = source.next().await else { bail!("lost connection to pod") };
            let (events, answers) = connection.receive(&message.into_data())?;
            for answer in answers {
                let _ = to_pod.send(answer).await;
            }
            for event in events {
                match event {
                    // A client that is gone needs nothing more.
                    Event::Data(DATA, bytes) if to_client.write_all(&bytes).await.is_err() => return Ok(()),
                    Event::Data(ERROR, bytes) => error.extend_from_slice(&bytes),
                    Event::Closed(stream) => {
                        ended.push(stream);
                        if stream == DATA {
                            let _ = to_client.shutdown().await;
                        }
                    }
                    Event::Reset(_) | Event::GoAway => bail!("lost connection to pod"),
                    _ => {}
                }
            }
        }
        match error.as_slice() {
            [] => Ok(()),
            text => bail!("{}", String::from_utf8_lossy(text)),
        }
    };
    tokio::select! {
        ended = outwards => ended,
        ((), ()) = async { tokio::join!(writing, inwards) } => bail!("lost connection to pod"),
    }
}
