//! Runs, on a cluster: events come in, each transition is one compare-and-swap, and what has to be under way is begun.
//!
//! ```text
//! informers, calls, jobs, people, the wheel ──post(run, event)──> queue of the run ──turn──> advance ──> commit
//!                                                                                            │
//!                              a call, a Job, a time in the wheel, records of steps <──effects──┘
//! ```
//!
//! # Guarantees
//!
//! A task exists for a run only while it is worked on, and for each call that it waits for. A run that waits for the clock or
//! for somebody is an entry in the wheel, or nothing at all.

use super::access::{Deed, Permissions};
use super::calls::{Attempt, Caller};
use super::engine::{Event, Failure, Outcome, advance, due, running};
use super::jobs;
use super::store::{Live, Store, Unwritten};
use super::tally::Tally;
use super::wheel::Wheel;
use crate::controller::Shared;
use api::kinds::minik8s::{Workflow, WorkflowRun, WorkflowRunStatus, WorkflowSpec, WorkflowThread};
use client::{Cache, Change, Key};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::{Api, Client};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A write that failed is tried again after this.
const RETRY: Duration = Duration::from_millis(200);
/// So many steps may be without a record; more wait for those.
const MOST_UNRECORDED: usize = 32;
/// The wheel looks at the clock at least so often, since clocks are set.
const LOOK: Duration = Duration::from_secs(60);
/// Jobs by the namespace and name of their run.
const BY_RUN: &str = "run";
/// Between two tries of a record pass at most so many seconds.
const SLOWEST_RETRY: Duration = Duration::from_secs(10);

/// Is told every transition: how histories are recorded.
pub type Tap = Arc<dyn Fn(&Transition<'_>) + Send + Sync>;

/// What happened to a run, and what became of it.
pub struct Transition<'a> {
    /// The run.
    pub run: &'a Key,
    /// As it was.
    pub before: &'a WorkflowRunStatus,
    /// What happened.
    pub event: &'a Event,
    /// When.
    pub now: Timestamp,
    /// As it is.
    pub after: &'a WorkflowRunStatus,
}

/// What a [`Runner`] is made of.
pub struct RunnerParts {
    /// How the cluster is reached.
    pub client: Client,
    /// Workflows, as they are in the API.
    pub workflows: Cache<Workflow>,
    /// Their runs.
    pub runs: Cache<WorkflowRun>,
    /// Jobs of steps.
    pub jobs: Cache<Job>,
    /// What is counted.
    pub tally: Tally,
    /// Who hears of events.
    pub tap: Option<Tap>,
    /// What tokens for approvals are made with.
    pub secret: Vec<u8>,
    /// Ends everything.
    pub shutdown: CancellationToken,
}

/// Runs workflows.
pub struct Runner {
    pub(super) parts: RunnerParts,
    pub(super) store: Store,
    caller: Caller,
    permissions: Arc<Permissions>,
    entries: Mutex<HashMap<Key, Entry>>,
    wheel: Wheel,
    turns: Mutex<Turns>,
    tasks: TaskTracker,
}

/// A run that is worked on.
#[derive(Default)]
struct Entry {
    queue: Vec<Event>,
    /// Steps whose record has been written.
    recorded: Vec<i32>,
    is_busy: bool,
    live: Option<Box<Live>>,
    /// What is under way, by step: which attempt, and what ends it.
    under_way: HashMap<i32, (i32, CancellationToken)>,
}

/// Which runs of a workflow go on, and which wait for their turn.
#[derive(Default)]
struct Turns {
    going: HashMap<Key, HashSet<String>>,
    waiting: BTreeMap<Key, BTreeSet<String>>,
}

impl Runner {
    /// One that does nothing until it [runs](Runner::run).
    pub fn new(parts: RunnerParts, shared: Arc<Shared>) -> Arc<Runner> {
        let permissions = Arc::new(Permissions::new(parts.client.clone()));
        Arc::new(Runner {
            store: Store::new(parts.client.clone()),
            caller: Caller::new(shared, permissions.clone()),
            permissions,
            entries: Mutex::default(),
            wheel: Wheel::default(),
            turns: Mutex::default(),
            tasks: TaskTracker::new(),
            parts,
        })
    }

