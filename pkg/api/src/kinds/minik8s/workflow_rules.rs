//! What is asked of a Workflow before it is stored, and of a file before there is a cluster: that every name leads somewhere,
//! every node can be reached, every circle has a way out, and every condition can be decided.

use crate::field::{Errors, Field, Reason};
use crate::kinds::batch::{cron_job, schedule::Schedule};
use crate::names;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The types of nodes.
pub const NODE_TYPES: [&str; 9] =
    ["Task", "Choice", "Parallel", "Map", "Pass", "Wait", "Approval", "Succeed", "Fail"];
/// The comparisons there are.
pub const OPERATORS: [&str; 8] = ["eq", "ne", "gt", "lt", "ge", "le", "matches", "exists"];
/// More nodes than this are no workflow for people.
pub const MOST_NODES: usize = 1000;
/// A run carries its graph, and has to stay small.
pub const MOST_GRAPH_BYTES: usize = 64 << 10;
/// The largest parameters of a run.
pub const MOST_PARAMS_BYTES: usize = 64 << 10;
/// More branches than this are a Map.
pub const MOST_BRANCHES: usize = 40;
/// How many items of a Map may be under way at a time.
pub const MOST_CONCURRENCY: i64 = 64;
/// How deep branches may stand in branches, and conditions in conditions.
pub const MOST_DEPTH: usize = 8;
/// How long anything may last: a year.
pub const MOST_SECONDS: i64 = 366 * 24 * 3600;
/// The longest regular expression.
const LONGEST_EXPRESSION: usize = 1000;
/// The longest name of a node.
const LONGEST_NAME: usize = 63;

/// Which types of nodes have which field.
const FIELDS: [(&str, &[&str]); 21] = [
    ("function", &["Task"]),
    ("job", &["Task"]),
    ("retry", &["Task"]),
    ("timeoutSeconds", &["Task", "Approval"]),
    ("choices", &["Choice"]),
    ("default", &["Choice"]),
    ("branches", &["Parallel"]),
    ("items", &["Map"]),
    ("each", &["Map"]),
    ("maxConcurrency", &["Map"]),
    ("toleratedFailures", &["Map"]),
    ("seconds", &["Wait"]),
    ("until", &["Wait"]),
    ("error", &["Fail"]),
    ("message", &["Fail", "Approval"]),
    ("value", &["Pass"]),
    ("input", &["Task", "Parallel", "Map", "Pass", "Approval", "Succeed"]),
    ("inputs", &["Task", "Parallel", "Map", "Pass", "Approval", "Succeed"]),
    ("result", &["Task", "Parallel", "Map", "Pass", "Approval"]),
    ("next", &["Task", "Parallel", "Map", "Pass", "Wait", "Approval"]),
    ("catch", &["Task", "Choice", "Parallel", "Map", "Pass", "Wait", "Approval"]),
];

/// Complains about a Workflow.
pub fn validate(workflow: &Field<'_>, errors: &mut Errors) {
    let spec = workflow.get("spec");
    let nodes = spec.get("nodes");
    let start = spec.get("startAt");
    start.required(errors);
    if nodes.required(errors) && nodes.len() > MOST_NODES {
        nodes.too_many(MOST_NODES, errors);
        return;
    }
    if spec.value().to_string().len() > MOST_GRAPH_BYTES + spec.get("params").value().to_string().len() {
        let detail = format!("must be at most {MOST_GRAPH_BYTES} bytes, as every run carries it");
        nodes.complain(Reason::TooLong, detail, errors);
        return;
    }
    validate_params(&spec.get("params"), errors);
    spec.get("timeoutSeconds").in_range(0..=MOST_SECONDS, errors);
    let account = spec.get("serviceAccountName");
    if !account.text().is_empty() {
        account.conforms(names::is_dns1123_subdomain, errors);
    }
    validate_schedule(&spec, errors);
    let limits = spec.get("limits");
    limits.get("steps").in_range(1..=100_000, errors);
    limits.get("items").in_range(1..=10_000, errors);
    limits.get("valueBytes").in_range(1..=1 << 20, errors);
    limits.get("parallelRuns").in_range(1..=100_000, errors);
    spec.get("retention").get("runs").in_range(0..=100_000, errors);
    spec.get("retention").get("seconds").in_range(0..=MOST_SECONDS, errors);
    for (name, node) in nodes.entries() {
        validate_name(name, &node, errors);
        validate_node(&node, errors);
    }
    let graph = Graph::of(&nodes);
    if graph.check_references(&start, &nodes, errors) {
        graph.check_shape(&start, &nodes, errors);
    }
}

