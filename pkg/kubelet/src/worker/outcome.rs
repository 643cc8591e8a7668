//! How work ended, and what is remembered of it.

use crate::plan::{ContainerMemory, Memory, ResizeFailure, Step, Volumes, Work};
use crate::probe::Found;
use crate::runtime::ContainerId;
use jiff::{SignedDuration, Timestamp};

/// After a failure that nothing announces the end of, this long passes before the next try.
const RETRY: SignedDuration = SignedDuration::from_secs(10);
const SOON: SignedDuration = SignedDuration::from_secs(2);
const FIRST_PULL_RETRY_S: i64 = 10;
const LONGEST_PULL_RETRY_S: i64 = 300;

/// How a piece of work ended.
pub(super) struct Outcome {
    /// Which.
    pub work: Work,
    /// What changes.
    pub change: Change,
}

/// What changes with it.
pub(super) enum Change {
    /// Nothing that the runtime does not show.
    Nothing,
    /// The volumes are there; one of them has to be made anew then.
    VolumesReady(Option<Timestamp>),
    /// They are not.
    VolumesFailed,
    /// No sandbox could be made.
    SandboxFailed,
    /// A container was started.
    Started,
    /// A container could not be started.
    StartFailed(StartFailure),
    /// A container has been stopped, or could not be.
    Stopped(ContainerId),
    /// The containers have another size, or it is said why not.
    Resized(Result<(), (Vec<Step>, String)>),
    /// What the pod left is removed.
    Cleaned,
}

/// Why a container could not be started.
#[derive(Debug)]
pub(super) struct StartFailure {
    /// Such as `ErrImagePull`.
    pub reason: String,
    /// For people.
    pub message: String,
    /// The image could not be pulled.
    pub of_pull: bool,
}

impl Memory {
    /// Remembers how a piece of work ended.
    pub(super) fn apply(&mut self, outcome: Outcome, now: Timestamp) {
        let Outcome { work, change } = outcome;
        let name = match &work {
            Work::Start(name) => name.clone(),
            _ => String::new(),
        };
        self.busy.remove(&work);
        match change {
            Change::Nothing => {}
            Change::VolumesReady(refresh_at) => {
                self.volumes = Volumes::Ready;
                // What changed meanwhile is not forgotten.
                self.refresh_by(refresh_at);
            }
            Change::VolumesFailed => match self.volumes {
                // What is mounted stays, if not up to date.
                Volumes::Ready => self.refresh_by(Some(now + RETRY)),
                _ => self.volumes = Volumes::Failed(now + SOON),
            },
            Change::SandboxFailed => self.sandbox_retry_at = Some(now + SOON),
            Change::Started => {
                let container = self.containers.entry(name).or_default();
                container.waiting = None;
                container.next_waiting = None;
                container.retry_at = None;
                container.pull_delay_s = 0;
                container.anew = None;
            }
            Change::StartFailed(failure) => self.containers.entry(name).or_default().failed(failure, now),
            Change::Stopped(id) => {
                self.stopping.remove(&id);
            }
            Change::Resized(done) => {
                let failed = done.err();
                self.resize.failed =
                    failed.map(|(steps, message)| ResizeFailure { steps, message, retry_at: now + RETRY });
            }
            Change::Cleaned => self.cleaned = true,
        }
    }

    fn refresh_by(&mut self, at: Option<Timestamp>) {
        self.refresh_at = match (self.refresh_at, at) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }

    /// What a probe found.
    pub(super) fn probed(&mut self, found: Found) {
        let probed = self.probed.entry(found.container).or_default();
        match found.kind {
            crate::probe::Kind::Startup => probed.startup = Some(found.success),
            crate::probe::Kind::Readiness => probed.readiness = Some(found.success),
            crate::probe::Kind::Liveness => probed.liveness = Some(found.success),
        }
    }

    /// Something happened that may be what was waited for.
    pub(super) fn hurry(&mut self, object_changed: bool) {
        if object_changed {
            self.refresh_at = Some(Timestamp::MIN);
        }
        if let Volumes::Failed(at) = &mut self.volumes {
            *at = Timestamp::MIN;
        }
        for container in self.containers.values_mut() {
            if container.pull_delay_s == 0 && container.is_about_configuration() {
                container.retry_at = None;
            }
        }
    }
}

impl ContainerMemory {
    fn is_about_configuration(&self) -> bool {
        self.waiting.as_ref().is_some_and(|(reason, _)| reason == "CreateContainerConfigError")
    }

    fn failed(&mut self, failure: StartFailure, now: Timestamp) {
        let StartFailure { reason, message, of_pull } = failure;
        if of_pull {
            let doubled = (self.pull_delay_s * 2).min(LONGEST_PULL_RETRY_S);
            self.pull_delay_s = doubled.max(FIRST_PULL_RETRY_S);
            self.retry_at = Some(now + SignedDuration::from_secs(self.pull_delay_s));
            self.next_waiting = Some(now + SOON);
            self.told = None;
        } else {
            self.retry_at = Some(now + RETRY);
        }
        self.waiting = Some((reason, message));
    }
}