    /// Runs workflows until shutdown.
    pub async fn run(self: &Arc<Self>) {
        let synced = async {
            self.parts.workflows.synced().await;
            self.parts.jobs.synced().await;
            self.parts.runs.synced().await;
        };
        tokio::select! {
            () = synced => {}
            () = self.parts.shutdown.cancelled() => return,
        }
        self.parts.jobs.index(BY_RUN, |job| {
            let namespace = job.metadata.namespace.as_deref().unwrap_or_default();
            jobs::run_name(job).map(|name| format!("{namespace}/{name}")).into_iter().collect()
        });
        let follower = self.clone();
        self.parts.runs.subscribe(move |change| follower.run_changed(change));
        let follower = self.clone();
        self.parts.jobs.subscribe(move |change| follower.job_changed(change));
        tokio::select! {
            () = self.turn_wheel() => {}
            () = super::schedules::keep(self) => {}
            () = self.parts.shutdown.cancelled() => {}
        }
        self.entries
            .lock()
            .values()
            .flat_map(|entry| entry.under_way.values())
            .for_each(|(_, end)| end.cancel());
        self.tasks.close();
        self.tasks.wait().await;
    }

    async fn turn_wheel(self: &Arc<Self>) {
        loop {
            let now = Timestamp::now();
            let (due, next) = self.wheel.turn(now);
            due.into_iter().for_each(|key| self.post(&key, Some(Event::Tick)));
            let pause = next.and_then(|next| Duration::try_from(next.duration_since(now)).ok());
            tokio::select! {
                () = tokio::time::sleep(pause.unwrap_or(LOOK).min(LOOK)) => {}
                () = self.wheel.changed.notified() => {}
            }
        }
    }

    /// A run was made, changed or deleted.
    fn run_changed(self: &Arc<Self>, change: &Change<WorkflowRun>) {
        let key = change.key();
        let Some(run) = &change.new else { return self.forget(&key, change.object()) };
        self.sweep_jobs(run);
        let is_known = change.old.is_some();
        if !is_known && !run.status.phase.is_empty() && !run.status.has_ended() {
            let of = workflow_of(run);
            self.turns.lock().going.entry(of).or_default().insert(key.name.clone());
        }
        let has_work = || running(&run.status).next().is_some() || run.status.steps.len() > 16;
        let is_unrecorded = run.status.has_ended() && run.status.recorded < run.status.step_count;
        if wants(run) || (!is_known && (has_work() || is_unrecorded)) {
            self.post(&key, None);
        } else if !is_known {
            self.wheel.set(&key, due(&run.status));
        }
    }

    fn forget(self: &Arc<Self>, key: &Key, run: &WorkflowRun) {
        self.wheel.set(key, None);
        if let Some(entry) = self.entries.lock().remove(key) {
            entry.under_way.values().for_each(|(_, end)| end.cancel());
        }
        self.release(&workflow_of(run), &key.name);
    }

    fn job_changed(self: &Arc<Self>, change: &Change<Job>) {
        let Some(job) = &change.new else { return };
        let Some(name) = jobs::run_name(job) else { return };
        let key = Key::new(job.metadata.namespace.clone().unwrap_or_default(), name);
        let Some((step, attempt)) = jobs::of_step(job) else { return };
        let Some(is_good) = jobs::ended(job) else {
            return self.parts.runs.get(&key).into_iter().for_each(|run| self.sweep_jobs(&run));
        };
        let is_its = |run: &WorkflowRun| run.metadata.uid == jobs::run_of(job) && !run.status.has_ended();
        if !self.parts.runs.get(&key).is_some_and(|run| is_its(&run)) {
            return;
        }
        let (runner, job) = (self.clone(), job.clone());
        self.tasks.spawn(async move {
            let result = jobs::result(&runner.parts.client, &job, is_good).await;
            let outcome = Outcome { result, is_cold: None };
            runner.post(&key, Some(Event::Ended { step, attempt, outcome }));
        });
    }

