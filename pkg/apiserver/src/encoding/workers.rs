//! Threads for work that would hold up others: they run beside the runtime, yield to it, and take turns among those who
//! ask.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// A thread without work ends after this.
const REST: Duration = Duration::from_secs(10);

/// Threads that come with work and go without it: as many as there are cores, at most.
#[derive(Clone)]
pub struct Workers(Arc<Shared>);

struct Shared {
    queue: Mutex<Queue>,
    /// There is something to do.
    more: Condvar,
    most: usize,
}

#[derive(Default)]
struct Queue {
    turns: Turns<Job>,
    threads: usize,
    resting: usize,
}

type Job = Box<dyn FnOnce() + Send>;

/// What is to be done, by who asked for it: each in turn.
struct Turns<T>(VecDeque<(Arc<str>, VecDeque<T>)>);

impl<T> Default for Turns<T> {
    fn default() -> Turns<T> {
        Turns(VecDeque::new())
    }
}

impl<T> Turns<T> {
    fn push(&mut self, holder: &Arc<str>, job: T) {
        match self.0.iter_mut().find(|(other, _)| other == holder) {
            Some((_, jobs)) => jobs.push_back(job),
            None => self.0.push_back((holder.clone(), VecDeque::from([job]))),
        }
    }

    fn pop(&mut self) -> Option<T> {
        let (holder, mut jobs) = self.0.pop_front()?;
        let job = jobs.pop_front();
        if !jobs.is_empty() {
            self.0.push_back((holder, jobs));
        }
        job
    }
}

impl Default for Workers {
    /// No thread yet.
    fn default() -> Workers {
        let most = std::thread::available_parallelism().map_or(1, usize::from);
        Workers(Arc::new(Shared { queue: Mutex::default(), more: Condvar::new(), most }))
    }
}

impl Workers {
    /// What a job makes, when it is `holder`'s turn; nothing if it panicked.
    pub async fn run<T: Send + 'static>(
        &self,
        holder: &Arc<str>,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (done, made) = oneshot::channel();
        let job = Box::new(move || {
            // Whoever asked may have gone.
            if !done.is_closed() {
                let _ = done.send(job());
            }
        });
        let is_thread_missing = {
            let mut queue = self.0.queue.lock();
            queue.turns.push(holder, job);
            let is_missing = queue.resting == 0 && queue.threads < self.0.most;
            queue.threads += usize::from(is_missing);
            is_missing
        };
        if is_thread_missing {
            self.start();
        } else {
            self.0.more.notify_one();
        }
        made.await.ok()
    }

    fn start(&self) {
        let shared = self.0.clone();
        let started = std::thread::Builder::new().name("encoding".into()).spawn(move || shared.work());
        if let Err(error) = started {
            tracing::error!(%error, "cannot start a thread for encoding");
            // Another one does it, or the next that can be started.
            self.0.queue.lock().threads -= 1;
        }
    }
}

impl Shared {
    fn work(&self) {
        daemon::yield_to_others();
        let mut queue = self.queue.lock();
        loop {
            if let Some(job) = queue.turns.pop() {
                drop(queue);
                // Whoever waits for it is told by its end being dropped.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
                queue = self.queue.lock();
                continue;
            }
            queue.resting += 1;
            let rest = self.more.wait_for(&mut queue, REST);
            queue.resting -= 1;
            if rest.timed_out() && queue.turns.0.is_empty() {
                queue.threads -= 1;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_turn() {
        let mut turns = Turns::default();
        let [mallory, eve]: [Arc<str>; 2] = ["mallory".into(), "eve".into()];
        for job in ["m1", "m2", "m3"] {
            turns.push(&mallory, job);
        }
        turns.push(&eve, "e1");
        let order: Vec<&str> = std::iter::from_fn(|| turns.pop()).collect();
        assert_eq!(order, ["m1", "e1", "m2", "m3"]);
    }

    #[tokio::test]
    async fn a_job_that_panics_takes_nothing_with_it() {
        let (workers, holder) = (Workers::default(), Arc::from("a"));
        assert_eq!(workers.run(&holder, || -> u8 { panic!("on purpose") }).await, None);
        let many = (0..100).map(|n| workers.run(&holder, move || n));
        let made = futures::future::join_all(many).await;
        assert_eq!(made, (0..100).map(Some).collect::<Vec<_>>());
        assert!(workers.0.queue.lock().threads <= workers.0.most);
    }
}