/// Complains about the input of a run.
pub fn validate_params(params: &Field<'_>, errors: &mut Errors) {
    if params.exists() && params.value().to_string().len() > MOST_PARAMS_BYTES {
        params.too_long(MOST_PARAMS_BYTES, errors);
    }
}

fn validate_schedule(spec: &Field<'_>, errors: &mut Errors) {
    let (schedule, zone) = (spec.get("schedule"), spec.get("timeZone"));
    if !schedule.text().is_empty()
        && let Err(error) = Schedule::parse(schedule.text())
    {
        schedule.invalid(error.to_string(), errors);
    }
    if !zone.text().is_empty() && cron_job::time_zone(zone.text()).is_none() {
        zone.invalid("must be a time zone of https://www.iana.org/time-zones, such as Europe/Zurich", errors);
    }
}

fn validate_name(name: &str, node: &Field<'_>, errors: &mut Errors) {
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(is_good) {
        let detail = format!(
            "a node's name has at most {LONGEST_NAME} letters, digits, '-', '_' and '.' (and at least one)"
        );
        node.invalid_value(name, detail, errors);
    }
}

fn validate_node(node: &Field<'_>, errors: &mut Errors) {
    let node_type = node.get("type");
    node_type.one_of(&NODE_TYPES, errors);
    let own = node_type.text();
    if !NODE_TYPES.contains(&own) {
        return;
    }
    for (field, types) in FIELDS {
        let given = node.get(field);
        if !is_unsaid(&given) && !types.contains(&own) {
            given.forbidden(format!("a node of type '{own}' has none; {} has", types.join(", ")), errors);
        }
    }
    match own {
        "Task" => validate_task(node, errors),
        "Choice" => {
            node.get("choices").required(errors);
        }
        "Parallel" => {
            let branches = node.get("branches");
            if branches.required(errors) && branches.len() > MOST_BRANCHES {
                branches.too_many(MOST_BRANCHES, errors);
            }
        }
        "Map" => {
            node.get("each").required(errors);
            node.get("maxConcurrency").in_range(1..=MOST_CONCURRENCY, errors);
            node.get("toleratedFailures").non_negative(errors);
        }
        "Wait" => validate_wait(node, errors),
        _ => {}
    }
    node.get("timeoutSeconds").in_range(0..=MOST_SECONDS, errors);
    for pointer in ["input", "result", "items"] {
        validate_pointer(&node.get(pointer), errors);
    }
    node.get("inputs").entries().for_each(|(_, pointer)| validate_pointer(&pointer, errors));
    if !node.get("input").text().is_empty() && !node.get("inputs").is_empty() {
        node.get("inputs").forbidden("may not be given together with `input`", errors);
    }
    for caught in node.get("catch").items() {
        caught.get("next").required(errors);
        validate_pointer(&caught.get("result"), errors);
    }
    for choice in node.get("choices").items() {
        choice.get("conditions").items().for_each(|condition| validate_condition(&condition, 1, errors));
    }
}

/// Whether nothing is said here: what is empty, zero or null.
fn is_unsaid(field: &Field<'_>) -> bool {
    match field.value() {
        Value::Null => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Bool(_) => false,
        _ => field.is_empty() && field.text().is_empty(),
    }
}

fn validate_task(node: &Field<'_>, errors: &mut Errors) {
    let (function, job) = (node.get("function"), node.get("job"));
    if job.value().is_object() {
        if !function.text().is_empty() {
            function.forbidden("may not be given together with `job`", errors);
        }
        job.get("template").get("spec").get("containers").required(errors);
    } else if function.required(errors) {
        function.conforms(names::is_dns1123_label, errors);
    }
    for retry in node.get("retry").items() {
        retry.get("attempts").in_range(1..=1000, errors);
        for (field, least) in [("backoffSeconds", 0.0), ("factor", 1.0), ("maxBackoffSeconds", 0.0)] {
            let given = retry.get(field);
            if given.value().as_f64().is_some_and(|number| !(least..=1e8).contains(&number)) {
                given.invalid(format!("must be at least {least}, and at most 100000000"), errors);
            }
        }
    }
}

