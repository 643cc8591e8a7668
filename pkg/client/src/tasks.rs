//! Tasks that do not die unnoticed: a program that has lost one of them must end and be started again, not go on half dead.
//!
//! ```text
//! contained(future), caught(call) ──> Ok, or what it panicked with: for work that can be put aside
//! Tasks::spawn ──panic──> Tasks::panicked(): for whoever runs them to end with an error
//! ```

use futures::FutureExt;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

/// A task panicked.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{task} panicked: {message}")]
pub struct Panicked {
    /// What it was doing.
    pub task: String,
    /// What it said.
    pub message: String,
}

/// Runs a future whose panic is not the end of the task it is in. What it shares with others must stay usable.
///
/// # Errors
///
/// What it panicked with.
pub fn contained<T>(future: impl Future<Output = T>) -> impl Future<Output = Result<T, String>> {
    // Not an async fn, which would keep room for the future twice.
    AssertUnwindSafe(future).catch_unwind().map(|result| result.map_err(|payload| message(payload.as_ref())))
}

/// As [`contained`], of what does not wait.
///
/// # Errors
///
/// What it panicked with.
pub fn caught<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|payload| message(payload.as_ref()))
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("without a word").to_owned()
}

/// Tasks that belong together. Clones share them.
#[derive(Clone)]
pub struct Tasks {
    tracker: TaskTracker,
    panicked: Arc<watch::Sender<Option<Panicked>>>,
}

impl Default for Tasks {
    fn default() -> Self {
        Tasks { tracker: TaskTracker::new(), panicked: Arc::new(watch::Sender::new(None)) }
    }
}

impl Tasks {
    /// Starts one, called `task`.
    pub fn spawn(&self, task: impl Into<String>, future: impl Future<Output = ()> + Send + 'static) {
        let (task, panicked) = (task.into(), self.panicked.clone());
        self.tracker.spawn(contained(future).map(move |result| {
            let Err(message) = result else { return };
            panicked.send_if_modified(|first| {
                let is_first = first.is_none();
                first.get_or_insert(Panicked { task, message });
                is_first
            });
        }));
    }

    /// Waits until one of them has panicked: the first that did.
    pub async fn panicked(&self) -> Panicked {
        let mut panicked = self.panicked.subscribe();
        loop {
            if let Some(first) = panicked.borrow_and_update().clone() {
                return first;
            }
            // The sender is ours.
            let _ = panicked.changed().await;
        }
    }

    /// Waits until all have ended.
    pub async fn join(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_answer() {
        assert_eq!(contained(async { 1 }).await, Ok(1));
        assert_eq!(contained(async { panic!("lost {}", "it") }).await, Err::<(), _>("lost it".to_owned()));
    }

    #[tokio::test]
    async fn a_task_that_panics_is_heard_of_and_those_that_end_are_not() {
        let tasks = Tasks::default();
        tasks.spawn("a quiet one", async {});
        tasks.spawn("a watch", async { panic!("no such object") });
        assert_eq!(tasks.panicked().await.to_string(), "a watch panicked: no such object");
        tasks.join().await;
        assert_eq!(tasks.panicked().await.task, "a watch", "also who comes late");
    }
}
