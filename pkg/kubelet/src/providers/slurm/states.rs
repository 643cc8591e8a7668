//! The states of a SLURM job, and what each means for its pod: one table, which nothing else may contradict.
//!
//! ```text
//! squeue, sacct ── "COMPLETING" ──> JobState ── stage ──> waiting | running | ended, and the reason that the pod shows
//! ```

/// What a job's state means for its pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It has not started, or will start again: the containers wait.
    Waiting,
    /// It has its nodes.
    Running,
    /// It has ended well, if nothing says otherwise.
    Succeeded,
    /// It has ended, and not well.
    Failed,
}

/// A state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobState {
    /// As SLURM writes it.
    pub name: &'static str,
    /// As SLURM abbreviates it.
    pub short: &'static str,
    /// What it means.
    pub stage: Stage,
    /// The reason that a container shows in it, in Kubernetes' manner.
    pub reason: &'static str,
    /// The exit code of a container of which nothing else is known; 128 and a signal where there was one.
    pub exit_code: i32,
}

const fn state(
    name: &'static str,
    short: &'static str,
    stage: Stage,
    reason: &'static str,
    exit_code: i32,
) -> JobState {
    JobState { name, short, stage, reason, exit_code }
}

/// All of them, as `squeue(1)` lists them.
pub const STATES: [JobState; 24] = [
    state("BOOT_FAIL", "BF", Stage::Failed, "BootFail", 1),
    state("CANCELLED", "CA", Stage::Failed, "Cancelled", 143),
    state("COMPLETED", "CD", Stage::Succeeded, "Completed", 0),
    state("CONFIGURING", "CF", Stage::Waiting, "Configuring", 0),
    // What it was doing is told by its own files; until they are there it still runs.
    state("COMPLETING", "CG", Stage::Running, "Completing", 0),
    state("DEADLINE", "DL", Stage::Failed, "DeadlineExceeded", 137),
    state("FAILED", "F", Stage::Failed, "Error", 1),
    state("NODE_FAIL", "NF", Stage::Failed, "NodeFail", 137),
    state("OUT_OF_MEMORY", "OOM", Stage::Failed, "OOMKilled", 137),
    state("PENDING", "PD", Stage::Waiting, "Queued", 0),
    state("PREEMPTED", "PR", Stage::Failed, "Preempted", 143),
    state("RUNNING", "R", Stage::Running, "Running", 0),
    state("RESV_DEL_HOLD", "RD", Stage::Waiting, "ReservationDeleted", 0),
    state("REQUEUE_FED", "RF", Stage::Waiting, "Requeued", 0),
    state("REQUEUE_HOLD", "RH", Stage::Waiting, "RequeueHold", 0),
    state("REQUEUED", "RQ", Stage::Waiting, "Requeued", 0),
    state("RESIZING", "RS", Stage::Running, "Resizing", 0),
    // Another cluster of the federation has started it: this one never will.
    state("REVOKED", "RV", Stage::Failed, "Revoked", 1),
    state("SIGNALING", "SI", Stage::Running, "Signaling", 0),
    state("SPECIAL_EXIT", "SE", Stage::Waiting, "SpecialExit", 0),
    state("STAGE_OUT", "SO", Stage::Running, "StageOut", 0),
    state("STOPPED", "ST", Stage::Running, "Stopped", 0),
    state("SUSPENDED", "S", Stage::Running, "Suspended", 0),
    state("TIMEOUT", "TO", Stage::Failed, "DeadlineExceeded", 143),
];

impl JobState {
    /// A state by what squeue or sacct writes: `CANCELLED by 1000` is `CANCELLED`, `OUT_OF_ME+` is `OUT_OF_MEMORY`.
    pub fn parse(text: &str) -> Option<&'static JobState> {
        let word = text.split_whitespace().next()?;
        if let Some(cut) = word.strip_suffix('+') {
            return STATES.iter().find(|state| !cut.is_empty() && state.name.starts_with(cut));
        }
        STATES.iter().find(|state| state.name == word || state.short == word)
    }

    /// Whether nothing more will come of it.
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Succeeded | Stage::Failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_means_one_thing() {
        // Written out once more, by hand: the table above is what is tested.
        let expected = "BOOT_FAIL Failed, CANCELLED Failed, COMPLETED Succeeded, CONFIGURING Waiting, COMPLETING Running, \
             DEADLINE Failed, FAILED Failed, NODE_FAIL Failed, OUT_OF_MEMORY Failed, PENDING Waiting, \
             PREEMPTED Failed, RUNNING Running, RESV_DEL_HOLD Waiting, REQUEUE_FED Waiting, REQUEUE_HOLD Waiting, \
             REQUEUED Waiting, RESIZING Running, REVOKED Failed, SIGNALING Running, SPECIAL_EXIT Waiting, \
             STAGE_OUT Running, STOPPED Running, SUSPENDED Running, TIMEOUT Failed";
        let said: Vec<String> =
            STATES.iter().map(|state| format!("{} {:?}", state.name, state.stage)).collect();
        assert_eq!(said.join(", "), expected);
        for state in &STATES {
            assert_eq!(JobState::parse(state.name), Some(state));
            assert_eq!(JobState::parse(state.short), Some(state));
            assert_eq!(state.is_over(), matches!(state.stage, Stage::Succeeded | Stage::Failed));
            // A container that ended badly never shows a good exit code.
            assert_eq!(state.exit_code != 0, state.stage == Stage::Failed, "{}", state.name);
        }
    }

    #[test]
    fn what_sacct_adds_or_cuts_is_understood() {
        let name = |text| JobState::parse(text).map(|state| state.name);
        assert_eq!(name("CANCELLED by 1000"), Some("CANCELLED"));
        assert_eq!(name("OUT_OF_ME+"), Some("OUT_OF_MEMORY"));
        assert_eq!(name("FROZEN"), None);
        assert_eq!(name("+"), None);
        assert_eq!(name(""), None);
    }
}
