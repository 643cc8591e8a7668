//! The edge between the [`Fleet`] and the cluster: Functions and pods come in as events, and what is to be done goes out.

use crate::definition::Definition;
use crate::fleet::{Action, Counts, Fault, Fleet};
use crate::link::Link;
use crate::logs::Logs;
use crate::metrics::{Metrics, Totals};
use crate::pod::{self, CONTAINER, FUNCTION, REVISION};
use crate::promised::Promised;
use crate::revisions::{self, Routes};
use crate::run::Error;
use crate::triggers::{self, Progress};
use api::kinds::minik8s::{Function, FunctionCall, FunctionTriggerStatus};
use client::{Change, EventType, Key, Recorder};
use http::StatusCode;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};
use kube::api::{DeleteParams, LogParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use parking_lot::{Mutex, RwLock};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A write that failed is tried again after this.
const RETRY: Duration = Duration::from_millis(200);
/// A pod that cannot be made is given up after this.
const CREATE_PATIENCE: Duration = Duration::from_secs(10);
/// Between two rounds of statuses, so that a function that scales is not written for each pod.
const STATUS_PAUSE: Duration = Duration::from_millis(200);
/// So much later, at most, calls are in a function's status.
const COUNT_PAUSE: Duration = Duration::from_secs(5);
/// So many of its last lines tell why a pod ended.
const LAST_LINES: i64 = 20;
/// What a pod has written is read for so long, and so many lines of it.
const LOG_PATIENCE: Duration = Duration::from_secs(2);
const MOST_KEPT_LINES: i64 = 1000;
/// The host by which functions are called inside of the cluster.
const HOST: &str = "knative.kube-system.svc";
/// What a container waits for in vain.
const HOPELESS: [&str; 8] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "ErrImageNeverPull",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "StartError",
];

/// What leads: all that calls and events share.
pub struct Shared {
    /// How the cluster is reached.
    pub client: Client,
    /// What is counted.
    pub metrics: Metrics,
    /// Everything that is under way.
    pub tasks: TaskTracker,
    /// What functions have been.
    pub revisions: client::Cache<ControllerRevision>,
    /// Something about triggers has changed.
    pub triggers_changed: Notify,
    definitions: RwLock<HashMap<Key, Routes>>,
    progress: Mutex<HashMap<Key, (String, Progress)>>,
    functions: client::Cache<Function>,
    fleet: Mutex<Fleet>,
    wake: Notify,
    changed: Mutex<BTreeSet<Key>>,
    report: Notify,
    /// A function's calls were counted, and no one has reported that yet.
    counted: Notify,
    recorder: Recorder,
    ready_address: String,
    shutdown: CancellationToken,
    /// How many promised calls a namespace has.
    promised: Mutex<HashMap<String, usize>>,
    /// What pods that are gone have written.
    pub logs: Mutex<Logs>,
}

/// What a [`Shared`] is made of.
pub struct Parts {
    /// How the cluster is reached.
    pub client: Client,
    /// What is counted.
    pub metrics: Metrics,
    /// Functions and pods.
    pub fleet: Fleet,
    /// Functions, as they are in the API.
    pub functions: client::Cache<Function>,
    /// What functions have been.
    pub revisions: client::Cache<ControllerRevision>,
    /// Takes events.
    pub recorder: Recorder,
    /// Where pods tell that they listen.
    pub ready_address: String,
    /// Ends everything.
    pub shutdown: CancellationToken,
}

impl Shared {
    /// What leads.
    pub fn new(parts: Parts) -> Shared {
        let Parts { client, metrics, fleet, functions, revisions, recorder, ready_address, shutdown } = parts;
        revisions::index(&revisions);
        Shared {
            client,
            metrics,
            tasks: TaskTracker::new(),
            revisions,
            triggers_changed: Notify::new(),
            definitions: RwLock::default(),
            progress: Mutex::default(),
            functions,
            fleet: Mutex::new(fleet),
            wake: Notify::new(),
            changed: Mutex::default(),
            report: Notify::new(),
            counted: Notify::new(),
            recorder,
            ready_address,
            shutdown,
            promised: Mutex::default(),
            logs: Mutex::default(),
        }
    }

    /// Ends everything.
    pub fn shutdown(&self) -> &CancellationToken {
        &self.shutdown
    }

