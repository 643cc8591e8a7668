//! The clients' side of a hop: one request at a time is made, and its answer read in bounds.
//!
//! It knows addresses, credentials and patience, nothing of pods.

use crate::config::TlsFiles;
use crate::secure::{SecureError, TokenFile, client_config};
use crate::wire::SESSION;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// An answer is no larger.
const LARGEST_ANSWER: usize = 64 << 20;
/// Of an answer that says what went wrong, people are shown no more.
const LONGEST_WORDS: usize = 2048;
const CONNECT: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_secs(60);

/// Why there is no answer, or not the one that was hoped for.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// Nobody knows whether it arrived.
    #[error("{url}: {why}")]
    Away {
        /// Where.
        url: String,
        /// Why.
        why: String,
    },
    /// Refused in the other side's own words.
    #[error("{words} (HTTP {code})")]
    Answered {
        /// The status.
        code: u16,
        /// The words.
        words: String,
    },
}

impl CallError {
    /// The status of an answer.
    pub fn code(&self) -> Option<u16> {
        match self {
            CallError::Answered { code, .. } => Some(*code),
            CallError::Away { .. } => None,
        }
    }

    /// Nobody serves that path.
    pub fn is_unknown_path(&self) -> bool {
        self.code() == Some(404)
    }

    /// The other side does not want this, whenever it is asked.
    pub fn is_refusal(&self) -> bool {
        self.code().is_some_and(|code| {
            (400..500).contains(&code) && !matches!(code, 401 | 403 | 404 | 405 | 407 | 408 | 409 | 425 | 429)
        })
    }
}

/// Makes requests to one server.
pub struct Caller {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    base: String,
    token: Option<TokenFile>,
    session: HeaderValue,
    /// The method that a path is known to take, where the published descriptions disagree.
    methods: Mutex<BTreeMap<&'static str, Method>>,
}

impl Caller {
    /// Of the server there (`http://host`, no port), with the client's files of that hop.
    pub fn new(
        url: &str,
        port: u16,
        tls: &TlsFiles,
        token_file: Option<&Path>,
    ) -> Result<Caller, SecureError> {
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(client_config(tls)?).https_or_http().enable_http1();
        let mut http = HttpConnector::new();
        http.set_connect_timeout(Some(CONNECT));
        http.set_nodelay(true);
        http.enforce_http(false);
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE)
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(4)
            .build(connector.wrap_connector(http));
        let session = format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
        Ok(Caller {
            client,
            base: format!("{url}:{port}"),
            token: token_file.map(TokenFile::new).transpose()?,
            session: HeaderValue::try_from(session).unwrap_or(HeaderValue::from_static("minik8s")),
            methods: Mutex::default(),
        })
    }

    /// Where it calls.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Asks, and reads the answer of a success. A server that does not take the method is asked by the others.
    pub async fn call(
        &self,
        path: &'static str,
        method: Method,
        body: Vec<u8>,
        patience: Duration,
    ) -> Result<Bytes, CallError> {
        let asked = async {
            let answer = self.open(path, method, body).await?;
            self.collect(answer, path).await
        };
        let late = || self.away(path, format!("no answer for {} s", patience.as_secs()));
        tokio::time::timeout(patience, asked).await.unwrap_or_else(|_| Err(late()))
    }

    /// Asks, and gives the answer of a success to be read as it comes. Only its beginning is waited for so long.
    pub async fn stream(
        &self,
        path: &'static str,
        method: Method,
        body: Vec<u8>,
        patience: Duration,
    ) -> Result<Incoming, CallError> {
        let late = || self.away(path, format!("no answer for {} s", patience.as_secs()));
        tokio::time::timeout(patience, self.open(path, method, body)).await.unwrap_or_else(|_| Err(late()))
    }

    async fn open(&self, path: &'static str, method: Method, body: Vec<u8>) -> Result<Incoming, CallError> {
        let body = Bytes::from(body);
        let known = self.methods.lock().get(path).cloned();
        let first = known.unwrap_or(method);
        let others = [Method::POST, Method::GET, Method::DELETE].into_iter().filter(|other| *other != first);
        let mut refused = None;
        for method in std::iter::once(first.clone()).chain(others) {
            match self.send(path, &method, body.clone()).await {
                Err(error) if error.code() == Some(405) => refused = refused.or(Some(error)),
                other => {
                    if other.is_ok() && method != first {
                        self.methods.lock().insert(path, method);
                    }
                    return other;
                }
            }
        }
        Err(refused.unwrap_or_else(|| self.away(path, "takes no method".into())))
    }

    async fn send(&self, path: &'static str, method: &Method, body: Bytes) -> Result<Incoming, CallError> {
        let uri: Uri =
            format!("{}{path}", self.base).parse().map_err(|error| self.away(path, format!("{error}")))?;
        let mut request =
            Request::builder().method(method.clone()).uri(uri).header(SESSION, self.session.clone());
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(token) = &self.token {
            let token = token.read().map_err(|error| self.away(path, kubelet::error::chain(&error)))?;
            let mut value = HeaderValue::try_from(format!("Bearer {token}"))
                .map_err(|_| self.away(path, "the token cannot be sent".into()))?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        let request = request.body(Full::new(body)).map_err(|error| self.away(path, error.to_string()))?;
        let answer = self.client.request(request).await;
        let answer = answer.map_err(|error| self.away(path, kubelet::error::chain(&error)))?;
        let (code, body) = (answer.status(), answer.into_body());
        if code.is_success() {
            return Ok(body);
        }
        let words = Limited::new(body, LARGEST_ANSWER.min(64 << 10)).collect().await;
        let words = words.map(|collected| collected.to_bytes()).unwrap_or_default();
        Err(CallError::Answered { code: code.as_u16(), words: said(code, &words) })
    }

    async fn collect(&self, body: Incoming, path: &str) -> Result<Bytes, CallError> {
        let read = Limited::new(body, LARGEST_ANSWER).collect().await;
        Ok(read.map_err(|error| self.away(path, error.to_string()))?.to_bytes())
    }

    fn away(&self, path: &str, why: String) -> CallError {
        CallError::Away { url: format!("{}{path}", self.base), why }
    }
}

/// The other side's words, short enough for a person and a status.
fn said(code: StatusCode, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let text: String =
        text.trim().chars().map(|it| if it.is_control() && it != '\n' { ' ' } else { it }).collect();
    if text.is_empty() {
        return code.canonical_reason().unwrap_or("no words").to_owned();
    }
    if text.len() <= LONGEST_WORDS {
        return text;
    }
    let end = (0..=LONGEST_WORDS).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{}…", &text[..end])
}
