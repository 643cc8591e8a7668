//! The engine: a pure function from a run's status and an event to the next status.
//!
//! ```text
//! thread: Held ──begin──> Running ──Ended──> the next node, Held, or the end
//!                │         ├─ failed, a `retry` fits ──> Retrying ──Tick──> Running, the next attempt
//!                │         └─ failed otherwise ──> failing: `catch`, tolerated by a Map, or the run's end
//!                ├──> Waiting ──Tick──> …    Approving ──Approved──> …
//!                └──> Joining: its branches and items are threads of their own, which end in it
//! ```
//!
//! # Guarantees
//!
//! A step that has ended is never begun again; what an event names and the status does not have is ignored, so that events may
//! come late, twice or to somebody else. One call begins at most [`MOST_BEGUN`] steps; the rest is due at once.

use super::conditions::choose;
use super::data::{at, pick, put};
use api::kinds::minik8s::{
    WorkflowJoin, WorkflowNode, WorkflowRunStatus, WorkflowSpec, WorkflowStepSpec, WorkflowThread,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::VecDeque;

/// So many steps begin in one transition: what it adds to a run has to fit there.
pub const MOST_BEGUN: usize = 16;
/// So many threads go on at a time; others begin when there is room, at least one of each Parallel and Map.
pub const MOST_LIVE: usize = 64;
/// So many nodes are shown in a run's status.
const MOST_SHOWN: usize = 10;
/// So many failures of attempts are remembered with a step.
const MOST_FAILURES: usize = 5;
/// So much of each.
const MOST_SAID: usize = 200;

/// Why a step, or a run, failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The class, by which `retry` and `catch` choose.
    pub class: String,
    /// A sentence for people.
    pub message: String,
}

impl Failure {
    /// One with a class and a message.
    pub fn new(class: impl Into<String>, message: impl Into<String>) -> Failure {
        Failure { class: class.into(), message: message.into() }
    }
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// What came of it.
    pub result: Result<Value, Failure>,
    /// Whether a pod was started for it.
    pub is_cold: Option<bool>,
}

/// What happens to a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// It begins, with a copy of its graph.
    Begin {
        /// The graph.
        graph: Box<WorkflowSpec>,
        /// The first node's input.
        params: Value,
    },
    /// An attempt of a Task ended.
    Ended {
        /// The step's number.
        step: i32,
        /// Which attempt.
        attempt: i32,
        /// How.
        outcome: Outcome,
    },
    /// An attempt is under way nowhere any more, and nobody knows how far it came.
    Lost {
        /// The step's number.
        step: i32,
        /// Which attempt.
        attempt: i32,
    },
    /// Somebody gave an Approval, or refused it.
    Answered {
        /// The step's number.
        step: i32,
        /// Who.
        by: String,
        /// What goes with it, or why not.
        answer: Result<Value, String>,
    },
    /// Time has passed.
    Tick,
    /// No further step is to begin, or they are again.
    Suspend(bool),
    /// It is to end now.
    Cancel,
    /// It is to go on where it failed, so many times by now.
    Redrive(i32),
}

/// What becomes of a run by an event; nothing, if the event means nothing to it.
pub fn advance(status: &WorkflowRunStatus, event: &Event, now: Timestamp) -> Option<WorkflowRunStatus> {
    let now = Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now);
    let mut walk = Walk { run: status.clone(), now, begun: 0, ready: VecDeque::new() };
    if !walk.happens(event) {
        return None;
    }
    walk.go_on();
    walk.show();
    Some(walk.run)
}

/// The Tasks that are to be under way.
pub fn running(status: &WorkflowRunStatus) -> impl Iterator<Item = &WorkflowThread> {
    let has_ended = status.has_ended();
    status.threads.iter().filter(move |thread| !has_ended && thread.state == "Running")
}