    /// Something happens to a run, or somebody is to look at it.
    pub fn post(self: &Arc<Self>, key: &Key, event: Option<Event>) {
        let mut entries = self.entries.lock();
        let entry = entries.entry(key.clone()).or_default();
        entry.queue.extend(event);
        if !std::mem::replace(&mut entry.is_busy, true) {
            let (runner, key) = (self.clone(), key.clone());
            self.tasks.spawn(async move {
                let shutdown = runner.parts.shutdown.clone();
                shutdown.run_until_cancelled(runner.work(&key)).await;
            });
        }
    }

    /// Works on a run until there is nothing to do.
    async fn work(self: &Arc<Self>, key: &Key) {
        let mut live = self.with(key, |entry| entry.live.take()).flatten();
        loop {
            let taken = self
                .with(key, |entry| (std::mem::take(&mut entry.queue), std::mem::take(&mut entry.recorded)));
            // It was deleted meanwhile.
            let Some((events, recorded)) = taken else { return };
            let mut own = match live.take() {
                Some(own) => own,
                None => match self.load(key).await {
                    Ok(own) => own,
                    Err(Unwritten::Gone) => return drop(self.entries.lock().remove(key)),
                    Err(_) => {
                        self.put_back(key, events);
                        tokio::time::sleep(RETRY).await;
                        continue;
                    }
                },
            };
            own.recording.retain(|step| !recorded.contains(step));
            own.recorded.extend(recorded);
            match self.turn(key, &mut own, &events).await {
                Ok(()) => live = Some(own),
                Err(Unwritten::Gone) => return drop(self.entries.lock().remove(key)),
                Err(Unwritten::Conflict) => {
                    self.parts.tally.conflicted();
                    self.put_back(key, events);
                }
                Err(Unwritten::Trouble(error)) => {
                    tracing::debug!(%error, run = %key, "a transition was not written, and is tried again");
                    self.put_back(key, events);
                    tokio::time::sleep(RETRY).await;
                }
            }
            let mut entries = self.entries.lock();
            let Some(entry) = entries.get_mut(key) else { return };
            if live.is_some() && entry.queue.is_empty() && entry.recorded.is_empty() {
                let is_at_rest = live.as_ref().is_some_and(|live| live.recording.is_empty());
                if is_at_rest && entry.under_way.is_empty() {
                    entries.remove(key);
                } else {
                    (entry.is_busy, entry.live) = (false, live);
                }
                return;
            }
        }
    }

    fn with<T>(&self, key: &Key, then: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        self.entries.lock().get_mut(key).map(then)
    }

    fn put_back(&self, key: &Key, mut events: Vec<Event>) {
        self.with(key, |entry| {
            events.append(&mut entry.queue);
            entry.queue = events;
        });
    }

    /// The run as it is stored. What was under way when its last writer died is under way nowhere.
    async fn load(self: &Arc<Self>, key: &Key) -> Result<Box<Live>, Unwritten> {
        let run = self.store.runs(&key.namespace).get(&key.name).await?;
        let live = self.store.load(run).await?;
        let graph = live.status.graph.clone().map(Arc::new);
        for thread in running(&live.status) {
            let Some(graph) = &graph else { break };
            let known = self
                .with(key, |entry| entry.under_way.get(&thread.step).map(|(attempt, _)| *attempt))
                .flatten();
            if known != Some(thread.attempt) && !is_job(graph, thread) {
                let function =
                    graph.nodes.get(&thread.node).map(|node| node.function.clone()).unwrap_or_default();
                let function = Key::new(key.namespace.clone(), function);
                let (runner, key) = (self.clone(), key.clone());
                let event = Event::Lost { step: thread.step, attempt: thread.attempt };
                let end = CancellationToken::new();
                self.with(&key, |entry| entry.under_way.insert(thread.step, (thread.attempt, end)));
                self.tasks.spawn(async move {
                    runner.caller.taken_over(&function).await;
                    runner.post(&key, Some(event));
                });
            }
        }
        Ok(Box::new(live))
    }

