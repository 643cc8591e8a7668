//! What controllers keep, on a machine that really runs it: jobs, schedules, sets with volumes, and a Deployment that
//! grows and shrinks with the processor time that it takes.

use crate::support::Node;
use testing::Switch;

#[test]
fn workloads_run_as_they_are_documented() {
    let switch = Switch::new();
    let node = Node::boot(&switch, "m1", 1);
    node.init(&[]);
    node.import("busybox");
    // What takes longest begins first: a schedule waits for the next minute, an autoscaler for measurements.
    node.apply(include_str!("../../../../testcases/workloads/jobs.yaml"));
    node.apply(include_str!("../../../../testcases/workloads/autoscaler.yaml"));
    node.rolled_out("deployment/busy");
    std::fs::write(node.machine.path("/opt/load/on"), "").expect("written");
    jobs_end_as_they_should(&node);
    sets_keep_what_they_wrote(&node);
    replicas_follow_the_load(&node);
    schedules_fire(&node);
}

fn jobs_end_as_they_should(node: &Node) {
    let is = |job: &str, path: &str, expected: &str| {
        node.eventually(&format!("{path} of {job} is {expected}"), |node| {
            node.get(&format!("job {job}"), path) == expected
        });
    };
    let conditions = "{.status.conditions[*].type}";
    let failed = "{.status.conditions[?(@.type==\"Failed\")].reason} {.status.failed}";
    is("counted", "{.status.succeeded}", "4");
    is("counted", conditions, "SuccessCriteriaMet Complete");
    is("indexed", "{.status.completedIndexes} {.status.succeeded}", "0-2 3");
    for index in ["0", "1", "2"] {
        let selector = format!("job-name=indexed,batch.kubernetes.io/job-completion-index={index}");
        assert_eq!(node.kubectl(&["logs", "-l", &selector]), format!("run {index}\n"));
    }
    is("hopeless", failed, "PodFailurePolicy 1");
    is("failing", failed, "BackoffLimitExceeded 2");
    node.eventually("the brief job and its pod are gone", |node| {
        !node.kubectl(&["get", "jobs", "-o", "name"]).contains("brief")
            && node.kubectl(&["get", "pods", "-l", "job-name=brief", "-o", "name"]).is_empty()
    });
}

fn sets_keep_what_they_wrote(node: &Node) {
    node.apply(include_str!("../../../../testcases/workloads/sets.yaml"));
    node.rolled_out("statefulset/keeper");
    node.rolled_out("daemonset/everywhere");
    let read = |file: &str| std::fs::read_to_string(node.machine.path(file)).unwrap_or_default();
    node.eventually("the set's pod has written", |_| read("/opt/everywhere/name") == "m1\n");
    assert_eq!(node.get("pvc", "{.items[*].status.phase}"), "Bound Bound");
    // Another pod of the same name finds the same volume.
    let volume = node.get("pvc data-keeper-1", "{.spec.volumeName}");
    let starts = || read(&format!("/opt/{volume}/starts"));
    node.eventually("keeper-1 has written", |_| starts() == "keeper-1\n");
    node.kubectl(&["delete", "pod", "keeper-1"]);
    node.eventually("keeper-1 has written once more", |_| starts() == "keeper-1\nkeeper-1\n");
    node.rolled_out("statefulset/keeper");
    // A set that shrinks and grows again loses nothing.
    node.kubectl(&["scale", "statefulset/keeper", "--replicas", "0"]);
    node.eventually("no keeper is left", |node| {
        node.get("pods -l app=keeper", "{.items[*].metadata.name}").is_empty()
    });
    node.kubectl(&["scale", "statefulset/keeper", "--replicas", "2"]);
    node.eventually("keeper-1 is back with its volume", |_| starts() == "keeper-1\nkeeper-1\nkeeper-1\n");
}

fn replicas_follow_the_load(node: &Node) {
    let replicas = |node: &Node| node.get("deployment busy", "{.spec.replicas} {.status.readyReplicas}");
    node.eventually("there are more while they are busy", |node| replicas(node) == "3 3");
    std::fs::remove_file(node.machine.path("/opt/load/on")).expect("removed");
    node.eventually("there is one when they are not", |node| replicas(node) == "1 1");
    let events = node.get("events --field-selector involvedObject.name=busy", "{.items[*].reason}");
    assert!(events.contains("SuccessfulRescale"), "{events}");
}

fn schedules_fire(node: &Node) {
    node.eventually("the schedule has fired, and what it started has run", |node| {
        let text =
            "{.items[*].metadata.ownerReferences[?(@.name==\"tick\")].kind} {.items[*].status.succeeded}";
        node.get("jobs", text).contains("CronJob")
            && !node.get("cronjob tick", "{.status.lastSuccessfulTime}").is_empty()
    });
}
