//! The same semantics, written as one would say them: a function that walks through the graph, one branch after the other.

use super::world::Functions;
use api::kinds::minik8s::{WorkflowNode, WorkflowSpec};
use serde_json::{Value, json};

/// What a run comes to: its output, or the class of its error.
pub fn walk(
    graph: &WorkflowSpec,
    functions: &Functions<'_>,
    first: &str,
    input: Value,
) -> Result<Value, String> {
    let (mut name, mut value) = (first.to_owned(), input);
    loop {
        let node = &graph.nodes[&name];
        match step(graph, functions, node, &value) {
            Ok((output, next)) if next.is_empty() => return Ok(output),
            Ok((output, next)) => (name, value) = (next, output),
            Err(class) => {
                let fits = |errors: &[String]| errors.is_empty() || errors.contains(&class);
                let Some(caught) = node.catch.iter().find(|caught| fits(&caught.errors)) else {
                    return Err(class);
                };
                name = caught.next.clone();
                value = match caught.result.as_str() {
                    pointer if !pointer.is_empty() && (value.is_object() || value.is_null()) => {
                        let mut value = value.clone();
                        value[&pointer[1..]] = json!({"error": class, "message": "m"});
                        value
                    }
                    // What is no object has no member for the error.
                    _ => json!({"error": class, "message": "m", "input": value}),
                };
            }
        }
    }
}

fn step(
    graph: &WorkflowSpec,
    functions: &Functions<'_>,
    node: &WorkflowNode,
    value: &Value,
) -> Result<(Value, String), String> {
    let picked = value.pointer(&node.input).cloned().ok_or("BadInput");
    let result = match node.node_type.as_str() {
        "Task" => task(node, functions, &picked?)?,
        "Choice" => return Ok((value.clone(), choice(node, value)?)),
        "Parallel" => {
            let picked = picked?;
            let branches = node.branches.iter().map(|first| walk(graph, functions, first, picked.clone()));
            Value::Array(branches.collect::<Result<_, _>>()?)
        }
        "Map" => {
            let picked = picked?;
            let items = picked.pointer(&node.items).and_then(Value::as_array).ok_or("BadInput")?;
            let (mut results, mut failed) = (Vec::new(), 0);
            for item in items {
                match walk(graph, functions, &node.each, item.clone()) {
                    Ok(result) => results.push(result),
                    Err(_) if failed < node.tolerated_failures => {
                        failed += 1;
                        results.push(Value::Null);
                    }
                    Err(class) => return Err(class),
                }
            }
            Value::Array(results)
        }
        "Pass" if !node.value.is_null() => node.value.clone(),
        "Pass" => picked?,
        "Succeed" => return Ok((picked?, String::new())),
        "Fail" => return Err(node.error.clone()),
        _ => return Ok((value.clone(), node.next.clone())),
    };
    let output = match node.result.as_str() {
        "" => result,
        pointer => {
            let mut output = value.clone();
            if !(output.is_object() || output.is_null()) {
                return Err("BadInput".to_owned());
            }
            output[&pointer[1..]] = result;
            output
        }
    };
    Ok((output, node.next.clone()))
}

fn task(node: &WorkflowNode, functions: &Functions<'_>, input: &Value) -> Result<Value, String> {
    let mut attempt = 1;
    loop {
        let failure = match functions(&node.function, input, attempt) {
            Ok(output) => return Ok(output),
            Err(failure) => failure.class,
        };
        let rule = node.retry.iter().find(|rule| rule.errors.is_empty() || rule.errors.contains(&failure));
        if rule.is_none_or(|rule| attempt >= rule.attempts) {
            return Err(failure);
        }
        attempt += 1;
    }
}

/// Only comparisons of the member `n` with numbers.
fn choice(node: &WorkflowNode, value: &Value) -> Result<String, String> {
    for choice in &node.choices {
        let mut holds = true;
        for condition in &choice.conditions {
            let found = value.get("n").ok_or("NoSuchValue")?.as_i64().ok_or("UnlikeTypes")?;
            let wanted = condition.value.as_i64().expect("a number");
            holds = match condition.operator.as_str() {
                "eq" => found == wanted,
                "gt" => found > wanted,
                _ => found < wanted,
            };
            if !holds {
                break;
            }
        }
        if holds {
            return Ok(choice.next.clone());
        }
    }
    if node.default.is_empty() { Err("NoBranch".to_owned()) } else { Ok(node.default.clone()) }
}
