//! Calls that were promised for later. Each is a FunctionCall, so that what was promised is not forgotten; it is made, made
//! again if it fails, and says for a while what came of it.
//!
//! ```text
//! Prefer: respond-async ──> FunctionCall in the API ──> 202
//! FunctionCall ──next──> wait | make attempt n ──> Running n ──> Invoker ──after──> Succeeded | Failed | Pending until
//! ended ──> kept for a while ──> deleted
//! ```
//!
//! That an attempt begins is written before it does: whoever leads next knows that it may have been made, and asks the
//! function's pods first.

mod accept;

pub use accept::{Promise, accept, digest, is_wanted, promise};

use crate::controller::Shared;
use crate::fleet::Fault;
use crate::invoker::{Answer, CallError, Invocation, Invoker};
use api::kinds::minik8s::{FunctionAsync, FunctionCall, FunctionCallStatus};
use client::{Cache, Change, Key};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use parking_lot::Mutex;
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

/// So many promised calls of a function are made at a time.
const MOST_AT_A_TIME: usize = 100;
/// So many calls of a namespace may wait or be made; large ones count as several.
pub const MOST_PROMISED: usize = 10_000;
/// What came of so many calls of a function is kept; large ones count as several.
const MOST_KEPT: usize = 1000;
/// A call counts as one more for each so many bytes.
const BYTES_OF_ONE: usize = 16 << 10;
/// An answer that is larger has no room in an object.
const MOST_KEPT_BYTES: usize = 512 << 10;
/// A write that failed is tried again after this.
const RETRY: Duration = Duration::from_millis(500);
/// No pause between two attempts is longer.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_secs(3600);
/// Between what a call may wait and take, and the end of all patience.
const SPARE: Duration = Duration::from_secs(5);

/// What is to be done about a call.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// Nothing before this time.
    Wait(Timestamp),
    /// Make this attempt.
    Make(i32),
    /// Nothing: it has ended.
    Ended,
}

fn next(status: &FunctionCallStatus, now: Timestamp) -> Next {
    match (status.phase.as_str(), &status.next_attempt_time) {
        ("Succeeded" | "Failed", _) => Next::Ended,
        ("" | "Pending", Some(time)) if time.0 > now => Next::Wait(time.0),
        // One that is Running is of who led before.
        _ => Next::Make(status.attempts + 1),
    }
}

/// What came of an attempt.
fn after(
    status: &FunctionCallStatus,
    outcome: &Result<Answer, CallError>,
    promised: &FunctionAsync,
    now: Timestamp,
) -> FunctionCallStatus {
    let mut status = status.clone();
    status.next_attempt_time = None;
    let fault = match outcome {
        Ok(answer) if answer.body.len() > MOST_KEPT_BYTES => {
            let message =
                format!("the answer is larger than {MOST_KEPT_BYTES} bytes, which is what is kept of one");
            Err((Fault::new("AnswerTooLarge", message), true))
        }
        Ok(answer) => String::from_utf8(answer.body.to_vec()).map_err(|_| {
            (Fault::new("NotText", "the answer is not text, which is what is kept of one"), true)
        }),
        Err(error) => Err((error.fault.clone(), is_final(error.status))),
    };
    let (phase, ended) = match fault {
        Ok(result) => {
            (status.result, status.reason, status.message) = (result, String::new(), String::new());
            ("Succeeded", true)
        }
        Err((fault, is_final)) => {
            (status.reason, status.message) = (fault.reason, fault.message);
            let is_last = is_final || status.attempts > promised.retries.unwrap_or(0);
            if !is_last {
                let pause = pause(status.attempts, promised.backoff_seconds);
                status.next_attempt_time = now.checked_add(pause).ok().map(Time);
            }
            (if is_last { "Failed" } else { "Pending" }, is_last)
        }
    };
    phase.clone_into(&mut status.phase);
    status.completion_time = ended.then_some(Time(now));
    status
}

/// Whether another attempt would end in the same way: what was asked is wrong.
fn is_final(status: StatusCode) -> bool {
    status.is_client_error() && !matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
}

/// How long is waited after so many attempts.
fn pause(attempts: i32, first_seconds: i32) -> SignedDuration {
    let doubled = u32::try_from(attempts - 1).unwrap_or(0).min(12);
    SignedDuration::from_secs(i64::from(first_seconds.max(1)) << doubled).min(LONGEST_PAUSE)
}

