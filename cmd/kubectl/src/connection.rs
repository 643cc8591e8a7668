//! Requests to the API server, as raw JSON: kubectl knows no kind by itself.

use anyhow::{Context, Result, bail};
use futures::{AsyncBufReadExt, StreamExt};
use http::{Method, Request, header};
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use serde_json::Value;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{self, protocol::Role};

/// A socket that messages go over.
pub type Socket = WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>;

/// What every command may be told about the cluster.
#[derive(clap::Args, Clone, Default)]
#[command(next_help_heading = "Options of every command")]
pub struct ClusterFlags {
    /// The kubeconfig file.
    #[arg(long, global = true)]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig to use.
    #[arg(long, global = true)]
    pub context: Option<String>,
    // These two are not global for clap, since some commands have flags of these names: see `arguments`.
    /// The cluster of the kubeconfig to use.
    #[arg(long, hide_short_help = true)]
    pub cluster: Option<String>,
    /// The user of the kubeconfig to be.
    #[arg(long, hide_short_help = true)]
    pub user: Option<String>,
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
    /// The group to act as; may be given several times.
    #[arg(long = "as-group", global = true, action = clap::ArgAction::Append)]
    pub impersonate_groups: Vec<String>,
    /// Believe whatever certificate the server shows.
    #[arg(long, global = true, hide_short_help = true)]
    pub insecure_skip_tls_verify: bool,
    /// A file with the authority that the server's certificate must be of.
    #[arg(long, global = true, hide_short_help = true)]
    pub certificate_authority: Option<PathBuf>,
    /// A file with the certificate to show.
    #[arg(long, global = true, hide_short_help = true)]
    pub client_certificate: Option<PathBuf>,
    /// A file with that certificate's key.
    #[arg(long, global = true, hide_short_help = true)]
    pub client_key: Option<PathBuf>,
    /// The name that the server's certificate must have.
    #[arg(long, global = true, hide_short_help = true)]
    pub tls_server_name: Option<String>,
    /// How long a single request may take, such as 10s; 0 is for ever.
    #[arg(long, global = true, hide_short_help = true, default_value = "0")]
    pub request_timeout: String,
    /// Where to keep what the server said it has; ~/.kube/cache unless told.
    #[arg(long, global = true, hide_short_help = true)]
    pub cache_dir: Option<PathBuf>,
    /// How much to tell: from 6 on, every request and its answer's status.
    #[arg(long = "v", short = 'v', global = true, hide_short_help = true, default_value_t = 0)]
    pub verbosity: u8,
    /// End with an error where the server warned.
    #[arg(long, global = true, hide_short_help = true)]
    pub warnings_as_errors: bool,
    /// Accepted as upstream's.
    #[arg(long, global = true, hide = true)]
    pub disable_compression: bool,
    /// Accepted as upstream's.
    #[arg(long, global = true, hide = true)]
    pub match_server_version: bool,
}

/// How often the server warned.
static WARNINGS: AtomicUsize = AtomicUsize::new(0);

/// An error if the server warned.
pub fn refuse_warnings() -> Result<()> {
    match WARNINGS.load(Ordering::Relaxed) {
        0 => Ok(()),
        1 => bail!("1 warning received"),
        count => bail!("{count} warnings received"),
    }
}

/// A cluster, and the namespace that is meant where none is named.
pub struct Connection {
    /// The client.
    pub client: Client,
    /// The namespace.
    pub namespace: String,
    /// The namespace was named by a flag.
    pub namespace_is_given: bool,
    /// Where the API server is.
    pub server: String,
    /// Where to keep what the server said it has.
    pub cache: Option<PathBuf>,
    /// How long a request may take.
    request_timeout: Option<Duration>,
    /// Requests are told.
    tells_requests: bool,
}

/// The reason that the client gives to an answer that is no `Status`.
const NO_STATUS: &str = "Failed to parse error data";

/// From this verbosity on, requests are told.
const TELLS_REQUESTS: u8 = 6;

/// The admin's kubeconfig on a control plane.
const ADMIN: &str = "/etc/kubernetes/admin.conf";