/// When a [`Event::Tick`] means something although nothing else happens.
pub fn due(status: &WorkflowRunStatus) -> Option<Timestamp> {
    if status.phase.is_empty() || status.has_ended() {
        return None;
    }
    let is_suspended = status.phase == "Suspended";
    let threads = status.threads.iter().filter_map(|thread| match thread.state.as_str() {
        "Held" if !is_suspended => Some(Timestamp::UNIX_EPOCH),
        "Retrying" if is_suspended => None,
        "Held" => None,
        _ => thread.until.as_ref().map(|until| until.0),
    });
    threads.chain(status.deadline.as_ref().map(|deadline| deadline.0)).min()
}

/// One transition on its way.
pub(super) struct Walk {
    pub(super) run: WorkflowRunStatus,
    pub(super) now: Timestamp,
    begun: usize,
    /// Threads that may begin their node.
    pub(super) ready: VecDeque<i32>,
}

impl Walk {
    fn happens(&mut self, event: &Event) -> bool {
        match event {
            Event::Begin { graph, params } => return self.begin(graph, params),
            _ if self.run.phase.is_empty() => return false,
            Event::Redrive(count) => return self.redrive(*count),
            _ if self.run.has_ended() => return false,
            Event::Ended { step, attempt, outcome } => {
                let Some(id) = self.find(*step, "Running", Some(*attempt)) else { return false };
                self.thread(id).is_cold = outcome.is_cold;
                match &outcome.result {
                    Ok(result) => self.complete(id, result.clone()),
                    Err(failure) => self.attempt_failed(id, failure.clone()),
                }
            }
            Event::Lost { step, attempt } => {
                let Some(id) = self.find(*step, "Running", Some(*attempt)) else { return false };
                self.next_attempt(id);
            }
            Event::Answered { step, by, answer } => {
                let Some(id) = self.find(*step, "Approving", None) else { return false };
                self.answered(id, by, answer);
            }
            Event::Tick => return self.tick(),
            Event::Suspend(is_wanted) => return self.suspend(*is_wanted),
            Event::Cancel => self.stop_all("Cancelled", &Failure::new("Cancelled", "the run was cancelled")),
        }
        true
    }

    fn begin(&mut self, graph: &WorkflowSpec, params: &Value) -> bool {
        if !matches!(self.run.phase.as_str(), "" | "Pending") {
            return false;
        }
        let params = if params.is_null() { graph.params.clone() } else { params.clone() };
        let mut graph = graph.with_defaults();
        graph.params = Value::Null;
        self.run.phase = "Running".to_owned();
        self.run.start_time = Some(MicroTime(self.now));
        self.run.deadline = self.after(graph.timeout_seconds);
        let main = WorkflowThread {
            node: graph.start_at.clone(),
            state: "Held".to_owned(),
            input: params,
            ..WorkflowThread::default()
        };
        self.run.graph = Some(graph);
        self.run.threads = vec![main];
        self.ready.push_back(0);
        true
    }

    /// Begins whatever may begin.
    fn go_on(&mut self) {
        while let Some(id) = self.ready.pop_front() {
            if self.run.phase != "Running" || self.begun >= MOST_BEGUN {
                return;
            }
            self.begun += 1;
            self.begin_step(id);
        }
    }

