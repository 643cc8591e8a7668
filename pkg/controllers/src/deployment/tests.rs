//! Plans of Deployments, by tables.

use super::rollout::replicas;
use super::*;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

fn now() -> Timestamp {
    Timestamp::from_second(1_000_000).expect("a time")
}

fn template(version: &str) -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": version}]}})
}

fn deployment(spec: Value) -> Deployment {
    let mut deployment = json!({
        "metadata": {"namespace": "default", "name": "web", "uid": "d", "generation": 1},
        "spec": {
            "replicas": 10, "selector": {"matchLabels": {"app": "web"}}, "template": template("v2"),
            "progressDeadlineSeconds": 600, "revisionHistoryLimit": 10,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}},
        },
    });
    for (key, value) in spec.as_object().expect("fields") {
        deployment["spec"][key] = value.clone();
    }
    serde_json::from_value(deployment).expect("a deployment")
}

/// A ReplicaSet: version, size, pods that it has, pods that are available.
fn set(version: &str, size: i32, has: i32, available: i32) -> Arc<ReplicaSet> {
    let mut template = template(version);
    template["metadata"]["labels"]["pod-template-hash"] = version.into();
    let second = 100 + version.trim_start_matches('v').parse::<i64>().expect("a number");
    let set = json!({
        "metadata": {
            "namespace": "default", "name": format!("web-{version}"), "uid": version, "generation": 1,
            "creationTimestamp": Timestamp::from_second(second).expect("a time"),
            "labels": {"app": "web"},
            "annotations": {
                "deployment.kubernetes.io/revision": version.trim_start_matches('v'),
                "deployment.kubernetes.io/desired-replicas": "10",
                "deployment.kubernetes.io/max-replicas": "13",
            },
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d", "controller": true}],
        },
        "spec": {"replicas": size, "selector": {"matchLabels": {"app": "web"}}, "template": template},
        "status": {"replicas": has, "availableReplicas": available, "readyReplicas": available,
            "observedGeneration": 1, "terminatingReplicas": 0},
    });
    Arc::new(serde_json::from_value(set).expect("a set"))
}

fn view(deployment: Deployment, sets: &[Arc<ReplicaSet>]) -> View {
    let with_pods = sets
        .iter()
        .filter(|set| set.status.as_ref().is_some_and(|status| status.replicas > 0))
        .filter_map(|set| set.uid())
        .collect();
    View { deployment: Arc::new(deployment), sets: sets.to_vec(), with_pods }
}

/// The sizes that a plan gives, as `name=size`, `+name=size` for new ones and `-name` for deleted ones.
fn sizes(plan: &Plan) -> Vec<String> {
    let say = |write: &Write| {
        let name = &write.target.key.name;
        let size = || write.body["spec"]["replicas"].as_i64().expect("a size");
        match write.verb {
            Verb::Create => format!("+{}={}", name.split('-').next().expect("a name"), size()),
            Verb::Delete => format!("-{name}"),
            _ => format!("{name}={}", size()),
        }
    };
    plan.writes.iter().map(say).collect()
}

fn progressing(plan: &Plan) -> String {
    let status = plan.status.as_ref().expect("a status");
    let conditions = status.body["status"]["conditions"].as_array().expect("conditions").clone();
    let found = conditions.into_iter().find(|condition| condition["type"] == "Progressing");
    found.map(|found| found["reason"].as_str().expect("a reason").to_owned()).unwrap_or_default()
}

