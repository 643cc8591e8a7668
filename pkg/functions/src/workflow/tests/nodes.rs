//! What each type of node does, and what ends a run.

use super::world::{World, graph};
use crate::workflow::engine::{due, running};
use crate::workflow::{Event, Failure, Outcome};
use serde_json::{Value, json};

fn begun(spec: Value, params: Value) -> World {
    World::begun(graph(spec), params)
}

/// The run of a graph whose functions give back what they get.
fn run(spec: Value, params: Value) -> World {
    let mut world = begun(spec, params);
    world.runs(&|_, input, _| Ok(input.clone()), |_| 0);
    world
}

fn ended(world: &mut World, step: i32, attempt: i32, result: Result<Value, Failure>) -> bool {
    world.happens(&Event::Ended { step, attempt, outcome: Outcome { result, is_cold: Some(false) } })
}

#[test]
fn the_seeds_graph_takes_its_branches() {
    let spec = json!({"startAt": "add", "params": {"x": 1, "y": 2}, "nodes": {
        "add": {"type": "Task", "next": "compare"},
        "compare": {"type": "Choice", "choices": [
            {"conditions": [{"variable": "result", "operator": "gt", "value": 2}], "next": "big"},
            {"conditions": [], "next": "small"}]},
        "big": {"type": "Task"}, "small": {"type": "Task"}}});
    let add = |name: &str, input: &Value, _: i32| match name {
        "add" => Ok(json!({"result": input["x"].as_i64().zip(input["y"].as_i64()).map(|(x, y)| x + y)})),
        name => Ok(json!([name, input["result"]])),
    };
    let check = |params: Value, expected: Value| {
        let mut world = begun(spec.clone(), params);
        world.runs(&add, |_| 0);
        assert_eq!((world.status.phase.as_str(), &world.status.output), ("Succeeded", &expected));
        assert_eq!(world.records.len(), 3);
    };
    check(Value::Null, json!(["big", 3]));
    check(json!({"x": 1, "y": 0}), json!(["small", 1]));
}

#[test]
fn no_branch_that_fits_names_node_and_value() {
    let spec = json!({"startAt": "judge", "nodes": {
        "judge": {"type": "Choice", "choices": [{"conditions": [{"variable": "n", "operator": "gt", "value": 5}], "next": "end"}]},
        "end": {"type": "Succeed"}}});
    let world = run(spec.clone(), json!({"n": 3}));
    assert_eq!((world.status.phase.as_str(), world.status.reason.as_str()), ("Failed", "NoBranch"));
    assert_eq!(world.status.error, "node \"judge\": no branch fits {\"n\":3}, and there is no `default`");
    let world = run(spec, json!({"n": "three"}));
    assert_eq!(world.status.reason, "UnlikeTypes");
    assert!(
        world.status.error.contains("\"three\"") && world.status.error.contains("with 5"),
        "{}",
        world.status.error
    );
}

#[test]
fn a_task_that_fails_is_tried_again_with_growing_pauses() {
    let spec = json!({"startAt": "a", "nodes": {"a": {"type": "Task", "retry": [
        {"errors": ["Busy"], "attempts": 4, "backoffSeconds": 2.0, "factor": 3.0, "maxBackoffSeconds": 10.0}]}}});
    let mut world = begun(spec, json!(1));
    for (attempt, pause) in [(1, 2_000), (2, 6_000), (3, 10_000)] {
        assert!(ended(&mut world, 1, attempt, Err(Failure::new("Busy", "later"))));
        assert_eq!(world.status.threads[0].state, "Retrying");
        let until = due(&world.status).expect("a time").as_millisecond();
        assert_eq!(until - world.now, pause, "after attempt {attempt}");
        world.now = until - 1;
        assert!(!world.happens(&Event::Tick), "not yet");
        world.now = until;
        assert!(world.happens(&Event::Tick));
        assert_eq!(world.status.threads[0].attempt, attempt + 1);
    }
    assert!(ended(&mut world, 1, 4, Err(Failure::new("Busy", "later"))));
    assert_eq!((world.status.phase.as_str(), world.status.error.as_str()), ("Failed", "node \"a\": later"));
    assert_eq!((world.records[&1].attempts, world.records[&1].failures.len()), (4, 4));
}