fn validate_wait(node: &Field<'_>, errors: &mut Errors) {
    let (seconds, until) = (node.get("seconds"), node.get("until"));
    match (seconds.exists(), until.text()) {
        (true, "") => seconds.in_range(0..=MOST_SECONDS, errors),
        (true, _) => until.forbidden("may not be given together with `seconds`", errors),
        (false, "") => seconds.complain(Reason::Required, "a Wait has `seconds` or `until`", errors),
        (false, text) if text.starts_with('/') => validate_pointer(&until, errors),
        (false, text) => {
            if text.parse::<jiff::Timestamp>().is_err() {
                let detail = "must be a time as in RFC 3339 (2027-01-31T12:00:00Z), or a JSON Pointer to one";
                until.invalid(detail, errors);
            }
        }
    }
}

/// Whether text is a JSON Pointer.
pub fn is_pointer(text: &str) -> bool {
    let rest_is_good = |part: &str| part.starts_with(['0', '1']);
    text.is_empty() || (text.starts_with('/') && text.split('~').skip(1).all(rest_is_good))
}

fn validate_pointer(pointer: &Field<'_>, errors: &mut Errors) {
    if !is_pointer(pointer.text()) {
        pointer.invalid(
            "must be a JSON Pointer (RFC 6901), such as /order/id: empty, or with a '/' first",
            errors,
        );
    }
}

fn validate_condition(condition: &Field<'_>, depth: usize, errors: &mut Errors) {
    if depth > MOST_DEPTH {
        condition.invalid_value("…", format!("conditions stand at most {MOST_DEPTH} deep"), errors);
        return;
    }
    let (all, any, not) = (condition.get("all"), condition.get("any"), condition.get("not"));
    let combined = [!all.is_empty(), !any.is_empty(), not.value().is_object()];
    let variable = condition.get("variable");
    match combined.iter().filter(|is_there| **is_there).count() + usize::from(!variable.text().is_empty()) {
        0 => {
            variable.required_because("or one of `all`, `any` and `not`", errors);
        }
        1 => {}
        _ => variable.forbidden("a condition is one of a comparison, `all`, `any` and `not`", errors),
    }
    for inner in all.items().chain(any.items()) {
        validate_condition(&inner, depth + 1, errors);
    }
    if combined[2] {
        validate_condition(&not, depth + 1, errors);
    }
    if !variable.text().is_empty() {
        if variable.text().starts_with('/') {
            validate_pointer(&variable, errors);
        }
        validate_comparison(&condition.get("operator"), &condition.get("value"), errors);
    }
}

fn validate_comparison(operator: &Field<'_>, value: &Field<'_>, errors: &mut Errors) {
    operator.one_of(&OPERATORS, errors);
    match operator.text() {
        "exists" if value.exists() && !value.value().is_boolean() => {
            value.invalid("`exists` is compared with true or false", errors);
        }
        "matches" => match value.str() {
            None => value.invalid("must be a regular expression, as text", errors),
            Some(text) if text.len() > LONGEST_EXPRESSION => value.too_long(LONGEST_EXPRESSION, errors),
            Some(text) => {
                if let Err(error) = regex::Regex::new(text) {
                    value.invalid(error.to_string(), errors);
                }
            }
        },
        "gt" | "lt" | "ge" | "le" => match value.value() {
            Value::Number(_) | Value::String(_) => {}
            Value::Null => value.complain(Reason::Required, "", errors),
            _ => value.invalid("only numbers and texts are greater or less", errors),
        },
        // A decoder may have left out a null, which is a value here too: `eq: null`.
        _ => {}
    }
}

/// The names of nodes, and where each leads.
struct Graph<'a> {
    /// Those that may follow, by name.
    next: BTreeMap<&'a str, Vec<&'a str>>,
    /// First nodes of branches.
    inner: BTreeMap<&'a str, Vec<&'a str>>,
    /// Nodes that may be the last.
    ends: BTreeSet<&'a str>,
}

