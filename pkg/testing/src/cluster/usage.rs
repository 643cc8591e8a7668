//! What the nodes say that their pods use: the kubelet's `/stats/summary`, over TLS, for `metrics.k8s.io`.
//!
//! One listener answers for all nodes. A pod uses what its annotations `sim/cpu` (in thousandths of a CPU) and `sim/memory`
//! (in bytes) say, and little where they say nothing.

use client::{Cache, Informers};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, ResourceExt};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

pub struct Usage {
    pub port: u16,
    stop: CancellationToken,
}

impl Usage {
    pub async fn start(client: Client) -> Usage {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("bound above").port();
        let stop = CancellationToken::new();
        tokio::spawn(serve(client, listener, stop.clone()));
        Usage { port, stop }
    }
}

impl Drop for Usage {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn serve(client: Client, listener: TcpListener, stop: CancellationToken) {
    let informers = Informers::new(client, stop.clone());
    let pods: Cache<Pod> = informers.cache();
    let acceptor = acceptor();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        if let Ok((stream, _)) = accepted {
            tokio::spawn(answer(stream, acceptor.clone(), summary(&pods)));
        }
    }
    informers.join().await;
}

/// A certificate of nobody in particular: the apiserver of tests does not ask whose it is.
fn acceptor() -> TlsAcceptor {
    let authority = pki::Authority::create("nodes", Timestamp::now()).expect("an authority");
    let identity = authority.client("node", &[], Timestamp::now()).expect("a certificate");
    let chain = CertificateDer::pem_slice_iter(identity.certificate.as_bytes()).collect::<Result<_, _>>();
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the usual versions")
        .with_no_client_auth()
        .with_single_cert(chain.expect("a certificate"), key)
        .expect("they belong together");
    TlsAcceptor::from(Arc::new(config))
}

/// Whatever is asked, the answer is the summary.
async fn answer(stream: TcpStream, acceptor: TlsAcceptor, summary: Value) -> std::io::Result<()> {
    let mut stream = acceptor.accept(stream).await?;
    let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut buffer).await? {
            0 => return Ok(()),
            length => request.extend_from_slice(&buffer[..length]),
        }
    }
    let body = summary.to_string();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

fn summary(pods: &Cache<Pod>) -> Value {
    let now = Timestamp::now().to_string();
    let used = |cpu: u64, memory: u64| {
        json!({
            "cpu": {"time": now, "usageNanoCores": cpu * 1_000_000, "usageWindowMilliSeconds": 1000},
            "memory": {"time": now, "workingSetBytes": memory},
        })
    };
    let of_pod = |pod: &Arc<Pod>| {
        let said = |name: &str, else_: u64| {
            pod.annotations().get(name).and_then(|it| it.parse().ok()).unwrap_or(else_)
        };
        let mut container = used(said("sim/cpu", 1), said("sim/memory", 1 << 20));
        container["name"] = "c".into();
        json!({"podRef": {"name": pod.name_any(), "namespace": pod.namespace()}, "containers": [container]})
    };
    let pods: Vec<Value> = pods.list().iter().map(of_pod).collect();
    let mut node = used(100, 1 << 30);
    node["nodeName"] = "node".into();
    json!({"node": node, "pods": pods})
}
