//! Floors: programs that do nothing but what cannot be left out.
//!
//! - [`serve`]: an HTTPS server, with our TLS settings, that answers every request with bytes it was given. It takes
//!   the same load as an API server: GET, LIST, watches that tell every create.
//! - [`group_commits`]: as many writes at once as there are connections, made durable together.
//! - [`etcd_creates`]: compare-and-swap on etcd, from as many tasks as there are connections.

use crate::load::{Cpu, Samples};
use crate::servers::Etcd;
use anyhow::{Context, Result};
use bytes::Bytes;
use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use futures::stream;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::convert::Infallible;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

/// Where the floor finds what it answers.
pub const OBJECT: &str = "object.json";
const LIST: &str = "list.json";

/// Leaves what the floor is to answer in its directory.
pub fn write_samples(dir: &Path, samples: &Samples) -> Result<()> {
    std::fs::write(dir.join(OBJECT), &samples.object)?;
    Ok(std::fs::write(dir.join(LIST), &samples.list)?)
}

/// Serves until it is killed.
pub async fn serve(dir: &Path) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let pki = pki::ensure(dir, &pki::Config::default(), jiff::Timestamp::now())?;
    pki.write_admin_kubeconfig(&format!("https://{}", listener.local_addr()?))?;
    let acceptor = TlsAcceptor::from(Arc::new(tls(&pki)?));
    let object = Bytes::from(std::fs::read(dir.join(OBJECT))?);
    let event = [&b"{\"type\":\"ADDED\",\"object\":"[..], &object, b"}\n"].concat();
    let floor = Arc::new(Floor {
        object,
        list: std::fs::read(dir.join(LIST))?.into(),
        event: event.into(),
        creates: watch::Sender::new(0),
    });
    println!("Serving");
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (acceptor, floor) = (acceptor.clone(), floor.clone());
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = service_fn(|request| floor.clone().answer(request));
            // Clients go away when they have what they want.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

struct Floor {
    object: Bytes,
    list: Bytes,
    event: Bytes,
    creates: watch::Sender<u64>,
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

impl Floor {
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<Response<Body>, hyper::Error> {
        let path = request.uri().path().to_owned();
        let query = request.uri().query().unwrap_or_default().to_owned();
        let full = |bytes: &Bytes| Full::new(bytes.clone()).boxed_unsync();
        if *request.method() == Method::POST {
            request.into_body().collect().await?;
            self.creates.send_modify(|creates| *creates += 1);
            let mut response = Response::new(full(&self.object));
            *response.status_mut() = StatusCode::CREATED;
            return Ok(response);
        }
        Ok(Response::new(match path.ends_with("/pods") {
            true if query.starts_with("watch") => self.watch(),
            true if query.is_empty() => full(&self.list),
            true => full(&Bytes::from_static(b"{\"metadata\":{\"resourceVersion\":\"1\"}}")),
            false => full(&self.object),
        }))
    }

    /// Every create from now on, as an event.
    fn watch(self: Arc<Self>) -> Body {
        let news = self.creates.subscribe();
        let told = *news.borrow();
        let events = stream::unfold((self, news, told), |(floor, mut news, mut told)| async move {
            news.wait_for(|creates| *creates > told).await.ok()?;
            told += 1;
            let frame = Ok(Frame::data(floor.event.clone()));
            Some((frame, (floor, news, told)))
        });
        StreamBody::new(events).boxed_unsync()
    }
}

fn tls(pki: &pki::ServerPki) -> Result<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(pki.authority.pem().as_bytes()) {
        roots.add(root?)?;
    }
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .allow_unauthenticated()
        .build()?;
    let chain =
        CertificateDer::pem_slice_iter(pki.serving.certificate.as_bytes()).collect::<Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(pki.serving.key.as_bytes())?;
    Ok(ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)?)
}

/// Writes of `bytes` each that reach the disk per second, when so many at once are made durable together.
pub fn group_commits(dir: &Path, at_once: usize, bytes: usize, window: Duration) -> Result<f64> {
    let mut file = File::create(dir.join("log"))?;
    let batch = vec![b'x'; at_once * bytes];
    let (started, mut batches) = (Instant::now(), 0);
    while started.elapsed() < window {
        file.write_all(&batch)?;
        file.sync_data()?;
        batches += 1;
    }
    Ok((batches * at_once) as f64 / started.elapsed().as_secs_f64())
}

/// New keys of `bytes` each that etcd takes per second, from so many tasks, and its CPU time for each.
pub async fn etcd_creates(etcd: &Etcd, tasks: usize, bytes: usize, window: Duration) -> Result<(f64, f64)> {
    let client = etcd_client::Client::connect([&etcd.url], None).await.context("connect to etcd")?;
    let cpu = Cpu::start(Some(etcd.pid()))?;
    let value = vec![b'x'; bytes];
    let started = Instant::now();
    let tasks: Vec<_> = (0..tasks)
        .map(|task| {
            let (mut client, value) = (client.kv_client(), value.clone());
            tokio::spawn(async move {
                let mut count = 0u64;
                while started.elapsed() < window {
                    let key = format!("/floor/{task}/{count}");
                    let txn = Txn::new()
                        .when([Compare::create_revision(key.as_str(), CompareOp::Equal, 0)])
                        .and_then([TxnOp::put(key.as_str(), value.clone(), None)]);
                    client.txn(txn).await?;
                    count += 1;
                }
                Ok::<u64, etcd_client::Error>(count)
            })
        })
        .collect();
    let mut count = 0;
    for task in tasks {
        count += task.await??;
    }
    let rate = count as f64 / started.elapsed().as_secs_f64();
    Ok((rate, cpu.per(count as f64)?.unwrap_or_default()))
}
