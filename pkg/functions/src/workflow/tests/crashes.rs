//! A crash at every point of every kind of step: what is under way is counted by the function itself.

use super::world::{World, graph};
use crate::workflow::engine::{due, running};
use crate::workflow::{Event, Failure, Outcome};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Where knative may die around a step that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Crash {
    /// Before the call was made.
    BeforeCall,
    /// After the function has done its work, before it is written that it has; its pod lives.
    AfterCall,
    /// As before, and its pod died too.
    AfterCallWithPod,
}

const FLOW: &str = r#"{"startAt": "one", "nodes": {
    "one": {"type": "Task", "retry": [{"attempts": 2}], "next": "pause"},
    "pause": {"type": "Wait", "seconds": 5, "next": "both"},
    "both": {"type": "Parallel", "branches": ["left", "right"], "next": "every"},
    "left": {"type": "Task", "next": "ask"},
    "ask": {"type": "Approval"},
    "right": {"type": "Pass", "value": {"n": 1}},
    "every": {"type": "Map", "each": "item", "maxConcurrency": 1, "next": "check"},
    "item": {"type": "Task"},
    "check": {"type": "Choice", "choices": [{"conditions": [{"variable": "/0/n", "value": 1}], "next": "last"}]},
    "last": {"type": "Task"}}}"#;

/// Runs the flow, and dies at the given transition. How often each function was called by input, and the transitions there were.
fn run(crash_at: usize, crash: Crash) -> (BTreeMap<String, u32>, usize, World) {
    let graph = graph(serde_json::from_str(FLOW).expect("JSON"));
    let calls: RefCell<BTreeMap<String, u32>> = RefCell::default();
    let mut held: BTreeMap<i32, Value> = BTreeMap::new();
    let work = |name: &str, input: &Value, attempt: i32| {
        *calls.borrow_mut().entry(format!("{name} {input}")).or_default() += 1;
        match (name, attempt) {
            ("one", 1) => Err(Failure::new("Raised", "the first time")),
            _ => Ok(json!({"n": 1})),
        }
    };
    let mut world = World::begun(graph, json!({"x": 1}));
    let mut transition = 0;
    while !world.status.has_ended() {
        let under_way: Vec<(i32, i32)> =
            running(&world.status).map(|thread| (thread.step, thread.attempt)).collect();
        let asks =
            world.status.threads.iter().find(|thread| thread.state == "Approving").map(|thread| thread.step);
        let dies = transition == crash_at;
        transition += 1;
        assert!(transition < 200, "{:?}", world.status);
        if let Some((step, attempt)) = under_way.first().copied() {
            let (function, input) = world.call(step);
            // A pod answers a call of a name that it knows with what came of it.
            let made = match held.get(&step) {
                Some(output) => Ok(output.clone()),
                None if dies && crash == Crash::BeforeCall => Ok(Value::Null),
                None => work(&function, &input, attempt),
            };
            if dies {
                if crash == Crash::AfterCall
                    && let Ok(output) = &made
                {
                    held.insert(step, output.clone());
                }
                // Whoever comes after finds it under way, and nowhere.
                assert!(world.happens(&Event::Lost { step, attempt }));
                continue;
            }
            let outcome = Outcome { result: made, is_cold: None };
            let event = Event::Ended { step, attempt, outcome };
            assert!(world.happens(&event));
            assert!(!world.happens(&event), "what comes twice means nothing");
        } else if let Some(step) = asks {
            let event = Event::Answered { step, by: "me".to_owned(), answer: Ok(Value::Null) };
            assert!(dies || world.happens(&event));
            assert!(dies || !world.happens(&event), "what comes twice means nothing");
        } else if let Some(at) = due(&world.status) {
            world.now = world.now.max(at.as_millisecond());
            assert!(dies || world.happens(&Event::Tick));
        }
    }
    (calls.into_inner(), transition, world)
}

#[test]
fn finished_steps_never_run_again_wherever_it_crashes() {
    let (undisturbed, transitions, _) = run(usize::MAX, Crash::BeforeCall);
    assert!(transitions > 8, "{transitions}");
    for crash in [Crash::BeforeCall, Crash::AfterCall, Crash::AfterCallWithPod] {
        for at in 0..transitions {
            let (calls, _, world) = run(at, crash);
            assert_eq!(world.status.phase, "Succeeded", "{crash:?} at {at}: {}", world.status.error);
            let more: u32 = calls.iter().map(|(call, count)| count.saturating_sub(undisturbed[call])).sum();
            match crash {
                Crash::AfterCallWithPod => assert!(more <= 1, "at {at}: {calls:?}"),
                // The first attempt of "one" fails, and nothing is held of what fails.
                _ => assert!(more == 0 || at == 0, "{crash:?} at {at}: {calls:?}"),
            }
            let mut numbers: Vec<i32> = world.records.keys().copied().collect();
            numbers.dedup();
            assert_eq!(numbers, (1..=world.status.step_count).collect::<Vec<_>>(), "every step has a record");
        }
    }
}

#[test]
fn a_lost_attempt_is_made_again_under_the_same_number_of_step() {
    let spec = json!({"startAt": "a", "nodes": {"a": {"type": "Task", "timeoutSeconds": 10}}});
    let mut world = World::begun(graph(spec), json!(1));
    let before = world.status.threads[0].clone();
    assert_eq!((before.step, before.attempt), (1, 1));
    world.now += 4_000;
    assert!(world.happens(&Event::Lost { step: 1, attempt: 1 }));
    let after = &world.status.threads[0];
    assert_eq!((after.step, after.attempt), (1, 2));
    assert!(after.until > before.until, "the second attempt has its own time");
    let late = Outcome { result: Ok(json!("late")), is_cold: None };
    assert!(!world.happens(&Event::Ended { step: 1, attempt: 1, outcome: late }));
}
