//! What calls functions without being asked: the clock, and changes of objects. Each such call is promised, under a name
//! made of what it is for: a time calls once, and so does a change.
//!
//! ```text
//! schedule ── due(since, now) ──> FunctionCall
//! on: kind ── watched as the function's service account, allowed anew each minute ──> FunctionCall
//! ```

mod clock;
mod watch;

use crate::controller::Shared;
use crate::definition::Definition;
use crate::promised::{MOST_PROMISED, Promise, digest, promise};
use api::kinds::minik8s::{FunctionTrigger, FunctionTriggerStatus};
use client::Key;
use jiff::Timestamp;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// What could not be promised is tried again after this.
const RETRY: Duration = Duration::from_secs(1);

/// How far the triggers of a function are, by [`label`].
pub type Progress = BTreeMap<String, FunctionTriggerStatus>;

/// What a trigger is called in a function's status.
pub fn label(trigger: &FunctionTrigger) -> String {
    match &trigger.on {
        None => format!("{} {}", trigger.schedule, trigger.time_zone).trim_end().to_owned(),
        Some(on) => {
            let selector = on.selector.as_ref().map(watch::selector).unwrap_or_default();
            format!("{} {} {selector}", on.api_version, on.kind).trim().to_owned()
        }
    }
}

/// A change or a time, as the event that its call is about.
struct Cause {
    /// What it is in itself, for the name of the call.
    identity: String,
    source: String,
    kind: String,
    time: Timestamp,
    params: String,
}

/// Calls because of something; tried again until the call is promised. `false` if it never will be.
async fn call(shared: &Shared, definition: &Definition, label: &str, cause: Cause) -> bool {
    let uid = definition.function.metadata.uid.clone().unwrap_or_default();
    let id = digest(&[uid.as_bytes(), label.as_bytes(), cause.identity.as_bytes()]);
    let header = |name: &str, value: &str| (format!("ce-{name}"), value.to_owned());
    let headers = vec![
        header("specversion", "1.0"),
        header("id", &id),
        header("source", &cause.source),
        header("type", &cause.kind),
        header("time", &cause.time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
        ("x-request-id".to_owned(), id.clone()),
    ];
    loop {
        if shared.promised_in(&definition.key.namespace, 0) < MOST_PROMISED {
            let wanted = Promise {
                name: format!("{}-{id}", definition.key.name),
                params: cause.params.clone(),
                headers: headers.clone(),
                cause: cause.source.clone(),
            };
            match promise(shared, definition, wanted).await {
                Ok(_) => return true,
                Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => return true,
                Err(kube::Error::Api(status)) if matches!(status.code, 400 | 403 | 404 | 413 | 422) => {
                    tracing::warn!(status.message, function = %definition.key, "a trigger could not call");
                    return false;
                }
                Err(error) => tracing::debug!(%error, function = %definition.key, "a trigger is tried again"),
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Lets triggers call until shutdown.
pub async fn keep_calling(shared: &Arc<Shared>) {
    let mut watched: HashMap<(Key, String), (Value, CancellationToken)> = HashMap::new();
    loop {
        let definitions = shared.triggered();
        let wanted = watch::wanted(&definitions);
        watched.retain(|key, (what, token)| {
            let stays = wanted.get(key).is_some_and(|(wanted, _)| wanted == what);
            if !stays {
                token.cancel();
            }
            stays
        });
        for (key, (what, definition)) in wanted {
            watched.entry(key.clone()).or_insert_with(|| {
                let (token, shared, ends) =
                    (CancellationToken::new(), shared.clone(), shared.shutdown().clone());
                let own = token.clone();
                shared.tasks.clone().spawn(async move {
                    tokio::select! {
                        () = watch::follow(&shared, definition, &key.1) => {}
                        () = own.cancelled() => {}
                        () = ends.cancelled() => {}
                    }
                });
                (what, token)
            });
        }
        let next = clock::ring(shared, &definitions).await;
        let sleeping = async {
            match next {
                Some(at) => {
                    let left = Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default();
                    tokio::time::sleep(left + Duration::from_millis(10)).await;
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = sleeping => {}
            () = shared.triggers_changed.notified() => {}
            () = shared.shutdown().cancelled() => return,
        }
    }
}