    /// How many promised calls a namespace has now that there are so many more.
    pub fn promised_in(&self, namespace: &str, more: isize) -> usize {
        let mut promised = self.promised.lock();
        let count = promised.get(namespace).copied().unwrap_or(0).saturating_add_signed(more);
        match count {
            0 => drop(promised.remove(namespace)),
            count => drop(promised.insert(namespace.to_owned(), count)),
        }
        count
    }

    /// Something happens, and what follows from it is done.
    pub fn event<T>(self: &Arc<Self>, happens: impl FnOnce(&mut Fleet, Instant) -> T) -> T {
        let (result, actions) = {
            let mut fleet = self.fleet.lock();
            let result = happens(&mut fleet, Instant::now());
            (result, fleet.take_actions())
        };
        for action in actions {
            self.act(action);
        }
        self.wake.notify_one();
        result
    }

    /// A function's latest revision, if there is a function of this name.
    pub fn definition(&self, key: &Key) -> Option<Arc<Definition>> {
        self.definitions.read().get(key).map(|routes| routes.latest.clone())
    }

    /// The revision of a function that takes the next call.
    pub fn next_definition(&self, key: &Key) -> Option<Arc<Definition>> {
        self.definitions.read().get(key).map(|routes| routes.choose(fastrand::u8(..100)).clone())
    }

    /// The functions that something else calls than callers.
    pub fn triggered(&self) -> Vec<Arc<Definition>> {
        let definitions = self.definitions.read();
        let latest = definitions.values().map(|routes| &routes.latest);
        latest.filter(|latest| !latest.function.spec.triggers.is_empty()).cloned().collect()
    }

    /// How far a function's triggers are.
    pub fn progress(&self, key: &Key) -> Progress {
        self.progress.lock().get(key).map(|(_, progress)| progress.clone()).unwrap_or_default()
    }

    /// A trigger has come further.
    pub fn progressed(&self, key: &Key, status: FunctionTriggerStatus) {
        if let Some((_, progress)) = self.progress.lock().get_mut(key) {
            progress.insert(status.trigger.clone(), status);
        }
        self.changed.lock().insert(key.clone());
        self.report.notify_one();
    }

    /// A call has ended: the function's status says so before long.
    pub fn called(&self, key: &Key, status: StatusCode, took: Duration) {
        if self.metrics.called(key, status, took) {
            self.counted.notify_one();
        }
    }

    /// The pod with this hash of its token has told that it listens.
    pub fn told(self: &Arc<Self>, token_hash: &str) {
        let link = self.fleet.lock().link_of(token_hash);
        if let Some(link) = link {
            link.listens();
        }
    }

    /// Why nothing of a function runs yet, as far as its pods say.
    pub fn why_not(&self, key: &Key) -> Option<String> {
        self.fleet.lock().why_not(key)
    }

    /// A Function was made, changed or deleted.
    pub fn function_changed(self: &Arc<Self>, change: &Change<Function>) {
        let key = change.key();
        let has_triggers = |function: &Arc<Function>| !function.spec.triggers.is_empty();
        if change.old.as_ref().is_some_and(has_triggers) || change.new.as_ref().is_some_and(has_triggers) {
            self.triggers_changed.notify_one();
        }
        match change.new.as_ref().filter(|function| function.metadata.deletion_timestamp.is_none()) {
            Some(function) => {
                self.know(&key, function);
                self.define(Arc::new(Definition::new(function.clone())));
            }
            None => {
                self.definitions.write().remove(&key);
                self.progress.lock().remove(&key);
                self.metrics.forget(&key);
                self.logs.lock().forget(&key);
                self.event(|fleet, _| fleet.undefined(&key));
            }
        }
    }

    /// What a function's status says of before, where that is not known better here.
    fn know(&self, key: &Key, function: &Function) {
        let uid = function.metadata.uid.clone().unwrap_or_default();
        let mut progress = self.progress.lock();
        if progress.get(key).is_some_and(|(known, _)| *known == uid) {
            let wanted: BTreeSet<String> = function.spec.triggers.iter().map(triggers::label).collect();
            progress.entry(key.clone()).and_modify(|(_, own)| own.retain(|label, _| wanted.contains(label)));
            return;
        }
        let own = function.status.triggers.iter().map(|status| (status.trigger.clone(), status.clone()));
        progress.insert(key.clone(), (uid, own.collect()));
        self.metrics.begin(key, function.status.calls, function.status.errors);
    }

