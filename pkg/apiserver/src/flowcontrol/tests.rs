use super::*;
use crate::auth::User;
use serde_json::json;
use tokio::task::yield_now;

const LONG: Duration = Duration::from_secs(3600);

fn flows(total: usize, level: Value) -> FlowControl {
    let flows = FlowControl::new(total);
    let level =
        json!({"metadata": {"name": "l", "uid": "of-level"}, "spec": {"type": "Limited", "limited": level}});
    let schema = json!({"metadata": {"name": "s", "uid": "of-schema"}, "spec": {"matchingPrecedence": 5,
        "priorityLevelConfiguration": {"name": "l"}, "distinguisherMethod": {"type": "ByUser"},
        "rules": [{"subjects": [{"kind": "Group", "group": {"name": "tenants"}}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}]}]}});
    flows.arrange(&[level], &[schema], Instant::now());
    flows
}

fn queue(length_limit: u32) -> Value {
    json!({"nominalConcurrencyShares": 1000, "lendablePercent": 0, "borrowingLimitPercent": 0, "limitResponse": {
        "type": "Queue", "queuing": {"queues": 8, "handSize": 2, "queueLengthLimit": length_limit}}})
}

fn user(name: &str, group: &str) -> User {
    User { name: name.into(), groups: vec![group.into()], ..User::default() }
}

async fn seat(flows: &FlowControl, user: &User) -> Result<Seat, String> {
    seat_within(flows, user, LONG).await
}

async fn seat_within(flows: &FlowControl, user: &User, patience: Duration) -> Result<Seat, String> {
    let seat = flows.seat(&Attributes::non_resource(user, "get", "/x"), 1, patience).await;
    seat.map_err(|schema| schema.name.clone())
}

fn text(flows: &FlowControl) -> String {
    let mut text = String::new();
    flows.render(&mut text);
    text
}

#[tokio::test]
async fn who_waits_gets_the_seat_of_who_is_done() {
    let flows = Arc::new(flows(2, queue(50)));
    let tenant = user("t", "tenants");
    let taken = [seat(&flows, &tenant).await.unwrap(), seat(&flows, &tenant).await.unwrap()];
    let waiting = tokio::spawn({
        let (flows, tenant) = (flows.clone(), tenant.clone());
        async move { seat(&flows, &tenant).await.map(|seat| seat.schema.name.clone()) }
    });
    yield_now().await;
    assert!(text(&flows).contains("current_inqueue_requests{flow_schema=\"s\",priority_level=\"l\"} 1\n"));
    drop(taken);
    assert_eq!(waiting.await.unwrap(), Ok("s".to_owned()));
    let text = text(&flows);
    for line in [
        "dispatched_requests_total{flow_schema=\"s\",priority_level=\"l\"} 3",
        "current_inqueue_requests{flow_schema=\"s\",priority_level=\"l\"} 0",
        "current_executing_requests{flow_schema=\"s\",priority_level=\"l\"} 0",
        "current_executing_seats{flow_schema=\"s\",priority_level=\"l\"} 0",
        "request_wait_duration_seconds_count{execute=\"true\",flow_schema=\"s\",priority_level=\"l\"} 3",
        "request_execution_seconds_count{flow_schema=\"s\",priority_level=\"l\"} 3",
        "nominal_limit_seats{priority_level=\"l\"} 2",
        "current_limit_seats{priority_level=\"l\"} 2",
    ] {
        assert!(text.contains(&format!("apiserver_flowcontrol_{line}\n")), "{line}\n{text}");
    }
}

#[tokio::test]
async fn whoever_goes_away_leaves_nothing_behind() {
    let flows = flows(1, queue(50));
    let tenant = user("t", "tenants");
    let taken = seat(&flows, &tenant).await.unwrap();
    for _ in 0..100 {
        let gone = tokio::time::timeout(Duration::from_millis(1), seat(&flows, &tenant)).await;
        assert!(gone.is_err());
    }
    let text_now = text(&flows);
    assert!(text_now.contains(
        "rejected_requests_total{flow_schema=\"s\",priority_level=\"l\",reason=\"cancelled\"} 100\n"
    ));
    assert!(text_now.contains("current_inqueue_requests{flow_schema=\"s\",priority_level=\"l\"} 0\n"));
    // One that is given the seat while it goes away, and does not look any more.
    let mut waiting = Box::pin(seat(&flows, &tenant));
    assert!(futures::poll!(waiting.as_mut()).is_pending());
    drop(taken);
    drop(waiting);
    seat(&flows, &tenant).await.unwrap();
}

#[tokio::test]
async fn nobody_waits_for_ever() {
    let flows = flows(1, queue(1));
    let tenant = user("t", "tenants");
    let taken = seat(&flows, &tenant).await.unwrap();
    let refused = seat_within(&flows, &tenant, Duration::from_millis(10)).await;
    assert_eq!(refused.unwrap_err(), "s");
    assert!(text(&flows).contains("reason=\"time-out\"} 1\n"));
    drop(taken);
    seat(&flows, &tenant).await.unwrap();
}

#[tokio::test]
async fn administrators_do_not_wait() {
    let flows = flows(1, json!({"nominalConcurrencyShares": 1, "limitResponse": {"type": "Reject"}}));
    let (tenant, admin) = (user("t", "tenants"), user("root", User::MASTERS));
    let mut seats = Vec::new();
    while let Ok(seat) = seat(&flows, &tenant).await {
        seats.push(seat);
        assert!(seats.len() < 10);
    }
    assert!(text(&flows).contains("reason=\"concurrency-limit\"} 1\n"));
    for _ in 0..1000 {
        seats.push(seat(&flows, &admin).await.unwrap());
    }
    assert_eq!(seats[999].schema.name, "exempt");
}

#[tokio::test]
async fn changes_disturb_nobody() {
    let flows = Arc::new(flows(2, queue(50)));
    let tenant = user("t", "tenants");
    let taken = [seat(&flows, &tenant).await.unwrap(), seat(&flows, &tenant).await.unwrap()];
    let waiting = tokio::spawn({
        let (flows, tenant) = (flows.clone(), tenant.clone());
        async move { seat(&flows, &tenant).await.map(|seat| seat.schema.name.clone()) }
    });
    yield_now().await;
    // Its schema and its level are gone, and others take the next request.
    flows.arrange(&[], &[], Instant::now());
    assert_eq!(seat(&flows, &tenant).await.unwrap().schema.name, "catch-all");
    assert!(!waiting.is_finished());
    drop(taken);
    assert_eq!(waiting.await.unwrap(), Ok("s".to_owned()));
}

#[test]
fn a_long_list_takes_more_seats() {
    for (objects, limit, expected) in [
        (0, 0, 1),
        (100, 0, 1),
        (101, 0, 2),
        (850, 0, 9),
        (1_000_000, 0, 10),
        (1_000_000, 500, 5),
        (30, 500, 1),
    ] {
        assert_eq!(seats_of_list(objects, limit), expected, "{objects} {limit}");
    }
}
