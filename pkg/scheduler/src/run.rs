//! The scheduler at work: watches in, bindings out.
//!
//! ```text
//! watches ──> Event ┐
//!                   ├──> one loop: apply, decide ──> Decision ──> many at once: bind, patch, delete, tell
//! outcomes ─────────┘        ^───────────────────────────────────────── Outcome
//! ```
//!
//! Decisions are made one after the other, each on a cluster where the ones before have happened. What they ask of the API
//! runs beside, bounded in number.

use crate::config::Config;
use crate::execute::{Executor, Finished};
use crate::metrics::Attempt;
use crate::scheduler::{Decision, Event, Outcome, Scheduler};
use crate::watch::{SOURCES, watch};
use client::{Bus, ConnectError, Informers, LeaderError, Panicked, Recorder, RedisIdentity, Tasks};
use kube::Client;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

const USER_AGENT: &str = "kube-scheduler";
/// Events come with this name.
const COMPONENT: &str = "default-scheduler";
/// How many events wait at most; then watches do.
const MOST_EVENTS: usize = 1024;
/// How much is done before others get the thread.
const BATCH: usize = 64;

/// Why the scheduler does not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no client.
    #[error("reach the apiserver")]
    Connect(#[from] ConnectError),
    /// Another replica leads.
    #[error(transparent)]
    Leader(#[from] LeaderError),
    /// Without it the rest would decide by what is no longer so.
    #[error("a part that cannot be missing is gone")]
    Panicked(#[from] Panicked),
}

/// Runs until the token is cancelled, or leadership is lost.
pub async fn run(config: Config, shutdown: CancellationToken) -> Result<(), Error> {
    let client = client::connect_multiplexed(config.kubeconfig.as_deref(), USER_AGENT).await?;
    run_with(config, client, shutdown).await
}

/// As [`run`], with a client that there is already.
pub async fn run_with(config: Config, client: Client, shutdown: CancellationToken) -> Result<(), Error> {
    let leading = async |token| lead(&config, &client, token).await;
    if let Some(led) = config.leader.lead(&client, &config.host, shutdown, leading).await? {
        led?;
    }
    Ok(())
}

async fn lead(config: &Config, client: &Client, shutdown: CancellationToken) -> Result<(), Panicked> {
    config.metrics.leading(true);
    let last = CancellationToken::new();
    let (recorder, sending) = Recorder::new(client.clone(), COMPONENT, config.host.clone(), last.clone());
    config.metrics.counts_events(recorder.dropped());
    let (tasks, stop) = (Tasks::default(), shutdown.child_token());
    tasks.spawn("sending events", sending);
    let (sender, events) = mpsc::channel(MOST_EVENTS);
    let bus = Bus::of(config.redis.as_ref(), RedisIdentity::Files, &last);
    let informers = Informers::new(client.clone(), last.clone()).over(bus);
    for (kind, path) in SOURCES {
        let watching = watch(informers.clone(), *kind, path, sender.clone(), stop.clone());
        tasks.spawn(format!("the watch of {path}"), watching);
    }
    drop(sender);
    let (executor, finished) = Executor::new(client.clone(), recorder, config.bindings_at_once);
    let scheduler =
        Scheduler::new(config.profiles.clone(), config.percentage_of_nodes_to_score, fastrand::u64(..));
    let mut worker = Loop { config, scheduler, executor, started: Instant::now() };
    let result = tokio::select! {
        () = worker.run(events, finished, &shutdown) => Ok(()),
        panicked = tasks.panicked() => Err(panicked),
    };
    stop.cancel();
    worker.executor.join().await;
    last.cancel();
    tasks.join().await;
    config.metrics.leading(false);
    result
}

struct Loop<'a> {
    config: &'a Config,
    scheduler: Scheduler,
    executor: Executor,
    started: Instant,
}

impl Loop<'_> {
    async fn run(
        &mut self,
        mut events: mpsc::Receiver<Event>,
        mut finished: mpsc::Receiver<Finished>,
        shutdown: &CancellationToken,
    ) {
        while !shutdown.is_cancelled() {
            for _ in 0..BATCH {
                let Ok(done) = finished.try_recv() else { break };
                self.finish(&done);
            }
            for _ in 0..BATCH {
                let Ok(event) = events.try_recv() else { break };
                self.scheduler.apply(event, self.now_ms());
            }
            let is_idle = !self.scheduler.has_synced(SOURCES.len()) || !self.decide();
            if !is_idle {
                tokio::task::yield_now().await;
                continue;
            }
            self.config.metrics.waiting(self.scheduler.waiting());
            let due = self.scheduler.due_ms().map_or(Duration::from_secs(60), |due| {
                Duration::from_millis(due.saturating_sub(self.now_ms()).max(1))
            });
            tokio::select! {
                Some(event) = events.recv() => self.scheduler.apply(event, self.now_ms()),
                Some(done) = finished.recv() => self.finish(&done),
                () = tokio::time::sleep(due) => {}
                () = shutdown.cancelled() => {}
            }
        }
    }

    /// Makes some decisions. False if there is nothing more to decide, or nobody free to carry it out.
    fn decide(&mut self) -> bool {
        for _ in 0..BATCH {
            if !self.executor.has_room() {
                return false;
            }
            let began = Instant::now();
            let Some(decision) = self.scheduler.next(self.now_ms()) else { return false };
            if let Decision::Refuse { victims, .. } = &decision {
                self.config.metrics.attempt(Attempt::Unschedulable, began.elapsed());
                if !victims.is_empty() {
                    self.config.metrics.preemption(victims.len());
                }
            }
            self.executor.execute(decision, began);
        }
        true
    }

    fn finish(&mut self, done: &Finished) {
        self.executor.freed(&done.pod);
        let Some((target, claims, outcome)) = &done.binding else { return };
        let attempt = if *outcome == Outcome::Bound { Attempt::Scheduled } else { Attempt::Error };
        self.config.metrics.attempt(attempt, done.began.elapsed());
        self.scheduler.bound(target, claims, *outcome, self.now_ms());
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