    fn define(self: &Arc<Self>, latest: Arc<Definition>) {
        let known = revisions::of(&self.revisions, &latest);
        let routes = Routes::new(latest.clone(), &known);
        let before = self.definitions.write().insert(latest.key.clone(), routes.clone());
        self.event(|fleet, now| fleet.defined(latest.clone(), now));
        if before.is_none_or(|before| before.latest.revision != latest.revision) {
            let shared = self.clone();
            self.tasks.spawn(async move { revisions::remember(&shared, &routes).await });
        }
    }

    /// A ControllerRevision was made, changed or deleted: what has a share of the calls may be known now.
    pub fn revision_changed(self: &Arc<Self>, change: &Change<ControllerRevision>) {
        let labels = change.object().metadata.labels.as_ref();
        let Some(name) = labels.and_then(|labels| labels.get(FUNCTION)) else { return };
        let key = Key::new(change.key().namespace, name.clone());
        let has_shares = |routes: &Routes| !routes.latest.function.spec.traffic.is_empty();
        let latest = self
            .definitions
            .read()
            .get(&key)
            .filter(|routes| has_shares(routes))
            .map(|routes| routes.latest.clone());
        if let Some(latest) = latest {
            self.define(latest);
        }
    }

    /// A pod was made, changed or deleted.
    pub fn pod_changed(self: &Arc<Self>, change: &Change<Pod>) {
        let pod = change.object();
        let labels = pod.metadata.labels.as_ref();
        let label = |name: &str| labels.and_then(|labels| labels.get(name)).cloned();
        let Some(name) = label(FUNCTION) else { return };
        let key = change.key();
        let function = Key::new(key.namespace.clone(), name);
        if !is_of(pod, &function) {
            return;
        }
        let link = self.fleet.lock().link(&function, &key);
        let Some(present) = &change.new else {
            self.event(|fleet, now| {
                fleet.left(&function, &key, true, now);
                fleet.is_gone(&key);
            });
            return;
        };
        let is_going = present.metadata.deletion_timestamp.is_some();
        let Some(link) = link else {
            if !is_going && verdict(present).is_some() {
                self.act(Action::Delete { pod: key, at_once: true });
            } else if !is_going {
                let revision = label(REVISION).unwrap_or_default();
                let routes = self.definitions.read().get(&function).cloned();
                let definition = routes.and_then(|routes| routes.of(&revision).cloned());
                self.event(|fleet, now| fleet.found(definition, &key, &revision, now));
                if let Some(link) = self.fleet.lock().link(&function, &key) {
                    follow(&link, present);
                }
            }
            return;
        };
        if is_going {
            let is_news = self.event(|fleet, now| fleet.left(&function, &key, false, now));
            if is_news {
                // Somebody else deletes it.
                let (shared, pod) = (self.clone(), key.clone());
                self.tasks.spawn(async move { shared.keep_log(&function, &pod).await });
            }
        }
        follow(&link, present);
        match verdict(present) {
            Some(Verdict::Hopeless(fault)) => drop(link.end.send_replace(Some(fault))),
            Some(Verdict::Ended(ended)) if link.end.borrow().is_none() => self.bury(link, ended),
            _ => {}
        }
    }

    /// A pod has ended: its last lines are read, and then it goes.
    fn bury(self: &Arc<Self>, link: Arc<Link>, fault: Fault) {
        let shared = self.clone();
        self.tasks.spawn(async move {
            let pods: Api<Pod> = Api::namespaced(shared.client.clone(), &link.pod.namespace);
            let lines = LogParams {
                container: Some(CONTAINER.to_owned()),
                tail_lines: Some(LAST_LINES),
                ..LogParams::default()
            };
            let log = tokio::time::timeout(LOG_PATIENCE, pods.logs(&link.pod.name, &lines)).await;
            let log = log.ok().and_then(Result::ok).unwrap_or_default();
            let message = match log.trim_end() {
                "" => fault.message,
                log => format!("{}\n{log}", fault.message),
            };
            link.end.send_replace(Some(Fault { message, ..fault }));
            let (function, pod) = (link.definition.key.clone(), link.pod.clone());
            if link.times.lock().ready.is_some() {
                shared.event(|fleet, now| fleet.left(&function, &pod, true, now));
                shared.act(Action::Delete { pod, at_once: true });
            }
        });
    }

