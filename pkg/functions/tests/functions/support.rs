//! An apiserver, a node and what runs functions, in one process; and how functions are called.

use crate::node::Node;
use api::kinds::minik8s::Function;
use axum::body::Body;
use functions::{Config, Flags, Metrics};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use testing::{Http, TestServer, eventually};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

/// All of it.
pub struct Functions {
    pub server: TestServer,
    pub node: Arc<Node>,
    pub metrics: Metrics,
    pub workflows: functions::workflow::Tally,
    address: SocketAddr,
    running: Option<(CancellationToken, JoinHandle<()>)>,
    _node: JoinHandle<()>,
}

/// What a call got.
#[derive(Debug, Clone)]
pub struct Answered {
    pub status: StatusCode,
    pub body: String,
    pub is_cold: bool,
    pub timing: String,
}

impl Answered {
    /// The message of a Status.
    pub fn message(&self) -> String {
        let status: Value = serde_json::from_str(&self.body).unwrap_or_default();
        status["message"].as_str().unwrap_or_default().to_owned()
    }
}

/// A connection to the activator. Clones share it.
#[derive(Clone)]
pub struct Caller {
    sender: SendRequest<Body>,
    pub path: fn(&str, &str) -> String,
    token: Option<String>,
}

impl Functions {
    /// All of it, running.
    pub async fn start() -> Functions {
        Functions::start_at([127, 0, 0, 1].into()).await
    }

    /// All of it, running, with the API server in front: that sends nothing to a loopback address.
    pub async fn start_behind_the_api_server() -> Functions {
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").expect("a socket");
        socket.connect("192.0.2.1:9").expect("a route");
        let functions = Functions::start_at(socket.local_addr().expect("an address").ip()).await;
        functions.is_behind_the_api_server().await;
        functions
    }

    async fn start_at(address: IpAddr) -> Functions {
        let server = TestServer::start().await;
        let read = |file: &str| std::fs::read_to_string(server.data_dir().join(file)).expect("a file");
        let authority = pki::Authority::load(&read("ca.crt"), &read("ca.key")).expect("the authority");
        let names = ["knative.kube-system.svc".to_owned()];
        pki::ensure_activator(server.data_dir(), &authority, &names, jiff::Timestamp::now())
            .expect("a certificate");
        let node = Arc::new(Node::default());
        let running = tokio::spawn(node.clone().run(server.admin()));
        let address = SocketAddr::new(address, 0);
        let (metrics, workflows) = (Metrics::default(), functions::workflow::Tally::default());
        let mut functions =
            Functions { server, node, metrics, workflows, address, running: None, _node: running };
        functions.restart().await;
        functions
    }

    /// Ends knative and starts it again at the same address.
    pub async fn restart(&mut self) {
        self.stop().await;
        let calls =
            eventually("the port is free", || async { TcpListener::bind(self.address).await.ok() }).await;
        let ready = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        self.address = calls.local_addr().expect("an address");
        let kubeconfig = self.server.kubeconfig(self.server.address(), "system:knative", &[]);
        let file = |name: &str| self.server.data_dir().join(name).display().to_string();
        let flags = [
            "knative",
            "--kubeconfig",
            &kubeconfig.display().to_string(),
            "--tls-cert-file",
            &file("knative.crt"),
            "--tls-private-key-file",
            &file("knative.key"),
            "--requestheader-client-ca-file",
            &file("front-proxy-ca.crt"),
            "--advertise-address",
            "127.0.0.1",
            "--leader-elect=false",
        ]
        .map(str::to_owned);
        let flags = <Flags as clap::Parser>::try_parse_from(flags).expect("flags");
        let config = Config {
            metrics: self.metrics.clone(),
            workflows: self.workflows.clone(),
            tap: recorder(),
            ..Config::from(flags)
        };
        let shutdown = CancellationToken::new();
        let ends = shutdown.clone();
        let running =
            tokio::spawn(async move { functions::run(config, calls, ready, ends).await.expect("it runs") });
        self.running = Some((shutdown, running));
        eventually("it leads", || async {
            let mut caller = self.inside("").await?;
            caller.path = |_, _| "/readyz".to_owned();
            (caller.get("", "").await.status == StatusCode::OK).then_some(())
        })
        .await;
    }

    /// Ends knative, and lets calls that are under way end.
    pub async fn stop(&mut self) {
        if let Some((shutdown, running)) = self.running.take() {
            shutdown.cancel();
            running.await.expect("it ends");
        }
    }

