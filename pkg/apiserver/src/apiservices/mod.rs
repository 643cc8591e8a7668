//! APIServices: versions of groups that other servers answer for, through this one.
//!
//! ```text
//! APIServices ── keep ──> look: is it there, does it answer? ──┬─> Table ──> discovery, OpenAPI, requests
//!                  │                                           └─> Available, on the APIService
//!                  └────> local: APIServices without a service, for kinds of our own, for those who look
//! a request for such a version ── Table ──> backend: who asks, in headers, and our certificate ──> its service
//! ```
//!
//! The other server believes what we say of who asks because of the certificate, whose authority it finds in the ConfigMap
//! `kube-system/extension-apiserver-authentication`; whether they may, it asks us by a SubjectAccessReview.

mod authorities;
mod available;
mod backend;
mod functions;
mod keep;
mod local;
mod look;

pub use functions::invoke;
pub use keep::{keep, register};

use crate::discovery::Foreign;
use crate::error::{ApiError, Result};
use crate::nodes::forward;
use crate::registry::Resource;
use crate::request::RequestInfo;
use crate::scope;
use crate::server::Server;
use crate::storage::Change;
use api::{Value, object};
use backend::Backend;
use http::HeaderMap;
use parking_lot::RwLock;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use tokio::sync::Notify;

/// The group of APIServices. Nobody else answers for it, or what was given away could never be taken back.
const GROUP: &str = "apiregistration.k8s.io";

/// What others answer for.
#[derive(Default)]
pub struct ApiServices {
    now: RwLock<Arc<Table>>,
    /// Whether APIServices have been in step with what is served.
    registered: AtomicBool,
    /// Told when the kinds of our own change.
    pub kinds_changed: Notify,
    /// Who answers calls of functions.
    activator: functions::Known,
}

/// What others answer for, at one moment.
#[derive(Default, Clone)]
pub struct Table {
    /// Which versions, and what they hold.
    pub foreign: Vec<Foreign>,
    /// Who answers for each.
    backends: Vec<Arc<Backend>>,
}

impl ApiServices {
    /// What others answer for now.
    pub fn table(&self) -> Arc<Table> {
        self.now.read().clone()
    }

    /// Who answers a request, if somebody else does. A resource that they say has no namespaces is not below one for them
    /// either.
    pub fn route(&self, info: &RequestInfo<'_>) -> Result<Option<Arc<Backend>>> {
        let table = self.now.read();
        if table.backends.is_empty() {
            return Ok(None);
        }
        let Some((foreign, backend)) =
            version_of(info).and_then(|(group, version)| table.find(group, version))
        else {
            return Ok(None);
        };
        let namespaced = info.target.as_ref().and_then(|target| foreign.is_namespaced(target.resource));
        match (namespaced, &info.target) {
            (Some(namespaced), Some(target)) if !scope::fits(namespaced, target) => {
                Err(ApiError::no_such_path())
            }
            _ => Ok(Some(backend.clone())),
        }
    }

    /// Whether whoever looks finds an APIService of all that is served, and the authorities that speak for it.
    pub fn is_registered(&self) -> bool {
        self.registered.load(Relaxed)
    }

    fn change(&self, change: impl FnOnce(&mut Table)) {
        change(Arc::make_mut(&mut self.now.write()));
    }
}

impl Table {
    fn find(&self, group: &str, version: &str) -> Option<(&Foreign, &Arc<Backend>)> {
        let at = self.place(group, version)?;
        Some((&self.foreign[at], &self.backends[at]))
    }

    fn place(&self, group: &str, version: &str) -> Option<usize> {
        self.foreign.iter().position(|foreign| foreign.group == group && foreign.version == version)
    }

    /// Adds a version, or replaces what was known of it.
    fn put(&mut self, foreign: Foreign, backend: Backend) {
        if foreign.group == GROUP {
            return;
        }
        self.remove(&foreign.group, &foreign.version);
        self.foreign.push(foreign);
        self.backends.push(Arc::new(backend));
    }

    fn remove(&mut self, group: &str, version: &str) {
        if let Some(at) = self.place(group, version) {
            self.foreign.swap_remove(at);
            self.backends.swap_remove(at);
        }
    }

    /// Adds the documents of others to the index of OpenAPI documents.
    pub fn add_documents(&self, index: &mut Value) {
        for (foreign, backend) in self.foreign.iter().zip(&self.backends) {
            let path = path(&foreign.group, &foreign.version);
            let path = path.trim_start_matches('/');
            match &backend.document {
                Some(url) => index["paths"][path] = json!({"serverRelativeURL": url}),
                // Ours of the same version is not what is served.
                None => drop(index["paths"].as_object_mut().and_then(|paths| paths.remove(path))),
            }
        }
    }
}

