//! A TCP connection that begins in a pod's network.

use super::Place;
use nix::sched::{CloneFlags, setns};
use std::io::{Error, Result};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(30);

/// Connects to a port on the loopback of the pod: IPv4 first, then IPv6.
pub async fn connect(place: &Place, port: u16) -> Result<tokio::net::TcpStream> {
    let network = place.network.clone();
    let (tell, told) = tokio::sync::oneshot::channel();
    // A thread of its own: it cannot go back to the network it came from, and ends when the connection is made.
    std::thread::Builder::new().name("dial".into()).spawn(move || {
        let _ = tell.send(dial(network.as_deref(), port));
    })?;
    let stream = told.await.map_err(Error::other)??;
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    tokio::net::TcpStream::from_std(stream)
}

fn dial(network: Option<&Path>, port: u16) -> Result<TcpStream> {
    if let Some(path) = network {
        let namespace = std::fs::File::open(path)?;
        setns(&namespace, CloneFlags::CLONE_NEWNET)?;
    }
    let v4 = match TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), TIMEOUT) {
        Ok(stream) => return Ok(stream),
        Err(error) => error,
    };
    TcpStream::connect_timeout(&SocketAddr::from((Ipv6Addr::LOCALHOST, port)), TIMEOUT).map_err(|v6| {
        Error::other(format!("failed to connect to localhost:{port} inside the pod, IPv4: {v4}, IPv6: {v6}"))
    })
}
