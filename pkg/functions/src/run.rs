//! Runs everything: takes calls, hears from pods, and leads when it is its turn.

use crate::access::Access;
use crate::activator::{Activator, Peer};
use crate::config::Config;
use crate::controller::{self, Parts, Shared};
use crate::fleet::Fleet;
use crate::pod::{FUNCTION, PodKey};
use crate::tls::{Tls, is_front_proxy};
use crate::workflow::{self, Runner, RunnerParts};
use api::kinds::minik8s::workflow_step::RUN_LABEL;
use axum::Router;
use client::{Bus, ConnectError, Informers, LeaderElection, LeaderError, Panicked, Recorder, RedisIdentity};
use daemon::{Connection, ConnectionLimits, Doors, Watched};
use http::header::{CONNECTION, HeaderValue};
use http::{StatusCode, Version};
use hyper::body::Incoming;
use kube::Client;
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

/// What a pod tells is no longer than this, and takes no longer.
const MOST_TOLD: u64 = 128;
const TELLING_TIMEOUT: Duration = Duration::from_secs(5);
/// Calls under way have so long to end when the program does.
const DRAIN: Duration = Duration::from_secs(20);
/// Connections that are kept may be used so long after the end is known: longer than the API server keeps them.
const LINGER: Duration = Duration::from_secs(1);