    fn act(self: &Arc<Self>, action: Action) {
        if self.shutdown.is_cancelled() {
            // Whoever leads next finds the pods as they are, and what they hold of calls that were under way.
            return;
        }
        let shared = self.clone();
        match action {
            Action::Create(link) => drop(self.tasks.spawn(async move {
                let made = shared.shutdown.clone().run_until_cancelled_owned(shared.create(&link)).await;
                match made {
                    Some(Ok(())) => shared.open(link).await,
                    Some(Err(fault)) => shared.event(|fleet, now| fleet.failed(&link, fault, now)),
                    None => {}
                }
            })),
            Action::Open(link) => drop(self.tasks.spawn(async move { shared.open(link).await })),
            Action::Delete { pod, at_once } => {
                drop(self.tasks.spawn(async move { shared.delete(&pod, at_once).await }));
            }
            Action::Report(key) => {
                self.changed.lock().insert(key);
                self.report.notify_one();
            }
        }
    }

    async fn create(&self, link: &Link) -> Result<(), Fault> {
        let wanted = pod::pod(&link.definition, &link.pod.name, link.token(), &self.ready_address)
            .map_err(|message| Fault::new("NoPod", message))?;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &link.pod.namespace);
        let ends = Instant::now() + CREATE_PATIENCE;
        loop {
            let error = match pods.create(&PostParams::default(), &wanted).await {
                Ok(_) => break,
                // Of a try whose answer did not come.
                Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => break,
                Err(kube::Error::Api(status)) if (400..500).contains(&status.code) && status.code != 429 => {
                    return Err(Fault::new("NoPod", format!("its pod cannot be made: {}", status.message)));
                }
                Err(error) => error,
            };
            if Instant::now() >= ends {
                return Err(Fault::new("NoPod", format!("its pod cannot be made: {error}")));
            }
            tokio::time::sleep(RETRY).await;
        }
        link.times.lock().created = Some(Instant::now());
        Ok(())
    }

    async fn open(self: &Arc<Self>, link: Arc<Link>) {
        let mut end = link.end.subscribe();
        let opened = tokio::select! {
            opened = link.open() => opened,
            ended = end.wait_for(Option::is_some) => match ended {
                Ok(fault) => Err(fault.clone().expect("waited for")),
                Err(_) => return,
            },
            () = link.gone.cancelled() => return,
            () = self.shutdown.cancelled() => return,
        };
        match opened {
            Ok(()) => {
                self.metrics.started(&link.definition.key, &link.times.lock());
                self.event(|fleet, now| fleet.ready(&link, now));
            }
            Err(fault) => self.event(|fleet, now| fleet.failed(&link, fault, now)),
        }
    }

    /// Reads what a pod has written before it goes.
    async fn keep_log(&self, function: &Key, pod: &Key) {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
        let lines = LogParams {
            container: Some(CONTAINER.to_owned()),
            tail_lines: Some(MOST_KEPT_LINES),
            timestamps: true,
            ..LogParams::default()
        };
        if let Ok(Ok(text)) = tokio::time::timeout(LOG_PATIENCE, pods.logs(&pod.name, &lines)).await
            && self.definition(function).is_some()
        {
            self.logs.lock().add(function, &pod.name, text);
        }
    }

    async fn delete(&self, pod: &Key, at_once: bool) {
        // A pod is named after its function, its revision, and chance.
        if let Some(name) = pod.name.rsplitn(3, '-').nth(2) {
            self.keep_log(&Key::new(pod.namespace.clone(), name), pod).await;
        }
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
        let parameters =
            DeleteParams { grace_period_seconds: at_once.then_some(1), ..DeleteParams::default() };
        loop {
            match pods.delete(&pod.name, &parameters).await {
                Ok(_) => return,
                Err(kube::Error::Api(status)) if (400..500).contains(&status.code) && status.code != 429 => {
                    self.fleet.lock().is_gone(pod);
                    return;
                }
                Err(error) => {
                    tracing::debug!(%error, pod = pod.name, "a pod was not deleted, and is tried again")
                }
            }
            tokio::select! {
                () = tokio::time::sleep(RETRY) => {}
                () = self.shutdown.cancelled() => return,
            }
        }
    }

    /// Looks at functions when it is time for them, until shutdown.
    pub async fn keep_looking(self: &Arc<Self>) {
        loop {
            let next = self.event_quietly(Fleet::look);
            let sleeping = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = sleeping => {}
                () = self.wake.notified() => {}
                () = self.shutdown.cancelled() => return,
            }
        }
    }

    fn event_quietly<T>(self: &Arc<Self>, happens: impl FnOnce(&mut Fleet, Instant) -> T) -> T {
        let (result, actions) = {
            let mut fleet = self.fleet.lock();
            (happens(&mut fleet, Instant::now()), fleet.take_actions())
        };
        actions.into_iter().for_each(|action| self.act(action));
        result
    }

    /// Writes statuses that have changed, until shutdown.
    pub async fn keep_reporting(self: &Arc<Self>) {
        loop {
            tokio::select! {
                () = self.report.notified() => {}
                () = self.shutdown.cancelled() => return,
            }
            let changed = std::mem::take(&mut *self.changed.lock());
            for key in changed {
                self.report(&key).await;
            }
            tokio::time::sleep(STATUS_PAUSE).await;
        }
    }

    /// Lets statuses say how many calls there were, every now and then while there are any, until shutdown.
    pub async fn keep_counting(&self) {
        loop {
            tokio::select! {
                () = self.counted.notified() => {}
                () = self.shutdown.cancelled() => return,
            }
            tokio::select! {
                () = tokio::time::sleep(COUNT_PAUSE) => {}
                () = self.shutdown.cancelled() => return,
            }
            self.changed.lock().extend(self.metrics.take_counted());
            self.report.notify_one();
        }
    }

    async fn report(&self, key: &Key) {
        let Some(function) = self.functions.get(key) else { return };
        let Some(routes) = self.definitions.read().get(key).cloned() else { return };
        let definition = &routes.latest;
        let (counts, fault) = self.fleet.lock().counts(key);
        let fault = fault
            .or_else(|| definition.program().err().map(|message| Fault::new("UnknownRuntime", message)))
            .or(routes.fault);
        let seen = Seen {
            revision: &definition.revision,
            counts,
            fault: fault.as_ref(),
            totals: self.metrics.totals(key),
            triggers: self.progress(key).into_values().collect(),
        };
        let Some(status) = status(&function, &seen) else { return };
        if let Some(fault) = &fault
            && function.status.last_error != fault.message
        {
            let (regarding, message) = (client::reference(function.as_ref()), fault.message.clone());
            self.recorder.event(regarding, EventType::Warning, fault.reason.clone(), message);
        }
        let functions: Api<Function> = Api::namespaced(self.client.clone(), &key.namespace);
        let patch = Patch::Merge(json!({"status": status}));
        if let Err(error) = functions.patch_status(&key.name, &PatchParams::default(), &patch).await {
            tracing::debug!(%error, function = key.name, "a status was not written");
            if !matches!(&error, kube::Error::Api(status) if status.code == 404) {
                self.changed.lock().insert(key.clone());
            }
        }
    }
}

