//! The status of a pod that is a job: a pure function of what is known of it.
//!
//! ```text
//! the job's journal ──first──┐
//! SLURM's last word ─────────┼──> PodStatus
//! the queue ─────────────────┘
//! ```

use super::journal::{ContainerRun, JobRun, Journal};
use super::queue::Row;
use super::records::{LastWord, Record, Submission};
use super::states::{JobState, Stage};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, Pod, PodCondition, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::BTreeMap;

/// The condition that says whether SLURM has a job for the pod.
pub const SUBMITTED: &str = "slurm.minik8s.io/Submitted";

/// What is known of a pod.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// What is on disk.
    pub record: &'a Record,
    /// What the job said.
    pub journal: &'a Journal,
    /// What the queue says.
    pub row: Option<&'a Row>,
    /// Why it is not submitted yet, if something is in the way.
    pub trouble: Option<&'a str>,
    /// Its pod was deleted: it will not run again.
    pub is_ending: bool,
}

/// Works it out. `before` is what was said last: times of conditions go on from there.
pub fn status(pod: &Pod, known: Known<'_>, before: Option<&PodStatus>, now: Timestamp) -> PodStatus {
    let found = Found::of(known);
    let spec = pod.spec.as_ref();
    let listed = |containers: Option<&Vec<Container>>, is_init: bool| -> Vec<ContainerStatus> {
        containers.into_iter().flatten().map(|container| found.container(container, is_init)).collect()
    };
    let init = listed(spec.and_then(|spec| spec.init_containers.as_ref()), true);
    let containers = listed(spec.map(|spec| &spec.containers), false);
    let phase = found.phase(&containers);
    let (reason, message) = found.said(phase);
    let mut status = PodStatus {
        phase: Some(phase.to_owned()),
        reason,
        message,
        start_time: before.and_then(|status| status.start_time.clone()).or(Some(Time(now))),
        qos_class: pod.status.as_ref().and_then(|status| status.qos_class.clone()),
        container_statuses: Some(containers),
        init_container_statuses: (!init.is_empty()).then_some(init),
        ..PodStatus::default()
    };
    status.conditions = Some(conditions(&status, &found, pod, before, now));
    status
}

/// What is known, put in order.
struct Found<'a> {
    known: Known<'a>,
    restarts: i32,
    run: Option<&'a JobRun>,
    /// How it ended, where it did not say so itself.
    end: Option<End>,
}

struct End {
    state: &'static JobState,
    exit_code: i32,
    start: Option<Timestamp>,
    at: Option<Timestamp>,
    output: String,
}

