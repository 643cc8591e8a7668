//! One forwarded connection: a way for bytes and a way for what went wrong, however they are carried.

use super::{Place, dial};
use crate::server::stream::channels::Protocol;
use bytes::Bytes;
use client::spdy;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;

/// Pieces on their way into the pod.
pub const WAITING: usize = 16;
const BLOCK: usize = 32 * 1024;

/// How a connection's bytes are carried to the client.
#[derive(Debug, Clone, Copy)]
pub enum Lane {
    /// On a channel, errors on the next.
    Channels {
        /// How messages look.
        protocol: Protocol,
        /// Which.
        data: u8,
    },
    /// On two streams.
    Streams {
        /// For bytes.
        data: u32,
        /// For errors.
        error: u32,
    },
}

impl Lane {
    fn opening(self, port: u16) -> Vec<Message> {
        match self {
            // The client learns which port the channels are of.
            Lane::Channels { protocol, data } => {
                [data, data + 1].map(|channel| protocol.message(channel, &port.to_le_bytes())).into()
            }
            Lane::Streams { .. } => Vec::new(),
        }
    }

    fn data(self, bytes: &[u8]) -> Message {
        match self {
            Lane::Channels { protocol, data } => protocol.message(data, bytes),
            Lane::Streams { data, .. } => Message::Binary(spdy::data(data, Bytes::copy_from_slice(bytes))),
        }
    }

    fn data_end(self) -> Option<Message> {
        match self {
            Lane::Channels { .. } => None,
            Lane::Streams { data, .. } => Some(Message::Binary(spdy::end(data))),
        }
    }

    fn error(self, text: &str) -> Message {
        match self {
            Lane::Channels { protocol, data } => protocol.message(data + 1, text.as_bytes()),
            Lane::Streams { error, .. } => {
                Message::Binary(spdy::data(error, Bytes::copy_from_slice(text.as_bytes())))
            }
        }
    }

    fn error_end(self) -> Option<Message> {
        match self {
            Lane::Channels { .. } => None,
            Lane::Streams { error, .. } => Some(Message::Binary(spdy::end(error))),
        }
    }
}

/// Connects, and carries bytes both ways until both sides have said all.
pub async fn run(
    lane: Lane,
    place: Place,
    port: u16,
    from_client: mpsc::Receiver<Bytes>,
    to_client: mpsc::Sender<Message>,
) {
    for message in lane.opening(port) {
        let _ = to_client.send(message).await;
    }
    let carried = match dial::connect(&place, port).await {
        Ok(stream) => carry(lane, stream, from_client, &to_client).await,
        Err(error) => Err(error),
    };
    if let Err(error) = carried {
        let (pod, uid) = (&place.pod.name, &place.pod.uid);
        let text = format!("error forwarding port {port} to pod {pod}, uid {uid}: {error}");
        let _ = to_client.send(lane.error(&text)).await;
        end(lane.data_end(), &to_client).await;
    }
    end(lane.error_end(), &to_client).await;
}

async fn end(message: Option<Message>, to_client: &mpsc::Sender<Message>) {
    if let Some(message) = message {
        let _ = to_client.send(message).await;
    }
}

async fn carry(
    lane: Lane,
    mut stream: tokio::net::TcpStream,
    mut from_client: mpsc::Receiver<Bytes>,
    to_client: &mpsc::Sender<Message>,
) -> std::io::Result<()> {
    let (mut read, mut write) = stream.split();
    let inwards = async {
        while let Some(bytes) = from_client.recv().await {
            write.write_all(&bytes).await?;
        }
        write.shutdown().await
    };
    let outwards = async {
        let mut block = vec![0; BLOCK];
        loop {
            let count = read.read(&mut block).await?;
            if count == 0 || to_client.send(lane.data(&block[..count])).await.is_err() {
                end(lane.data_end(), to_client).await;
                return Ok(());
            }
        }
    };
    tokio::pin!(inwards, outwards);
    tokio::select! {
        end = &mut outwards => match lane {
            // The pod has said all, and may still listen: the client heard of it and ends in its own time.
            Lane::Streams { .. } if end.is_ok() => {
                let _ = inwards.await;
                Ok(())
            }
            _ => end,
        },
        end = &mut inwards => match end {
            Ok(()) => outwards.await,
            // The pod no longer listens, but may still talk.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => outwards.await,
            Err(error) => Err(error),
        },
    }
}