/// Why functions cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server cannot be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// Another one leads now.
    #[error(transparent)]
    Leader(#[from] LeaderError),
    /// A cache is kept up to date no more.
    #[error(transparent)]
    Panicked(#[from] Panicked),
    /// A file cannot be used.
    #[error("use {path}: {why}", path = .0.display(), why = .1)]
    File(PathBuf, String),
    /// There is no TLS.
    #[error("set up TLS: {0}")]
    Tls(String),
    /// A socket cannot be used.
    #[error("use a socket")]
    Socket(#[from] std::io::Error),
}

/// Takes calls on one listener, and hears on the other from pods that they listen, until shutdown.
///
/// # Errors
///
/// Why it cannot.
pub async fn run(
    config: Config,
    calls: TcpListener,
    ready: TcpListener,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let client = client::connect_multiplexed(config.kubeconfig.as_deref(), "knative").await?;
    let tls = Tls::new(config.files.clone())?;
    let secret = std::fs::read(&config.files.key)
        .map_err(|error| Error::File(config.files.key.clone(), error.to_string()))?;
    let ready_address = SocketAddr::new(config.advertise_address, ready.local_addr()?.port());
    let identity = format!("{}_{}", ready_address, calls.local_addr()?.port());
    let activator = Activator::new(Access::new(client.clone()));
    let workflows = workflow::Leading::default();
    // What answers calls goes on for a little after what leads was told to end.
    let (program, activating) = (shutdown.clone(), activator.clone());
    let routes = activator.clone().routes().merge(workflow::routes(workflows.clone()));
    let leading =
        Leading { client, config, secret, ready_address, activator: activating, workflows, program };
    let (drained, ended) = (CancellationToken::new(), shutdown.child_token());
    let serving = serve(calls, tls, routes, ended.clone(), drained.clone());
    let hearing = hear(ready, activator, ended.clone());
    let leading = async {
        let result = leading.elect(identity, shutdown, &drained).await;
        ended.cancel();
        drained.cancel();
        result
    };
    tokio::join!(serving, hearing, leading).2
}

struct Leading {
    client: Client,
    config: Config,
    secret: Vec<u8>,
    ready_address: SocketAddr,
    activator: Activator,
    workflows: workflow::Leading,
    /// Cancelled when the program is to end.
    program: CancellationToken,
}

impl Leading {
    async fn elect(
        &self,
        identity: String,
        shutdown: CancellationToken,
        drained: &CancellationToken,
    ) -> Result<(), Error> {
        let config = self.config.leader.clone();
        if !config.elects {
            return self.lead(shutdown, drained).await;
        }
        // Whoever comes back at the same address is who led there: the ports can be held only once.
        let election = LeaderElection { client: self.client.clone(), identity, config };
        election.run(shutdown, async |token| self.lead(token, drained).await).await?.unwrap_or(Ok(()))
    }

    async fn lead(&self, shutdown: CancellationToken, drained: &CancellationToken) -> Result<(), Error> {
        let bus = Bus::of(self.config.redis.as_ref(), RedisIdentity::Files, drained);
        let informers = Informers::new(self.client.clone(), drained.clone()).over(bus);
        let functions = informers.cache();
        let pods = informers.cache_labelled(FUNCTION);
        let calls = informers.cache();
        let host = self.ready_address.ip().to_string();
        let (recorder, recording) = Recorder::new(self.client.clone(), "knative", host, drained.clone());
        let fleet = Fleet::new(PodKey::new(&self.secret), self.config.max_pods_per_namespace);
        let shared = Arc::new(Shared::new(Parts {
            client: self.client.clone(),
            metrics: self.config.metrics.clone(),
            fleet,
            functions,
            revisions: informers.cache_labelled(FUNCTION),
            recorder,
            ready_address: self.ready_address.to_string(),
            shutdown: drained.clone(),
        }));
        let recording = tokio::spawn(recording);
        let runner = self.runner(&informers, &shared, drained);
        let running = Mutex::new(None);
        let is_leading = || {
            tracing::info!("functions can be called");
            self.activator.leads(Some(shared.clone()));
            *self.workflows.write() = Some(runner.clone());
            let runner = runner.clone();
            *running.lock() = Some(tokio::spawn(async move { runner.run().await }));
        };
        let result = tokio::select! {
            result = controller::lead(&shared, pods, calls, is_leading) => result,
            panicked = informers.panicked() => Err(panicked.into()),
            () = async {
                shutdown.cancelled().await;
                // Who has lost the lease stops at once; who ends lets those end who have begun.
                if self.program.is_cancelled() {
                    tokio::time::timeout(DRAIN, drained.cancelled()).await.ok();
                }
            } => Ok(()),
        };
        self.activator.leads(None);
        *self.workflows.write() = None;
        drained.cancel();
        let running = running.lock().take();
        if let Some(running) = running {
            let _ = running.await;
        }
        informers.join().await;
        shared.tasks.close();
        shared.tasks.wait().await;
        let _ = recording.await;
        result
    }
}

impl Leading {
    /// What runs workflows, beside functions.
    fn runner(
        &self,
        informers: &Informers,
        shared: &Arc<Shared>,
        drained: &CancellationToken,
    ) -> Arc<Runner> {
        let parts = RunnerParts {
            client: self.client.clone(),
            workflows: informers.cache(),
            runs: informers.cache(),
            jobs: informers.cache_labelled(RUN_LABEL),
            tally: self.config.workflows.clone(),
            tap: self.config.tap.clone(),
            secret: self.secret.clone(),
            shutdown: drained.clone(),
        };
        Runner::new(parts, shared.clone())
    }
}

/// Takes calls until shutdown, then lets those that are under way end.
async fn serve(
    listener: TcpListener,
    tls: Tls,
    routes: Router,
    shutdown: CancellationToken,
    drained: CancellationToken,
) {
    let doors = Doors::new(ConnectionLimits::default());
    let (tls, connections) = (Arc::new(tls), TaskTracker::new());
    while let Some(connection) = doors.accept(&listener, &shutdown).await {
        let (tls, routes, ends) = (tls.clone(), routes.clone(), shutdown.clone());
        connections.spawn(async move { serve_one(connection, &tls, routes, ends).await });
    }
    drop(listener);
    connections.close();
    let _ = tokio::time::timeout(DRAIN, connections.wait()).await;
    drained.cancel();
}

/// Answers on a connection until it is closed. When the program ends, whoever keeps it may be about to use it: so it stays
/// open for a little while, in which HTTP/1 clients are told with each answer not to use it again.
async fn serve_one(connection: Connection<Watched>, tls: &Tls, routes: Router, ends: CancellationToken) {
    let Some(secured) = connection.secure(&tls.acceptor()).await else { return };
    let holder = secured.peer().clone();
    let peer = Peer { is_front_proxy: is_front_proxy(secured.io()), holder };
    if peer.is_front_proxy {
        peer.holder.is_of_cluster();
    }
    let (closing, told) = (CancellationToken::new(), ends.clone());
    let answering = move |mut request: http::Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        let (is_old, ends) = (request.version() < Version::HTTP_2, ends.clone());
        let answering = routes.clone().oneshot(request);
        async move {
            let mut answer = answering.await.unwrap_or_else(|never| match never {});
            if is_old && ends.is_cancelled() && answer.status() != StatusCode::SWITCHING_PROTOCOLS {
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            answer
        }
    };
    let lingering = async {
        told.cancelled().await;
        tokio::time::sleep(LINGER).await;
        closing.cancel();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = secured.serve(answering, &closing) => {}
        () = lingering => {}
    }
}

/// Hears from pods that they listen, until shutdown. What they say is a hint: the pod is asked itself.
async fn hear(listener: TcpListener, activator: Activator, shutdown: CancellationToken) {
    let connections = TaskTracker::new();
    while let Some(stream) = daemon::accept(&listener, &shutdown).await {
        let (activator, shutdown) = (activator.clone(), shutdown.clone());
        connections.spawn(async move {
            let mut line = String::new();
            let mut reader = BufReader::with_capacity(MOST_TOLD as usize, stream.take(MOST_TOLD));
            tokio::select! {
                heard = tokio::time::timeout(TELLING_TIMEOUT, reader.read_line(&mut line)) => {
                    if matches!(heard, Ok(Ok(_))) {
                        activator.told(line.trim_end());
                    }
                }
                () = shutdown.cancelled() => {}
            }
        });
    }
    connections.close();
    connections.wait().await;
}
