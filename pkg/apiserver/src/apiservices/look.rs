//! Whether the server behind an APIService answers, and what it serves.

use super::backend::Backend;
use super::path;
use crate::auth::User;
use crate::discovery::Foreign;
use crate::error::Result;
use crate::nodes::{connect, forward, has_slices};
use crate::server::Server;
use api::{Value, object};
use futures::future::select_ok;
use http_body_util::{BodyExt, Limited};
use std::sync::Arc;
use std::time::Duration;

/// Who takes longer than this to say what it serves does not answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// So many questions, each to whoever is behind the service: one that is answered is enough.
const ATTEMPTS: usize = 5;
/// The largest list of resources, or index of documents.
const LARGEST_ANSWER: usize = 8 * 1024 * 1024;

/// What was found of one.
pub struct Looked {
    pub foreign: Foreign,
    pub backend: Backend,
    pub fault: Option<Fault>,
}

/// Why it is not available: a reason, and a message.
pub type Fault = (&'static str, String);

/// What is known of one before anybody is asked: what it said before, and what was said of it last.
pub fn known(server: &Server, service: &Value) -> (Foreign, Backend) {
    let spec = &service["spec"];
    let text = |name: &str| spec[name].as_str().unwrap_or_default();
    let number = |name: &str| spec[name].as_i64().unwrap_or_default();
    let (group, version) = (text("group"), text("version"));
    let table = server.api_services.table();
    let known = table.find(group, version);
    let foreign = Foreign {
        group: group.to_owned(),
        version: version.to_owned(),
        group_priority: number("groupPriorityMinimum"),
        version_priority: number("versionPriority"),
        ..known.map(|(foreign, _)| foreign.clone()).unwrap_or_default()
    };
    let mut backend = Backend::new(server, spec);
    backend.is_available = object::condition_is(service, "Available", "True");
    backend.document = known.and_then(|(_, known)| known.document.clone());
    (foreign, backend)
}

/// Asks the server behind an APIService what it serves.
pub async fn look(server: &Arc<Server>, service: &Value) -> Looked {
    let (mut foreign, mut backend) = known(server, service);
    let path = path(&foreign.group, &foreign.version);
    let listed = resources(server, &backend, &path).await;
    foreign.is_current = listed.is_ok();
    backend.is_available = listed.is_ok();
    let fault = match listed {
        Ok(list) => {
            foreign.learn(&list);
            let index = ask(server, &backend, "/openapi/v3").await.unwrap_or_default();
            let document = &index["paths"][path.trim_start_matches('/')]["serverRelativeURL"];
            backend.document = document.as_str().map(str::to_owned);
            None
        }
        Err(fault) => Some(fault),
    };
    Looked { foreign, backend, fault }
}

/// The list of resources of a version, or why there is none.
async fn resources(server: &Arc<Server>, backend: &Backend, path: &str) -> Result<Value, Fault> {
    let place = format!("service/{} in {:?}", backend.service, backend.namespace);
    let Some(service) = server.lookup("", "services", &backend.namespace, &backend.service) else {
        return Err(("ServiceNotFound", format!("{place} is not present")));
    };
    if service["spec"]["type"] == "ClusterIP" {
        let ports = service["spec"]["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
        let Some(port) = ports.iter().find(|port| port["port"] == backend.port) else {
            return Err(("ServicePortError", format!("{place} is not listening on port {}", backend.port)));
        };
        if !has_slices(server, &backend.namespace, &backend.service) {
            return Err(("EndpointsNotFound", format!("cannot find endpointslices for {place}")));
        }
        if backend.address(server).is_err() {
            let name = port["name"].as_str().unwrap_or_default();
            let message = format!("endpointslices for {place} have no addresses with port name {name:?}");
            return Err(("MissingEndpoints", message));
        }
    }
    let attempts = (0..ATTEMPTS).map(|_| Box::pin(ask(server, backend, path)));
    select_ok(attempts).await.map(|(list, _)| list).map_err(|why| ("FailedDiscoveryCheck", why))
}

/// Asks for a document, as ourselves.
async fn ask(server: &Arc<Server>, backend: &Backend, path: &str) -> Result<Value, String> {
    let (host, port) = backend.address(server)?;
    let url = format!("https://{}{path}", connect::authority((&host, port)));
    let user = User {
        name: "system:kube-aggregator".to_owned(),
        groups: vec![User::MASTERS.to_owned()],
        ..User::default()
    };
    let request = forward::get(path).map_err(|error| error.message)?;
    let asking = async {
        let answer = backend.send(server, (&host, port), request, &user).await;
        let answer = answer.map_err(|error| format!("Get {url:?}: {error}"))?;
        if !answer.status().is_success() {
            return Err(format!("bad status from {url}: {}", answer.status().as_u16()));
        }
        let body = Limited::new(answer.into_body(), LARGEST_ANSWER).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        serde_json::from_slice(&body).map_err(|error| error.to_string())
    };
    let slow = |_| Err(format!("Get {url:?}: context deadline exceeded"));
    let answered = tokio::time::timeout(TIMEOUT, asking).await.unwrap_or_else(slow);
    answered.map_err(|why| format!("failing or missing response from {url}: {why}"))
}
