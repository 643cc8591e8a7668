//! The server behind an APIService: whether it answers, and requests on their way to it.

use super::Table;
use crate::answer::Answer;
use crate::auth::User;
use crate::client_tls::{self, Trust};
use crate::discovery::Foreign;
use crate::error::{ApiError, Result};
use crate::nodes::{connect, endpoint_of, escaped, forward};
use crate::server::Server;
use api::Value;
use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use rustls::ClientConfig;
use std::sync::Arc;
use std::time::Duration;

/// The headers that say who asks.
pub const USER: &str = "X-Remote-User";
pub const UID: &str = "X-Remote-Uid";
pub const GROUP: &str = "X-Remote-Group";
pub const EXTRA_PREFIX: &str = "X-Remote-Extra-";
/// What all of them begin with.
const PREFIX: &str = "x-remote-";

/// Who takes longer than this to say what it serves does not answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The largest list of resources, or index of documents.
const LARGEST_ANSWER: usize = 8 * 1024 * 1024;

/// The server behind an APIService.
pub struct Backend {
    namespace: String,
    service: String,
    port: u16,
    tls: Result<Arc<ClientConfig>, String>,
    is_available: bool,
    /// The path of its OpenAPI document.
    pub document: Option<String>,
}

/// What was found of one.
pub struct Looked {
    pub backend: Backend,
    pub foreign: Foreign,
    /// Why it is not available: a reason, and a message.
    pub fault: Option<(&'static str, String)>,
}

/// Asks the server behind an APIService what it serves. What it said before is remembered.
pub async fn look(server: &Arc<Server>, service: &Value, before: &Table) -> Looked {
    let spec = &service["spec"];
    let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
    let number = |name: &str| spec[name].as_i64().unwrap_or_default();
    let (group, version) = (text(spec, "group"), text(spec, "version"));
    let known = before.find(&group, &version);
    let mut foreign = Foreign {
        group_priority: number("groupPriorityMinimum"),
        version_priority: number("versionPriority"),
        resources: known.map(|(known, _)| known.resources.clone()).unwrap_or_default(),
        group,
        version,
        is_current: false,
    };
    let trust = match spec["insecureSkipTLSVerify"] == true {
        true => Ok(Trust::Anybody),
        false => Trust::bundle(&text(spec, "caBundle")),
    };
    let port = spec["service"]["port"].as_u64().and_then(|port| u16::try_from(port).ok());
    let mut backend = Backend {
        namespace: text(&spec["service"], "namespace"),
        service: text(&spec["service"], "name"),
        port: port.unwrap_or(443),
        tls: trust.and_then(|trust| tls(server, trust)),
        is_available: false,
        document: known.and_then(|(_, known)| known.document.clone()),
    };
    let fault = match backend.resources(server, &foreign).await {
        Ok(list) => {
            foreign.learn(&list);
            foreign.is_current = true;
            backend.is_available = true;
            let path = format!("apis/{}/{}", foreign.group, foreign.version);
            let index = backend.ask(server, "/openapi/v3").await.unwrap_or_default();
            backend.document = index["paths"][path]["serverRelativeURL"].as_str().map(str::to_owned);
            None
        }
        Err(fault) => Some(fault),
    };
    Looked { backend, foreign, fault }
}

/// The files of our certificate may have been renewed since the last time.
fn tls(server: &Server, trust: Trust) -> Result<Arc<ClientConfig>, String> {
    let file = |end: &str| server.config.cert_dir().join(format!("{}.{end}", pki::FRONT_PROXY_CLIENT));
    let config = client_tls::config(trust, Some(&(file("crt"), file("key"))));
    config.map(Arc::new).map_err(|error| error.to_string())
}

impl Backend {
    /// The list of resources of a version, or why there is none.
    async fn resources(
        &self,
        server: &Arc<Server>,
        foreign: &Foreign,
    ) -> Result<Value, (&'static str, String)> {
        let place = format!("service/{} in {:?}", self.service, self.namespace);
        let Some(service) = server.lookup("", "services", &self.namespace, &self.service) else {
            return Err(("ServiceNotFound", format!("{place} is not present")));
        };
        if service["spec"]["type"] == "ClusterIP" {
            let ports = service["spec"]["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
            let Some(port) = ports.iter().find(|port| port["port"] == self.port) else {
                return Err(("ServicePortError", format!("{place} is not listening on port {}", self.port)));
            };
            if self.address(server).is_err() {
                let name = port["name"].as_str().unwrap_or_default();
                let message = format!("endpointslices for {place} have no addresses with port name {name:?}");
                return Err(("MissingEndpoints", message));
            }
        }
        let path = format!("/apis/{}/{}", foreign.group, foreign.version);
        let asked = self.ask(server, &path).await;
        asked.map_err(|why| ("FailedDiscoveryCheck", format!("failing or missing response from {why}")))
    }

    /// Asks for a document, as ourselves.
    async fn ask(&self, server: &Arc<Server>, path: &str) -> Result<Value, String> {
        let (host, port) = self.address(server)?;
        let about = |why: String| format!("https://{host}:{port}{path}: {why}");
        let user = User {
            name: "system:kube-aggregator".to_owned(),
            groups: vec![User::MASTERS.to_owned()],
            ..User::default()
        };
        let mut request = forward::get(path).map_err(|error| error.message)?;
        show(request.headers_mut(), &user);
        let asking = async {
            let answer =
                self.send(server, (&host, port), request).await.map_err(|error| error.to_string())?;
            if !answer.status().is_success() {
                return Err(format!("bad status: {}", answer.status().as_u16()));
            }
            let body = Limited::new(answer.into_body(), LARGEST_ANSWER).collect().await;
            let body = body.map_err(|error| error.to_string())?.to_bytes();
            serde_json::from_slice(&body).map_err(|error| error.to_string())
        };
        let answered = tokio::time::timeout(TIMEOUT, asking).await;
        answered.unwrap_or_else(|_| Err("context deadline exceeded".to_owned())).map_err(about)
    }

    /// Answers with what it answers.
    pub async fn forward(
        &self,
        server: &Arc<Server>,
        user: &User,
        parts: &mut Parts,
        body: Incoming,
    ) -> Result<Answer> {
        let unavailable = || ApiError::unavailable("service unavailable");
        if !self.is_available {
            return Err(unavailable());
        }
        server.catch_up().await?;
        let (host, port) = self.address(server).map_err(|why| {
            tracing::debug!(why, service = self.service, "an APIService has nobody to answer");
            unavailable()
        })?;
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut request = forward::request(parts, path, Some(body))?;
        show(request.headers_mut(), user);
        let answer = self.send(server, (&host, port), request).await;
        let answer = answer
            .map_err(|error| ApiError::unavailable(format!("error trying to reach service: {error}")))?;
        Ok(forward::answer(server, parts, answer))
    }

    fn address(&self, server: &Server) -> Result<(String, u16), String> {
        endpoint_of(server, &self.namespace, &self.service, self.port)
    }

    async fn send(
        &self,
        server: &Arc<Server>,
        address: (&str, u16),
        request: Request<connect::Sent>,
    ) -> std::io::Result<http::Response<Incoming>> {
        let tls = self.tls.clone().map_err(std::io::Error::other)?;
        let name = format!("{}.{}.svc", self.service, self.namespace);
        connect::send_to(server, address, Some((tls, &name)), request).await
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
