//! What becomes of an error: it is caught where it happened or further out, tolerated by a Map, or the end of the run.

use super::data::put;
use super::engine::{Failure, Walk};
use api::kinds::minik8s::WorkflowThread;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde_json::{Value, json};

/// The longest message that is kept.
const MOST_ERROR: usize = 2000;

/// A text, as far as there is room for it.
pub fn clipped(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Whether a rule for these classes is for an error.
pub fn is_for(classes: &[String], class: &str) -> bool {
    classes.is_empty() || classes.iter().any(|own| own == class || own == "*")
}

impl Walk {
    /// A step failed for good.
    pub(super) fn fail(&mut self, id: i32, failure: Failure) {
        let (mut at, mut chain) = (id, Vec::new());
        loop {
            let node = self.node(at);
            if let Some(caught) = node.catch.iter().find(|caught| is_for(&caught.errors, &failure.class)) {
                self.end_below(at, &failure, &chain);
                return self.caught(at, &failure, caught.next.clone(), &caught.result);
            }
            let Some(parent) = self.thread(at).parent else { return self.run_failed(id, &failure) };
            let tolerated = self.node(parent).tolerated_failures;
            let join = self.thread(parent).join.get_or_insert_default();
            if tolerated > join.failed {
                let index = self.thread(at).index;
                self.end_below(at, &failure, &chain);
                self.end_failed(at, &failure, "Failed");
                self.run.threads.retain(|thread| thread.id != at);
                let join = self.thread(parent).join.get_or_insert_default();
                join.failed += 1;
                join.ended.push([index, 0]);
                return self.top_up(parent);
            }
            chain.push(at);
            at = parent;
        }
    }

    fn caught(&mut self, id: i32, failure: &Failure, next: String, result: &str) {
        let input = self.thread(id).input.clone();
        let error = json!({"error": failure.class, "message": failure.message});
        let (given, document) = match result {
            "" => (json!({"error": failure.class, "message": failure.message, "input": input}), Value::Null),
            _ => (error, input),
        };
        let output = match put(&document, result, given) {
            Ok(output) => output,
            // There is no such place: the error itself takes it.
            Err(_) => json!({"error": failure.class, "message": failure.message, "input": document}),
        };
        self.end_failed(id, failure, "Caught");
        if let Some(record) = self.run.steps.last_mut() {
            record.chose.clone_from(&next);
            record.output = output.clone();
        }
        self.goes_to(id, next, output);
    }

    /// The run is over, as nothing catches the error. Its threads stay where they are, so that it can go on there.
    pub(super) fn run_failed(&mut self, id: i32, failure: &Failure) {
        if self.thread(id).step > 0 {
            self.end_failed(id, failure, "Failed");
        }
        let thread = self.thread(id);
        thread.state = "Failed".to_owned();
        thread.until = None;
        let node = thread.node.clone();
        let message = format!("node {node:?}: {}", failure.message);
        self.stop_all("Failed", &Failure::new(failure.class.clone(), message));
    }

    /// Nothing of the run goes on.
    pub(super) fn stop_all(&mut self, phase: &str, failure: &Failure) {
        let is_under_way = |thread: &&WorkflowThread| {
            matches!(thread.state.as_str(), "Running" | "Retrying" | "Waiting" | "Approving")
        };
        let under_way: Vec<i32> =
            self.run.threads.iter().filter(is_under_way).map(|thread| thread.id).collect();
        for id in under_way {
            let record = self.record(id, "Cancelled");
            self.run.steps.push(record);
            let thread = self.thread(id);
            (thread.state, thread.until) = ("Stopped".to_owned(), None);
        }
        self.ready.clear();
        self.run.phase = phase.to_owned();
        self.run.completion_time = Some(MicroTime(self.now));
        self.run.reason.clone_from(&failure.class);
        self.run.error = clipped(&failure.message, MOST_ERROR);
    }

    /// Everything that goes on for a thread ends, as that has failed because of those of the chain.
    fn end_below(&mut self, id: i32, failure: &Failure, chain: &[i32]) {
        loop {
            let of: Vec<i32> = self.run.threads.iter().map(|thread| thread.id).collect();
            // The youngest first: nothing goes on for them.
            let is_below = |other: &i32| *other != id && self.is_below(*other, id);
            let Some(last) = of.into_iter().rev().find(is_below) else { return };
            if self.thread(last).step > 0 {
                let is_cause = chain.contains(&last);
                self.end_failed(last, failure, if is_cause { "Failed" } else { "Cancelled" });
            }
            self.ready.retain(|ready| *ready != last);
            self.run.threads.retain(|thread| thread.id != last);
        }
    }

    fn is_below(&self, id: i32, above: i32) -> bool {
        let mut at = Some(id);
        while let Some(thread) = at.and_then(|at| self.run.threads.iter().find(|thread| thread.id == at)) {
            if thread.parent == Some(above) {
                return true;
            }
            at = thread.parent;
        }
        false
    }

    fn end_failed(&mut self, id: i32, failure: &Failure, phase: &str) {
        let mut record = self.record(id, phase);
        if phase != "Cancelled" {
            record.reason.clone_from(&failure.class);
            record.error = clipped(&failure.message, MOST_ERROR);
        }
        self.run.steps.push(record);
    }
}