const NO_KUBECONFIG: &str = "no kubeconfig was found, so there is no cluster to talk to.\n\
    On the control plane: export KUBECONFIG=/etc/kubernetes/admin.conf (as root).\n\
    Elsewhere: copy that file to ~/.kube/config.\n\
    No cluster yet? kubeadm init makes one.";

/// There is nobody to talk to.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct NoKubeconfig(String);

impl Connection {
    /// Connects as the kubeconfig says; nothing is sent yet.
    pub async fn open(flags: &ClusterFlags) -> Result<Connection> {
        let request_timeout = crate::duration::parse(&flags.request_timeout).context("--request-timeout")?;
        let request_timeout = (!request_timeout.is_zero()).then_some(request_timeout);
        let kubeconfig = read_kubeconfig(flags)?;
        check_names(&kubeconfig, flags)?;
        let options = KubeConfigOptions {
            context: flags.context.clone(),
            cluster: flags.cluster.clone(),
            user: flags.user.clone(),
        };
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
        if !flags.impersonate_groups.is_empty() {
            config.auth_info.impersonate_groups = Some(flags.impersonate_groups.clone());
        }
        use_certificates(&mut config, flags);
        // A watch may be silent for long.
        config.read_timeout = None;
        // Whoever asked is told at once that a budget or a quota stands in the way.
        config.default_retry = false;
        let namespace = flags.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let client = Client::try_from(config).context("the kubeconfig cannot be used")?;
        let cache = cache_folder(flags, &server);
        let namespace_is_given = flags.namespace.is_some();
        let tells_requests = flags.verbosity >= TELLS_REQUESTS;
        Ok(Connection {
            client,
            namespace,
            namespace_is_given,
            server,
            cache,
            request_timeout,
            tells_requests,
        })
    }

    /// As `open`; without any kubeconfig a connection that leads nowhere, for what is only pretended.
    pub async fn open_or_offline(flags: &ClusterFlags) -> Result<Connection> {
        match Connection::open(flags).await {
            Err(error) if error.is::<NoKubeconfig>() => {
                let config = Config::new(http::Uri::from_static("http://localhost:8080"));
                Ok(Connection {
                    client: Client::try_from(config)?,
                    namespace: flags.namespace.clone().unwrap_or_else(|| "default".to_owned()),
                    namespace_is_given: flags.namespace.is_some(),
                    server: "localhost:8080".to_owned(),
                    cache: None,
                    request_timeout: None,
                    tells_requests: false,
                })
            }
            opened => opened,
        }
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
        let headers = [(header::CONTENT_TYPE, content_type), (header::ACCEPT, accept)];
        self.text_with(method, path, &headers, body).await
    }

    /// Sends a text with headers of its own, and reads text.
    pub async fn text_with(
        &self,
        method: Method,
        path: &str,
        headers: &[(header::HeaderName, &str)],
        body: Option<String>,
    ) -> Result<String> {
        let mut request = Request::builder().method(&method).uri(path);
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        let request = request.body(Body::from(body.unwrap_or_default().into_bytes()))?;
        let answer = async {
            let response = self.client.send(request).await.map_err(|error| self.unreachable(error))?;
            if self.tells_requests {
                eprintln!("{method} {}{path} {}", self.server, response.status());
            }
            for warning in response.headers().get_all(header::WARNING) {
                let text = warning.to_str().unwrap_or_default();
                let text = text.splitn(3, ' ').nth(2).unwrap_or(text);
                let quoted = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
                let text = quoted.unwrap_or(text).replace("\\\"", "\"");
                eprintln!("Warning: {}", cli::plain(&text));
                WARNINGS.fetch_add(1, Ordering::Relaxed);
            }
            let status = response.status();
            let bytes = response.into_body().collect().await.context("the answer broke off")?.to_bytes();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if !status.is_success() {
                return Err(refusal(status, &text).into());
            }
            Ok(text)
        };
        self.in_time(answer).await
    }

