//! APIServices: versions of groups that other servers answer for, through this one.
//!
//! ```text
//! APIServices ── keep ──> is it there, does it answer? ──> Available ──┬─> discovery, OpenAPI
//!                                                                      └─> Table
//! a request for such a version ── Table ──> backend: who asks, in headers, and our certificate ──> its service
//! kinds of our own ── local ──> APIServices without a service, for those who look
//! ```
//!
//! The other server believes what we say of who asks because of the certificate, whose authority it finds in the ConfigMap
//! `kube-system/extension-apiserver-authentication`; whether they may, it asks us by a SubjectAccessReview.

mod backend;
mod local;

use crate::context::Context;
use crate::discovery::Foreign;
use crate::error::Result;
use crate::identity::Credentials;
use crate::registry::Resource;
use crate::request::RequestInfo;
use crate::server::Server;
use crate::storage::{Change, parse};
use crate::{bootstrap, time};
use api::{Value, object};
use backend::Backend;
use futures::future::join_all;
use listwatch::{Scope, Since};
use parking_lot::RwLock;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Who answers is asked again after this, since nobody tells us when they stop.
const REFRESH: Duration = Duration::from_secs(30);
/// Who does not answer is asked again after this.
const RETRY: Duration = Duration::from_secs(1);

/// The ConfigMap by which other servers know whom to believe.
const AUTHORITIES: &str = "extension-apiserver-authentication";

/// What others answer for.
#[derive(Default)]
pub struct ApiServices {
    now: RwLock<Arc<Table>>,
    /// Told when the kinds of our own change.
    pub kinds_changed: Notify,
}

/// What others answer for, at one moment.
#[derive(Default)]
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

    /// Who answers a request, if somebody else does.
    pub fn route(&self, info: &RequestInfo<'_>) -> Option<Arc<Backend>> {
        let table = self.now.read();
        if table.backends.is_empty() {
            return None;
        }
        let (group, version) = match &info.target {
            Some(target) => (target.group, target.version),
            None => {
                let path = info.path.strip_prefix("/openapi/v3").unwrap_or(info.path);
                path.strip_prefix("/apis/")?.trim_end_matches('/').split_once('/')?
            }
        };
        table.find(group, version).map(|(_, backend)| backend.clone())
    }
}

impl Table {
    fn find(&self, group: &str, version: &str) -> Option<(&Foreign, &Arc<Backend>)> {
        let mut all = self.foreign.iter().zip(&self.backends);
        all.find(|(foreign, _)| foreign.group == group && foreign.version == version)
    }

    /// Adds the documents of others to the index of OpenAPI documents.
    pub fn add_documents(&self, index: &mut Value) {
        for (foreign, backend) in self.foreign.iter().zip(&self.backends) {
            let path = format!("apis/{}/{}", foreign.group, foreign.version);
            match &backend.document {
                Some(url) => index["paths"][path] = json!({"serverRelativeURL": url}),
                // Ours of the same version is not what is served.
                None => drop(index["paths"].as_object_mut().and_then(|paths| paths.remove(&path))),
            }
        }
    }
}

/// Keeps everything in step until shutdown.
pub async fn keep(server: Arc<Server>, credentials: Arc<Credentials>, shutdown: CancellationToken) {
    let cache = server.registry.built_in("apiregistration.k8s.io", "apiservices").cache.clone();
    while let Ok(mut watcher) = cache.watch(Scope::default(), Since::Now) {
        loop {
            let done = async {
                publish_authorities(&server, &credentials).await?;
                pass(&server).await
            };
            let pause = match done.await {
                Ok(Pass::Nobody) => None,
                Ok(Pass::AllAnswer) => Some(REFRESH),
                Ok(Pass::SomeDoNot) => Some(RETRY),
                Err(error) => {
                    tracing::warn!(error = error.message, "cannot keep APIServices in step");
                    Some(RETRY)
                }
            };
            tokio::select! {
                news = watcher.next() => if news.is_err() { break },
                () = server.api_services.kinds_changed.notified() => {}
                () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => {}
                () = shutdown.cancelled() => return,
            }
        }
    }
}

/// What was found.
enum Pass {
    /// Nobody but us answers for anything.
    Nobody,
    AllAnswer,
    SomeDoNot,
}

