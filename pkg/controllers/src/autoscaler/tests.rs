//! Autoscalers, by upstream's cases.

use super::metrics::PodMetric;
use super::*;
use jiff::SignedDuration;
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn now() -> Timestamp {
    Timestamp::from_second(1_000_000).expect("a time")
}

fn settings() -> Settings {
    Settings {
        periods: Periods {
            cpu_initialization: Duration::from_secs(120),
            initial_readiness: Duration::from_secs(10),
        },
        tolerance: 0.1,
        downscale_stabilization: Duration::from_secs(300),
        sync_period: Duration::from_secs(15),
    }
}

/// A pod from words: `unready`, `pending`, `failed`; it requests a CPU.
fn pod(number: usize, words: &str) -> Arc<Pod> {
    let phase = match words {
        "pending" => "Pending",
        "failed" => "Failed",
        _ => "Running",
    };
    let (ready, changed) = match words {
        "unready" => ("False", now() - SignedDuration::from_secs(3600)),
        _ => ("True", now() - SignedDuration::from_secs(3000)),
    };
    let pod = json!({
        "metadata": {"name": format!("p{number}")},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]},
        "status": {"phase": phase, "startTime": now() - SignedDuration::from_secs(3600),
            "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": changed}]},
    });
    Arc::new(serde_json::from_value(pod).expect("a pod"))
}

/// What pods use of CPU, in thousandths; those that are not in the list say nothing.
fn metrics(usage: &[i64]) -> PodMetrics {
    let of = |(number, milli): (usize, &i64)| {
        let usage = BTreeMap::from([("c".to_owned(), BTreeMap::from([("cpu".to_owned(), *milli)]))]);
        (format!("p{number}"), PodMetric { at: now(), window: SignedDuration::from_secs(60), usage })
    };
    usage.iter().enumerate().map(of).collect()
}

fn propose(pods: &[&str], usage: &[i64], current: i32, target: Value) -> Result<i32, String> {
    let pods: Vec<_> = pods.iter().enumerate().map(|(number, words)| pod(number, words)).collect();
    let metric = json!({"type": "Resource", "resource": {"name": "cpu", "target": target}});
    let settings = settings();
    let found = metrics(usage);
    let input = calculate::Input {
        pods: &pods,
        metrics: Ok(&found),
        current,
        tolerances: Tolerances { up: 0.1, down: 0.1 },
        periods: &settings.periods,
        now: now(),
    };
    let metric = serde_json::from_value(metric).expect("a metric");
    calculate::replicas(&metric, &input).map(|proposal| proposal.replicas).map_err(|(_, why)| why)
}

#[test]
fn replicas_follow_utilization() {
    type Case = (&'static str, &'static [&'static str], &'static [i64], i32, i64, i32);
    let cases: &[Case] = &[
        ("up", &["", "", ""], &[300, 500, 700], 3, 30, 5),
        ("up, but some are not ready", &["unready", "", ""], &[300, 500, 700], 3, 30, 4),
        ("up, but some are not there yet", &["", "pending", "pending"], &[500, 500, 500], 3, 30, 3),
        ("down", &["", "", "", "", ""], &[100, 300, 500, 250, 250], 5, 50, 3),
        (
            "down, without those that are not ready",
            &["", "", "", "unready", "unready"],
            &[100, 300, 500, 250, 250],
            5,
            50,
            2,
        ),
        (
            "down, and failed ones do not count",
            &["", "", "", "failed", "failed"],
            &[100, 300, 500, 250, 250],
            5,
            50,
            2,
        ),
        ("within the tolerance", &["", "", ""], &[1010, 1030, 1020], 3, 100, 3),
        ("one says nothing, so not up", &["", ""], &[1000], 2, 100, 2),
        ("one says nothing, so not down as far", &["", "", ""], &[100, 100], 3, 50, 3),
    ];
    for (what, pods, usage, current, target, expected) in cases {
        let found =
            propose(pods, usage, *current, json!({"type": "Utilization", "averageUtilization": target}));
        assert_eq!(found, Ok(*expected), "{what}");
    }
}

#[test]
fn replicas_follow_values() {
    let target = json!({"type": "AverageValue", "averageValue": "300m"});
    assert_eq!(propose(&["", "", ""], &[300, 500, 700], 3, target.clone()), Ok(5));
    assert_eq!(propose(&["", "", ""], &[100, 100, 100], 3, target), Ok(1));
}

#[test]
fn what_is_not_known_is_said() {
    let target = json!({"type": "Utilization", "averageUtilization": 50});
    let why = propose(&["pending"], &[100], 1, target).expect_err("nothing is known");
    assert_eq!(
        why,
        "failed to get cpu utilization: did not receive metrics for targeted pods (pods might be unready)"
    );
}

fn view(usage: &[i64], current: i32, spec: Value, history: History) -> View {
    let mut autoscaler = json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "h", "generation": 1},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 1, "maxReplicas": 20,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]},
    });
    for (key, value) in spec.as_object().expect("fields") {
        autoscaler["spec"][key] = value.clone();
    }
    let scale = json!({"metadata": {"name": "web"}, "spec": {"replicas": current},
        "status": {"replicas": current, "selector": "app=web"}});
    View {
        autoscaler: Arc::new(serde_json::from_value(autoscaler).expect("an autoscaler")),
        scale: Ok(("deployments".into(), serde_json::from_value(scale).expect("a scale"))),
        pods: (0..usage.len()).map(|number| pod(number, "")).collect(),
        metrics: Ok(metrics(usage)),
        history,
    }
}