    /// Applies events, and does what follows.
    async fn turn(self: &Arc<Self>, key: &Key, live: &mut Live, events: &[Event]) -> Result<(), Unwritten> {
        if let Some(known) = self.parts.runs.get(key)
            && known.metadata.generation > live.run.metadata.generation
            && known.metadata.uid == live.run.metadata.uid
        {
            // Somebody wants something else of it now; what was read before cannot be written any more.
            return Err(Unwritten::Conflict);
        }
        let now = Timestamp::now();
        let mut status = live.status.clone();
        let mut has_changed = false;
        if status.phase.is_empty() {
            match self.first_event(key, live).await? {
                Some(Ok(event)) => has_changed |= self.apply(key, &mut status, &event, now),
                Some(Err(failure)) => {
                    let phase = if failure.class == "Cancelled" { "Cancelled" } else { "Failed" };
                    (status.phase, status.reason, status.error) =
                        (phase.to_owned(), failure.class, failure.message);
                    status.completion_time = Some(MicroTime(now));
                    has_changed = true;
                }
                None => return Ok(()),
            }
        }
        for event in events {
            has_changed |= self.apply(key, &mut status, event, now);
        }
        let spec = &live.run.spec;
        let is_suspended = status.phase == "Suspended";
        let wanted = [
            (spec.redrive > status.redrives).then_some(Event::Redrive(spec.redrive)),
            spec.cancel.then_some(Event::Cancel),
            (spec.suspend != is_suspended).then_some(Event::Suspend(spec.suspend)),
        ];
        for event in wanted.iter().flatten() {
            has_changed |= self.apply(key, &mut status, event, now);
        }
        while has_changed
            && due(&status).is_some_and(|at| at == Timestamp::UNIX_EPOCH)
            && status.steps.len() < MOST_UNRECORDED
        {
            self.apply(key, &mut status, &Event::Tick, now);
        }
        if has_changed {
            while live.recording.len() > MOST_UNRECORDED {
                tokio::time::sleep(Duration::from_millis(1)).await;
                let recorded =
                    self.with(key, |entry| std::mem::take(&mut entry.recorded)).unwrap_or_default();
                live.recording.retain(|step| !recorded.contains(step));
                live.recorded.extend(recorded);
            }
            let began = Instant::now();
            self.store.commit(live, status).await?;
            self.parts.tally.committed(began.elapsed());
        }
        self.effects(key, live, has_changed).await
    }

    fn apply(&self, key: &Key, status: &mut WorkflowRunStatus, event: &Event, now: Timestamp) -> bool {
        let Some(next) = advance(status, event, now) else { return false };
        if let Some(tap) = &self.parts.tap {
            tap(&Transition { run: key, before: status, event, now, after: &next });
        }
        *status = next;
        true
    }

