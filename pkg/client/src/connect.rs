//! A client from a kubeconfig or from inside a pod, that notices when its files change.
//!
//! kube-rs reads certificates once. Here every request goes to the client of the moment, which is made anew when the
//! kubeconfig, or a file that it names, is another than before: so certificates are renewed without a restart.

use crate::multiplex;
use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response, header};
use kube::Client;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// How often files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// No answer takes longer to begin, except of a watch.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be read.
    #[error("read the kubeconfig {path}", path = path.display())]
    Kubeconfig {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: kube::config::KubeconfigError,
    },
    /// Not inside a pod.
    #[error("no kubeconfig was given and this is not a pod: pass --kubeconfig")]
    InCluster(#[source] kube::config::InClusterError),
    /// The user agent is not a header value.
    #[error("the user agent {0:?} cannot be sent")]
    UserAgent(String),
    /// What it says does not make a client.
    #[error("make a client")]
    Client(#[source] kube::Error),
}

/// A client with the credentials of a kubeconfig, or of the pod that this runs in.
pub async fn connect(kubeconfig: Option<&Path>, user_agent: &str) -> Result<Client, ConnectError> {
    connect_with(kubeconfig, user_agent, Way::default()).await
}

/// As [`connect`], over one connection: for programs with many watches, which do not exec or attach.
pub async fn connect_multiplexed(
    kubeconfig: Option<&Path>,
    user_agent: &str,
) -> Result<Client, ConnectError> {
    connect_with(kubeconfig, user_agent, Way { multiplexed: true, ..Way::default() }).await
}

/// The host by which a kubeconfig reaches the API server. None, if it is none, or cannot be read.
pub fn server_name(kubeconfig: Option<&Path>) -> Option<String> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig?).ok()?;
    let named =
        |name: &str| kubeconfig.contexts.iter().find(|context| context.name == name)?.context.as_ref();
    let cluster = &named(kubeconfig.current_context.as_deref()?)?.cluster;
    let cluster = kubeconfig.clusters.iter().find(|it| it.name == *cluster)?.cluster.as_ref()?;
    let server: http::Uri = cluster.server.as_deref()?.parse().ok()?;
    server.host().map(str::to_owned)
}

/// How to connect.
#[derive(Default)]
pub(crate) struct Way {
    /// All requests share one connection.
    pub multiplexed: bool,
    /// Requests bring their own credentials.
    pub without_credentials: bool,
}

/// As [`connect`], in a certain way.
pub(crate) async fn connect_with(
    kubeconfig: Option<&Path>,
    user_agent: &str,
    way: Way,
) -> Result<Client, ConnectError> {
    // Another part of the program may have chosen already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let source = Source {
        kubeconfig: kubeconfig.map(Path::to_path_buf),
        user_agent: HeaderValue::from_str(user_agent)
            .map_err(|_| ConnectError::UserAgent(user_agent.to_owned()))?,
        way,
    };
    let current = source.load().await?;
    let namespace = current.client.default_namespace().to_owned();
    let reloading = Reloading { source: Arc::new(source), current: Arc::new(Mutex::new(current)) };
    Ok(Client::new(reloading, namespace))
}

struct Source {
    kubeconfig: Option<PathBuf>,
    user_agent: HeaderValue,
    way: Way,
}

/// The client of the moment, and what it was made from.
struct Current {
    client: Client,
    files: Vec<(PathBuf, Option<SystemTime>)>,
    looked: Instant,
}

impl Source {
    async fn load(&self) -> Result<Current, ConnectError> {
        let mut files = Vec::new();
        let mut config = match &self.kubeconfig {
            Some(path) => {
                let failed = |source| ConnectError::Kubeconfig { path: path.clone(), source };
                files.push(path.clone());
                let kubeconfig = Kubeconfig::read_from(path).map_err(failed)?;
                kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
                    .await
                    .map_err(failed)?
            }
            None => kube::Config::incluster().map_err(ConnectError::InCluster)?,
        };
        let named = [&config.auth_info.client_certificate, &config.auth_info.client_key];
        files.extend(named.into_iter().flatten().map(PathBuf::from));
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        config.headers.push((header::USER_AGENT, self.user_agent.clone()));
        if self.way.without_credentials {
            config.auth_info = kube::config::AuthInfo::default();
        }
        let files = files.into_iter().map(|path| (modified(&path), path)).map(|(at, path)| (path, at));
        let files = files.collect();
        let client = match self.way.multiplexed {
            true => multiplex::client(config),
            false => Client::try_from(config),
        };
        let client = client.map_err(ConnectError::Client)?;
        Ok(Current { client, files, looked: Instant::now() })
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

#[derive(Clone)]
struct Reloading {
    source: Arc<Source>,
    current: Arc<Mutex<Current>>,
}

impl Reloading {
    async fn client(&self) -> Client {
        {
            let mut current = self.current.lock();
            if current.looked.elapsed() < LOOK_EVERY {
                return current.client.clone();
            }
            current.looked = Instant::now();
            if current.files.iter().all(|(path, at)| modified(path) == *at) {
                return current.client.clone();
            }
        }
        match self.source.load().await {
            Ok(loaded) => *self.current.lock() = loaded,
            // Half-written, most likely: the next look finds it whole.
            Err(error) => {
                tracing::warn!(%error, "credentials changed and cannot be read; keeping the old ones")
            }
        }
        self.current.lock().client.clone()
    }
}

impl tower_service::Service<Request<Body>> for Reloading {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = BoxFuture<'static, kube::Result<Response<Body>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), kube::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            let client = this.client().await;
            match tokio::time::timeout(ANSWER_TIMEOUT, client.send(request)).await {
                Ok(answer) => answer,
                Err(elapsed) => Err(kube::Error::Service(elapsed.into())),
            }
        })
    }
}
