//! Steps that call functions: on the way of every call, under a name that stays the same for each attempt at a step.

use super::access::{Account, Deed, Permissions};
use super::data::pick;
use super::engine::{Failure, Outcome};
use crate::controller::Shared;
use crate::exchange::Seat;
use crate::fleet::Place;
use crate::invoker::{Invocation, Invoker};
use api::kinds::minik8s::{WorkflowRun, WorkflowSpec, WorkflowThread};
use client::Key;
use http::{HeaderMap, HeaderValue};
use jiff::Timestamp;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// An attempt without a time of its own ends after this.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// So many Tasks in a row are made ready for.
const MOST_EXPECTED: usize = 8;
/// Whoever takes over waits so long for the pods of before, which may hold what came of a call.
const TAKE_OVER: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(20);

/// Calls functions for runs.
pub struct Caller {
    shared: Arc<Shared>,
    invoker: Invoker,
    permissions: Arc<Permissions>,
}

/// One attempt at a step.
pub struct Attempt {
    /// The run's name and identity.
    pub run: Key,
    /// The run's identity.
    pub uid: String,
    /// Who calls.
    pub account: Account,
    /// The graph.
    pub graph: Arc<WorkflowSpec>,
    /// Where the run is.
    pub thread: WorkflowThread,
}

impl Attempt {
    /// Of a thread that is at a Task.
    pub fn new(run: &WorkflowRun, graph: Arc<WorkflowSpec>, thread: WorkflowThread) -> Attempt {
        let namespace = run.metadata.namespace.clone().unwrap_or_default();
        let account = (namespace, graph.service_account_name.clone());
        Attempt {
            run: Key::of(run),
            uid: run.metadata.uid.clone().unwrap_or_default(),
            account,
            graph,
            thread,
        }
    }
}

impl Caller {
    /// Calls what this one leads.
    pub fn new(shared: Arc<Shared>, permissions: Arc<Permissions>) -> Caller {
        Caller { invoker: Invoker::new(shared.clone()), shared, permissions }
    }

    /// Makes an attempt.
    pub async fn call(&self, attempt: Attempt) -> Outcome {
        match self.try_call(&attempt).await {
            Ok((result, is_cold)) => Outcome { result: Ok(result), is_cold: Some(is_cold) },
            Err(failure) => Outcome { result: Err(failure), is_cold: None },
        }
    }

    async fn try_call(&self, attempt: &Attempt) -> Result<(Value, bool), Failure> {
        let Attempt { run, uid, account, graph, thread } = attempt;
        let node = &graph.nodes[&thread.node];
        self.permissions.check(account, &Deed::Invoke(node.function.clone())).await?;
        let input = pick(node, &thread.input)?;
        let left = thread.until.as_ref().map(|until| until.0.duration_since(Timestamp::now()));
        let left = left.map_or(LONGEST, |left| Duration::try_from(left).unwrap_or_default());
        let body = if input.is_null() { String::new() } else { input.to_string() };
        let invocation = Invocation {
            function: Key::new(run.namespace.clone(), node.function.clone()),
            id: format!("{uid}/{}", thread.step),
            attempt: thread.attempt.unsigned_abs(),
            body: body.into(),
            headers: headers(run, uid, thread),
            deadline: left,
        };
        let answer = self
            .invoker
            .call(invocation)
            .await
            .map_err(|error| Failure::new(error.fault.reason, error.fault.message))?;
        let value = match answer.body.is_empty() {
            true => Value::Null,
            // A stream, or what an image says, need not be JSON.
            false => serde_json::from_slice(&answer.body)
                .unwrap_or_else(|_| String::from_utf8_lossy(&answer.body).into_owned().into()),
        };
        Ok((value, answer.is_cold))
    }

    /// Asks for pods for the Tasks that will be next whatever comes of this one, as far as none runs.
    pub fn expect(&self, attempt: &Attempt) {
        let mut node = &attempt.graph.nodes[&attempt.thread.node];
        for _ in 0..MOST_EXPECTED {
            let Some(next) = attempt.graph.nodes.get(&node.next) else { return };
            node = next;
            match node.node_type.as_str() {
                "Task" if !node.function.is_empty() => {
                    self.wake(Key::new(attempt.run.namespace.clone(), node.function.clone()));
                }
                "Pass" => {}
                _ => return,
            }
        }
    }

    fn wake(&self, function: Key) {
        let Some(definition) = self.shared.definition(&function) else { return };
        let shared = self.shared.clone();
        let place = self.shared.event(|fleet, now| {
            let (counts, fault) = fleet.counts(&definition.desk);
            (counts.replicas == 0 && fault.is_none()).then(|| fleet.call(&definition, now))
        });
        if let Some(Ok(Place::Waiting(receiver))) = place {
            self.shared.tasks.spawn(async move {
                if let Ok(Ok(granted)) = receiver.await {
                    // The pod runs: the place in it is for whoever really calls.
                    drop(Seat::new(shared, granted));
                }
            });
        }
    }

    /// Waits until the pods of a function that were there before take calls again, for a little while.
    pub async fn taken_over(&self, function: &Key) {
        let ends = tokio::time::Instant::now() + TAKE_OVER;
        while tokio::time::Instant::now() < ends {
            let (counts, _) = self.shared.event(|fleet, _| fleet.counts(function));
            if counts.ready == counts.replicas {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// One trace for each run, and a span for each attempt.
fn headers(run: &Key, uid: &str, thread: &WorkflowThread) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let trace: String = uid.chars().filter(char::is_ascii_hexdigit).collect::<String>().to_ascii_lowercase();
    let span = (u64::from(thread.step.unsigned_abs()) << 16) | u64::from(thread.attempt.unsigned_abs());
    if trace.len() == 32
        && let Ok(value) = HeaderValue::from_str(&format!("00-{trace}-{span:016x}-01"))
    {
        headers.insert("traceparent", value);
    }
    let request = format!("{}-{}-{}", run.name, thread.step, thread.attempt);
    if let Ok(value) = HeaderValue::from_str(&request) {
        headers.insert("x-request-id", value);
    }
    headers
}