    /// As long as `--request-timeout` allows.
    async fn in_time<T>(&self, answer: impl Future<Output = Result<T>>) -> Result<T> {
        let Some(timeout) = self.request_timeout else { return answer.await };
        tokio::time::timeout(timeout, answer).await.unwrap_or_else(|_| {
            let message =
                format!("Unable to connect to the server at {}: no answer in {timeout:?}", self.server);
            Err(Unreachable(message).into())
        })
    }

    /// A WebSocket that speaks a protocol.
    pub async fn upgrade(&self, path: &str, protocol: &'static str) -> Result<Socket> {
        let request = Request::get(path)
            .header(header::CONNECTION, "Upgrade")
            .header(header::UPGRADE, "websocket")
            .header(header::SEC_WEBSOCKET_VERSION, "13")
            .header(header::SEC_WEBSOCKET_KEY, tungstenite::handshake::client::generate_key())
            .header(header::SEC_WEBSOCKET_PROTOCOL, protocol)
            .body(Body::empty())?;
        let opening = async {
            let response = self.client.send(request).await.map_err(|error| self.unreachable(error))?;
            let status = response.status();
            if status != http::StatusCode::SWITCHING_PROTOCOLS {
                let bytes = response.into_body().collect().await.context("the answer broke off")?.to_bytes();
                return Err(refusal(status, &String::from_utf8_lossy(&bytes)).into());
            }
            if response.headers().get(header::SEC_WEBSOCKET_PROTOCOL).is_none_or(|agreed| agreed != protocol)
            {
                bail!("the server does not speak {protocol}");
            }
            let upgraded = hyper::upgrade::on(response).await.context("the server did not go on")?;
            Ok(WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, None).await)
        };
        self.in_time(opening).await
    }

    /// A stream of what the server sends: a watch, or a log.
    pub async fn stream(
        &self,
        path: &str,
        accept: &str,
    ) -> Result<impl futures::AsyncBufRead + Unpin + use<>> {
        let request = Request::get(path).header(header::ACCEPT, accept).body(Vec::new())?;
        self.in_time(async { self.client.request_stream(request).await.map_err(|error| self.failed(error)) })
            .await
    }

    /// The events of a watch, until the server ends it or the connection breaks off. An ERROR is its last word, and an
    /// error here as if the watch had been refused.
    pub async fn watch(
        &self,
        path: &str,
        accept: &str,
    ) -> Result<impl futures::Stream<Item = Result<Value>> + use<'_>> {
        let lines = self.stream(path, accept).await?.lines();
        let lines = lines.take_while(|line| std::future::ready(line.is_ok()));
        Ok(lines.map(|line| {
            let mut event: Value = serde_json::from_str(&line?)?;
            match event["type"] == "ERROR" {
                true => Err(self.failed(kube::Error::Api(serde_json::from_value(event["object"].take())?))),
                false => Ok(event),
            }
        }))
    }

    /// What a client's error means for people: the server's word, or that there was none.
    pub fn failed(&self, error: kube::Error) -> anyhow::Error {
        match error {
            kube::Error::Api(status) => Refusal {
                code: status.code,
                reason: if status.reason == NO_STATUS { String::new() } else { status.reason.clone() },
                message: status.message.clone(),
                details: serde_json::to_value(&status.details).unwrap_or_default(),
            }
            .into(),
            error => self.unreachable(error),
        }
    }

    /// The same, of a talk with a container that was not taken up. A kubelet says in plain text why.
    pub fn not_upgraded(&self, error: kube::Error) -> anyhow::Error {
        match error {
            kube::Error::Api(status) if status.reason == NO_STATUS => {
                anyhow::anyhow!("unable to upgrade connection: {}", status.message)
            }
            error => self.failed(error),
        }
    }

    fn unreachable(&self, error: kube::Error) -> anyhow::Error {
        let mut causes = vec![&error as &dyn std::error::Error];
        while let Some(cause) = causes.last().and_then(|last| last.source()) {
            causes.push(cause);
        }
        let is_refused = causes.iter().any(|cause| {
            cause
                .downcast_ref::<std::io::Error>()
                .is_some_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
        });
        let cause = causes.last().map(|cause| cause.to_string()).unwrap_or_default();
        if is_refused {
            let host = self.server.split_once("://").map_or(self.server.as_str(), |(_, host)| host);
            return anyhow::anyhow!(Unreachable(format!(
                "The connection to the server {host} was refused - did you specify the right host or port?"
            )));
        }
        anyhow::anyhow!(Unreachable(format!("Unable to connect to the server at {}: {cause}", self.server)))
    }
}