impl<'a> Found<'a> {
    fn of(known: Known<'a>) -> Found<'a> {
        let last = known.journal.last();
        let said = last.map_or(0, |(restarts, _)| i32::try_from(restarts).unwrap_or(i32::MAX));
        let queued = known.row.map_or(0, |row| row.restarts);
        // What it said before it was requeued is history.
        let run = last.filter(|_| queued <= said).map(|(_, run)| run);
        let end = if run.is_some_and(|run| run.done.is_some()) { None } else { end(known) };
        Found { known, restarts: said.max(queued), run, end }
    }

    fn stage(&self) -> Stage {
        if let Some(end) = &self.end {
            return end.state.stage;
        }
        match self.run {
            Some(run) if run.done.is_some() => Stage::Succeeded,
            // It said that it runs; the queue may be older. But one that was stopped may wait again.
            Some(run) if run.stopped.is_none() => Stage::Running,
            Some(_) => self.known.row.map_or(Stage::Running, |row| row.state.stage),
            None => match self.known.row.map(|row| row.state.stage) {
                Some(Stage::Running) => Stage::Running,
                _ => Stage::Waiting,
            },
        }
    }

    fn container(&self, container: &Container, is_init: bool) -> ContainerStatus {
        let name = &container.name;
        let run = self.run.and_then(|run| run.containers.get(name)).copied().unwrap_or_default();
        let id = self.id(name, self.restarts);
        let state = self.state(run, &id);
        let before = u32::try_from(self.restarts).ok().and_then(|now| now.checked_sub(1));
        let earlier = before.and_then(|before| {
            let run = self.known.journal.runs.get(&before)?.containers.get(name)?;
            let (at, code) = run.end?;
            let id = self.id(name, i32::try_from(before).ok()?);
            Some(terminated(code, Some("Requeued"), None, run.start, Some(at), id))
        });
        let is_ready = if is_init {
            state.terminated.as_ref().is_some_and(|ended| ended.exit_code == 0)
        } else {
            state.running.is_some()
        };
        ContainerStatus {
            name: name.clone(),
            image: container.image.clone().unwrap_or_default(),
            image_id: String::new(),
            container_id: (state.waiting.is_none()).then_some(id).flatten(),
            ready: is_ready,
            restart_count: self.restarts,
            started: Some(state.running.is_some()),
            last_state: earlier.map(|terminated| ContainerState {
                terminated: Some(terminated),
                ..ContainerState::default()
            }),
            state: Some(state),
            ..ContainerStatus::default()
        }
    }

    fn id(&self, container: &str, restart: i32) -> Option<String> {
        self.known.record.job().map(|job| format!("slurm://{job}/{container}/{restart}"))
    }

    fn state(&self, run: ContainerRun, id: &Option<String>) -> ContainerState {
        // One that was told to end runs, for people, until it is known that it is not to run again.
        let may_run_again = run.was_told
            && !self.known.is_ending
            && self.end.is_none()
            && self.run.is_none_or(|run| run.done.is_none());
        if let Some((at, code)) = run.end.filter(|_| !may_run_again) {
            let reason = self.end.as_ref().filter(|_| code != 0).map(|end| end.state.reason);
            let output = self.end.as_ref().map(|end| end.output.as_str()).filter(|text| !text.is_empty());
            let ended = terminated(code, reason, output, run.start, Some(at), id.clone());
            return ContainerState { terminated: Some(ended), ..ContainerState::default() };
        }
        if let Some(end) = &self.end {
            let start = run.start.or(end.start);
            let output = Some(end.output.as_str()).filter(|text| !text.is_empty());
            let ended = terminated(end.exit_code, Some(end.state.reason), output, start, end.at, id.clone());
            return ContainerState { terminated: Some(ended), ..ContainerState::default() };
        }
        if run.start.is_some() {
            let running = ContainerStateRunning { started_at: run.start.map(Time) };
            return ContainerState { running: Some(running), ..ContainerState::default() };
        }
        if self.run.is_some_and(|run| run.done.is_some()) {
            // An init container before it failed: it was never begun.
            let waiting = waiting("PodInitializing", None);
            return ContainerState { waiting: Some(waiting), ..ContainerState::default() };
        }
        ContainerState { waiting: Some(self.waits()), ..ContainerState::default() }
    }

    /// Why its containers wait.
    fn waits(&self) -> ContainerStateWaiting {
        match (&self.known.record.submission, self.known.row) {
            (Submission::Refused { reason, message }, _) => waiting(reason, Some(message.clone())),
            (Submission::Intended, _) => waiting("Submitting", self.known.trouble.map(str::to_owned)),
            (Submission::Submitted(_), _) if self.run.is_some() => waiting("PodInitializing", None),
            (Submission::Submitted(job), None) => waiting("Queued", Some(format!("SLURM job {job}"))),
            (Submission::Submitted(job), Some(row)) => {
                let why = row.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
                let start = row.start.filter(|_| row.state.stage == Stage::Waiting);
                let start = start.map(|start| format!(", expected to start at {start}")).unwrap_or_default();
                waiting(row.state.reason, Some(format!("SLURM job {job} is {}{why}{start}", row.state.name)))
            }
        }
    }

    fn phase(&self, containers: &[ContainerStatus]) -> &'static str {
        if matches!(self.known.record.submission, Submission::Refused { .. }) {
            return "Failed";
        }
        let code = |status: &ContainerStatus| {
            status.state.as_ref().and_then(|state| state.terminated.as_ref()).map(|ended| ended.exit_code)
        };
        let is_over = self.end.is_some() || self.run.is_some_and(|run| run.done.is_some());
        if is_over {
            let all_well = containers.iter().all(|status| code(status) == Some(0));
            return if all_well { "Succeeded" } else { "Failed" };
        }
        let has_begun = containers.iter().any(|status| {
            status.state.as_ref().is_some_and(|state| state.running.is_some() || state.terminated.is_some())
        });
        match self.stage() {
            Stage::Running if has_begun => "Running",
            _ => "Pending",
        }
    }

