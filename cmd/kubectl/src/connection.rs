//! Requests to the API server, as raw JSON: kubectl knows no kind by itself.

use anyhow::{Context, Result, bail};
use http::{Method, Request, header};
use http_body_util::BodyExt;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use serde_json::Value;
use std::path::PathBuf;

/// What every command may be told about the cluster.
#[derive(clap::Args, Clone, Default)]
pub struct ClusterFlags {
    /// The kubeconfig file.
    #[arg(long, global = true)]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig to use.
    #[arg(long, global = true)]
    pub context: Option<String>,
    /// The namespace to look in.
    #[arg(long, short, global = true)]
    pub namespace: Option<String>,
    /// Where the API server is.
    #[arg(long, short, global = true)]
    pub server: Option<String>,
    /// The bearer token to show.
    #[arg(long, global = true)]
    pub token: Option<String>,
    /// The user to act as.
    #[arg(long = "as", global = true)]
    pub impersonate: Option<String>,
}

/// A cluster, and the namespace that is meant where none is named.
pub struct Connection {
    /// The client.
    pub client: Client,
    /// The namespace.
    pub namespace: String,
    /// Where the API server is.
    pub server: String,
}

/// The admin's kubeconfig on a control plane.
const ADMIN: &str = "/etc/kubernetes/admin.conf";

const NO_KUBECONFIG: &str = "no kubeconfig was found, so there is no cluster to talk to.\n\
    On the control plane: export KUBECONFIG=/etc/kubernetes/admin.conf (as root).\n\
    Elsewhere: copy that file to ~/.kube/config.\n\
    No cluster yet? kubeadm init makes one.";

impl Connection {
    /// Connects as the kubeconfig says; nothing is sent yet.
    pub async fn open(flags: &ClusterFlags) -> Result<Connection> {
        let kubeconfig = read_kubeconfig(flags)?;
        let options = KubeConfigOptions { context: flags.context.clone(), ..KubeConfigOptions::default() };
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .context("the kubeconfig cannot be used")?;
        if let Some(server) = &flags.server {
            config.cluster_url = server.parse().with_context(|| format!("{server:?} is not a URL"))?;
        }
        if let Some(token) = &flags.token {
            config.auth_info.token = Some(token.clone().into());
        }
        if let Some(user) = &flags.impersonate {
            config.auth_info.impersonate = Some(user.clone());
        }
        // A watch may be silent for long.
        config.read_timeout = None;
        let namespace = flags.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let client = Client::try_from(config).context("the kubeconfig cannot be used")?;
        Ok(Connection { client, namespace, server })
    }

    /// An object or a list.
    pub async fn get(&self, path: &str) -> Result<Value> {
        self.send(Method::GET, path, None).await
    }

    /// Sends JSON, if there is any, and reads JSON.
    pub async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value> {
        self.send_as(method, path, "application/json", body.map(Value::to_string), "application/json").await
    }

    /// Sends a text of some kind, and reads JSON.
    pub async fn send_as(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Option<String>,
        accept: &str,
    ) -> Result<Value> {
        let text = self.text(method, path, content_type, body, accept).await?;
        serde_json::from_str(&text).with_context(|| format!("the server's answer to {path} is not JSON"))
    }

    /// Sends a text of some kind, and reads text.
    pub async fn text(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Option<String>,
        accept: &str,
    ) -> Result<String> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, content_type)
            .header(header::ACCEPT, accept)
            .body(Body::from(body.unwrap_or_default().into_bytes()))?;
        let response = self.client.send(request).await.map_err(|error| self.unreachable(error))?;
        for warning in response.headers().get_all(header::WARNING) {
            let text = warning.to_str().unwrap_or_default();
            let text = text.splitn(3, ' ').nth(2).unwrap_or(text).trim_matches('"').replace("\\\"", "\"");
            eprintln!("Warning: {text}");
        }
        let status = response.status();
        let bytes = response.into_body().collect().await.context("the answer broke off")?.to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if !status.is_success() {
            return Err(refusal(status, &text).into());
        }
        Ok(text)
    }

    /// A stream of what the server sends: a watch, or a log.
    pub async fn stream(
        &self,
        path: &str,
        accept: &str,
    ) -> Result<impl futures::AsyncBufRead + Unpin + use<>> {
        let request = Request::get(path).header(header::ACCEPT, accept).body(Vec::new())?;
        match self.client.request_stream(request).await {
            Ok(stream) => Ok(stream),
            Err(kube::Error::Api(status)) => Err(Refusal {
                code: status.code,
                reason: status.reason.clone(),
                message: status.message.clone(),
            }
            .into()),
            Err(error) => Err(self.unreachable(error)),
        }
    }

    fn unreachable(&self, error: kube::Error) -> anyhow::Error {
        let mut cause: &dyn std::error::Error = &error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        anyhow::anyhow!("Unable to connect to the server at {}: {cause}", self.server)
    }
}

/// The server said no.
#[derive(Debug, thiserror::Error)]
#[error("{}{message}", shown_reason(reason))]
pub struct Refusal {
    /// The status code.
    pub code: u16,
    /// Why, in a word.
    pub reason: String,
    /// Why, in a sentence.
    pub message: String,
}

/// As upstream shows it: `Error from server (NotFound): `.
fn shown_reason(reason: &str) -> String {
    if reason.is_empty() { "Error from server: ".into() } else { format!("Error from server ({reason}): ") }
}

fn refusal(status: http::StatusCode, text: &str) -> Refusal {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    let message = value["message"].as_str().unwrap_or(if text.is_empty() { status.as_str() } else { text });
    Refusal {
        code: status.as_u16(),
        reason: value["reason"].as_str().unwrap_or_default().to_owned(),
        message: message.trim().to_owned(),
    }
}

/// Whether an error is the server's word that something is not there.
pub fn is_not_found(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Refusal>().is_some_and(|refusal| refusal.code == 404)
}

/// The kubeconfig that is meant: the flag's, the environment's, the user's, or the admin's on a control plane.
pub fn read_kubeconfig(flags: &ClusterFlags) -> Result<Kubeconfig> {
    if let Some(path) = &flags.kubeconfig {
        return Kubeconfig::read_from(path).with_context(|| format!("read {}", path.display()));
    }
    match Kubeconfig::read() {
        Ok(config) if !config.clusters.is_empty() => Ok(config),
        Ok(_) | Err(KubeconfigError::ReadConfig(..) | KubeconfigError::FindPath) => {
            if std::env::var_os("KUBECONFIG").is_none_or(|path| path.is_empty())
                && let Ok(config) = Kubeconfig::read_from(ADMIN)
            {
                return Ok(config);
            }
            bail!(NO_KUBECONFIG)
        }
        Err(error) => Err(error).context("read the kubeconfig"),
    }
}
