//! The API server: takes pods from virtual nodes of either generation, adds what they use, and passes them to a plugin.
//!
//! ```text
//! virtual node ── /create ──> gather (ConfigMaps, Secrets, …) ──> Kept ──> plugin /create
//!              ── /status ──> all at once, or one at a time ────────────> plugin /status
//!              ── /delete, /getLogs ────────────────────────────────────> plugin
//!              ── /setKubeCFG ──> Credential      /ping, /pinglink ──> is the plugin there?
//! ```
//!
//! It runs nothing. A pod that was acknowledged is known after whatever crash, and given to the plugin once.

mod credential;
mod kept;
mod routes;
mod statuses;

use crate::caller::{CallError, Caller};
use crate::config::{Config, ConfigError};
use crate::door;
use crate::gather::{self, Found};
use crate::names::PodName;
use crate::secure::{Guard, SecureError};
use crate::wire::{self, Created, Generation, RetrievedPod, Submission};
use credential::Credential;
use http::{Method, StatusCode};
use kept::{Kept, KeptPod};
use parking_lot::Mutex;
pub(crate) use routes::{Failures, log};
use serde_json::json;
use statuses::Statuses;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// How long a plugin may take to take a pod on, or to end one.
const CREATE: Duration = Duration::from_secs(60);
const DELETE: Duration = Duration::from_secs(150);
const PING: Duration = Duration::from_secs(5);
/// What is said of a field of the newer generation.
const SCRIPTS: &str = "jobscriptURL is not supported: the plugin writes the job's script";

