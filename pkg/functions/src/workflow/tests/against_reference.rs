//! Random graphs: the engine, with everything in any order and read back after each transition, comes to what a simple
//! interpreter comes to.

use super::reference::walk;
use super::world::{World, graph};
use crate::workflow::Failure;
use fastrand::Rng;
use serde_json::{Map, Value, json};

/// All of them with SOAK=1, a twentieth otherwise.
const GRAPHS: u64 = 10_000;
/// The class by which functions fail.
const CLASS: &str = "E";

#[test]
fn random_graphs_come_to_what_a_simple_interpreter_comes_to() {
    let count = if std::env::var_os("SOAK").is_some() { GRAPHS } else { GRAPHS / 20 };
    let (mut succeeded, mut failed) = (0, 0);
    for seed in 0..count {
        match check(seed) {
            true => succeeded += 1,
            false => failed += 1,
        }
    }
    assert!(succeeded > count / 4 && failed > count / 20, "{succeeded} succeeded, {failed} failed");
}

/// Whether the run of this seed succeeds.
fn check(seed: u64) -> bool {
    let mut rng = Rng::with_seed(seed);
    // Where branches meet, any of their errors may be the first: then it is not asked which it was.
    let has_branches = rng.u8(..3) > 0;
    let spec = Graph { rng: &mut rng, nodes: Map::new(), depth: 0, has_branches }.make();
    let spec = graph(spec).with_defaults();
    let functions = |name: &str, input: &Value, attempt: i32| {
        let mixed = hash(&format!("{seed} {name} {} {attempt}", normal(input, has_branches)));
        match mixed % 7 {
            0 => Err(Failure::new(CLASS, "m")),
            1 => Ok(json!({"n": mixed % 11, "list": [{"n": 1}, {"n": mixed % 5}]})),
            2 => Ok(json!({"n": mixed % 3, "text": "x".repeat(1100)})),
            _ => Ok(json!({"n": mixed % 11, "list": []})),
        }
    };
    let params = json!({"n": 3, "list": [{"n": 1}, {"n": 5}, {"n": 9}]});
    let class = |class: String| if has_branches { String::new() } else { class };
    let expected = walk(&spec, &functions, &spec.start_at, params.clone())
        .map(|value| normal(&value, has_branches))
        .map_err(class);
    let mut world = World::begun(spec.clone(), params);
    world.runs(&functions, |count| rng.usize(..count));
    let status = &world.status;
    let found = match status.phase.as_str() {
        "Succeeded" if status.output_ref.is_empty() => Ok(normal(&status.output, has_branches)),
        "Succeeded" => Ok(normal(&world.values[&status.output_ref], has_branches)),
        "Failed" => Err(class(status.reason.clone())),
        phase => panic!("seed {seed}: {phase}"),
    };
    assert_eq!(
        found,
        expected,
        "seed {seed}: {} of {}",
        status.error,
        serde_json::to_string(&spec).expect("JSON")
    );
    assert!(world.largest < 256 << 10, "seed {seed}: {} bytes", world.largest);
    found.is_ok()
}

/// A value without what errors say, and with their classes only if they are known.
fn normal(value: &Value, is_any_class: bool) -> Value {
    match value {
        Value::Array(items) => items.iter().map(|item| normal(item, is_any_class)).collect(),
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| match name.as_str() {
                "message" => (name.clone(), "m".into()),
                "error" if is_any_class => (name.clone(), CLASS.into()),
                _ => (name.clone(), normal(value, is_any_class)),
            };
            Value::Object(members.iter().map(member).collect())
        }
        other => other.clone(),
    }
}

fn hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
        >> 7
}

/// A graph that is made.
struct Graph<'a> {
    rng: &'a mut Rng,
    nodes: Map<String, Value>,
    depth: usize,
    has_branches: bool,
}