/// As how many a call counts that is so large.
fn weight(bytes: usize) -> usize {
    1 + bytes / BYTES_OF_ONE
}

/// What came of a function's calls, by when it is forgotten.
#[derive(Default)]
struct Kept {
    weights: BTreeMap<(Timestamp, Key), usize>,
    sum: usize,
}

impl Kept {
    fn insert(&mut self, until: Timestamp, key: Key, weight: usize) {
        self.sum += weight;
        self.sum -= self.weights.insert((until, key), weight).unwrap_or(0);
    }

    fn remove(&mut self, key: &Key) {
        let sum = &mut self.sum;
        self.weights.retain(|(_, other), weight| {
            let stays = other != key;
            *sum -= if stays { 0 } else { *weight };
            stays
        });
    }

    fn pop_due(&mut self, now: Timestamp) -> Option<Key> {
        let (until, _) = self.weights.keys().next()?;
        if *until > now && self.sum <= MOST_KEPT {
            return None;
        }
        let ((_, key), weight) = self.weights.pop_first()?;
        self.sum -= weight;
        Some(key)
    }
}

/// All promised calls.
pub struct Promised {
    shared: Arc<Shared>,
    invoker: Invoker,
    under_way: Mutex<HashMap<Key, (CancellationToken, usize)>>,
    turns: Mutex<HashMap<Key, Arc<Semaphore>>>,
    kept: Mutex<HashMap<Key, Kept>>,
    kept_changed: Notify,
}

impl Promised {
    /// None yet.
    pub fn new(shared: Arc<Shared>) -> Arc<Promised> {
        let invoker = Invoker::new(shared.clone());
        let (under_way, turns, kept) = Default::default();
        Arc::new(Promised { shared, invoker, under_way, turns, kept, kept_changed: Notify::new() })
    }

    /// Follows calls from now on.
    pub fn follow(self: &Arc<Self>, calls: &Cache<FunctionCall>) {
        let promised = self.clone();
        calls.subscribe(move |change| promised.changed(change));
    }

    fn changed(self: &Arc<Self>, change: &Change<FunctionCall>) {
        let key = change.key();
        let present = change.new.as_ref().filter(|call| call.metadata.deletion_timestamp.is_none());
        let function = Key::new(key.namespace.clone(), change.object().spec.function.clone());
        let Some(call) = present else {
            if let Some(token) = self.ends(&key) {
                token.cancel();
            }
            if let Some(kept) = self.kept.lock().get_mut(&function) {
                kept.remove(&key);
            }
            return;
        };
        if next(&call.status, Timestamp::MAX) == Next::Ended {
            self.keep(&function, &key, &call.status);
            return;
        }
        let (token, weight) = (CancellationToken::new(), weight(call.spec.params.len()));
        {
            let mut under_way = self.under_way.lock();
            if under_way.contains_key(&key) {
                return;
            }
            under_way.insert(key.clone(), (token.clone(), weight));
        }
        self.shared.promised_in(&key.namespace, weight.cast_signed());
        let (promised, call) = (self.clone(), call.as_ref().clone());
        self.shared.tasks.spawn(async move {
            let shutdown = promised.shared.shutdown();
            tokio::select! {
                () = promised.run(call, &function) => {
                    promised.ends(&key);
                }
                () = token.cancelled() => {}
                () = shutdown.cancelled() => {}
            }
        });
    }

    /// A call is under way no more.
    fn ends(&self, key: &Key) -> Option<CancellationToken> {
        let (token, weight) = self.under_way.lock().remove(key)?;
        self.shared.promised_in(&key.namespace, -weight.cast_signed());
        Some(token)
    }

    /// Makes a call until it has ended.
    async fn run(&self, mut call: FunctionCall, function: &Key) {
        loop {
            match next(&call.status, Timestamp::now()) {
                Next::Ended => return,
                Next::Wait(until) => {
                    let left = until.duration_since(Timestamp::now());
                    tokio::time::sleep(Duration::try_from(left).unwrap_or_default()).await;
                }
                Next::Make(attempt) => {
                    let turns = self.turns_of(function);
                    let Ok(_turn) = turns.acquire_owned().await else { return };
                    let Some(begun) = self.begin(&call, attempt).await else { return };
                    call = begun;
                    if (call.status.phase.as_str(), call.status.attempts) != ("Running", attempt) {
                        // Somebody else knows better.
                        continue;
                    }
                    let outcome = self.make(&call, function, attempt).await;
                    let promised =
                        self.shared.definition(function).map(|known| known.function.spec.promised.clone());
                    let status =
                        after(&call.status, &outcome, &promised.unwrap_or_default(), Timestamp::now());
                    let Some(ended) = self.write(&call, status).await else { return };
                    call = ended;
                }
            }
        }
    }