/// Why the server does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Tokens and certificates.
    #[error(transparent)]
    Secure(#[from] SecureError),
    /// What it keeps.
    #[error("keep pods below {path}")]
    Keep {
        /// Where.
        path: String,
        /// Why not.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// What runs the pods.
    #[error("start what runs the pods")]
    Site(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The port.
    #[error("listen on {0}: is another server running there?")]
    Listen(SocketAddr, #[source] std::io::Error),
}

/// What is said to whoever asked: a status of HTTP, and words.
pub(crate) type Refusal = (StatusCode, String);

/// What all requests share.
pub(crate) struct ApiServer {
    plugin: Caller,
    kept: Kept,
    credential: Credential,
    statuses: Statuses,
    export: bool,
    data_root: String,
    /// What the plugin understands, once it is known.
    generation: Mutex<Option<Generation>>,
    /// Pods that are being created: a second request for one waits for the first.
    creating: tokio::sync::Mutex<()>,
}

/// Runs the API server until shutdown.
pub async fn run(config: Config, listen: SocketAddr, shutdown: CancellationToken) -> Result<(), Error> {
    let guard = Guard::new(&config.tls, config.token_file.as_deref())?;
    guard.may_listen(listen, "VKTokenFile", "TLS")?;
    let listener = TcpListener::bind(listen).await.map_err(|source| Error::Listen(listen, source))?;
    let server = ApiServer::new(&config)?;
    tracing::info!(address = %listen, plugin = server.plugin.base(), pods = server.kept.count(), "interLink API serves");
    let polling = tokio::spawn(statuses::keep(server.clone(), shutdown.clone()));
    door::serve(listener, guard, routes::router(server), shutdown).await;
    polling.abort();
    Ok(())
}

impl ApiServer {
    fn new(config: &Config) -> Result<Arc<ApiServer>, Error> {
        let root = config.data_root()?.to_owned();
        let failed = |source| Error::Keep { path: root.display().to_string(), source };
        let url = if config.sidecar_url.is_empty() { "http://127.0.0.1" } else { &config.sidecar_url };
        let kept = Kept::open(&root.join(".interlink")).map_err(|error| failed(error.into()))?;
        let statuses = Statuses::default();
        for pod in kept.all() {
            statuses.want(&pod);
        }
        Ok(Arc::new(ApiServer {
            plugin: Caller::new(
                url,
                config.sidecar_port,
                &config.sidecar_tls,
                config.sidecar_token_file.as_deref(),
            )?,
            kept,
            credential: Credential::new(&root, config.kubeconfig.clone()),
            statuses,
            export: config.export_pod_data,
            data_root: root.display().to_string(),
            generation: Mutex::default(),
            creating: tokio::sync::Mutex::default(),
        }))
    }

    /// Takes a pod on: once, however often it is asked.
    async fn create(&self, given: Submission, from: Generation) -> Result<Created, Refusal> {
        let bad = |what: String| (StatusCode::BAD_REQUEST, what);
        let name = PodName::of(&given.pod).map_err(bad)?;
        if !given.job_script_url.is_empty() {
            return Err((StatusCode::UNPROCESSABLE_ENTITY, SCRIPTS.into()));
        }
        let found = self.gather(&given, from).await?;
        let _turn = self.creating.lock().await;
        if let Some(known) = self.kept.get(&name.uid).filter(|known| known.is_accepted) {
            return Ok(Created { uid: name.uid, job: known.job });
        }
        let intended = KeptPod::new(&name, &given.pod);
        let was_intended = self.kept.get(&name.uid).is_some();
        self.keep(&intended)?;
        // Whoever asked before may have died between the plugin's word and ours.
        let created = match if was_intended { self.known_to_plugin(&intended).await? } else { None } {
            Some(created) => created,
            None => {
                let container = match self.export {
                    true => gather::distribute(&given.pod, &found, &self.data_root),
                    false => gather::distribute(&given.pod, &Found::default(), &self.data_root),
                };
                let retrieved = RetrievedPod { pod: given.pod, container, job_script: String::new() };
                match self.submit(&retrieved).await {
                    Ok(created) => created,
                    Err(error) => {
                        // What was refused is not there; of all else nobody knows.
                        if error.code().is_some() {
                            self.kept.remove(&name.uid);
                        }
                        return Err(refusal(error));
                    }
                }
            }
        };
        let accepted = KeptPod { is_accepted: true, job: created.job.clone(), ..intended };
        self.keep(&accepted)?;
        self.statuses.want(&accepted);
        tracing::info!(
            namespace = name.namespace,
            pod = name.name,
            job = created.job,
            "pod given to the plugin"
        );
        Ok(Created { uid: name.uid, job: created.job })
    }

    fn keep(&self, pod: &KeptPod) -> Result<(), Refusal> {
        self.kept.put(pod).map_err(|error| {
            let why = kubelet::error::chain(&error);
            tracing::error!(error = why, "keep a pod");
            (StatusCode::INSUFFICIENT_STORAGE, "the pod cannot be kept: see the log of the API server".into())
        })
    }

    async fn gather(&self, given: &Submission, from: Generation) -> Result<Found, Refusal> {
        let found = Found::of(given);
        let needs = gather::needs(&given.pod);
        let lacks = needs.config_maps.keys().any(|name| !found.config_maps.contains_key(name))
            || needs.secrets.keys().any(|name| !found.secrets.contains_key(name));
        if !self.export || from == Generation::Objects || !lacks {
            return Ok(found);
        }
        let Some(client) = self.credential.client().await else {
            return Err((
                StatusCode::SERVICE_UNAVAILABLE,
                "no kubeconfig to read ConfigMaps and Secrets with: it comes by /setKubeCFG".into(),
            ));
        };
        gather::fetch(&client, &given.pod, false).await.map_err(|error| {
            let code = match error {
                gather::GatherError::Missing { .. } => StatusCode::CONFLICT,
                gather::GatherError::Api { .. } => StatusCode::SERVICE_UNAVAILABLE,
            };
            (code, kubelet::error::chain(&error))
        })
    }

    /// What the plugin says of a pod that it may have been given before.
    async fn known_to_plugin(&self, pod: &KeptPod) -> Result<Option<Created>, Refusal> {
        let body = json!([pod.brief]).to_string().into_bytes();
        match self.plugin.call("/status", Method::GET, body, CREATE).await {
            Err(error) if error.code().is_none() => Err(refusal(error)),
            // Whatever else it says, it does not know the pod.
            Err(_) => Ok(None),
            Ok(answer) => {
                let states = wire::decode_states(&answer).unwrap_or_default();
                let known =
                    states.into_iter().flatten().find(|state| pod.is(state) && !state.containers.is_empty());
                Ok(known.map(|state| Created { uid: pod.uid.clone(), job: state.job }))
            }
        }
    }

    /// Gives a pod to the plugin, in the words that it understands.
    async fn submit(&self, pod: &RetrievedPod) -> Result<Created, CallError> {
        let known = *self.generation.lock();
        let mut refused = None;
        for generation in [Generation::Objects, Generation::Arrays] {
            if known.is_some_and(|known| known != generation) {
                continue;
            }
            let body = pod.encode(generation).to_string().into_bytes();
            match self.plugin.call("/create", Method::POST, body, CREATE).await {
                Ok(answer) => {
                    *self.generation.lock() = Some(generation);
                    let all =
                        serde_json::from_slice::<Vec<Created>>(&answer).ok().and_then(|mut all| all.pop());
                    return Ok(all.or_else(|| serde_json::from_slice(&answer).ok()).unwrap_or_default());
                }
                // One that wants the other generation cannot read this one, so nothing has been made.
                Err(error @ CallError::Answered { .. }) => refused = refused.or(Some(error)),
                Err(away) => return Err(away),
            }
        }
        Err(refused
            .unwrap_or(CallError::Away { url: self.plugin.base().into(), why: "no generation fits".into() }))
    }

    async fn delete(&self, pod: &k8s_openapi::api::core::v1::Pod, from: Generation) -> Result<(), Refusal> {
        let name = PodName::of(pod).map_err(|what| (StatusCode::BAD_REQUEST, what))?;
        let generation = self.generation.lock().unwrap_or(from);
        let one = wire::pod(pod);
        let body = |generation| match generation {
            Generation::Arrays => json!([one]).to_string().into_bytes(),
            Generation::Objects => one.to_string().into_bytes(),
        };
        let other = if generation == Generation::Arrays { Generation::Objects } else { Generation::Arrays };
        let mut done = self.plugin.call("/delete", Method::POST, body(generation), DELETE).await;
        if self.generation.lock().is_none()
            && done.as_ref().is_err_and(|error| matches!(error.code(), Some(400 | 422 | 500)))
        {
            let again = self.plugin.call("/delete", Method::POST, body(other), DELETE).await;
            done = again.or(done);
        }
        match done {
            Ok(_) => {}
            Err(error) if error.code() == Some(404) => {}
            Err(error) => return Err(refusal(error)),
        }
        self.kept.remove(&name.uid);
        self.statuses.forget(&name.uid);
        Ok(())
    }

    /// Asks whether the plugin is there. An odd answer is an answer.
    async fn ping(&self) -> Result<Option<wire::Pong>, Refusal> {
        match self.plugin.call("/status", Method::GET, b"[]".to_vec(), PING).await {
            Ok(answer) => Ok(wire::decode_pong(&answer)),
            Err(CallError::Answered { code: 401 | 403, words }) => {
                Err((StatusCode::BAD_GATEWAY, format!("the plugin does not let the API server in: {words}")))
            }
            Err(CallError::Answered { .. }) => Ok(None),
            Err(error) => Err(refusal(error)),
        }
    }
}

/// An error of the hop behind us, told on.
fn refusal(error: CallError) -> Refusal {
    match error {
        CallError::Answered { code, words } => {
            // What the plugin thinks of our credential is not about the caller's.
            let code = if matches!(code, 401 | 403 | 404 | 405) { 502 } else { code };
            (StatusCode::from_u16(code).unwrap_or(StatusCode::BAD_GATEWAY), words)
        }
        away => (StatusCode::SERVICE_UNAVAILABLE, format!("the plugin does not answer: {away}")),
    }
}