#[test]
fn an_attempt_a_wait_an_approval_and_a_run_have_their_times() {
    let spec = json!({"startAt": "a", "timeoutSeconds": 100, "nodes": {
        "a": {"type": "Task", "timeoutSeconds": 5, "catch": [{"errors": ["TimedOut"], "next": "w"}]},
        "w": {"type": "Wait", "seconds": 7, "next": "p"},
        "p": {"type": "Approval", "message": "go?", "timeoutSeconds": 9, "catch": [{"next": "z"}]},
        "z": {"type": "Wait", "seconds": 1000}}});
    let mut world = begun(spec, json!(1));
    for (node, after) in [("w", 5_000), ("p", 7_000), ("z", 9_000)] {
        assert_eq!(due(&world.status).expect("a time").as_millisecond() - world.now, after);
        world.now += after;
        assert!(world.happens(&Event::Tick));
        assert_eq!(world.status.nodes, [node]);
    }
    assert_eq!(world.status.threads[0].input["error"], "TimedOut");
    world.now += 79_000;
    assert!(world.happens(&Event::Tick));
    assert_eq!(world.status.error, "the run did not end within 100 s (timeoutSeconds)");
}

#[test]
fn a_map_keeps_the_order_its_bounds_and_what_it_tolerates() {
    let spec = |tolerated: i32| {
        json!({"startAt": "m", "nodes": {
            "m": {"type": "Map", "items": "/list", "each": "f", "maxConcurrency": 3, "toleratedFailures": tolerated, "result": "/squares"},
            "f": {"type": "Task"}}})
    };
    let square = |_: &str, input: &Value, _: i32| match input.as_i64() {
        Some(13) => Err(Failure::new("Raised", "unlucky")),
        n => Ok(json!(n.map(|n| n * n))),
    };
    let list: Vec<i32> = (0..40).collect();
    let mut world = begun(spec(1), json!({"list": list}));
    assert_eq!(running(&world.status).count(), 3);
    let mut turn = 0;
    world.runs(&square, |count| {
        turn += 1;
        turn % count
    });
    let expected: Vec<Value> =
        list.iter().map(|n| if *n == 13 { Value::Null } else { json!(n * n) }).collect();
    assert_eq!(world.status.output["squares"], json!(expected));
    assert_eq!(world.status.output["list"], json!(list));
    let mut world = begun(spec(0), json!({"list": list}));
    world.runs(&square, |_| 0);
    assert_eq!(world.status.error, "node \"f\": unlucky");
    let world = run(spec(0), json!({"list": 7}));
    assert!(
        world.status.error.contains("a Map needs a list, and `items` leads to 7"),
        "{}",
        world.status.error
    );
    let world = run(spec(0), json!({"list": []}));
    assert_eq!(world.status.output, json!({"list": [], "squares": []}));
}

#[test]
fn a_parallel_fails_at_once_and_can_be_caught_as_a_whole() {
    let spec = json!({"startAt": "both", "nodes": {
        "both": {"type": "Parallel", "branches": ["slow", "bad"], "catch": [{"next": "after", "result": "/failed"}]},
        "slow": {"type": "Wait", "seconds": 1000}, "bad": {"type": "Task"}, "after": {"type": "Pass"}}});
    let mut world = begun(spec, json!({"x": 1}));
    world.runs(&|_, _, _| Err(Failure::new("Raised", "no")), |_| 0);
    assert_eq!(world.status.output, json!({"x": 1, "failed": {"error": "Raised", "message": "no"}}));
    let phases: Vec<&str> = world.records.values().map(|record| record.phase.as_str()).collect();
    assert_eq!(phases, ["Caught", "Cancelled", "Failed", "Succeeded"]);
    assert!(world.now < 1_000_000_000 + 1_000_000, "nobody waited for the other branch");
}

#[test]
fn approvals_come_from_somebody() {
    let spec = json!({"startAt": "ask", "nodes": {"ask": {"type": "Approval", "result": "/ok"}}});
    let answer = |answer: Result<Value, String>| {
        let mut world = begun(spec.clone(), json!({"x": 1}));
        assert!(due(&world.status).is_none(), "who waits for somebody waits for no clock");
        assert!(world.happens(&Event::Answered { step: 1, by: "ann".to_owned(), answer }));
        world
    };
    let world = answer(Ok(json!("fine")));
    assert_eq!(world.status.output, json!({"x": 1, "ok": {"approved": true, "by": "ann", "value": "fine"}}));
    assert_eq!(world.records[&1].by, "ann");
    let world = answer(Err("too dear".to_owned()));
    assert_eq!(world.status.error, "node \"ask\": ann did not approve: too dear");
}