/// Nobody answered.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unreachable(String);

/// The server said no.
#[derive(Debug, thiserror::Error)]
#[error("{}", shown_refusal(reason, message, details))]
pub struct Refusal {
    /// The status code.
    pub code: u16,
    /// Why, in a word.
    pub reason: String,
    /// Why, in a sentence.
    pub message: String,
    /// What it is about, and all that is wrong with it.
    pub details: Value,
}

/// As upstream shows it: `Error from server (NotFound): `, or `The Pod "web" is invalid: `.
fn shown_refusal(reason: &str, message: &str, details: &Value) -> String {
    match reason {
        "" => format!("Error from server: {message}"),
        "Unauthorized" => "error: You must be logged in to the server (Unauthorized)".to_owned(),
        "Invalid" => shown_invalid(message, details),
        _ => format!("Error from server ({reason}): {message}"),
    }
}

fn shown_invalid(message: &str, details: &Value) -> String {
    let text = |field: &str| details[field].as_str().unwrap_or_default();
    let mut causes = Vec::new();
    for cause in details["causes"].as_array().into_iter().flatten() {
        let part = |field: &str| cause[field].as_str().unwrap_or_default();
        let shown = match part("field") {
            "" => part("message").to_owned(),
            field => format!("{field}: {}", part("message")),
        };
        if !causes.contains(&shown) {
            causes.push(shown);
        }
    }
    let about = if text("kind").is_empty() && text("name").is_empty() {
        "The request is invalid".to_owned()
    } else {
        format!("The {} \"{}\" is invalid", text("kind"), text("name"))
    };
    match causes.as_slice() {
        [] => format!("{about}: {message}"),
        [cause] => format!("{about}: {cause}"),
        causes => format!("{about}: \n* {}", causes.join("\n* ")),
    }
}

fn refusal(status: http::StatusCode, text: &str) -> Refusal {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    let message = value["message"].as_str().unwrap_or(if text.is_empty() { status.as_str() } else { text });
    Refusal {
        code: status.as_u16(),
        reason: value["reason"].as_str().unwrap_or_default().to_owned(),
        message: message.trim().to_owned(),
        details: value["details"].clone(),
    }
}

/// Whether what flags name is in the kubeconfig.
fn check_names(kubeconfig: &Kubeconfig, flags: &ClusterFlags) -> Result<()> {
    if let Some(name) = &flags.context
        && !kubeconfig.contexts.iter().any(|own| own.name == *name)
    {
        let names: Vec<&str> = kubeconfig.contexts.iter().map(|own| own.name.as_str()).collect();
        bail!("context was not found for specified context: {name} (there are: {})", names.join(", "));
    }
    if let Some(name) = &flags.cluster
        && !kubeconfig.clusters.iter().any(|own| own.name == *name)
    {
        bail!("cluster {name:?} does not exist");
    }
    if let Some(name) = &flags.user
        && !kubeconfig.auth_infos.iter().any(|own| own.name == *name)
    {
        bail!("auth info {name:?} does not exist");
    }
    Ok(())
}

/// Certificates that flags name instead of the kubeconfig.
fn use_certificates(config: &mut Config, flags: &ClusterFlags) {
    let path = |path: &PathBuf| path.display().to_string();
    if let Some(certificate) = &flags.client_certificate {
        config.auth_info.client_certificate = Some(path(certificate));
        config.auth_info.client_certificate_data = None;
    }
    if let Some(key) = &flags.client_key {
        config.auth_info.client_key = Some(path(key));
        config.auth_info.client_key_data = None;
    }
    if let Some(authority) = &flags.certificate_authority {
        config.root_cert = None;
        config.root_cert_file = Some(authority.clone());
    }
    config.accept_invalid_certs |= flags.insecure_skip_tls_verify;
    if let Some(name) = &flags.tls_server_name {
        config.tls_server_name = Some(name.clone());
    }
}