/// The size that a plan sets.
fn size(plan: &Plan) -> Option<i64> {
    plan.writes.first().and_then(|write| write.body["spec"]["replicas"].as_i64())
}

fn condition(plan: &Plan, ty: &str) -> String {
    let conditions = plan.status.as_ref().expect("a status").body["status"]["conditions"]
        .as_array()
        .expect("conditions")
        .clone();
    let found = conditions.iter().find(|condition| condition["type"] == ty).expect("the condition").clone();
    format!("{} {}", found["status"].as_str().expect("a status"), found["reason"].as_str().expect("a reason"))
}

#[test]
fn the_target_is_scaled() {
    let (plan, _) = plan(&view(&[900, 900], 2, json!({}), History::default()), &settings(), now());
    assert_eq!(size(&plan), Some(4), "as fast as the default allows");
    assert_eq!(plan.writes[0].target.path(), "/apis/apps/v1/namespaces/default/deployments/web/scale");
    assert_eq!(
        plan.writes[0].done.as_ref().expect("told").message,
        "New size: 4; reason: cpu resource utilization (percentage of request) above target"
    );
    assert_eq!(condition(&plan, "ScalingActive"), "True ValidMetricFound");
    assert_eq!(plan.look_again, Some(Duration::from_secs(15)));
}

#[test]
fn a_higher_recommendation_of_the_recent_past_holds() {
    let mut history = History::default();
    history.begin(4, now() - SignedDuration::from_secs(100));
    let (held, _) = plan(&view(&[100, 100, 100, 100], 4, json!({}), history.clone()), &settings(), now());
    assert_eq!(size(&held), None);
    assert_eq!(condition(&held, "AbleToScale"), "True ScaleDownStabilized");
    let later = now() + SignedDuration::from_secs(201);
    let (down, _) = plan(&view(&[100, 100, 100, 100], 4, json!({}), history), &settings(), later);
    assert_eq!(size(&down), Some(1));
}

#[test]
fn policies_limit_the_rate() {
    let up = |select: &str| {
        json!({"behavior": {
            "scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": select, "policies": [
                {"type": "Pods", "value": 3, "periodSeconds": 60}, {"type": "Percent", "value": 50, "periodSeconds": 60}]},
            "scaleDown": {"stabilizationWindowSeconds": 0, "selectPolicy": select, "policies": [
                {"type": "Pods", "value": 1, "periodSeconds": 60}, {"type": "Percent", "value": 50, "periodSeconds": 60}]},
        }})
    };
    for (select, highest, lowest) in
        [("Max", Some(7), Some(2)), ("Min", Some(6), Some(3)), ("Disabled", None, None)]
    {
        let (plan_up, _) = plan(&view(&[1000; 4], 4, up(select), History::default()), &settings(), now());
        assert_eq!(size(&plan_up), highest, "{select}");
        let (plan_down, _) = plan(&view(&[10; 4], 4, up(select), History::default()), &settings(), now());
        assert_eq!(size(&plan_down), lowest, "{select}");
    }
    // What was added in the period counts.
    let mut history = History::default();
    history.scaled(2, 4, now() - SignedDuration::from_secs(30));
    let (limited, _) = plan(&view(&[1000; 4], 4, up("Max"), history), &settings(), now());
    assert_eq!(size(&limited), Some(5));
    assert_eq!(condition(&limited, "ScalingLimited"), "True ScaleUpLimit");
}

