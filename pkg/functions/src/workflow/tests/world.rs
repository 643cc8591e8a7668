//! A cluster that is simulated: a store, and functions that answer as they are told.

use crate::workflow::engine::{due, running};
use crate::workflow::keep::{fill, spill};
use crate::workflow::{Event, Failure, Outcome, advance};
use api::kinds::minik8s::{Workflow, WorkflowRunStatus, WorkflowSpec, WorkflowStepSpec};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What a function answers: its name, its input, which attempt.
pub type Functions<'a> = dyn Fn(&str, &Value, i32) -> Result<Value, Failure> + 'a;

/// What is stored of one run.
#[derive(Default)]
pub struct World {
    pub status: WorkflowRunStatus,
    pub values: BTreeMap<String, Value>,
    pub records: BTreeMap<i32, WorkflowStepSpec>,
    pub now: i64,
    /// The largest status so far.
    pub largest: usize,
}

pub fn graph(spec: Value) -> WorkflowSpec {
    let workflow =
        json!({"apiVersion": "minik8s.io/v1", "kind": "Workflow", "metadata": {"name": "w"}, "spec": spec});
    serde_json::from_value::<Workflow>(workflow).expect("a workflow").spec
}

impl World {
    /// A run that has begun.
    pub fn begun(graph: WorkflowSpec, params: Value) -> World {
        let mut world = World { now: 1_000_000_000, ..World::default() };
        assert!(world.happens(&Event::Begin { graph: Box::new(graph), params }));
        world
    }

    pub fn time(&self) -> Timestamp {
        Timestamp::from_millisecond(self.now).expect("a time")
    }

    /// An event, and everything that is stored because of it, as it would be read back after a crash.
    pub fn happens(&mut self, event: &Event) -> bool {
        let Some(mut status) = advance(&self.status, event, self.time()) else { return false };
        self.values.extend(spill("r", &mut status));
        for step in &status.steps {
            let before = self.records.insert(step.number, step.clone());
            assert!(before.is_none_or(|before| before == *step), "a step ended twice: {step:?}");
        }
        let text = serde_json::to_string(&status).expect("JSON");
        self.largest = self.largest.max(text.len());
        let mut status: WorkflowRunStatus = serde_json::from_str(&text).expect("what was written");
        let all = self.records.keys().copied().collect();
        crate::workflow::keep::trim(&mut status, &all);
        fill(&mut status, |name| self.values.get(name).cloned(), |step| self.output(step));
        self.status = status;
        true
    }

    pub fn output(&self, step: i32) -> Option<Value> {
        let record = self.records.get(&step)?;
        match record.output_ref.as_str() {
            "" => Some(record.output.clone()),
            name => self.values.get(name).cloned(),
        }
    }

    /// The function that an attempt under way calls, and its input.
    pub fn call(&self, step: i32) -> (String, Value) {
        let thread = self.status.threads.iter().find(|thread| thread.step == step).expect("a thread");
        let node = &self.status.graph.as_ref().expect("a graph").nodes[&thread.node];
        (
            node.function.clone(),
            crate::workflow::data::pick(node, &thread.input).expect("picked when it began"),
        )
    }

    /// Goes on until the run has ended, or nothing would happen any more. `choose` says which of what is under way ends next.
    pub fn runs(&mut self, functions: &Functions<'_>, mut choose: impl FnMut(usize) -> usize) {
        for _ in 0..100_000 {
            if self.status.has_ended() {
                return;
            }
            let under_way: Vec<(i32, i32)> =
                running(&self.status).map(|thread| (thread.step, thread.attempt)).collect();
            let is_due = due(&self.status);
            if is_due.is_some_and(|at| at <= self.time()) || under_way.is_empty() {
                let Some(at) = is_due else { return };
                self.now = self.now.max(at.as_millisecond() + 1);
                assert!(self.happens(&Event::Tick), "something was due");
                continue;
            }
            let (step, attempt) = under_way[choose(under_way.len())];
            let (function, input) = self.call(step);
            let outcome = Outcome { result: functions(&function, &input, attempt), is_cold: None };
            assert!(self.happens(&Event::Ended { step, attempt, outcome }));
        }
        panic!("the run does not end: {:?}", self.status);
    }
}