/// What is known of a function.
struct Seen<'a> {
    revision: &'a str,
    counts: Counts,
    fault: Option<&'a Fault>,
    totals: Totals,
    triggers: Vec<FunctionTriggerStatus>,
}

/// A function's status, if it is not so already.
fn status(function: &Function, seen: &Seen<'_>) -> Option<Value> {
    let Seen { revision, counts, fault, totals, triggers } = seen;
    let (ready, reason, message) = match fault {
        None => ("True", "Callable", ""),
        Some(fault) => ("False", fault.reason.as_str(), fault.message.as_str()),
    };
    let known = &function.status;
    let namespace = function.metadata.namespace.as_deref().unwrap_or_default();
    let name = function.metadata.name.as_deref().unwrap_or_default();
    let old = known.conditions.iter().find(|condition| condition.type_ == "Ready");
    let same_state = old.filter(|condition| condition.status == ready);
    let since = same_state.map_or_else(jiff::Timestamp::now, |condition| condition.last_transition_time.0);
    let last_error = fault.map_or(known.last_error.as_str(), |fault| &fault.message);
    let wanted = json!({
        "observedGeneration": function.metadata.generation,
        "revision": revision,
        "replicas": counts.replicas,
        "readyReplicas": counts.ready,
        "calls": totals.calls,
        "errors": totals.errors,
        "lastColdStartMilliseconds": totals.last_cold_start_milliseconds.unwrap_or(known.last_cold_start_milliseconds),
        "triggers": triggers,
        "url": format!("https://{HOST}/functions/{namespace}/{name}"),
        "lastError": last_error,
        "conditions": [{
            "type": "Ready", "status": ready, "reason": reason, "message": message,
            "lastTransitionTime": since.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            "observedGeneration": function.metadata.generation,
        }],
    });
    let present = serde_json::to_value(known).unwrap_or_default();
    let is_nothing = |value: &Value| match value {
        Value::Array(list) => list.is_empty(),
        value => *value == "" || *value == 0,
    };
    let is_same = |(name, value): (&String, &Value)| {
        present[name] == *value || (is_nothing(value) && present[name].is_null())
    };
    let is_said = wanted.as_object().into_iter().flatten().all(is_same);
    (!is_said).then_some(wanted)
}