/// One pod per ten minutes, down, without waiting.
fn slowly_down() -> Value {
    json!({"behavior": {"scaleDown": {"stabilizationWindowSeconds": 0, "selectPolicy": "Max",
        "policies": [{"type": "Pods", "value": 1, "periodSeconds": 600}]}}})
}

#[test]
fn what_changed_within_the_period_limits_the_way_down() {
    let cases: &[(&str, &[(i32, i32, i64)], i32, Option<i64>)] = &[
        ("one at a time", &[], 3, Some(2)),
        ("one has just gone", &[(4, 3, 1)], 3, None),
        ("one went when the period began", &[(4, 3, 600)], 3, Some(2)),
        ("one went a moment later", &[(4, 3, 599)], 3, None),
        ("one that has just come goes as well, as upstream has it", &[(2, 3, 1)], 3, Some(1)),
        ("one that came before the period does not", &[(2, 3, 601)], 3, Some(2)),
        ("one came and went", &[(3, 4, 20), (4, 3, 10)], 3, Some(2)),
    ];
    for (what, changes, current, expected) in cases {
        let mut history = History::default();
        for (from, to, ago) in *changes {
            history.scaled(*from, *to, now() - SignedDuration::from_secs(*ago));
        }
        let (plan, after) = plan(&view(&[5; 3], *current, slowly_down(), history), &settings(), now());
        assert_eq!(size(&plan), *expected, "{what}");
        let why = if *expected == Some(1) { "True TooFewReplicas" } else { "True ScaleDownLimit" };
        assert_eq!(condition(&plan, "ScalingLimited"), why, "{what}");
        // It is done, and not done again before its time.
        if let Some(size) = *expected {
            let size = i32::try_from(size).expect("few");
            let soon = now() + SignedDuration::from_secs(1);
            let (next, _) = super::plan(&view(&[5; 3], size, slowly_down(), after), &settings(), soon);
            assert_eq!(super::tests::size(&next), None, "{what}, and then");
        }
    }
}

#[tokio::test]
async fn a_change_that_failed_is_tried_again_at_once() {
    let nowhere = kube::Config::new("http://127.0.0.1:1".parse().expect("an address"));
    let controller = Autoscalers {
        autoscalers: Cache::default(),
        pods: Cache::default(),
        client: Client::try_from(nowhere).expect("a client"),
        history: Mutex::default(),
        settings: settings(),
    };
    let before = view(&[5; 3], 3, slowly_down(), History::default());
    let first = controller.plan(&before, now());
    assert_eq!(size(&first), Some(2));
    let refused = kube::core::Status::failure("no", "Forbidden").with_code(403);
    let failure = Failure { write: first.writes[0].clone(), error: kube::Error::Api(refused.boxed()) };
    let status =
        controller.after_failure(&before, &first, &failure, now()).into_iter().next().expect("a status");
    assert_eq!(status.body["status"]["conditions"][0]["reason"], "FailedUpdateScale");
    let history = controller.history.lock().values().next().cloned().expect("it is remembered");
    let again = controller.plan(&View { history, ..before }, now() + SignedDuration::from_secs(1));
    assert_eq!(size(&again), Some(2));
}

#[test]
fn bounds_hold_whatever_the_metrics_say() {
    let (plan_many, _) = plan(&view(&[100; 3], 30, json!({}), History::default()), &settings(), now());
    assert_eq!(size(&plan_many), Some(20));
    let (plan_few, _) =
        plan(&view(&[100; 2], 2, json!({"minReplicas": 3}), History::default()), &settings(), now());
    assert_eq!(size(&plan_few), Some(3));
    let (plan_off, _) = plan(&view(&[], 0, json!({}), History::default()), &settings(), now());
    assert_eq!(
        (size(&plan_off), condition(&plan_off, "ScalingActive")),
        (None, "False ScalingDisabled".into())
    );
}

#[test]
fn without_metrics_nothing_is_scaled() {
    let mut view = view(&[100; 2], 2, json!({}), History::default());
    view.metrics = Err("no metrics API".into());
    let (plan, _) = plan(&view, &settings(), now());
    assert_eq!(size(&plan), None);
    assert_eq!(condition(&plan, "ScalingActive"), "False FailedGetResourceMetric");
}