#[test]
fn a_new_deployment_gets_a_set_of_its_size() {
    let plan = plan(&view(deployment(json!({})), &[]), now());
    assert_eq!(sizes(&plan), ["+web=10"]);
    let body = &plan.writes[0].body;
    let hash = body["metadata"]["labels"]["pod-template-hash"].as_str().expect("a hash");
    assert_eq!(body["metadata"]["name"], format!("web-{hash}"));
    assert_eq!(body["spec"]["selector"]["matchLabels"]["pod-template-hash"], hash);
    assert_eq!(body["metadata"]["annotations"]["deployment.kubernetes.io/max-replicas"], "13");
    assert_eq!(progressing(&plan), "NewReplicaSetCreated");
    let status = plan.status.expect("a status");
    assert_eq!(status.body["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "1");
}

#[test]
fn a_rolling_update_stays_within_its_limits() {
    // Old and new, as (size, pods, available); then what is done.
    type Case = (&'static str, (i32, i32, i32), (i32, i32, i32), &'static [&'static str]);
    let cases: &[Case] = &[
        ("there is room above", (10, 10, 10), (0, 0, 0), &["web-v2=3"]),
        ("the old ones may go down to the least", (10, 10, 10), (3, 3, 0), &["web-v1=8"]),
        ("pods that are still there take up room", (8, 10, 10), (3, 3, 0), &[]),
        ("and do not count as available twice", (8, 10, 10), (3, 3, 1), &["web-v1=7"]),
        ("gone ones give room", (8, 8, 8), (3, 3, 0), &["web-v2=5"]),
        ("unavailable new ones keep old ones", (8, 8, 8), (5, 5, 0), &[]),
        ("available new ones replace old ones", (8, 8, 8), (5, 5, 2), &["web-v1=6"]),
        ("unhealthy old ones go first", (8, 8, 0), (5, 5, 5), &["web-v1=3"]),
        ("the last", (1, 1, 1), (10, 10, 9), &["web-v1=0"]),
        ("done", (0, 0, 0), (10, 10, 10), &[]),
    ];
    for (what, old, new, expected) in cases {
        let sets = [set("v1", old.0, old.1, old.2), set("v2", new.0, new.1, new.2)];
        let plan = plan(&view(deployment(json!({})), &sets), now());
        assert_eq!(sizes(&plan), *expected, "{what}");
    }
}

#[test]
fn recreate_waits_until_the_old_pods_are_gone() {
    let recreate = || deployment(json!({"strategy": {"type": "Recreate"}}));
    let plan_of = |old: Arc<ReplicaSet>, with_pods: bool| {
        let mut view = view(recreate(), &[old]);
        view.with_pods = if with_pods { vec!["v1".into()] } else { vec![] };
        plan(&view, now())
    };
    assert_eq!(sizes(&plan_of(set("v1", 10, 10, 10), true)), ["web-v1=0"]);
    assert_eq!(sizes(&plan_of(set("v1", 0, 10, 10), true)), Vec::<String>::new());
    assert_eq!(sizes(&plan_of(set("v1", 0, 0, 0), true)), Vec::<String>::new(), "they are still going");
    assert_eq!(sizes(&plan_of(set("v1", 0, 0, 0), false)), ["+web=10"]);
}

#[test]
fn a_deployment_scaled_in_the_middle_scales_in_proportion() {
    let sets = [set("v1", 8, 8, 8), set("v2", 5, 5, 2)];
    let grown = plan(&view(deployment(json!({"replicas": 20})), &sets), now());
    assert_eq!(sizes(&grown), ["web-v1=14", "web-v2=9"]);
    let shrunk = plan(&view(deployment(json!({"replicas": 5})), &sets), now());
    let total: i64 =
        shrunk.writes.iter().map(|write| write.body["spec"]["replicas"].as_i64().expect("a size")).sum();
    assert_eq!(total, 8, "with the surge of 3: {:?}", sizes(&shrunk));
}

#[test]
fn a_paused_deployment_scales_but_does_not_roll() {
    let paused = |replicas: i32| deployment(json!({"paused": true, "replicas": replicas}));
    let plan_paused = plan(&view(paused(10), &[set("v1", 10, 10, 10)]), now());
    assert_eq!(sizes(&plan_paused), Vec::<String>::new());
    assert_eq!(progressing(&plan_paused), "DeploymentPaused");
    assert_eq!(sizes(&plan(&view(paused(4), &[set("v1", 10, 10, 10)]), now())), ["web-v1=4"]);
}

#[test]
fn a_template_that_was_there_before_gets_the_next_revision() {
    let back = deployment(json!({"template": template("v1")}));
    let plan = plan(&view(back, &[set("v1", 0, 0, 0), set("v2", 10, 10, 10)]), now());
    let write = &plan.writes[0];
    assert_eq!(write.target.key.name, "web-v1");
    assert_eq!(write.body["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "3");
    assert_eq!(write.body["metadata"]["annotations"]["deployment.kubernetes.io/revision-history"], "1");
    assert_eq!(write.body["spec"]["replicas"], 3);
}

#[test]
fn old_sets_beyond_the_limit_go_when_all_is_done() {
    let mut done = deployment(json!({"revisionHistoryLimit": 1, "template": template("v4")}));
    let status =
        json!({"replicas": 10, "updatedReplicas": 10, "availableReplicas": 10, "observedGeneration": 1});
    done.status = Some(serde_json::from_value(status).expect("a status"));
    let sets = [set("v1", 0, 0, 0), set("v2", 0, 0, 0), set("v3", 0, 0, 0), set("v4", 10, 10, 10)];
    assert_eq!(sizes(&plan(&view(done, &sets), now())), ["-web-v1", "-web-v2"]);
}

#[test]
fn a_rollout_that_does_not_get_on_times_out() {
    let condition = |seconds_ago: i64, reason: &str| {
        let at = now() - jiff::SignedDuration::from_secs(seconds_ago);
        json!([{"type": "Progressing", "status": "True", "reason": reason, "lastUpdateTime": at, "lastTransitionTime": at}])
    };
    let plan_after = |seconds: i64| {
        let mut stuck = deployment(json!({}));
        let status = json!({
            "replicas": 13, "updatedReplicas": 5, "readyReplicas": 8, "availableReplicas": 8,
            "observedGeneration": 1, "conditions": condition(seconds, "ReplicaSetUpdated"),
        });
        stuck.status = Some(serde_json::from_value(status).expect("a status"));
        plan(&view(stuck, &[set("v1", 8, 8, 8), set("v2", 5, 5, 0)]), now())
    };
    assert_eq!(progressing(&plan_after(599)), "ReplicaSetUpdated");
    assert_eq!(plan_after(599).look_again.expect("a time").as_secs(), 2);
    assert_eq!(progressing(&plan_after(601)), "ProgressDeadlineExceeded");
    assert_eq!(plan_after(601).look_again, None);
}

#[test]
fn nothing_is_written_when_all_is_well() {
    let sets = [set("v1", 0, 0, 0), set("v2", 10, 10, 10)];
    let first = plan(&view(deployment(json!({})), &sets), now());
    assert_eq!(progressing(&first), "NewReplicaSetAvailable");
    let settled: Deployment =
        serde_json::from_value(first.status.expect("a status").body).expect("a deployment");
    let again = plan(&view(settled, &sets), now() + jiff::SignedDuration::from_secs(9));
    assert!(again.is_quiet(), "{again:#?}");
    assert_eq!(again.look_again, None);
}

#[test]
fn a_taken_name_makes_another_hash() {
    let view = view(deployment(json!({})), &[]);
    let plan = plan(&view, now());
    let status = kube::core::Status { code: 409, reason: "AlreadyExists".into(), ..Default::default() };
    let failure = Failure { write: plan.writes[0].clone(), error: kube::Error::Api(Box::new(status)) };
    let write = revision::not_created(&view, &failure, now()).expect("a status");
    assert_eq!(write.body["status"]["collisionCount"], 1);
}

#[test]
fn a_deployment_that_is_going_only_counts() {
    let mut going = deployment(json!({}));
    going.metadata.deletion_timestamp = Some(Time(now()));
    let plan = plan(&view(going, &[set("v1", 10, 10, 10)]), now());
    assert_eq!(sizes(&plan), Vec::<String>::new());
    assert_eq!(replicas(&set("v1", 10, 10, 10)), 10);
}
