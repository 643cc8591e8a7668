//! The server behind an APIService, and requests on their way to it.

use super::is_long_running;
use crate::answer::{self, Answer};
use crate::auth::User;
use crate::client_tls::{self, Trust};
use crate::error::{ApiError, Result};
use crate::handler::PermittedRequest;
use crate::nodes::{connect, endpoint_of, escaped, forward};
use crate::request::RequestInfo;
use crate::server::Server;
use api::Value;
use http::header::{CONNECTION, HOST, HeaderName, HeaderValue, LOCATION};
use http::request::Parts;
use http::{HeaderMap, Request, StatusCode};
use hyper::client::conn::http1::SendRequest;
use parking_lot::Mutex;
use rustls::ClientConfig;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The headers that say who asks.
pub const USER: &str = "X-Remote-User";
pub const UID: &str = "X-Remote-Uid";
pub const GROUP: &str = "X-Remote-Group";
pub const EXTRA_PREFIX: &str = "X-Remote-Extra-";
/// What all of them begin with.
const PREFIX: &str = "x-remote-";

/// A request that somebody works on is given up after this.
const TIMEOUT: Duration = Duration::from_secs(60);
/// One for what is served at all.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(5);

/// Who is being restarted is waited for so long, and looked for so often.
const RESTART: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(25);
/// So many connections are kept, and for so long.
const MOST_KEPT: usize = 512;
const KEPT_FOR: Duration = Duration::from_millis(150);

/// The server behind an APIService.
pub struct Backend {
    pub namespace: String,
    pub service: String,
    pub port: u16,
    tls: Result<Arc<ClientConfig>, String>,
    pub is_available: bool,
    /// The path of its OpenAPI document.
    pub document: Option<String>,
    /// Connections that can be used again, to somebody who is waited for while nobody is there; nobody's, if there is none.
    kept: Option<Mutex<Vec<Kept>>>,
    /// When somebody was reached last, and whose turn it is to try while nobody is.
    reached: Mutex<Option<Instant>>,
    turn: tokio::sync::Mutex<()>,
}

/// A connection, whom it leads to, and since when it was not used.
struct Kept {
    whom: (String, u16),
    sender: SendRequest<connect::Sent>,
    since: Instant,
}