    /// Stores a Python function.
    pub async fn register(&self, name: &str, code: &str) {
        self.register_with(name, json!({"code": code})).await;
    }

    /// Stores a function.
    pub async fn register_with(&self, name: &str, spec: Value) {
        let function = json!({"apiVersion": "minik8s.io/v1", "kind": "Function", "metadata": {"name": name}, "spec": spec});
        let function: Function = serde_json::from_value(function).expect("a function");
        self.functions().create(&PostParams::default(), &function).await.expect("registered");
        let path = format!("/apis/minik8s.io/v1/namespaces/default/functions/{name}");
        eventually("it is known", || async {
            let function = self.server.http().get(&path).await.expect(200);
            (!function["status"]["revision"].is_null()).then_some(())
        })
        .await;
    }

    /// Changes a function's spec.
    pub async fn patch(&self, name: &str, spec: Value) -> String {
        let patch = Patch::Merge(json!({"spec": spec}));
        let patched = self.functions().patch(name, &PatchParams::default(), &patch).await.expect("patched");
        let generation = patched.metadata.generation;
        eventually("the change is seen", || async {
            let status = self.functions().get(name).await.expect("there").status;
            (Some(status.observed_generation) == generation).then_some(status.revision)
        })
        .await
    }

    /// Somebody who may do everything, over one connection to the API server.
    pub async fn multiplexed(&self) -> Http {
        let kubeconfig = self.server.kubeconfig(self.server.address(), "load", &["system:masters"]);
        Http::new(client::connect_multiplexed(Some(&kubeconfig), "load").await.expect("connected"))
    }

    /// Whether nothing runs.
    pub fn is_idle(&self) -> bool {
        self.node.running.load(Ordering::Relaxed) == 0
    }

    /// Lets the API server find it, as the service's endpoint.
    async fn is_behind_the_api_server(&self) {
        let http = self.server.http();
        let _ = http.post("/api/v1/namespaces", &json!({"metadata": {"name": "kube-system"}})).await;
        let meta = |labels: Value| json!({"name": "knative", "namespace": "kube-system", "labels": labels});
        let ports = json!([{"name": "https", "port": 443, "protocol": "TCP"}]);
        let _ = http
            .post(
                "/api/v1/namespaces/kube-system/services",
                &json!({"metadata": meta(json!({})), "spec": {"ports": ports}}),
            )
            .await;
        let slices = "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices";
        let slice = json!({
            "metadata": meta(json!({"kubernetes.io/service-name": "knative"})), "addressType": "IPv4",
            "endpoints": [{"addresses": [self.address.ip().to_string()], "conditions": {"ready": true}}],
            "ports": [{"name": "https", "port": self.address.port(), "protocol": "TCP"}],
        });
        let _ = http.post(slices, &slice).await;
    }

    pub fn functions(&self) -> Api<Function> {
        Api::namespaced(self.server.admin(), "default")
    }

    /// Waits until so many pods' processes run.
    pub async fn runs(&self, count: usize) {
        eventually(&format!("{count} pods run"), || async {
            (self.node.running.load(Ordering::Relaxed) == count).then_some(())
        })
        .await;
    }

    /// Whoever calls through the API server.
    pub async fn caller(&self) -> Caller {
        let read = |file: &str| std::fs::read(self.server.data_dir().join(file)).expect("a file");
        let certificate =
            CertificateDer::from_pem_slice(&read("front-proxy-client.crt")).expect("a certificate");
        let key = PrivateKeyDer::from_pem_slice(&read("front-proxy-client.key")).expect("a key");
        let sender = self.connect(Some((certificate, key))).await.expect("connected");
        let path = |namespace: &str, name: &str| {
            format!("/apis/minik8s.io/v1/namespaces/{namespace}/functions/{name}/invoke")
        };
        Caller { sender, path, token: None }
    }

    /// Whoever calls from inside of the cluster, with a token if it is not empty.
    pub async fn inside(&self, token: &str) -> Option<Caller> {
        let sender = self.connect(None).await?;
        let token = (!token.is_empty()).then(|| token.to_owned());
        Some(Caller { sender, path: |namespace, name| format!("/functions/{namespace}/{name}"), token })
    }