/// One look at all APIServices, and at who is behind them.
async fn pass(server: &Arc<Server>) -> Result<Pass> {
    local::pass(server).await?;
    server.catch_up().await?;
    let resource = server.registry.built_in("apiregistration.k8s.io", "apiservices");
    let all: Vec<Value> =
        resource.objects(None).iter().map(|object| parse(object.as_json())).collect::<Result<_>>()?;
    let (remote, local): (Vec<Value>, Vec<Value>) =
        all.into_iter().partition(|service| service["spec"]["service"].is_object());
    for service in &local {
        say(server, service, local::AVAILABLE).await?;
    }
    let before = server.api_services.table();
    let looked = join_all(remote.iter().map(|service| backend::look(server, service, &before))).await;
    for (service, looked) in remote.iter().zip(&looked) {
        let said = match &looked.fault {
            None => ("True", "Passed", "all checks passed"),
            Some((reason, message)) => ("False", *reason, message.as_str()),
        };
        say(server, service, said).await?;
    }
    let found = match (looked.is_empty(), looked.iter().all(|looked| looked.fault.is_none())) {
        (true, _) => Pass::Nobody,
        (false, true) => Pass::AllAnswer,
        (false, false) => Pass::SomeDoNot,
    };
    let mut table = Table::default();
    for looked in looked {
        table.foreign.push(looked.foreign);
        table.backends.push(Arc::new(looked.backend));
    }
    *server.api_services.now.write() = Arc::new(table);
    Ok(found)
}

/// Whether one is available, with a reason and a message.
type Said<'a> = (&'a str, &'a str, &'a str);

fn status((status, reason, message): Said<'_>, since: &str) -> Value {
    json!({"conditions": [{
        "type": "Available", "status": status, "reason": reason, "message": message, "lastTransitionTime": since,
    }]})
}

/// Writes whether one is available, if that is not what is written already.
async fn say(server: &Server, service: &Value, said: Said<'_>) -> Result<()> {
    let resource = server.registry.built_in("apiregistration.k8s.io", "apiservices");
    let now = time::rfc3339(jiff::Timestamp::now());
    let written = write(server, &resource, service, |current| {
        let known = &current["status"]["conditions"][0];
        let since = known["lastTransitionTime"].as_str().filter(|_| known["status"] == said.0);
        ("status", status(said, since.unwrap_or(&now)))
    });
    match written.await {
        Err(error) if error.reason != "NotFound" => Err(error),
        _ => Ok(()),
    }
}

/// Writes a member of an object that is known, if it is not right. Nobody is asked where it is.
async fn write(
    server: &Server,
    resource: &Resource,
    known: &Value,
    right: impl Fn(&Value) -> (&'static str, Value),
) -> Result<()> {
    let (member, value) = right(known);
    if known[member] == value {
        return Ok(());
    }
    let change = |current: &Value| {
        let (member, value) = right(current);
        let mut next = current.clone();
        next[member] = value;
        Ok(Change::Put(Box::new(next), Vec::new()))
    };
    let (namespace, name) = (object::namespace(known), object::name(known));
    server.modify(resource, namespace, name, false, change).await.map(|_| ())
}

/// Tells other servers whose certificates to believe: those of clients, and ours when we speak for one.
async fn publish_authorities(server: &Server, credentials: &Credentials) -> Result<()> {
    let data = |known: &Value| {
        let with =
            |name: &str, own: &str| with_authority(known["data"][name].as_str().unwrap_or_default(), own);
        json!({
            "client-ca-file": with("client-ca-file", &credentials.clients),
            "requestheader-allowed-names": json!([pki::FRONT_PROXY_CLIENT]).to_string(),
            "requestheader-client-ca-file":
                with("requestheader-client-ca-file", credentials.pki.front_proxy.pem()),
            "requestheader-extra-headers-prefix": json!([backend::EXTRA_PREFIX]).to_string(),
            "requestheader-group-headers": json!([backend::GROUP]).to_string(),
            "requestheader-uid-headers": json!([backend::UID]).to_string(),
            "requestheader-username-headers": json!([backend::USER]).to_string(),
        })
    };
    let Some(known) = server.lookup("", "configmaps", "kube-system", AUTHORITIES) else {
        let wanted = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": AUTHORITIES, "namespace": "kube-system"}, "data": data(&Value::Null)});
        let context = Context::internal(jiff::Timestamp::now());
        return bootstrap::ensure(server, "", "configmaps", "kube-system", wanted, &context).await;
    };
    let resource = server.registry.built_in("", "configmaps");
    write(server, &resource, &known, |current| ("data", data(current))).await
}

/// Authorities with our own, which other apiservers may not share.
fn with_authority(known: &str, own: &str) -> String {
    match known.contains(own.trim()) {
        true => known.to_owned(),
        false => format!("{known}{own}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities_of_other_apiservers_stay() {
        let both = with_authority(&with_authority("", "A\n"), "B\n");
        assert_eq!(both, "A\nB\n");
        assert_eq!(with_authority(&both, "A\n"), both);
    }
}