/// A server's folder below the cache: its name and port, as upstream's.
fn cache_folder(flags: &ClusterFlags, server: &str) -> Option<PathBuf> {
    let root = flags.cache_dir.clone().or_else(|| {
        let home = std::env::var_os("HOME").filter(|home| !home.is_empty())?;
        Some(PathBuf::from(home).join(".kube/cache"))
    })?;
    let host = server.split_once("://").map_or(server, |(_, host)| host);
    let name: String = host
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '.' || c == '-' { c } else { '_' })
        .collect();
    Some(root.join("discovery").join(name))
}

/// Whether an error is told without `error:` before it: the server's word, or that nobody answered.
pub fn speaks_for_itself(error: &anyhow::Error) -> bool {
    error.chain().count() == 1 && (error.is::<Refusal>() || error.is::<Unreachable>())
}

/// Whether an error is the server's word that something is not there.
pub fn is_not_found(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Refusal>().is_some_and(|refusal| refusal.code == 404)
}

/// Whether an error is the server's word that it has forgotten what a watch was to go on from.
pub fn is_history(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Refusal>().is_some_and(|refusal| refusal.code == 410)
}

/// The kubeconfig that is meant: the flag's, the environment's, the user's, or the admin's on a control plane.
pub fn read_kubeconfig(flags: &ClusterFlags) -> Result<Kubeconfig> {
    if let Some(path) = &flags.kubeconfig {
        return match Kubeconfig::read_from(path) {
            Err(KubeconfigError::ReadConfig(error, _)) => bail!("read {}: {error}", path.display()),
            config => config.with_context(|| format!("read {}", path.display())),
        };
    }
    match Kubeconfig::read() {
        Ok(config) if !config.clusters.is_empty() => Ok(config),
        Ok(_) | Err(KubeconfigError::ReadConfig(..) | KubeconfigError::FindPath) => {
            if std::env::var_os("KUBECONFIG").is_none_or(|path| path.is_empty())
                && let Ok(config) = Kubeconfig::read_from(ADMIN)
            {
                return Ok(config);
            }
            if let Some(path) = std::env::var_os("KUBECONFIG").filter(|path| !path.is_empty()) {
                let why =
                    format!("KUBECONFIG names {}, and no kubeconfig with a cluster is there", path.display());
                return Err(NoKubeconfig(why).into());
            }
            Err(NoKubeconfig(NO_KUBECONFIG.to_owned()).into())
        }
        Err(error) => {
            let path = std::env::var("KUBECONFIG").unwrap_or_else(|_| "~/.kube/config".to_owned());
            Err(error).with_context(|| format!("read the kubeconfig {path}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn refusals_are_told_in_upstreams_words() {
        let check = |status: Value, expected: &str| {
            assert_eq!(refusal(http::StatusCode::BAD_REQUEST, &status.to_string()).to_string(), expected);
        };
        check(
            json!({"reason": "NotFound", "message": "pods \"a\" not found"}),
            "Error from server (NotFound): pods \"a\" not found",
        );
        check(json!({"reason": "Unauthorized"}), "error: You must be logged in to the server (Unauthorized)");
        let causes = |causes: Value| json!({"reason": "Invalid", "message": "long", "details": {"kind": "Pod", "name": "a", "causes": causes}});
        check(
            causes(json!([{"field": "spec.x", "message": "Invalid value: -1"}])),
            "The Pod \"a\" is invalid: spec.x: Invalid value: -1",
        );
        check(
            causes(
                json!([{"field": "a", "message": "b"}, {"field": "c", "message": "d"}, {"field": "a", "message": "b"}]),
            ),
            "The Pod \"a\" is invalid: \n* a: b\n* c: d",
        );
        check(json!({"reason": "Invalid", "message": "m"}), "The request is invalid: m");
    }
}