    /// A connection of before HTTP/2, to be written to by hand.
    pub async fn raw(&self) -> TlsStream<TcpStream> {
        self.secured(None, b"http/1.1").await.expect("connected")
    }

    async fn connect(
        &self,
        identity: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
    ) -> Option<SendRequest<Body>> {
        let stream = self.secured(identity, b"h2").await?;
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.ok()?;
        tokio::spawn(connection);
        Some(sender)
    }

    async fn secured(
        &self,
        identity: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
        protocol: &[u8],
    ) -> Option<TlsStream<TcpStream>> {
        let mut roots = rustls::RootCertStore::empty();
        let authority = std::fs::read(self.server.data_dir().join("ca.crt")).expect("the authority");
        roots.add(CertificateDer::from_pem_slice(&authority).expect("a certificate")).expect("a root");
        let config = rustls::ClientConfig::builder().with_root_certificates(roots);
        let mut config = match identity {
            Some((certificate, key)) => {
                config.with_client_auth_cert(vec![certificate], key).expect("an identity")
            }
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols = vec![protocol.to_vec()];
        let stream = TcpStream::connect(self.address).await.ok()?;
        let name = ServerName::try_from("knative.kube-system.svc").expect("a name");
        tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()
    }
}

impl Caller {
    /// Calls a function of the namespace `default`.
    pub async fn call(&self, name: &str, body: &str) -> Answered {
        self.send("POST", "default", name, body.to_owned().into()).await.expect("answered")
    }

    /// As [`Caller::call`], with headers.
    pub async fn call_with(&self, name: &str, body: &str, headers: &[(&'static str, &str)]) -> Answered {
        let body = body.to_owned().into();
        self.send_with("POST", "default", name, body, headers).await.expect("answered")
    }

    /// As [`Caller::call`]; nothing if the connection broke.
    pub async fn try_call(&self, name: &str, body: &str) -> Option<Answered> {
        self.send("POST", "default", name, body.to_owned().into()).await
    }

    pub async fn get(&self, namespace: &str, name: &str) -> Answered {
        self.send("GET", namespace, name, Body::empty()).await.expect("answered")
    }

    pub async fn send(&self, method: &str, namespace: &str, name: &str, body: Body) -> Option<Answered> {
        self.send_with(method, namespace, name, body, &[]).await
    }

    /// Begins a call of any path; its answer's body comes as it is read.
    pub async fn begin(&self, method: &str, path: &str, body: Body) -> Option<Response<Incoming>> {
        let url = format!("https://knative.kube-system.svc{path}");
        let request = Request::builder().method(method).uri(url).body(body).expect("a request");
        let mut sender = self.sender.clone();
        sender.ready().await.ok()?;
        sender.send_request(request).await.ok()
    }

    async fn send_with(
        &self,
        method: &str,
        namespace: &str,
        name: &str,
        body: Body,
        headers: &[(&'static str, &str)],
    ) -> Option<Answered> {
        let url = format!("https://knative.kube-system.svc{}", (self.path)(namespace, name));
        let mut request = Request::builder().method(method).uri(url);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut sender = self.sender.clone();
        sender.ready().await.ok()?;
        let answer = sender.send_request(request.body(body).expect("a request")).await.ok()?;
        let header = |name: &str| {
            answer.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
        };
        let (status, is_cold, timing) =
            (answer.status(), header("x-cold-start") == "true", header("server-timing"));
        let body = answer.into_body().collect().await.ok()?.to_bytes();
        Some(Answered { status, body: String::from_utf8_lossy(&body).into_owned(), is_cold, timing })
    }
}

/// With RECORD=FOLDER the histories of runs are written there, a line for each transition.
fn recorder() -> Option<functions::workflow::Tap> {
    use std::io::Write;
    let folder = std::path::PathBuf::from(std::env::var_os("RECORD")?);
    Some(Arc::new(move |transition: &functions::workflow::Transition<'_>| {
        let joins =
            transition.before.threads.iter().filter_map(|thread| Some((thread.id, thread.join.as_ref()?)));
        let outputs: std::collections::BTreeMap<i32, _> =
            joins.map(|(id, join)| (id, &join.outputs)).collect();
        let line = json!({"before": transition.before, "outputs": outputs, "event": transition.event,
            "now": transition.now.to_string(), "after": transition.after});
        let file = folder.join(format!("{}.jsonl", transition.run.name));
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(file).expect("a file");
        writeln!(file, "{line}").expect("written");
    }))
}
