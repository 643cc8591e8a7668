//! ComponentStatuses: whether the scheduler, the controller manager and the store say that they are well. They are asked when
//! somebody wants to know, as upstream asks them: where they listen on the apiserver's own machine.

use crate::answer::{self, Answer};
use crate::conversion::selects;
use crate::error::{ApiError, Result};
use crate::handler::Call;
use crate::nodes::{Place, Scheme, connect, forward};
use crate::registry::Resource;
use crate::server::Server;
use crate::verbs::list;
use api::kind::{Verbs, column};
use api::printing::name_column;
use api::selector::Labels;
use api::{Kind, Value};
use futures::future::join_all;
use http::StatusCode;
use http_body_util::{BodyExt, Limited};
use k8s_openapi::api::core::v1::ComponentStatus;
use serde_json::json;
use std::error::Error;
use std::io::ErrorKind;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

const STORE: &str = "etcd-0";
/// Where the others listen.
const COMPONENTS: [(&str, u16); 2] = [("scheduler", 10259), ("controller-manager", 10257)];
const HOST: &str = "127.0.0.1";
const TIMEOUT: Duration = Duration::from_secs(5);
/// Who is well says so in a word.
const LARGEST_ANSWER: usize = 4096;

/// The kind.
pub fn kind() -> Arc<Kind> {
    static KIND: LazyLock<Arc<Kind>> = LazyLock::new(|| Arc::new(make()));
    KIND.clone()
}

fn make() -> Kind {
    Kind {
        verbs: Verbs::ReadOnly,
        deprecated: Some("v1 ComponentStatus is deprecated in v1.19+".into()),
        columns: vec![
            name_column(),
            column("Status", "string", |status, _| {
                if healthy(status)["status"] == "True" { "Healthy" } else { "Unhealthy" }.into()
            }),
            column("Message", "string", |status, _| healthy(status)["message"].clone()),
            column("Error", "string", |status, _| {
                healthy(status)["error"].as_str().unwrap_or_default().into()
            }),
        ],
        ..Kind::new::<ComponentStatus>().short(&["cs"])
    }
}

fn healthy(status: &Value) -> &Value {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.find(|condition| condition["type"] == "Healthy").unwrap_or(&Value::Null)
}

/// Answers get and list.
pub async fn handle(server: &Arc<Server>, resource: &Resource, call: &Call<'_>) -> Result<Answer> {
    let (kind, target) = (&*resource.kind, call.target);
    let scope = list::scope(kind, call)?;
    if !target.subresource.is_empty() {
        return Err(ApiError::no_such_path());
    }
    match call.info.verb {
        "get" => {
            let known = [STORE].into_iter().chain(COMPONENTS.map(|(name, _)| name));
            let name = known.into_iter().find(|name| *name == target.name);
            let name = name.ok_or_else(|| ApiError::not_found(kind, &target.name))?;
            answer::shaped(resource, call, StatusCode::OK, status(server, name).await)
        }
        "list" => {
            let names = COMPONENTS.map(|(name, _)| name).into_iter().chain([STORE]);
            let mut statuses = join_all(names.map(|name| status(server, name))).await;
            statuses
                .retain(|status| scope.labels.matches(&Labels::default()) && selects(&scope.fields, status));
            list::shaped(kind, call, statuses, json!({}))
        }
        verb => Err(ApiError::method_not_allowed(kind, verb)),
    }
}

async fn status(server: &Arc<Server>, name: &str) -> Value {
    let asked = async {
        match COMPONENTS.iter().find(|(component, _)| *component == name) {
            Some((_, port)) => ask(server, *port).await,
            None => server.store.revision().await.map(|_| "ok".to_owned()).map_err(|error| error.to_string()),
        }
    };
    let answer = tokio::time::timeout(TIMEOUT, asked).await;
    let (status, message) = match answer.unwrap_or_else(|_| Err("context deadline exceeded".to_owned())) {
        Ok(message) => ("True", message),
        Err(message) => ("False", message),
    };
    json!({
        "kind": "ComponentStatus", "apiVersion": "v1", "metadata": {"name": name},
        "conditions": [{"type": "Healthy", "status": status, "message": message}],
    })
}

/// What a component says of its health. Upstream's speak TLS there, ours do not.
async fn ask(server: &Arc<Server>, port: u16) -> Result<String, String> {
    let mut answer = get(server, Scheme::Https, port).await;
    if answer.as_ref().is_err_and(|error| error.kind() != ErrorKind::ConnectionRefused) {
        answer = get(server, Scheme::Http, port).await;
    }
    let answer = answer.map_err(|error| match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    })?;
    let is_well = answer.status() == StatusCode::OK;
    let said = Limited::new(answer.into_body(), LARGEST_ANSWER).collect().await;
    let said = said.map_err(|error| error.to_string())?.to_bytes();
    let said = String::from_utf8_lossy(&said).trim().to_owned();
    if is_well { Ok(said) } else { Err(said) }
}

async fn get(
    server: &Arc<Server>,
    scheme: Scheme,
    port: u16,
) -> std::io::Result<http::Response<hyper::body::Incoming>> {
    let request = forward::get("/healthz").map_err(|error| std::io::Error::other(error.message))?;
    connect::send(server, &Place { scheme, host: HOST.to_owned(), port }, request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_upstreams() {
        let kind = kind();
        let columns: Vec<&str> = kind.columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(columns, ["Name", "Status", "Message", "Error"]);
        assert_eq!((kind.plural.as_str(), kind.namespaced()), ("componentstatuses", false));
    }
}
