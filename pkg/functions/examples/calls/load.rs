//! Calls, from inside of the machine: as many at a time as is asked for, or at a rate.

use anyhow::{Context, Result};
use bytes::Bytes;
use clap::Args;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// What is called, and how.
#[derive(Args)]
pub struct Flags {
    /// Host and port.
    #[arg(long)]
    address: String,
    /// The authority of its certificate; without one, plain HTTP.
    #[arg(long)]
    authority: Option<PathBuf>,
    /// Paths, called in turn.
    #[arg(long)]
    path: Vec<String>,
    /// The token of a pod.
    #[arg(long, default_value = "")]
    token: String,
    #[arg(long, default_value = "{}")]
    body: String,
    /// How many calls.
    #[arg(long)]
    calls: usize,
    /// How many at a time.
    #[arg(long)]
    at_a_time: usize,
    /// How many a second, if not as many as there is time for.
    #[arg(long)]
    per_second: Option<u32>,
}

/// Over TLS several share a connection, as callers inside of a cluster do.
const CONNECTIONS: usize = 16;

enum Sender {
    One(http1::SendRequest<Full<Bytes>>),
    Many(http2::SendRequest<Full<Bytes>>),
}

impl Sender {
    async fn call(&mut self, request: Request<Full<Bytes>>) -> Result<StatusCode> {
        let answer = match self {
            Sender::One(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
            Sender::Many(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
        };
        let status = answer.status();
        answer.into_body().collect().await?;
        Ok(status)
    }
}

/// Makes the calls, and prints how long they took.
pub async fn run(flags: Flags) -> Result<()> {
    let flags = Arc::new(flags);
    let mut shared = Vec::new();
    for _ in 0..CONNECTIONS.min(flags.at_a_time) {
        if flags.authority.is_some() {
            shared.push(secured(&flags).await?);
        }
    }
    let (next, began) = (Arc::new(AtomicUsize::new(0)), Instant::now());
    let mut workers = Vec::new();
    for worker in 0..flags.at_a_time {
        let sender = match shared.get(worker % CONNECTIONS) {
            Some(sender) => Sender::Many(sender.clone()),
            None => Sender::One(plain(&flags).await?),
        };
        workers.push(tokio::spawn(work(flags.clone(), sender, next.clone(), began)));
    }
    let (mut times, mut errors) = (Vec::new(), 0);
    for worker in workers {
        for call in worker.await? {
            match call {
                Some(took) => times.push(took),
                None => errors += 1,
            }
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    times.sort();
    let at =
        |share: f64| times.get(((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1)));
    let milliseconds = |share| at(share).map_or(0.0, |took| took.as_secs_f64() * 1000.0);
    let said = json!({
        "answered": times.len(), "errors": errors, "seconds": seconds, "per_second": times.len() as f64 / seconds,
        "p50": milliseconds(0.5), "p95": milliseconds(0.95), "p99": milliseconds(0.99), "last": milliseconds(1.0),
    });
    println!("{said}");
    Ok(())
}

async fn work(
    flags: Arc<Flags>,
    mut sender: Sender,
    next: Arc<AtomicUsize>,
    began: Instant,
) -> Vec<Option<Duration>> {
    let mut calls = Vec::new();
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= flags.calls {
            return calls;
        }
        let due =
            flags.per_second.map(|rate| began + Duration::from_secs_f64(number as f64 / f64::from(rate)));
        if let Some(due) = due {
            tokio::time::sleep_until(due.into()).await;
        }
        // One that is late because of others was late for its caller.
        let since = due.unwrap_or_else(Instant::now);
        let path = &flags.path[number % flags.path.len()];
        let scheme = if flags.authority.is_some() { "https" } else { "http" };
        let request = Request::post(format!("{scheme}://{}{path}", flags.address))
            .header("host", &flags.address)
            .header("x-function-token", &flags.token)
            .body(Full::new(Bytes::from(flags.body.clone())));
        let Ok(request) = request else { return calls };
        let answered = sender.call(request).await;
        if let Err(error) = &answered {
            eprintln!("{error:#}");
        }
        calls.push(answered.ok().filter(|status| *status == StatusCode::OK).map(|_| since.elapsed()));
    }
}

async fn plain(flags: &Flags) -> Result<http1::SendRequest<Full<Bytes>>> {
    let stream = TcpStream::connect(&flags.address).await.with_context(|| flags.address.clone())?;
    stream.set_nodelay(true)?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

async fn secured(flags: &Flags) -> Result<http2::SendRequest<Full<Bytes>>> {
    let mut roots = rustls::RootCertStore::empty();
    let file = flags.authority.as_ref().context("an authority")?;
    roots.add(CertificateDer::from_pem_file(file)?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = TcpStream::connect(&flags.address).await.with_context(|| flags.address.clone())?;
    stream.set_nodelay(true)?;
    let name = ServerName::try_from("knative.kube-system.svc")?;
    let stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}