/// The group and version that a request is about.
fn version_of<'a>(info: &'a RequestInfo<'_>) -> Option<(&'a str, &'a str)> {
    if let Some(target) = &info.target {
        return Some((target.group, target.version));
    }
    let path = info.path.strip_prefix("/openapi/v3").unwrap_or(info.path).trim_end_matches('/');
    match path.strip_prefix("/api/") {
        Some(version) => Some(("", version)),
        None => path.strip_prefix("/apis/")?.split_once('/'),
    }
}

/// Where a version is served.
fn path(group: &str, version: &str) -> String {
    match group {
        "" => format!("/api/{version}"),
        group => format!("/apis/{group}/{version}"),
    }
}

/// Whether a request may take as long as its client likes: it waits, it does not work.
pub fn is_long_running(info: &RequestInfo<'_>, headers: &HeaderMap) -> bool {
    let subresource = info.target.as_ref().map_or("", |target| target.subresource);
    info.verb == "watch"
        || matches!(subresource, "attach" | "exec" | "invoke" | "log" | "portforward" | "proxy" | "run")
        || forward::is_upgrade(headers)
}

/// Whether somebody else answers for it.
fn is_remote(service: &Value) -> bool {
    service["spec"]["service"].is_object()
}

/// Writes a member of an object that is known as it should be, if it is not. Nobody is asked where it is right, nothing
/// is said of it, or it is gone.
async fn put_right(
    server: &Server,
    resource: &Resource,
    known: &Value,
    member: &str,
    right: impl Fn(&Value) -> Option<Value>,
) -> Result<()> {
    let better = |current: &Value| right(current).filter(|value| current[member] != *value);
    if better(known).is_none() {
        return Ok(());
    }
    let change = |current: &Value| match better(current) {
        Some(value) => {
            let mut next = current.clone();
            next[member] = value;
            Ok(Change::Put(Box::new(next), Vec::new()))
        }
        None => Ok(Change::Keep),
    };
    let (namespace, name) = (object::namespace(known), object::name(known));
    match server.modify(resource, namespace, name, false, change).await {
        Err(error) if error.reason != "NotFound" => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Query;
    use http::Method;

    fn of(table: &mut Table, group: &str, version: &str) {
        let foreign = Foreign { group: group.into(), version: version.into(), ..Foreign::default() };
        table.put(foreign, Backend::nobody());
    }

    /// Whether somebody else answers a GET.
    fn check(services: &ApiServices, path: &str, expected: bool) {
        let info = RequestInfo::parse(&Method::GET, path, &Query::default()).unwrap();
        assert_eq!(services.route(&info).unwrap().is_some(), expected, "{path}");
    }

    #[test]
    fn only_what_others_answer_for_is_forwarded() {
        let services = ApiServices::default();
        services.change(|table| of(table, "a.example.com", "v1"));
        check(&services, "/apis/a.example.com/v1", true);
        check(&services, "/apis/a.example.com/v1/things/x", true);
        check(&services, "/openapi/v3/apis/a.example.com/v1", true);
        check(&services, "/apis/a.example.com", false);
        check(&services, "/apis/a.example.com/v2", false);
        check(&services, "/api/v1", false);
        services.change(|table| of(table, "", "v1"));
        check(&services, "/api/v1", true);
        check(&services, "/api/v1/pods", true);
        services.change(|table| table.remove("a.example.com", "v1"));
        check(&services, "/apis/a.example.com/v1", false);
        check(&services, "/openapi/v3/api/v1", true);
    }

    #[test]
    fn nobody_takes_the_group_of_apiservices_over() {
        let services = ApiServices::default();
        for version in ["v1", "v2"] {
            services.change(|table| of(table, GROUP, version));
        }
        check(&services, "/apis/apiregistration.k8s.io/v1/apiservices", false);
        assert_eq!(services.table().foreign, []);
    }

    #[test]
    fn what_waits_is_not_hurried() {
        let check = |path: &str, query: &str, expected: bool| {
            let query = Query::parse(Some(query)).unwrap();
            let info = RequestInfo::parse(&Method::GET, path, &query).unwrap();
            assert_eq!(is_long_running(&info, &HeaderMap::new()), expected, "{path}");
        };
        check("/apis/a.example.com/v1/things", "", false);
        check("/apis/a.example.com/v1/things", "watch=true", true);
        check("/apis/a.example.com/v1/things/x/log", "", true);
        check("/apis/a.example.com/v1/things/x/status", "", false);
        let headers = [("connection", "Upgrade"), ("upgrade", "websocket")];
        let headers = headers.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let info =
            RequestInfo::parse(&Method::GET, "/apis/a.example.com/v1/things", &Query::default()).unwrap();
        assert!(is_long_running(&info, &HeaderMap::from_iter(headers)));
    }
}