    fn begin_step(&mut self, id: i32) {
        let most = self.graph().limits.steps;
        if self.run.step_count >= most {
            let failure =
                Failure::new("TooManySteps", format!("the run has made {most} steps (limits.steps)"));
            return self.run_failed(id, &failure);
        }
        self.run.step_count += 1;
        let (step, now, node) = (self.run.step_count, self.now, self.node(id));
        let until = self.after(node.timeout_seconds);
        let thread = self.thread(id);
        (thread.step, thread.attempt, thread.is_cold) = (step, 1, None);
        thread.since = Some(MicroTime(now));
        thread.failures.clear();
        let input = thread.input.clone();
        match node.node_type.as_str() {
            "Choice" => match choose(&node, &input) {
                Ok(next) => self.move_on(id, input, next.to_owned(), "Choice"),
                Err(failure) => self.fail(id, failure),
            },
            "Fail" => self.fail(id, Failure::new(node.error.clone(), node.message.clone())),
            "Wait" => match self.wait_until(&node, &input) {
                Ok(until) => self.rests(id, "Waiting", Some(MicroTime(until))),
                Err(failure) => self.fail(id, failure),
            },
            "Approval" => self.rests(id, "Approving", until),
            own => match (own, pick(&node, &input)) {
                (_, Err(failure)) => self.fail(id, failure),
                ("Succeed", Ok(picked)) => self.move_on(id, picked, String::new(), "Succeed"),
                ("Pass", Ok(picked)) => {
                    let result = if node.value.is_null() { picked } else { node.value.clone() };
                    self.complete(id, result);
                }
                ("Parallel", Ok(_)) => self.join(id, node.branches.len()),
                ("Map", Ok(picked)) => match items(&node, &picked, self.graph().limits.items) {
                    Ok(items) => self.join(id, items.len()),
                    Err(failure) => self.fail(id, failure),
                },
                (_, Ok(_)) => self.rests(id, "Running", until),
            },
        }
    }

    fn rests(&mut self, id: i32, state: &str, until: Option<MicroTime>) {
        let thread = self.thread(id);
        (thread.state, thread.until) = (state.to_owned(), until);
    }

    fn wait_until(&self, node: &WorkflowNode, input: &Value) -> Result<Timestamp, Failure> {
        let bad = |what: String| Failure::new("BadInput", what);
        let seconds = |seconds: f64| {
            let pause = SignedDuration::try_from_secs_f64(seconds.clamp(0.0, 1e9)).unwrap_or_default();
            self.now.checked_add(pause).map_err(|error| bad(error.to_string()))
        };
        let until = match (node.seconds, node.until.starts_with('/')) {
            (Some(number), _) => return seconds(number as f64),
            (None, true) => match at(input, &node.until, "until")? {
                Value::Number(number) => return seconds(number.as_f64().unwrap_or_default()),
                Value::String(text) => text,
                other => {
                    return Err(bad(format!(
                        "`until` leads to {other}, which is neither a time nor a number"
                    )));
                }
            },
            (None, false) => &node.until,
        };
        until.parse().map_err(|_| bad(format!("`until` is {until:?}, which is no time as in RFC 3339")))
    }

    /// A step has its result, which takes its place in what came in.
    pub(super) fn complete(&mut self, id: i32, result: Value) {
        let (node, most) = (self.node(id), self.graph().limits.value_bytes);
        let output = put(&self.thread(id).input, &node.result, result).and_then(|output| {
            let length = i64::try_from(output.to_string().len()).unwrap_or(i64::MAX);
            let what = || format!("its output has {length} bytes, and may have {most} (limits.valueBytes)");
            if length > most { Err(Failure::new("TooLarge", what())) } else { Ok(output) }
        });
        match output {
            Ok(output) => self.move_on(id, output, node.next.clone(), ""),
            Err(failure) => self.fail(id, failure),
        }
    }

    /// A step has succeeded: the thread goes to the next node, or ends.
    fn move_on(&mut self, id: i32, output: Value, next: String, chose: &str) {
        let mut record = self.record(id, "Succeeded");
        record.output = output.clone();
        if chose == "Choice" {
            record.chose = if next.is_empty() { "(the end)".to_owned() } else { next.clone() };
        }
        let step = record.number;
        self.run.steps.push(record);
        match next.is_empty() {
            false => self.goes_to(id, next, output),
            true => self.thread_ended(id, step, output),
        }
    }

    /// A thread is at another node.
    pub(super) fn goes_to(&mut self, id: i32, node: String, input: Value) {
        let thread = self.thread(id);
        *thread = WorkflowThread {
            id: thread.id,
            parent: thread.parent,
            index: thread.index,
            node,
            state: "Held".to_owned(),
            input,
            ..WorkflowThread::default()
        };
        self.ready.push_back(id);
    }

