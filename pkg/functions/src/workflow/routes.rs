//! Ways in: a run that is started by a call and may be waited for, and the answer that an Approval waits for.
//!
//! ```text
//! POST …/namespaces/NS/workflows/NAME/run[?wait=SECONDS][&name=RUN]   by the API server, which has asked RBAC
//! POST …/namespaces/NS/workflowruns/NAME/approve                      by the API server: `create` on `workflowruns/approve`
//! POST /approvals/NS/RUN/STEP/TOKEN                                   by whoever has the token
//! ```

use super::engine::Event;
use super::runner::Runner;
use super::schedules::new_run;
use crate::activator::Peer;
use crate::answer;
use crate::fleet::Refusal;
use api::kinds::minik8s::{Workflow, WorkflowRun, WorkflowValue};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::routing::post;
use client::{AnyCache, Key};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use kube::Api;
use kube::api::PostParams;
use parking_lot::RwLock;
use ring::hmac;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// What comes with a call is no larger.
const MOST_BODY: usize = 64 << 10;
/// Nobody waits longer for a run.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// An answer to an Approval is seen within this.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Who asks, as the API server says it.
const REMOTE_USER: &str = "x-remote-user";

/// Who leads, if it is this one.
pub type Leading = Arc<RwLock<Option<Arc<Runner>>>>;

/// All paths.
pub fn routes(leading: Leading) -> Router {
    let root = "/apis/minik8s.io/v1/namespaces/{namespace}";
    Router::new()
        .route(&format!("{root}/workflows/{{name}}/run"), post(run))
        .route(&format!("{root}/workflowruns/{{name}}/approve"), post(approve))
        .route("/approvals/{namespace}/{name}/{step}/{token}", post(by_token))
        .with_state(leading)
}

/// Starts a run, and waits for its end if that is asked for.
async fn run(
    State(leading): State<Leading>,
    Path((namespace, name)): Path<(String, String)>,
    request: Request,
) -> Response<Body> {
    let answered = async {
        of_api_server(&request)?;
        let runner = leader(&leading)?;
        // Numbers and names, of which nothing is escaped.
        let query = request.uri().query().unwrap_or_default().to_owned();
        let query: HashMap<&str, &str> = query.split('&').filter_map(|pair| pair.split_once('=')).collect();
        let params = body(request).await?;
        let wait = match query.get("wait").copied() {
            None => Duration::ZERO,
            Some(text) => Duration::from_secs(text.parse().map_err(|_| {
                bad(format!("wait={text:?} is no number of seconds: POST …/workflows/{name}/run?wait=60"))
            })?),
        };
        let key = Key::new(namespace, name);
        let workflows: Api<Workflow> = Api::namespaced(runner.parts.client.clone(), &key.namespace);
        workflows.get(&key.name).await.map_err(said)?;
        let wanted = new_run(&key, query.get("name").map(|name| (*name).to_owned()), params);
        let runs = runner.store.runs(&key.namespace);
        let made = match runs.create(&PostParams::default(), &wanted).await {
            // Who asks again under the same name gets the same run.
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {
                runs.get(wanted.metadata.name.as_deref().unwrap_or_default()).await
            }
            made => made,
        };
        let made = made.map_err(said)?;
        if made.spec.workflow != key.name {
            return Err(bad(format!(
                "there is a run of another workflow under that name: {}",
                made.spec.workflow
            )));
        }
        let run = Key::of(&made);
        let ended = ended(&runner, &run, wait.min(LONGEST_WAIT)).await;
        Ok(match ended {
            None => (StatusCode::ACCEPTED, json!({"run": run.name, "phase": "Running"})),
            Some(run) => (StatusCode::OK, outcome(&runner, &run).await?),
        })
    };
    answer_of(answered.await)
}