impl Graph<'_> {
    fn make(mut self) -> Value {
        let first = self.chain();
        json!({"startAt": first, "nodes": self.nodes})
    }

    /// Some nodes in a row, the last of which ends. The first one's name.
    fn chain(&mut self) -> String {
        let mut next = String::new();
        for _ in 0..self.rng.usize(1..=3) {
            next = self.node(next);
        }
        next
    }

    fn node(&mut self, next: String) -> String {
        let name = format!("n{}", self.nodes.len());
        // The place is taken before those that it leads to are made.
        self.nodes.insert(name.clone(), Value::Null);
        self.depth += 1;
        let is_deep = self.depth > 3;
        let mut node = match self.rng.u8(..if is_deep {
            6
        } else if self.has_branches {
            10
        } else {
            8
        }) {
            0..=2 => self.task(),
            3 => {
                json!({"type": "Pass", "value": if self.rng.bool() { json!({"n": 4, "list": [{"n": 2}]}) } else { Value::Null }})
            }
            4 => json!({"type": "Wait", "seconds": self.rng.u32(..100)}),
            5 if next.is_empty() && self.rng.bool() => {
                json!({"type": "Fail", "error": CLASS, "message": "m"})
            }
            5 => json!({"type": "Succeed"}),
            6 | 7 => self.choice(&next),
            8 => {
                let branches: Vec<String> = (0..self.rng.usize(1..=3)).map(|_| self.chain()).collect();
                json!({"type": "Parallel", "branches": branches})
            }
            _ => {
                let each = self.chain();
                json!({"type": "Map", "items": "/list", "each": each, "maxConcurrency": self.rng.u32(1..4),
                    "toleratedFailures": self.rng.u32(..3)})
            }
        };
        self.depth -= 1;
        let node_type = node["type"].as_str().unwrap_or_default().to_owned();
        if !matches!(node_type.as_str(), "Choice" | "Succeed" | "Fail") {
            node["next"] = next.clone().into();
        }
        if matches!(node_type.as_str(), "Task" | "Map" | "Parallel" | "Pass") && self.rng.u8(..4) == 0 {
            node["result"] = "/kept".into();
        }
        if !matches!(node_type.as_str(), "Succeed" | "Fail") && self.rng.u8(..4) == 0 {
            let caught = if next.is_empty() { self.ending() } else { next };
            let result = if self.rng.bool() { "/failed" } else { "" };
            // Of what is no object there is no member to put an error at.
            let result = if node_type == "Task" || node_type == "Choice" { result } else { "" };
            let errors =
                if self.has_branches || self.rng.bool() { json!([]) } else { json!([CLASS, "BadInput"]) };
            node["catch"] = json!([{"next": caught, "result": result, "errors": errors}]);
        }
        self.nodes.insert(name.clone(), node);
        name
    }

    fn task(&mut self) -> Value {
        let mut node = json!({"type": "Task", "function": format!("f{}", self.rng.u8(..5))});
        if self.rng.bool() {
            node["retry"] = json!([{"attempts": self.rng.u32(1..4), "errors": if self.rng.bool() { json!([]) } else { json!(["other"]) }}]);
        }
        node
    }

    fn choice(&mut self, next: &str) -> Value {
        let mut choices = Vec::new();
        for _ in 0..self.rng.usize(1..=2) {
            let operator = ["eq", "gt", "lt"][self.rng.usize(..3)];
            let to = if self.rng.bool() { next.to_owned() } else { self.chain() };
            choices.push(json!({"conditions": [{"variable": "n", "operator": operator, "value": self.rng.u32(..8)}], "next": to}));
        }
        let mut node = json!({"type": "Choice", "choices": choices});
        if self.rng.u8(..4) > 0 {
            node["default"] = if next.is_empty() { self.ending().into() } else { next.into() };
        }
        node
    }

    fn ending(&mut self) -> String {
        let name = format!("n{}", self.nodes.len());
        self.nodes.insert(name.clone(), json!({"type": "Succeed"}));
        name
    }
}