    fn thread_ended(&mut self, id: i32, step: i32, output: Value) {
        let (parent, index) = (self.thread(id).parent, self.thread(id).index);
        self.run.threads.retain(|thread| thread.id != id);
        match parent {
            None => {
                self.run.phase = "Succeeded".to_owned();
                self.run.completion_time = Some(MicroTime(self.now));
                self.run.output = output;
                self.run.threads.clear();
            }
            Some(parent) => {
                let join = self.joined(parent);
                join.ended.push([index, step]);
                join.outputs.insert(step, output);
                self.top_up(parent);
            }
        }
    }

    fn join(&mut self, id: i32, count: usize) {
        let count = i32::try_from(count).unwrap_or(i32::MAX);
        self.thread(id).join = Some(WorkflowJoin { count, ..WorkflowJoin::default() });
        self.rests(id, "Joining", None);
        self.top_up(id);
    }

    /// Begins as many branches or items as there is room for; goes on, if all have ended.
    pub(super) fn top_up(&mut self, id: i32) {
        let node = self.node(id);
        let join = self.joined(id).clone();
        if join.ended.len() >= usize::try_from(join.count).unwrap_or_default() {
            let mut ended = join.ended;
            ended.sort_unstable();
            let output = |step: &i32| join.outputs.get(step).cloned().unwrap_or_default();
            let results = ended.iter().map(|[_, step]| output(step)).collect();
            self.thread(id).join = None;
            return self.complete(id, Value::Array(results));
        }
        let most = if node.node_type == "Map" { node.max_concurrency.max(1) } else { i32::MAX };
        let mut active = join.begun - i32::try_from(join.ended.len()).unwrap_or_default();
        let mut begun = join.begun;
        let Ok(input) = pick(&node, &self.thread(id).input) else { return };
        while begun < join.count && active < most && (active == 0 || self.run.threads.len() < MOST_LIVE) {
            let index = usize::try_from(begun).unwrap_or_default();
            let (first, input) = match node.node_type.as_str() {
                "Map" => {
                    let items = input.pointer(&node.items).and_then(Value::as_array);
                    (node.each.clone(), items.and_then(|items| items.get(index)).cloned().unwrap_or_default())
                }
                _ => (node.branches[index].clone(), input.clone()),
            };
            let new = self.run.threads.iter().map(|thread| thread.id).max().unwrap_or_default() + 1;
            let state = "Held".to_owned();
            let thread = WorkflowThread {
                id: new,
                parent: Some(id),
                index: begun,
                node: first,
                state,
                input,
                ..WorkflowThread::default()
            };
            self.run.threads.push(thread);
            self.ready.push_back(new);
            (begun, active) = (begun + 1, active + 1);
        }
        self.joined(id).begun = begun;
    }

    fn answered(&mut self, id: i32, by: &str, answer: &Result<Value, String>) {
        let by_whom = by.to_owned();
        self.thread(id).by = by_whom;
        match answer {
            Ok(value) => {
                let result = json!({"approved": true, "by": by, "value": value});
                // What is to be approved goes on as it came, unless there is a place for the answer.
                if self.node(id).result.is_empty() {
                    let (input, next) = (self.thread(id).input.clone(), self.node(id).next.clone());
                    self.move_on(id, input, next, "");
                } else {
                    self.complete(id, result);
                }
            }
            Err(why) => {
                let why = if why.is_empty() { String::new() } else { format!(": {why}") };
                self.fail(id, Failure::new("Rejected", format!("{by} did not approve{why}")));
            }
        }
    }