/// Whether a pod is a function's own, and does not only say so.
fn is_of(pod: &Pod, function: &Key) -> bool {
    let owners = pod.metadata.owner_references.iter().flatten();
    let mut controllers = owners.filter(|owner| owner.controller == Some(true));
    controllers.any(|owner| owner.kind == "Function" && owner.name == function.name)
}

/// What a pod's status says of the way to it.
fn follow(link: &Link, pod: &Pod) {
    let is_bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    if is_bound {
        link.times.lock().bound.get_or_insert_with(Instant::now);
    }
    let Some(status) = &pod.status else { return };
    let unscheduled = status.conditions.iter().flatten().find(|condition| condition.type_ == "PodScheduled");
    let note = unscheduled.filter(|condition| condition.status == "False");
    *link.note.lock() = note.and_then(|condition| condition.message.clone());
    if let Some(ip) = status.pod_ip.as_ref().and_then(|ip| ip.parse().ok()) {
        link.has_address(ip);
    }
    let own = status.container_statuses.iter().flatten().find(|container| container.name == CONTAINER);
    if own.and_then(|own| own.state.as_ref()).is_some_and(|state| state.running.is_some()) {
        link.listens();
    }
}

/// What a pod's status says of its future.
enum Verdict {
    /// It will never run.
    Hopeless(Fault),
    /// It has run.
    Ended(Fault),
}

fn verdict(pod: &Pod) -> Option<Verdict> {
    let status = pod.status.as_ref()?;
    let own = status.container_statuses.iter().flatten().find(|container| container.name == CONTAINER);
    let state = own.and_then(|own| own.state.as_ref());
    if let Some(terminated) = state.and_then(|state| state.terminated.as_ref()) {
        return Some(Verdict::Ended(ended(terminated)));
    }
    let waiting = state.and_then(|state| state.waiting.as_ref());
    if let Some((reason, waiting)) = waiting.and_then(|waiting| Some((waiting.reason.as_deref()?, waiting)))
        && HOPELESS.contains(&reason)
    {
        let message = waiting.message.clone().unwrap_or_default();
        return Some(Verdict::Hopeless(Fault::new(
            reason,
            format!("its pod cannot start: {reason}: {message}"),
        )));
    }
    match status.phase.as_deref() {
        Some("Failed") => {
            let reason = status.reason.clone().unwrap_or_else(|| "PodFailed".to_owned());
            let message = status.message.clone().unwrap_or_default();
            Some(Verdict::Ended(Fault::new(reason.clone(), format!("its pod failed: {reason}: {message}"))))
        }
        Some("Succeeded") => Some(Verdict::Ended(Fault::new("Exited", "the function's program exited"))),
        _ => None,
    }
}

fn ended(terminated: &ContainerStateTerminated) -> Fault {
    match (terminated.reason.as_deref(), terminated.signal) {
        (Some("OOMKilled"), _) => {
            Fault::new("OutOfMemory", "the function was killed: it used more memory than its pod may")
        }
        (_, Some(signal)) if signal > 0 => {
            Fault::new("Killed", format!("the function was killed by signal {signal}"))
        }
        _ => Fault::new("Exited", format!("the function's program exited with {}", terminated.exit_code)),
    }
}

/// Leads until shutdown: follows Functions and pods, and keeps what they need.
pub async fn lead(
    shared: &Arc<Shared>,
    pods: client::Cache<Pod>,
    calls: client::Cache<FunctionCall>,
    is_leading: impl FnOnce(),
) -> Result<(), Error> {
    let promised = Promised::new(shared.clone());
    let synced = async {
        shared.functions.synced().await;
        shared.revisions.synced().await;
        let follower = shared.clone();
        shared.functions.subscribe(move |change| follower.function_changed(change));
        let follower = shared.clone();
        shared.revisions.subscribe(move |change| follower.revision_changed(change));
        pods.synced().await;
        let follower = shared.clone();
        pods.subscribe(move |change| follower.pod_changed(change));
        calls.synced().await;
        promised.follow(&calls);
    };
    tokio::select! {
        () = synced => {}
        () = shared.shutdown.cancelled() => return Ok(()),
    }
    is_leading();
    tokio::join!(
        shared.keep_looking(),
        shared.keep_reporting(),
        shared.keep_counting(),
        promised.keep_sweeping(),
        triggers::keep_calling(shared),
    );
    Ok(())
}