/// A run that has ended, as soon as it has.
async fn ended(runner: &Arc<Runner>, key: &Key, patience: Duration) -> Option<Arc<WorkflowRun>> {
    let mut changes = runner.parts.runs.changes();
    let waiting = async {
        loop {
            if let Some(run) = runner.parts.runs.get(key).filter(|run| run.status.has_ended()) {
                return run;
            }
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    };
    tokio::time::timeout(patience, waiting).await.ok()
}

async fn outcome(runner: &Arc<Runner>, run: &WorkflowRun) -> Result<Value, Refusal> {
    let status = &run.status;
    let output = match status.output_ref.as_str() {
        "" => status.output.clone(),
        name => {
            let namespace = run.metadata.namespace.as_deref().unwrap_or_default();
            let values: Api<WorkflowValue> = Api::namespaced(runner.parts.client.clone(), namespace);
            values.get(name).await.map_err(said)?.spec.value
        }
    };
    let mut outcome = json!({"run": run.metadata.name, "phase": status.phase, "output": output});
    if status.phase != "Succeeded" {
        outcome["reason"] = status.reason.clone().into();
        outcome["error"] = status.error.clone().into();
    }
    Ok(outcome)
}

/// Gives the answer that an Approval waits for, or (with `token: true`) a token by which somebody else may.
async fn approve(
    State(leading): State<Leading>,
    Path((namespace, name)): Path<(String, String)>,
    request: Request,
) -> Response<Body> {
    let answered = async {
        of_api_server(&request)?;
        let runner = leader(&leading)?;
        let by = request.headers().get(REMOTE_USER).and_then(|user| user.to_str().ok()).unwrap_or("somebody");
        let by = by.to_owned();
        let body = body(request).await?;
        let run = runner.store.runs(&namespace).get(&name).await.map_err(said)?;
        let step = waiting_step(&run, body["node"].as_str())?;
        if body["token"] == true {
            let token = token(&runner.parts.secret, &run, step);
            return Ok((
                StatusCode::OK,
                json!({"path": format!("/approvals/{namespace}/{name}/{step}/{token}")}),
            ));
        }
        give(&runner, &run, step, by, &body).await
    };
    answer_of(answered.await)
}

async fn by_token(
    State(leading): State<Leading>,
    Path((namespace, name, step, given)): Path<(String, String, i32, String)>,
    request: Request,
) -> Response<Body> {
    let answered = async {
        let runner = leader(&leading)?;
        let wrong =
            || Refusal::new(StatusCode::FORBIDDEN, "Forbidden", "there is nothing that this token approves");
        let run = runner.parts.runs.get(&Key::new(namespace, name)).ok_or_else(wrong)?;
        if !is_token(&runner.parts.secret, &run, step, &given) {
            return Err(wrong());
        }
        if !is_waiting(&run, step) {
            let message = "the answer was given already, or is not waited for any more";
            return Err(Refusal::new(StatusCode::CONFLICT, "NothingToApprove", message));
        }
        let body = body(request).await?;
        give(&runner, &run, step, "a token".to_owned(), &body).await
    };
    answer_of(answered.await)
}

async fn give(
    runner: &Arc<Runner>,
    run: &WorkflowRun,
    step: i32,
    by: String,
    body: &Value,
) -> Result<(StatusCode, Value), Refusal> {
    let key = Key::of(run);
    let answer = match body["approved"].as_bool() {
        Some(false) => Err(body["reason"].as_str().unwrap_or_default().to_owned()),
        _ => Ok(body["value"].clone()),
    };
    runner.post(&key, Some(Event::Answered { step, by, answer }));
    let mut changes = runner.parts.runs.changes();
    let seen = async {
        while runner.parts.runs.get(&key).is_some_and(|run| is_waiting(&run, step)) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    };
    if tokio::time::timeout(ANSWER_TIMEOUT, seen).await.is_err() {
        let message = "the answer was heard, and is not written yet: look at the run, and try again";
        return Err(Refusal::for_now(StatusCode::SERVICE_UNAVAILABLE, "NotYet", message));
    }
    Ok((StatusCode::OK, json!({"run": key.name, "step": step})))
}

fn is_waiting(run: &WorkflowRun, step: i32) -> bool {
    run.status.threads.iter().any(|thread| thread.step == step && thread.state == "Approving")
}

/// The step that waits for an answer: the only one, or the one at this node.
fn waiting_step(run: &WorkflowRun, node: Option<&str>) -> Result<i32, Refusal> {
    let is_meant = |own: &str| node.is_none_or(|node| node == own);
    let waiting: Vec<_> = run
        .status
        .threads
        .iter()
        .filter(|thread| thread.state == "Approving" && is_meant(&thread.node) && !run.status.has_ended())
        .collect();
    match waiting.as_slice() {
        [one] => Ok(one.step),
        [] => {
            let message = "the run waits for nobody's word now";
            Err(Refusal::new(StatusCode::CONFLICT, "NothingToApprove", message))
        }
        several => {
            let nodes: Vec<&str> = several.iter().map(|thread| thread.node.as_str()).collect();
            let message = format!("several wait for an answer: name one of {} as the node", nodes.join(", "));
            Err(Refusal::new(StatusCode::CONFLICT, "SeveralToApprove", message))
        }
    }
}

fn signed(run: &WorkflowRun, step: i32) -> String {
    format!("approve {} {step}", run.metadata.uid.as_deref().unwrap_or_default())
}

fn token(secret: &[u8], run: &WorkflowRun, step: i32) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    hmac::sign(&key, signed(run, step).as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn is_token(secret: &[u8], run: &WorkflowRun, step: i32, given: &str) -> bool {
    let pairs = given.as_bytes().chunks(2);
    let bytes: Option<Vec<u8>> =
        pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect();
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    bytes.is_some_and(|bytes| hmac::verify(&key, signed(run, step).as_bytes(), &bytes).is_ok())
}

fn of_api_server(request: &Request) -> Result<(), Refusal> {
    if request.uri().query().is_some_and(|query| query.contains("dryRun=")) {
        return Err(bad("dryRun is not supported".to_owned()));
    }
    match request.extensions().get::<Peer>() {
        Some(peer) if peer.is_front_proxy => Ok(()),
        _ => Err(Refusal::new(StatusCode::UNAUTHORIZED, "Unauthorized", "only the API server calls this")),
    }
}

fn leader(leading: &Leading) -> Result<Arc<Runner>, Refusal> {
    leading.read().clone().ok_or_else(|| {
        Refusal::for_now(
            StatusCode::SERVICE_UNAVAILABLE,
            "NotLeading",
            "this knative does not lead now: try again",
        )
    })
}

async fn body(request: Request) -> Result<Value, Refusal> {
    let body = Limited::new(request.into_body(), MOST_BODY).collect().await;
    let body =
        body.map_err(|_| bad(format!("the body has more than {MOST_BODY} bytes, or broke off")))?.to_bytes();
    if body.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&body).map_err(|error| bad(format!("the body is not JSON: {error}")))
}

fn bad(message: String) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, "BadRequest", message)
}

fn said(error: kube::Error) -> Refusal {
    match error {
        kube::Error::Api(status) => {
            let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            Refusal::new(code, &status.reason, status.message)
        }
        error => Refusal::for_now(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", error.to_string()),
    }
}

fn answer_of(answered: Result<(StatusCode, Value), Refusal>) -> Response<Body> {
    match answered {
        Err(refusal) => answer::refusal(&refusal),
        Ok((status, value)) => {
            let mut response = Response::new(Body::from(value.to_string()));
            *response.status_mut() = status;
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_for_one_step_of_one_run() {
        let run = |uid: &str| WorkflowRun {
            metadata: kube::api::ObjectMeta { uid: Some(uid.to_owned()), ..Default::default() },
            ..WorkflowRun::default()
        };
        let given = token(b"secret", &run("a"), 3);
        assert!(is_token(b"secret", &run("a"), 3, &given));
        for (secret, uid, step) in [("other", "a", 3), ("secret", "b", 3), ("secret", "a", 4)] {
            assert!(!is_token(secret.as_bytes(), &run(uid), step, &given));
        }
        for wrong in ["", "zz", "é", &given[1..]] {
            assert!(!is_token(b"secret", &run("a"), 3, wrong));
        }
    }
}