impl Backend {
    /// The one that a spec names.
    pub fn new(server: &Server, spec: &Value) -> Backend {
        let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let trust = match spec["insecureSkipTLSVerify"] == true {
            true => Ok(Trust::Anybody),
            false => Trust::bundle(&text(spec, "caBundle")),
        };
        let port = spec["service"]["port"].as_u64().and_then(|port| u16::try_from(port).ok());
        Backend {
            namespace: text(&spec["service"], "namespace"),
            service: text(&spec["service"], "name"),
            port: port.unwrap_or(443),
            tls: trust.and_then(|trust| tls(server, trust)),
            is_available: false,
            document: None,
            kept: None,
            reached: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// A server of the cluster's own that is away only while it is restarted, whose certificate is of the cluster's authority.
    pub fn own(server: &Server, namespace: &str, service: &str) -> Backend {
        let trust = Trust::file(&server.config.cert_dir().join("ca.crt")).map_err(|error| error.to_string());
        Backend {
            namespace: namespace.to_owned(),
            service: service.to_owned(),
            port: 443,
            tls: trust.and_then(|trust| tls(server, trust)),
            is_available: true,
            document: None,
            kept: Some(Mutex::default()),
            reached: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// Answers with what it answers.
    pub async fn forward(
        &self,
        server: &Arc<Server>,
        info: &PermittedRequest<'_>,
        parts: &mut Parts,
        body: connect::Sent,
    ) -> Result<Answer> {
        if has_encoded_slash(parts.uri.path()) {
            return Err(ApiError::bad_request("the path must not contain an encoded slash"));
        }
        let unavailable = || ApiError::unavailable("service unavailable");
        if !self.is_available {
            return Err(unavailable());
        }
        server.catch_up().await?;
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let request = forward::request(parts, path, Some(body))?;
        let (host, port) = self.whom(server).await.map_err(|why| {
            tracing::debug!(why, service = self.service, "an APIService has nobody to answer");
            unavailable()
        })?;
        let asking = self.send(server, (&host, port), request, &info.user);
        let answer = match patience(info, &parts.headers) {
            Some(longest) => tokio::time::timeout(longest, asking).await.map_err(|_| {
                ApiError::timeout("Timeout: request did not complete within the allotted timeout")
            })?,
            None => asking.await,
        };
        let answer = answer
            .map_err(|error| ApiError::unavailable(format!("error trying to reach service: {error}")))?;
        // The client would go there with its credentials.
        if answer.status().is_redirection() && answer.headers().contains_key(LOCATION) {
            let refused = "the backend attempted to redirect this request, which is not permitted";
            return Ok(answer::text(StatusCode::BAD_GATEWAY, refused));
        }
        Ok(forward::answer(server, parts, answer))
    }

    /// Somebody behind the service.
    pub fn address(&self, server: &Server) -> Result<(String, u16), String> {
        endpoint_of(server, &self.namespace, &self.service, self.port)
    }

    /// Somebody behind the service, waited for if it is one who comes back.
    async fn whom(&self, server: &Server) -> Result<(String, u16), String> {
        let ends = Instant::now() + RESTART;
        loop {
            match self.address(server) {
                Err(_) if self.comes_back(server) && Instant::now() < ends => tokio::time::sleep(PAUSE).await,
                found => return found,
            }
        }
    }

    fn comes_back(&self, server: &Server) -> bool {
        self.kept.is_some() && server.lookup("", "services", &self.namespace, &self.service).is_some()
    }

    /// A connection of before if there is one; otherwise a new one, waited for as [`Backend::whom`] does. Nothing has been
    /// sent until there is one.
    async fn connection(
        &self,
        server: &Arc<Server>,
        address: (&str, u16),
        tls: &Arc<ClientConfig>,
    ) -> std::io::Result<SendRequest<connect::Sent>> {
        let name = format!("{}.{}.svc", self.service, self.namespace);
        let Some(kept) = &self.kept else {
            return connect::open(server, address, Some((tls.clone(), &name))).await;
        };
        let ends = Instant::now() + RESTART;
        let mut address = (address.0.to_owned(), address.1);
        loop {
            if let Some(sender) = idle(&mut kept.lock(), &address) {
                return Ok(sender);
            }
            let error = match connect::open(server, (&address.0, address.1), Some((tls.clone(), &name))).await
            {
                Ok(sender) => {
                    *self.reached.lock() = Some(Instant::now());
                    return Ok(sender);
                }
                Err(error) => error,
            };
            if Instant::now() >= ends {
                return Err(error);
            }
            // One at a time tries while nobody is there; as soon as it gets through, all do.
            let failed = Instant::now();
            let Ok(_turn) = tokio::time::timeout_at(ends.into(), self.turn.lock()).await else {
                return Err(error);
            };
            if self.reached.lock().is_none_or(|reached| reached < failed) {
                tokio::time::sleep(PAUSE).await;
                if let Ok(sender) =
                    connect::open(server, (&address.0, address.1), Some((tls.clone(), &name))).await
                {
                    *self.reached.lock() = Some(Instant::now());
                    return Ok(sender);
                }
            }
            address = self.address(server).unwrap_or(address);
        }
    }

    /// Sends a request there, and says who asks.
    pub async fn send(
        &self,
        server: &Arc<Server>,
        address: (&str, u16),
        mut request: Request<connect::Sent>,
        user: &User,
    ) -> std::io::Result<http::Response<hyper::body::Incoming>> {
        let tls = self.tls.clone().map_err(std::io::Error::other)?;
        let host = HeaderValue::from_str(&connect::authority(address)).map_err(std::io::Error::other)?;
        request.headers_mut().insert(HOST, host);
        show(request.headers_mut(), user);
        let whom = (address.0.to_owned(), address.1);
        loop {
            let mut sender = self.connection(server, address, &tls).await?;
            match sender.try_send_request(request).await {
                Ok(answer) => {
                    if let Some(kept) = &self.kept
                        && answer.status() != StatusCode::SWITCHING_PROTOCOLS
                        && !is_last(&answer)
                    {
                        keep(&mut kept.lock(), whom, sender);
                    }
                    return Ok(answer);
                }
                // It was closed while nobody used it.
                Err(mut error) => match error.take_message().filter(|_| self.kept.is_some()) {
                    Some(unsent) => request = unsent,
                    None => return Err(std::io::Error::other(error.into_error())),
                },
            }
        }
    }
}

/// A connection there whose last answer has been read.
fn idle(kept: &mut Vec<Kept>, address: &(String, u16)) -> Option<SendRequest<connect::Sent>> {
    // Somebody who ends closes what nobody uses, and not before this: so nothing is sent to who does not hear it.
    kept.retain(|kept| !kept.sender.is_closed() && kept.since.elapsed() < KEPT_FOR);
    let at = kept.iter().rposition(|kept| kept.whom == *address && kept.sender.is_ready())?;
    Some(kept.swap_remove(at).sender)
}

/// Whether the other side says that nothing comes after this answer.
fn is_last<B>(answer: &http::Response<B>) -> bool {
    answer.headers().get(CONNECTION).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"close"))
}

fn keep(kept: &mut Vec<Kept>, whom: (String, u16), sender: SendRequest<connect::Sent>) {
    if kept.len() < MOST_KEPT {
        kept.push(Kept { whom, sender, since: Instant::now() });
    }
}

/// The files of our certificate may have been renewed since the last time.
fn tls(server: &Server, trust: Trust) -> Result<Arc<ClientConfig>, String> {
    let file = |end: &str| server.config.cert_dir().join(format!("{}.{end}", pki::FRONT_PROXY_CLIENT));
    let config = client_tls::config(trust, Some(&(file("crt"), file("key"))));
    config.map(Arc::new).map_err(|error| error.to_string())
}

/// The other server may take it for a slash, and so for another object than the one that was permitted.
fn has_encoded_slash(path: &str) -> bool {
    path.as_bytes().windows(3).any(|three| three.eq_ignore_ascii_case(b"%2f"))
}

/// How long an answer may take to begin; `None` for as long as its client waits.
fn patience(info: &RequestInfo<'_>, headers: &HeaderMap) -> Option<Duration> {
    match (is_long_running(info, headers), &info.target) {
        (true, _) => None,
        (false, None) => Some(DISCOVERY_TIMEOUT),
        (false, Some(_)) => Some(TIMEOUT),
    }
}

/// Says who asks; whatever the client itself said of that is dropped.
fn show(headers: &mut HeaderMap, user: &User) {
    let said: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with(PREFIX)).cloned().collect();
    said.iter().for_each(|name| drop(headers.remove(name)));
    let mut add = |name: &str, value: &str| {
        if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_bytes(value.as_bytes()))
        {
            headers.append(name, value);
        }
    };
    add(USER, &user.name);
    if !user.uid.is_empty() {
        add(UID, &user.uid);
    }
    user.groups.iter().for_each(|group| add(GROUP, group));
    for (key, values) in &user.extra {
        let name = format!("{EXTRA_PREFIX}{}", escaped(key));
        values.iter().for_each(|value| add(&name, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Query;
    use http::Method;

    impl Backend {
        /// One that is not there.
        pub fn nobody() -> Backend {
            Backend {
                namespace: String::new(),
                service: String::new(),
                port: 443,
                tls: Err(String::new()),
                is_available: false,
                document: None,
                kept: None,
                reached: Mutex::default(),
                turn: tokio::sync::Mutex::default(),
            }
        }
    }

    #[test]
    fn a_path_means_the_same_to_both() {
        assert!(has_encoded_slash("/apis/a/v1/things/x%2Fsecret"));
        assert!(has_encoded_slash("/apis/a/v1/things/x%2fsecret"));
        assert!(!has_encoded_slash("/apis/a/v1/things/system%3Anode%252f"));
    }

    #[test]
    fn nobody_waits_without_end_but_who_wants_to() {
        let check = |path: &str, query: &str, expected: Option<Duration>| {
            let query = Query::parse(Some(query)).unwrap();
            let info = RequestInfo::parse(&Method::GET, path, &query).unwrap();
            assert_eq!(patience(&info, &HeaderMap::new()), expected, "{path}");
        };
        check("/apis/a/v1", "", Some(DISCOVERY_TIMEOUT));
        check("/openapi/v3/apis/a/v1", "", Some(DISCOVERY_TIMEOUT));
        check("/apis/a/v1/things", "", Some(TIMEOUT));
        check("/apis/a/v1/things", "watch=1", None);
    }

    #[test]
    fn nobody_can_say_themselves_who_they_are() {
        let mut headers = HeaderMap::new();
        headers.insert("x-remote-user", HeaderValue::from_static("root"));
        headers.append("x-remote-group", HeaderValue::from_static("system:masters"));
        headers.insert("x-remote-extra-a", HeaderValue::from_static("b"));
        headers.insert("accept", HeaderValue::from_static("*/*"));
        let mut user = User { name: "jane".into(), groups: vec!["a".into(), "b".into()], ..User::default() };
        user.extra.insert("example.org/id".into(), vec!["1".into()]);
        show(&mut headers, &user);
        let all = |name: &str| -> Vec<&str> {
            headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect()
        };
        assert_eq!(all("x-remote-user"), ["jane"]);
        assert_eq!(all("x-remote-group"), ["a", "b"]);
        assert_eq!(all("x-remote-extra-example.org%2fid"), ["1"]);
        assert_eq!((all("x-remote-extra-a").len(), all("accept").len()), (0, 1));
    }
}
