//! What a pod shows of its job.

use super::*;
use crate::providers::slurm::queue::JobId;
use serde_json::{Value, json};

fn record(submission: Submission) -> Record {
    Record {
        namespace: "a".into(),
        name: "p".into(),
        uid: "u".into(),
        user: None,
        root: "/s".into(),
        submission,
        last_word: None,
    }
}

fn pod() -> Pod {
    let spec = json!({"initContainers": [{"name": "i"}], "containers": [{"name": "c"}]});
    serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).expect("a pod")
}

fn row(state: &str, restarts: i32) -> Row {
    Row {
        job: JobId(12),
        state: JobState::parse(state).expect("a state"),
        exit_code: 0,
        restarts,
        reason: Some("Resources".into()),
        start: Timestamp::from_second(1_795_122_700).ok(),
        end: None,
        nodes: String::new(),
        name: String::new(),
        comment: String::new(),
    }
}

fn said(record: &Record, journal: &str, row: Option<&Row>) -> Value {
    let journal = Journal::parse(journal.lines());
    let known = Known { record, journal: &journal, row, trouble: None, is_ending: false };
    let now = Timestamp::from_second(9).expect("a time");
    serde_json::to_value(status(&pod(), known, None, now)).expect("JSON")
}

#[test]
fn a_job_that_waits_says_why_and_until_when() {
    let job = record(Submission::Submitted(JobId(12)));
    let status = said(&job, "", Some(&row("PENDING", 0)));
    assert_eq!(status["phase"], "Pending");
    let waiting = &status["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(waiting["reason"], "Queued");
    assert_eq!(
        waiting["message"],
        "SLURM job 12 is PENDING (Resources), expected to start at 2026-11-19T21:11:40Z"
    );
    assert_eq!(said(&record(Submission::Intended), "", None)["phase"], "Pending");
}

#[test]
fn containers_are_as_the_journal_says() {
    let job = record(Submission::Submitted(JobId(12)));
    let begun = "boot 0 12 100 n1\nstart 0 i 101\nend 0 i 102 0\nstart 0 c 103\n";
    let status = said(&job, begun, Some(&row("PENDING", 0)));
    assert_eq!((&status["phase"], &status["message"]), (&json!("Running"), &json!("SLURM job 12 on n1")));
    assert_eq!(status["containerStatuses"][0]["containerID"], "slurm://12/c/0");
    assert_eq!(status["initContainerStatuses"][0]["ready"], true);
    let done = format!("{begun}end 0 c 104 3\ndone 0 104 3\n");
    let status = said(&job, &done, Some(&row("COMPLETED", 0)));
    assert_eq!(status["phase"], "Failed");
    let ended = &status["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((&ended["exitCode"], &ended["reason"]), (&json!(3), &json!("Error")));
    // While an init container runs, the pod is pending.
    assert_eq!(said(&job, "boot 0 12 100 n1\nstart 0 i 101\n", None)["phase"], "Pending");
    // One that failed is the end of the pod.
    let failed = "boot 0 12 100 n1\nstart 0 i 101\nend 0 i 102 5\ndone 0 102 5\n";
    let status = said(&job, failed, None);
    assert_eq!(status["phase"], "Failed");
    assert_eq!(status["containerStatuses"][0]["state"]["waiting"]["reason"], "PodInitializing");
}

#[test]
fn a_requeue_is_a_restart() {
    let job = record(Submission::Submitted(JobId(12)));
    let first = "boot 0 12 100 n1\nstart 0 i 100\nend 0 i 100 0\nstart 0 c 101\nend 0 c 105 143 told\nstopped 0 105\n";
    // Whether it is to run again is not known at first.
    let status = said(&job, first, Some(&row("RUNNING", 0)));
    assert!(status["containerStatuses"][0]["state"]["running"].is_object(), "{status}");
    let status = said(&job, first, Some(&row("PENDING", 1)));
    assert_eq!(status["phase"], "Pending");
    let container = &status["containerStatuses"][0];
    assert_eq!(container["restartCount"], 1);
    assert_eq!(container["lastState"]["terminated"]["exitCode"], 143);
    let again = format!("{first}boot 1 12 200 n2\nstart 1 i 200\nend 1 i 200 0\nstart 1 c 201\n");
    let status = said(&job, &again, Some(&row("RUNNING", 1)));
    assert_eq!(status["phase"], "Running");
    assert_eq!(status["containerStatuses"][0]["containerID"], "slurm://12/c/1");
}

#[test]
fn what_slurm_ended_says_how() {
    for state in super::super::states::STATES.iter().filter(|state| state.is_over()) {
        let word = LastWord {
            state: state.name.into(),
            exit_code: 0,
            start: Some(100),
            end: Some(200),
            nodes: "n1".into(),
            output: "slurmstepd: it was so".into(),
        };
        let job = Record { last_word: Some(word), ..record(Submission::Submitted(JobId(12))) };
        let status = said(&job, "boot 0 12 100 n1\nstart 0 i 100\nend 0 i 100 0\nstart 0 c 101\n", None);
        let ended = &status["containerStatuses"][0]["state"]["terminated"];
        let expected = if state.stage == Stage::Succeeded { "Succeeded" } else { "Failed" };
        assert_eq!(status["phase"], expected, "{}", state.name);
        assert_eq!(ended["exitCode"], state.exit_code, "{}", state.name);
        assert!(
            status["message"]
                .as_str()
                .is_some_and(|text| text.contains(state.name) && text.contains("it was so"))
        );
    }
}

#[test]
fn a_refusal_is_in_slurms_own_words() {
    let refused =
        Submission::Refused { reason: "SlurmRefused".into(), message: "Invalid partition name".into() };
    let status = said(&record(refused), "", None);
    assert_eq!((&status["phase"], &status["message"]), (&json!("Failed"), &json!("Invalid partition name")));
    let conditions = status["conditions"].as_array().expect("conditions");
    let found = conditions.iter().find(|condition| condition["type"] == SUBMITTED).expect("the condition");
    assert_eq!((&found["status"], &found["message"]), (&json!("False"), &json!("Invalid partition name")));
}