impl<'a> Graph<'a> {
    fn of(nodes: &Field<'a>) -> Graph<'a> {
        let mut graph = Graph { next: BTreeMap::new(), inner: BTreeMap::new(), ends: BTreeSet::new() };
        for (name, node) in nodes.object().into_iter().flatten() {
            let text = |value: &'a Value| value.as_str().unwrap_or_default();
            let list = |field: &str| node[field].as_array().map(Vec::as_slice).unwrap_or_default();
            let own = text(&node["next"]);
            let choices: Vec<&str> = list("choices").iter().map(|choice| text(&choice["next"])).collect();
            let ends = match text(&node["type"]) {
                "Succeed" | "Fail" => true,
                "Choice" => choices.contains(&""),
                _ => own.is_empty(),
            };
            if ends {
                graph.ends.insert(name);
            }
            let caught = list("catch").iter().map(|caught| text(&caught["next"]));
            let all = choices.into_iter().chain(caught).chain([own, text(&node["default"])]);
            graph.next.insert(name, all.filter(|name| !name.is_empty()).collect());
            let inner = list("branches").iter().map(text).chain([text(&node["each"])]);
            graph.inner.insert(name, inner.filter(|name| !name.is_empty()).collect());
        }
        graph
    }

    /// Complains about names that no node has. Whether there are none.
    fn check_references(&self, start: &Field<'_>, nodes: &Field<'_>, errors: &mut Errors) -> bool {
        let before = errors.as_slice().len();
        let check = |name: &Field<'_>, errors: &mut Errors| {
            if !name.text().is_empty() && !self.next.contains_key(name.text()) {
                name.not_found(errors);
            }
        };
        check(start, errors);
        for (_, node) in nodes.entries() {
            ["next", "default", "each"].iter().for_each(|field| check(&node.get(field), errors));
            node.get("branches").items().for_each(|branch| check(&branch, errors));
            for list in ["choices", "catch"] {
                node.get(list).items().for_each(|item| check(&item.get("next"), errors));
            }
        }
        errors.as_slice().len() == before && !start.text().is_empty()
    }

    /// Complains about nodes that no run can reach or leave, and about branches that hold themselves.
    fn check_shape(&self, start: &Field<'_>, nodes: &Field<'_>, errors: &mut Errors) {
        let reached = self.reached([start.text()]);
        let leaving = self.leaving();
        for (name, node) in nodes.entries() {
            if !reached.contains(name) {
                node.invalid_value(
                    name,
                    "nothing leads to this node: give another one a `next`, or remove it",
                    errors,
                );
            } else if !leaving.contains(name) {
                let detail = "a run that comes here goes round for ever: no node after it can be the last";
                node.invalid_value(name, detail, errors);
            }
        }
        for (name, first) in &self.inner {
            let node = nodes.key(name);
            if self.reached(first.iter().copied()).contains(name) {
                node.invalid_value(
                    *name,
                    "its branches lead back to itself: a branch ends where there is no `next`",
                    errors,
                );
                return;
            }
        }
        let deepest = self.inner.keys().map(|name| (self.depth(name), *name)).max();
        if let Some((depth, name)) = deepest
            && depth > MOST_DEPTH
        {
            let detail = format!("branches stand at most {MOST_DEPTH} deep in branches");
            nodes.key(name).invalid_value(name, detail, errors);
        }
    }

    fn reached<'b>(&'b self, from: impl IntoIterator<Item = &'b str>) -> BTreeSet<&'b str> {
        let mut found: BTreeSet<&str> = from.into_iter().collect();
        let mut look: Vec<&str> = found.iter().copied().collect();
        while let Some(name) = look.pop() {
            let onward = [&self.next, &self.inner].into_iter().filter_map(|edges| edges.get(name)).flatten();
            look.extend(onward.filter(|name| found.insert(name)));
        }
        found
    }

    fn leaving(&self) -> BTreeSet<&str> {
        let mut leaving: BTreeSet<&str> = self.ends.iter().copied().collect();
        loop {
            let more: Vec<&str> = self
                .next
                .iter()
                .filter(|(name, next)| {
                    !leaving.contains(**name) && next.iter().any(|next| leaving.contains(next))
                })
                .map(|(name, _)| *name)
                .collect();
            if more.is_empty() {
                return leaving;
            }
            leaving.extend(more);
        }
    }

    /// How many branches stand in each other from this node on; none holds itself.
    fn depth(&self, name: &str) -> usize {
        let mut depths = BTreeMap::new();
        self.depth_of(name, &mut depths, 0)
    }

    fn depth_of<'b>(&'b self, name: &'b str, known: &mut BTreeMap<&'b str, usize>, level: usize) -> usize {
        if let Some(depth) = known.get(name) {
            return *depth;
        }
        let first = &self.inner[name];
        if first.is_empty() || level > MOST_DEPTH {
            return 0;
        }
        let body = self.reached(first.iter().copied());
        let deepest = body.into_iter().map(|inner| self.depth_of(inner, known, level + 1)).max().unwrap_or(0);
        known.insert(name, deepest + 1);
        deepest + 1
    }
}