    /// The pod's own reason and message.
    fn said(&self, phase: &str) -> (Option<String>, Option<String>) {
        if let Submission::Refused { reason, message } = &self.known.record.submission {
            return (Some(reason.clone()), Some(message.clone()));
        }
        let Some(job) = self.known.record.job() else { return (None, None) };
        if let Some(end) = &self.end {
            let reason =
                if end.state.stage == Stage::Failed { Some(end.state.reason.to_owned()) } else { None };
            let output = if end.output.is_empty() { String::new() } else { format!(": {}", end.output) };
            return (reason, Some(format!("SLURM job {job} ended as {}{output}", end.state.name)));
        }
        let nodes = self.run.map(|run| run.nodes.as_str()).filter(|nodes| !nodes.is_empty());
        match (phase, nodes) {
            (_, Some(nodes)) => (None, Some(format!("SLURM job {job} on {nodes}"))),
            _ => (None, self.waits().message),
        }
    }
}

fn waiting(reason: &str, message: Option<String>) -> ContainerStateWaiting {
    ContainerStateWaiting { reason: Some(reason.to_owned()), message }
}

fn terminated(
    code: i32,
    reason: Option<&str>,
    message: Option<&str>,
    start: Option<Timestamp>,
    end: Option<Timestamp>,
    id: Option<String>,
) -> ContainerStateTerminated {
    let plain = if code == 0 { "Completed" } else { "Error" };
    ContainerStateTerminated {
        exit_code: code,
        signal: (code > 128 && code < 128 + 65).then_some(code - 128),
        reason: Some(reason.unwrap_or(plain).to_owned()),
        message: message.map(str::to_owned),
        started_at: start.map(Time),
        finished_at: end.map(Time),
        container_id: id,
    }
}

/// How SLURM says that it ended.
fn end(known: Known<'_>) -> Option<End> {
    let second = |second: Option<i64>| second.and_then(|second| Timestamp::from_second(second).ok());
    if let Some(LastWord { state, exit_code, start, end, output, .. }) = &known.record.last_word {
        let state = JobState::parse(state)?;
        let exit_code =
            if state.stage == Stage::Failed && *exit_code <= 0 { state.exit_code } else { *exit_code };
        return Some(End {
            state,
            exit_code,
            start: second(*start),
            at: second(*end),
            output: output.clone(),
        });
    }
    None
}

fn conditions(
    status: &PodStatus,
    found: &Found<'_>,
    pod: &Pod,
    before: Option<&PodStatus>,
    now: Timestamp,
) -> Vec<PodCondition> {
    let phase = status.phase.as_deref().unwrap_or_default();
    let all = |list: &Option<Vec<ContainerStatus>>| list.iter().flatten().all(|status| status.ready);
    let is_ready = phase == "Running" && all(&status.container_statuses);
    let is_initialized = phase != "Pending" && all(&status.init_container_statuses);
    let unready = match phase {
        "Succeeded" => Some("PodCompleted"),
        "Failed" => Some("PodFailed"),
        _ => Some("ContainersNotReady"),
    };
    let (is_submitted, why, words) = match &found.known.record.submission {
        Submission::Submitted(job) => (true, None, Some(format!("SLURM job {job}"))),
        Submission::Intended => {
            (false, Some("Submitting".to_owned()), found.known.trouble.map(str::to_owned))
        }
        Submission::Refused { reason, message } => (false, Some(reason.clone()), Some(message.clone())),
    };
    let is_said = |holds: bool, why: Option<&str>| (!holds).then(|| why.map(str::to_owned)).flatten();
    let list = [
        ("PodScheduled", true, None, None),
        (SUBMITTED, is_submitted, why, words),
        ("PodReadyToStartContainers", found.run.is_some() && phase == "Running", None, None),
        ("Initialized", is_initialized, is_said(is_initialized, Some("ContainersNotInitialized")), None),
        ("ContainersReady", is_ready, is_said(is_ready, unready), None),
        ("Ready", is_ready, is_said(is_ready, unready), None),
    ];
    let own: BTreeMap<&str, ()> = list.iter().map(|(type_, ..)| (*type_, ())).collect();
    let theirs = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut conditions: Vec<PodCondition> =
        theirs.filter(|condition| !own.contains_key(condition.type_.as_str())).cloned().collect();
    for (type_, holds, reason, message) in list {
        let said = if holds { "True" } else { "False" };
        let last =
            before.or(pod.status.as_ref()).into_iter().flat_map(|status| status.conditions.iter().flatten());
        let mut last = last.filter(|condition| condition.type_ == type_ && condition.status == said);
        let since = last.next().and_then(|condition| condition.last_transition_time.clone());
        conditions.push(PodCondition {
            type_: type_.to_owned(),
            status: said.to_owned(),
            reason,
            message,
            last_transition_time: since.or(Some(Time(now))),
            ..PodCondition::default()
        });
    }
    conditions
}

#[cfg(test)]
mod tests;