    fn turns_of(&self, function: &Key) -> Arc<Semaphore> {
        let mut turns = self.turns.lock();
        // Nobody waits for, and nobody has, what only this map knows.
        turns.retain(|key, own| key == function || Arc::strong_count(own) > 1);
        turns.entry(function.clone()).or_insert_with(|| Arc::new(Semaphore::new(MOST_AT_A_TIME))).clone()
    }

    async fn begin(&self, call: &FunctionCall, attempt: i32) -> Option<FunctionCall> {
        let start = call.status.start_time.clone().unwrap_or_else(|| Time(Timestamp::now()));
        let status = FunctionCallStatus {
            phase: "Running".to_owned(),
            attempts: attempt,
            start_time: Some(start),
            next_attempt_time: None,
            ..call.status.clone()
        };
        self.write(call, status).await
    }

    async fn make(&self, call: &FunctionCall, function: &Key, attempt: i32) -> Result<Answer, CallError> {
        let times = self.shared.definition(function).map(|known| known.patience() + known.timeout());
        let mut headers = HeaderMap::new();
        for (name, value) in &call.spec.headers {
            if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_str(value)) {
                headers.insert(name, value);
            }
        }
        let invocation = Invocation {
            function: function.clone(),
            id: call.metadata.uid.clone().unwrap_or_default(),
            attempt: u32::try_from(attempt).unwrap_or(1),
            body: call.spec.params.clone().into(),
            headers,
            deadline: times.unwrap_or_default() + SPARE,
        };
        self.invoker.call(invocation).await
    }

    /// Writes a status, if nobody else has since; what the call is then. Nothing, if it is gone.
    async fn write(&self, call: &FunctionCall, status: FunctionCallStatus) -> Option<FunctionCall> {
        let key = Key::of(call);
        let calls: Api<FunctionCall> = Api::namespaced(self.shared.client.clone(), &key.namespace);
        // What is not there any more has to be taken away by name.
        let mut wanted = json!({"result": null, "reason": null, "message": null, "nextAttemptTime": null, "completionTime": null});
        for (name, value) in serde_json::to_value(&status).ok()?.as_object()? {
            wanted[name] = value.clone();
        }
        let mut version = call.metadata.resource_version.clone();
        loop {
            let metadata = json!({"resourceVersion": version, "uid": call.metadata.uid});
            let patch = Patch::Merge(json!({"metadata": metadata, "status": wanted}));
            match calls.patch_status(&key.name, &PatchParams::default(), &patch).await {
                Ok(written) => return Some(written),
                Err(kube::Error::Api(error)) if error.code == 404 => return None,
                Err(kube::Error::Api(error)) if error.code == 409 => {
                    let found = calls.get(&key.name).await.ok();
                    let found = found.filter(|found| found.metadata.uid == call.metadata.uid)?;
                    if found.status != call.status {
                        return Some(found);
                    }
                    // Something else of it has changed.
                    version = found.metadata.resource_version;
                    continue;
                }
                Err(error) => tracing::warn!(%error, call = key.name, "a call's status was not written"),
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// What came of a call is kept for a while.
    fn keep(&self, function: &Key, key: &Key, status: &FunctionCallStatus) {
        let promised =
            self.shared.definition(function).map(|known| known.function.spec.promised.keep_seconds);
        let ended = status.completion_time.as_ref().map_or_else(Timestamp::now, |time| time.0);
        let until = ended + SignedDuration::from_secs(i64::from(promised.unwrap_or(0).max(1)));
        let weight = weight(status.result.len() + status.message.len());
        self.kept.lock().entry(function.clone()).or_default().insert(until, key.clone(), weight);
        self.kept_changed.notify_one();
    }

    /// Deletes what was kept for long enough, until shutdown.
    pub async fn keep_sweeping(&self) {
        let shutdown = self.shared.shutdown();
        loop {
            let (due, next) = self.due(Timestamp::now());
            for key in due {
                let calls: Api<FunctionCall> = Api::namespaced(self.shared.client.clone(), &key.namespace);
                match calls.delete(&key.name, &DeleteParams::default()).await {
                    Ok(_) => {}
                    Err(kube::Error::Api(error)) if error.code == 404 => {}
                    Err(error) => tracing::debug!(%error, call = key.name, "an old call was not deleted"),
                }
            }
            let sleeping = async {
                match next {
                    Some(at) => {
                        let left =
                            Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default();
                        tokio::time::sleep(left + RETRY).await;
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = sleeping => {}
                () = self.kept_changed.notified() => {}
                () = shutdown.cancelled() => return,
            }
        }
    }

    /// What was kept for long enough, or is more than is kept; and when the next will have been.
    fn due(&self, now: Timestamp) -> (Vec<Key>, Option<Timestamp>) {
        let mut kept = self.kept.lock();
        let mut due = Vec::new();
        for of_function in kept.values_mut() {
            due.extend(std::iter::from_fn(|| of_function.pop_due(now)));
        }
        kept.retain(|_, of_function| !of_function.weights.is_empty());
        let firsts = kept.values().filter_map(|of_function| of_function.weights.keys().next());
        (due, firsts.map(|(until, _)| *until).min())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).expect("a time")
    }

    fn status(phase: &str, attempts: i32) -> FunctionCallStatus {
        FunctionCallStatus { phase: phase.to_owned(), attempts, ..FunctionCallStatus::default() }
    }

    fn failed(status: StatusCode) -> Result<Answer, CallError> {
        Err(CallError { status, fault: Fault::new("Raised", "no"), has_begun: true })
    }

    #[test]
    fn a_call_is_made_again_later_and_later_and_then_no_more() {
        let promised = FunctionAsync { retries: Some(2), backoff_seconds: 3, keep_seconds: 60 };
        let error = failed(StatusCode::INTERNAL_SERVER_ERROR);
        let first = after(&status("Running", 1), &error, &promised, at(0));
        assert_eq!((first.phase.as_str(), &first.next_attempt_time), ("Pending", &Some(Time(at(3)))));
        assert_eq!(next(&first, at(2)), Next::Wait(at(3)));
        assert_eq!(next(&first, at(3)), Next::Make(2));
        let second = after(&status("Running", 2), &error, &promised, at(10));
        assert_eq!(second.next_attempt_time, Some(Time(at(16))));
        let third = after(&status("Running", 3), &error, &promised, at(20));
        assert_eq!((third.phase.as_str(), &third.completion_time), ("Failed", &Some(Time(at(20)))));
        assert_eq!((third.reason.as_str(), next(&third, at(1000))), ("Raised", Next::Ended));
        let wrong = after(&status("Running", 1), &failed(StatusCode::BAD_REQUEST), &promised, at(0));
        assert_eq!(wrong.phase, "Failed", "what was asked does not get better");
        assert_eq!(pause(40, 1), LONGEST_PAUSE);
    }

    #[test]
    fn what_was_answered_is_kept() {
        let check = |body: Bytes| {
            after(
                &status("Running", 2),
                &Ok(Answer { body, is_cold: false }),
                &FunctionAsync::default(),
                at(0),
            )
        };
        let done = check(Bytes::from_static(b"3"));
        assert_eq!((done.phase.as_str(), done.result.as_str(), done.attempts), ("Succeeded", "3", 2));
        assert_eq!(check(vec![b'1'; MOST_KEPT_BYTES + 1].into()).reason, "AnswerTooLarge");
        assert_eq!(check(Bytes::from_static(b"\xff")).reason, "NotText");
    }

    #[test]
    fn large_results_are_kept_for_fewer_calls() {
        let mut kept = Kept::default();
        for n in 0..100 {
            kept.insert(at(n), Key::new("a", n.to_string()), weight(MOST_KEPT_BYTES));
        }
        let due: Vec<Key> = std::iter::from_fn(|| kept.pop_due(at(0))).collect();
        assert_eq!((due.len(), kept.weights.len()), (70, 30));
        kept.remove(&Key::new("a", "99"));
        assert_eq!(kept.sum, 29 * weight(MOST_KEPT_BYTES));
        assert_eq!(std::iter::from_fn(|| kept.pop_due(at(98))).count(), 29);
        assert_eq!(kept.sum, 0);
    }

    #[test]
    fn what_was_running_when_its_leader_ended_is_the_next_attempt() {
        assert_eq!(next(&status("Running", 1), at(0)), Next::Make(2));
        assert_eq!(next(&status("", 0), at(0)), Next::Make(1));
    }
}