    /// How a run begins, or why it cannot; nothing, while it is not its turn.
    async fn first_event(&self, key: &Key, live: &Live) -> Result<Option<Result<Event, Failure>>, Unwritten> {
        let of = workflow_of(&live.run);
        if live.run.spec.cancel {
            return Ok(Some(Err(Failure::new("Cancelled", "the run was cancelled before it began"))));
        }
        if live.run.spec.suspend {
            return Ok(None);
        }
        let workflow = match self.parts.workflows.get(&of) {
            Some(workflow) => workflow,
            None => {
                let workflows: Api<Workflow> = Api::namespaced(self.parts.client.clone(), &of.namespace);
                match workflows.get(&of.name).await.map_err(Unwritten::from) {
                    Ok(workflow) => Arc::new(workflow),
                    Err(Unwritten::Gone) => {
                        let message = format!("workflows.minik8s.io {:?} not found", of.name);
                        return Ok(Some(Err(Failure::new("NotFound", message))));
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        let most = usize::try_from(workflow.spec.limits.parallel_runs.max(1)).unwrap_or(1);
        let mut turns = self.turns.lock();
        let going = turns.going.entry(of.clone()).or_default();
        if !going.contains(&key.name) && going.len() >= most {
            turns.waiting.entry(of).or_default().insert(key.name.clone());
            return Ok(None);
        }
        going.insert(key.name.clone());
        let params = live.run.spec.params.clone();
        Ok(Some(Ok(Event::Begin { graph: Box::new(workflow.spec.clone()), params })))
    }

    /// A run of a workflow goes on no more: another one's turn comes.
    fn release(self: &Arc<Self>, workflow: &Key, run: &str) {
        let next = {
            let mut turns = self.turns.lock();
            let was_going = turns.going.get_mut(workflow).is_some_and(|going| going.remove(run));
            if turns.going.get(workflow).is_some_and(HashSet::is_empty) {
                turns.going.remove(workflow);
            }
            let next = turns.waiting.get_mut(workflow).filter(|_| was_going).and_then(BTreeSet::pop_first);
            if turns.waiting.get(workflow).is_some_and(BTreeSet::is_empty) {
                turns.waiting.remove(workflow);
            }
            next
        };
        if let Some(next) = next {
            self.post(&Key::new(workflow.namespace.clone(), next), None);
        }
    }

    /// What follows from a run's status: calls and Jobs that are to be under way, times, and records.
    async fn effects(
        self: &Arc<Self>,
        key: &Key,
        live: &mut Live,
        has_changed: bool,
    ) -> Result<(), Unwritten> {
        self.wheel.set(key, due(&live.status));
        let new: Vec<_> = live
            .status
            .steps
            .iter()
            .filter(|step| !live.recorded.contains(&step.number) && !live.recording.contains(&step.number))
            .cloned()
            .collect();
        if !new.is_empty() {
            self.record(key, live, new);
        }
        let wanted: HashMap<i32, WorkflowThread> =
            running(&live.status).map(|thread| (thread.step, thread.clone())).collect();
        let begin: Vec<WorkflowThread> = self
            .with(key, |entry| {
                entry.under_way.retain(|step, (attempt, end)| {
                    let stays = wanted.get(step).is_some_and(|thread| thread.attempt == *attempt);
                    if !stays {
                        end.cancel();
                    }
                    stays
                });
                wanted.into_values().filter(|thread| !entry.under_way.contains_key(&thread.step)).collect()
            })
            .unwrap_or_default();
        if !begin.is_empty() {
            let graph = Arc::new(live.status.graph.clone().unwrap_or_default());
            for thread in begin {
                self.begin(key, live, graph.clone(), thread);
            }
        }
        if live.status.has_ended() {
            if has_changed {
                let workflow = workflow_of(&live.run);
                self.parts.tally.run_ended(&key.namespace, &workflow.name, &live.status.phase);
                self.release(&workflow, &key.name);
            }
            let is_said = live.status.recorded >= live.status.step_count && !has_changed;
            if live.recording.is_empty() && !is_said && live.status.step_count > 0 {
                self.store.all_recorded(live).await?;
                live.status.recorded = live.status.step_count;
            }
        }
        Ok(())
    }

    /// Writes records of steps, beside what goes on.
    fn record(
        self: &Arc<Self>,
        key: &Key,
        live: &mut Live,
        steps: Vec<api::kinds::minik8s::WorkflowStepSpec>,
    ) {
        let mut spilled = WorkflowRunStatus { steps, ..WorkflowRunStatus::default() };
        // Their values were stored with the transition.
        super::keep::spill(live.name(), &mut spilled);
        for step in spilled.steps {
            live.recording.insert(step.number);
            self.parts.tally.step_ended(&step.node_type, &step.phase);
            let (runner, key, run) = (self.clone(), key.clone(), live.run.clone());
            self.tasks.spawn(async move {
                let number = step.number;
                let write = async {
                    let mut pause = RETRY;
                    while let Err(Unwritten::Trouble(error)) = runner.store.put_step(&run, step.clone()).await {
                        tracing::debug!(%error, run = %key, "a step's record was not written, and is tried again");
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(SLOWEST_RETRY);
                        // It was deleted meanwhile, and this went with it.
                        if runner.with(&key, |_| ()).is_none() {
                            return;
                        }
                    }
                };
                if runner.parts.shutdown.run_until_cancelled(write).await.is_some() {
                    runner.with(&key, |entry| entry.recorded.push(number));
                    runner.recorded(&key);
                }
            });
        }
    }

    /// A record was written: if that was the last one, somebody looks at the run.
    fn recorded(self: &Arc<Self>, key: &Key) {
        let is_last = self.with(key, |entry| {
            let recording = entry.live.as_ref().map(|live| live.recording.len());
            recording.is_some_and(|recording| recording <= entry.recorded.len())
        });
        if is_last == Some(true) {
            self.post(key, None);
        }
    }

    /// Begins an attempt at a Task.
    fn begin(self: &Arc<Self>, key: &Key, live: &Live, graph: Arc<WorkflowSpec>, thread: WorkflowThread) {
        let end = CancellationToken::new();
        let (step, attempt) = (thread.step, thread.attempt);
        self.with(key, |entry| entry.under_way.insert(step, (attempt, end.clone())));
        let (runner, key, run) = (self.clone(), key.clone(), live.run.clone());
        self.tasks.spawn(async move {
            let shutdown = runner.parts.shutdown.clone();
            let making = async {
                if is_job(&graph, &thread) {
                    return runner
                        .make_job(&run, &graph, &thread)
                        .await
                        .err()
                        .map(|failure| Outcome { result: Err(failure), is_cold: None });
                }
                let own = Attempt::new(&run, graph, thread);
                runner.caller.expect(&own);
                Some(runner.caller.call(own).await)
            };
            let outcome = tokio::select! {
                outcome = making => outcome,
                () = end.cancelled() => None,
                () = shutdown.cancelled() => None,
            };
            match outcome {
                Some(outcome) => runner.post(&key, Some(Event::Ended { step, attempt, outcome })),
                // A Job tells when it has ended.
                None => runner.rests(&key, step, attempt),
            }
        });
    }

    /// Nothing of this step is under way here any more.
    fn rests(self: &Arc<Self>, key: &Key, step: i32, attempt: i32) {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(key) else { return };
        // A Job stays in the list, so that it is not made twice while the run is worked on.
        if entry.live.as_ref().is_some_and(|live| live.status.has_ended()) {
            entry.under_way.retain(|own, (at, _)| (*own, *at) != (step, attempt));
        }
    }

    async fn make_job(
        &self,
        run: &WorkflowRun,
        graph: &WorkflowSpec,
        thread: &WorkflowThread,
    ) -> Result<(), Failure> {
        let node = &graph.nodes[&thread.node];
        let account =
            (run.metadata.namespace.clone().unwrap_or_default(), graph.service_account_name.clone());
        self.permissions.check(&account, &Deed::CreateJob).await?;
        let job = jobs::job(run, node, thread, &super::data::pick(node, &thread.input)?)?;
        jobs::ensure(&self.parts.client, &job).await
    }

    /// Deletes Jobs of a run that have not ended and that nobody waits for: of attempts that were given up, and of runs that ended.
    fn sweep_jobs(self: &Arc<Self>, run: &WorkflowRun) {
        let key = Key::of(run);
        for job in self.parts.jobs.by(BY_RUN, &format!("{}/{}", key.namespace, key.name)) {
            let Some((step, attempt)) = jobs::of_step(&job) else { continue };
            // A status that is older than the Job says nothing of it.
            let is_known = run.status.step_count >= step && jobs::run_of(&job) == run.metadata.uid;
            let may_be_waited_for =
                run.status.threads.iter().any(|thread| thread.step == step && thread.attempt <= attempt);
            if is_known && (run.status.has_ended() || !may_be_waited_for) && jobs::ended(&job).is_none() {
                let (client, namespace) = (self.parts.client.clone(), key.namespace.clone());
                let name = job.metadata.name.clone().unwrap_or_default();
                self.tasks.spawn(async move { jobs::delete(&client, &namespace, &name).await });
            }
        }
    }
}

/// The workflow that a run is of.
pub(super) fn workflow_of(run: &WorkflowRun) -> Key {
    Key::new(run.metadata.namespace.clone().unwrap_or_default(), run.spec.workflow.clone())
}

fn is_job(graph: &WorkflowSpec, thread: &WorkflowThread) -> bool {
    graph.nodes.get(&thread.node).is_some_and(|node| node.job.is_some())
}

/// Whether somebody wants something of a run that its status does not say yet.
fn wants(run: &WorkflowRun) -> bool {
    let (spec, status) = (&run.spec, &run.status);
    if status.has_ended() {
        return spec.redrive > status.redrives && status.phase != "Succeeded";
    }
    status.phase.is_empty() || spec.cancel || spec.suspend != (status.phase == "Suspended")
}