#[test]
fn a_suspended_run_begins_nothing_and_goes_on_where_it_was() {
    let spec = json!({"startAt": "a", "nodes": {"a": {"type": "Task", "next": "b"}, "b": {"type": "Task"}}});
    let mut world = begun(spec, json!(1));
    assert!(world.happens(&Event::Suspend(true)));
    assert!(ended(&mut world, 1, 1, Ok(json!(2))), "what is under way ends");
    assert_eq!((world.status.phase.as_str(), world.status.threads[0].state.as_str()), ("Suspended", "Held"));
    assert!(due(&world.status).is_none() && !world.happens(&Event::Tick));
    assert!(world.happens(&Event::Suspend(false)));
    assert_eq!(running(&world.status).map(|thread| thread.step).collect::<Vec<_>>(), [2]);
}

#[test]
fn a_run_that_failed_goes_on_where_it_failed_with_its_history() {
    let spec = json!({"startAt": "a", "nodes": {"a": {"type": "Task", "next": "m"},
        "m": {"type": "Map", "each": "f", "maxConcurrency": 2}, "f": {"type": "Task"}}});
    let mut world = begun(spec, Value::Null);
    assert!(ended(&mut world, 1, 1, Ok(json!([10, 20, 30]))));
    assert!(ended(&mut world, 3, 1, Ok(json!("ten"))));
    assert!(ended(&mut world, 4, 1, Err(Failure::new("Raised", "no"))));
    assert_eq!(world.status.phase, "Failed");
    assert!(!world.happens(&Event::Redrive(0)), "not asked for");
    assert!(world.happens(&Event::Redrive(1)) && !world.happens(&Event::Redrive(1)));
    world.runs(&|_, input, _| Ok(json!(input.as_i64().map(|n| n + 1))), |_| 0);
    assert_eq!(world.status.output, json!(["ten", 21, 31]), "what had ended did not run again");
    let phases: Vec<(i32, &str)> =
        world.records.values().map(|record| (record.number, record.phase.as_str())).collect();
    assert!(phases.contains(&(4, "Failed")) && phases.contains(&(5, "Cancelled")), "{phases:?}");
    assert_eq!(world.status.phase, "Succeeded");
}

#[test]
fn a_cancelled_run_ends_now_and_nothing_is_said_to_be_under_way() {
    let spec = json!({"startAt": "p", "nodes": {"p": {"type": "Parallel", "branches": ["a", "b"]},
        "a": {"type": "Task"}, "b": {"type": "Approval"}}});
    let mut world = begun(spec, Value::Null);
    assert!(world.happens(&Event::Cancel) && !world.happens(&Event::Cancel));
    assert_eq!(
        (world.status.phase.as_str(), world.status.error.as_str()),
        ("Cancelled", "the run was cancelled")
    );
    assert!(running(&world.status).next().is_none() && due(&world.status).is_none());
    assert!(!ended(&mut world, 2, 1, Ok(Value::Null)), "what comes late means nothing");
    assert!(world.happens(&Event::Redrive(1)));
    assert_eq!(world.status.nodes, ["a", "b"]);
}

#[test]
fn limits_have_names() {
    let check = |spec: Value, params: Value, reason: &str, name: &str| {
        let world = run(spec, params);
        assert_eq!(world.status.reason, reason, "{}", world.status.error);
        assert!(world.status.error.contains(name), "{}", world.status.error);
    };
    let round = json!({"startAt": "a", "limits": {"steps": 50}, "nodes": {
        "a": {"type": "Pass", "next": "b"},
        "b": {"type": "Choice", "choices": [{"conditions": [{"variable": "n", "value": 2}], "next": ""}], "default": "a"}}});
    check(round, json!({"n": 1}), "TooManySteps", "limits.steps");
    let list = json!({"startAt": "m", "limits": {"items": 3}, "nodes": {"m": {"type": "Map", "each": "x"}, "x": {"type": "Pass"}}});
    check(list, json!([1, 2, 3, 4]), "TooManyItems", "limits.items");
    let large = json!({"startAt": "a", "limits": {"valueBytes": 10}, "nodes": {"a": {"type": "Task"}}});
    check(large, json!("a long text"), "TooLarge", "limits.valueBytes");
}

#[test]
fn a_run_stays_small_whatever_it_does() {
    let spec = json!({"startAt": "m", "limits": {"items": 10_000, "steps": 100_000}, "nodes": {
        "m": {"type": "Map", "each": "p", "maxConcurrency": 64},
        "p": {"type": "Parallel", "branches": ["f", "g"]}, "f": {"type": "Task"}, "g": {"type": "Task"}}});
    let list: Vec<Value> = (0..500).map(|n| json!({"n": n})).collect();
    let mut world = begun(spec, json!(list));
    let large = "x".repeat(900);
    world.runs(&|name, input, _| Ok(json!([name, input["n"], large])), |count| count - 1);
    assert_eq!(world.status.phase, "Succeeded", "{}", world.status.error);
    assert!(world.largest < 180 << 10, "{} bytes", world.largest);
}