    fn tick(&mut self) -> bool {
        if self.run.deadline.as_ref().is_some_and(|deadline| deadline.0 <= self.now) {
            let seconds = self.graph().timeout_seconds;
            let message = format!("the run did not end within {seconds} s (timeoutSeconds)");
            self.stop_all("Failed", &Failure::new("TimedOut", message));
            return true;
        }
        let is_suspended = self.run.phase == "Suspended";
        let is_due = |thread: &&WorkflowThread| {
            let is_over = thread.until.as_ref().is_some_and(|until| until.0 <= self.now);
            match thread.state.as_str() {
                "Held" => !is_suspended,
                "Retrying" => is_over && !is_suspended,
                _ => is_over,
            }
        };
        let due: Vec<i32> = self.run.threads.iter().filter(is_due).map(|thread| thread.id).collect();
        for id in &due {
            // Another one's failure may have ended it meanwhile.
            let Some(thread) = self.run.threads.iter().find(|thread| thread.id == *id) else { continue };
            match thread.state.as_str() {
                _ if self.run.has_ended() => break,
                "Held" => self.ready.push_back(*id),
                "Retrying" => self.next_attempt(*id),
                "Waiting" => {
                    let (input, next) = (self.thread(*id).input.clone(), self.node(*id).next.clone());
                    self.move_on(*id, input, next, "");
                }
                state => {
                    let (is_task, seconds) = (state == "Running", self.node(*id).timeout_seconds);
                    let message = format!("it did not end within {seconds} s (timeoutSeconds)");
                    let failure = Failure::new("TimedOut", message);
                    if is_task { self.attempt_failed(*id, failure) } else { self.fail(*id, failure) }
                }
            }
        }
        !due.is_empty()
    }

    fn next_attempt(&mut self, id: i32) {
        let until = self.after(self.node(id).timeout_seconds);
        self.thread(id).attempt += 1;
        self.rests(id, "Running", until);
    }

    /// An attempt failed: another one is made after a pause, or the step fails.
    fn attempt_failed(&mut self, id: i32, failure: Failure) {
        let node = self.node(id);
        let rule = node.retry.iter().find(|rule| super::failing::is_for(&rule.errors, &failure.class));
        let thread = self.thread(id);
        let so_far = thread.retries + 1;
        let said = format!("{}: {}", failure.class, failure.message);
        thread.failures.push(super::failing::clipped(&said, MOST_SAID));
        if thread.failures.len() > MOST_FAILURES {
            thread.failures.remove(0);
        }
        let Some(rule) = rule.filter(|rule| so_far < rule.attempts) else { return self.fail(id, failure) };
        thread.retries = so_far;
        let grown = rule.backoff_seconds * rule.factor.powi(so_far - 1);
        let seconds =
            if rule.max_backoff_seconds > 0.0 { grown.min(rule.max_backoff_seconds) } else { grown };
        let part = if rule.jitter {
            part_of_one(thread.step, thread.attempt, self.run.start_time.as_ref())
        } else {
            1.0
        };
        let pause = SignedDuration::try_from_secs_f64((seconds * part).clamp(0.0, 1e8)).unwrap_or_default();
        let until = MicroTime(self.now + pause);
        self.rests(id, "Retrying", Some(until));
    }

    fn suspend(&mut self, is_wanted: bool) -> bool {
        let (from, to) = if is_wanted { ("Running", "Suspended") } else { ("Suspended", "Running") };
        if self.run.phase != from {
            return false;
        }
        self.run.phase = to.to_owned();
        if !is_wanted {
            self.tick();
        }
        true
    }

    fn redrive(&mut self, count: i32) -> bool {
        if !matches!(self.run.phase.as_str(), "Failed" | "Cancelled") || count <= self.run.redrives {
            return false;
        }
        self.run.redrives = count;
        self.run.phase = "Running".to_owned();
        self.run.deadline = self.after(self.graph().timeout_seconds);
        self.run.completion_time = None;
        self.run.reason.clear();
        self.run.error.clear();
        let again: Vec<i32> = self
            .run
            .threads
            .iter()
            .filter(|thread| matches!(thread.state.as_str(), "Failed" | "Stopped" | "Held"))
            .map(|thread| thread.id)
            .collect();
        for id in again {
            let (node, input) = (self.thread(id).node.clone(), self.thread(id).input.clone());
            self.goes_to(id, node, input);
        }
        true
    }

    /// The record of a thread's step, as it ends now.
    pub(super) fn record(&mut self, id: i32, phase: &str) -> WorkflowStepSpec {
        let (branch, node_type) = (self.branch(id), self.node(id).node_type.clone());
        let now = self.now;
        let thread = self.thread(id);
        WorkflowStepSpec {
            number: thread.step,
            node: thread.node.clone(),
            node_type,
            branch,
            phase: phase.to_owned(),
            attempts: thread.attempt,
            input: thread.input.clone(),
            input_ref: thread.input_ref.clone(),
            failures: std::mem::take(&mut thread.failures),
            by: std::mem::take(&mut thread.by),
            is_cold: thread.is_cold,
            start_time: thread.since.clone(),
            completion_time: Some(MicroTime(now)),
            ..WorkflowStepSpec::default()
        }
    }

    /// In which branches and items a thread is.
    fn branch(&self, id: i32) -> String {
        let mut indexes = Vec::new();
        let mut at = Some(id);
        while let Some(thread) = at.and_then(|at| self.run.threads.iter().find(|thread| thread.id == at)) {
            at = thread.parent;
            if at.is_some() {
                indexes.push(thread.index.to_string());
            }
        }
        indexes.reverse();
        indexes.join("/")
    }

    fn find(&self, step: i32, state: &str, attempt: Option<i32>) -> Option<i32> {
        let is_it = |thread: &&WorkflowThread| {
            thread.step == step
                && thread.state == state
                && attempt.is_none_or(|attempt| thread.attempt == attempt)
        };
        self.run.threads.iter().find(is_it).map(|thread| thread.id)
    }

    pub(super) fn thread(&mut self, id: i32) -> &mut WorkflowThread {
        self.run.threads.iter_mut().find(|thread| thread.id == id).expect("a thread of this run")
    }

    fn joined(&mut self, id: i32) -> &mut WorkflowJoin {
        self.thread(id).join.get_or_insert_default()
    }

    fn graph(&self) -> &WorkflowSpec {
        self.run.graph.as_ref().expect("copied when the run began")
    }

    pub(super) fn node(&self, id: i32) -> WorkflowNode {
        let thread = self.run.threads.iter().find(|thread| thread.id == id);
        // Checked when the Workflow was stored.
        thread.and_then(|thread| self.graph().nodes.get(&thread.node)).cloned().unwrap_or_default()
    }

    fn after(&self, seconds: i64) -> Option<MicroTime> {
        let at = self.now.checked_add(SignedDuration::from_secs(seconds)).ok()?;
        (seconds > 0).then_some(MicroTime(at))
    }

    /// The nodes where the run is, for people.
    fn show(&mut self) {
        let has_succeeded = self.run.phase == "Succeeded";
        let at = self.run.threads.iter().filter(|thread| thread.state != "Joining" && !has_succeeded);
        let mut nodes: Vec<String> = at.map(|thread| thread.node.clone()).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.truncate(MOST_SHOWN);
        self.run.nodes = nodes;
    }
}

/// The list of a Map.
fn items<'a>(node: &WorkflowNode, picked: &'a Value, most: i32) -> Result<&'a [Value], Failure> {
    let found = at(picked, &node.items, "items")?;
    let Value::Array(items) = found else {
        let shown = super::data::shown(found);
        return Err(Failure::new("BadInput", format!("a Map needs a list, and `items` leads to {shown}")));
    };
    if items.len() > usize::try_from(most).unwrap_or_default() {
        let count = items.len();
        return Err(Failure::new(
            "TooManyItems",
            format!("the list has {count} items, and may have {most} (limits.items)"),
        ));
    }
    Ok(items)
}

/// A number between 0 and 1 that is always the same for an attempt.
fn part_of_one(step: i32, attempt: i32, start: Option<&MicroTime>) -> f64 {
    let start = start.map_or(0, |start| start.0.as_microsecond());
    let mut mixed =
        (start as u64) ^ (u64::from(step.unsigned_abs()) << 32) ^ u64::from(attempt.unsigned_abs());
    for multiplier in [0xbf58_476d_1ce4_e5b9_u64, 0x94d0_49bb_1331_11eb] {
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(multiplier);
    }
    (mixed >> 11) as f64 / (1_u64 << 53) as f64
}
