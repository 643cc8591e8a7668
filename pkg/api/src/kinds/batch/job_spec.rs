//! The spec of a job, which cron jobs carry as a template.

use crate::field::{Errors, Field, Reason};
use crate::kinds::pod_spec::{fill, list_mut};
use crate::kinds::{pod_spec, rules};
use crate::names;
use crate::object::object_mut;
use serde_json::Value;
use std::collections::HashSet;

/// Together these bound the length of `status.completedIndexes` and `status.failedIndexes`.
const MOST_PARALLELISM_INDEXED: i64 = 100_000;
const MOST_FAILED_INDEXES: i64 = 100_000;
const MANY_COMPLETIONS: i64 = 100_000;
const MOST_WITH_MANY_COMPLETIONS: i64 = 10_000;

const MOST_RULES: usize = 20;
const MOST_EXIT_CODES: usize = 255;
const MOST_POD_CONDITIONS: usize = 20;
const MOST_MANAGED_BY_BYTES: usize = 63;
const MOST_SUCCEEDED_INDEXES_BYTES: usize = 64 * 1024;

const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];

/// Defaults that jobs and templates of jobs have in common.
pub(super) fn default(spec: &mut Value) {
    if let Some(policy) = spec.get_mut("podFailurePolicy") {
        for pattern in list_mut(policy, "rules").iter_mut().flat_map(|rule| list_mut(rule, "onPodConditions"))
        {
            fill(pattern, "status", "True");
        }
    }
    object_mut(spec, "template");
    pod_spec::default_template(&mut spec["template"]);
}

/// Rules for everything but the selector, which templates of jobs do not have.
pub(super) fn validate(spec: &Field<'_>, errors: &mut Errors) {
    for name in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        spec.get(name).non_negative(errors);
    }
    let per_index = spec.get("backoffLimitPerIndex");
    if spec.get("maxFailedIndexes").exists() {
        per_index.required_because("when maxFailedIndexes is specified", errors);
    }
    let managed_by = spec.get("managedBy");
    if managed_by.exists() {
        rules::validate_domain_prefixed_path(&managed_by, errors);
        if managed_by.text().len() > MOST_MANAGED_BY_BYTES {
            managed_by.too_long(MOST_MANAGED_BY_BYTES, errors);
        }
    }
    validate_completion_mode(spec, errors);
    if spec.get("podFailurePolicy").exists() {
        validate_pod_failure_policy(spec, errors);
    }
    let success_policy = spec.get("successPolicy");
    if success_policy.exists() {
        if spec.get("completionMode").text() == "Indexed" {
            validate_success_policy(spec, &success_policy, errors);
        } else {
            success_policy.invalid("requires indexed completion mode", errors);
        }
    }
    let replacement: &[&str] =
        if spec.get("podFailurePolicy").exists() { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    spec.get("podReplacementPolicy").one_of(replacement, errors);
    validate_template(spec, errors);
}

fn validate_completion_mode(spec: &Field<'_>, errors: &mut Errors) {
    let mode = spec.get("completionMode");
    mode.one_of(&["NonIndexed", "Indexed"], errors);
    if mode.text() == "Indexed" {
        validate_indexed(spec, errors);
    } else if matches!(mode.text(), "" | "NonIndexed") {
        for name in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            let field = spec.get(name);
            if field.exists() {
                field.invalid("requires indexed completion mode", errors);
            }
        }
    }
}

fn validate_indexed(spec: &Field<'_>, errors: &mut Errors) {
    let (completions, parallelism) = (spec.get("completions"), spec.get("parallelism"));
    let most_failed = spec.get("maxFailedIndexes");
    let at_most = |field: &Field<'_>, most: i64, detail: String, errors: &mut Errors| {
        if field.int().is_some_and(|number| number > most) {
            field.invalid(detail, errors);
        }
    };
    completions.required_because("when completion mode is Indexed", errors);
    let detail =
        format!("must be less than or equal to {MOST_PARALLELISM_INDEXED} when completion mode is Indexed");
    at_most(&parallelism, MOST_PARALLELISM_INDEXED, detail, errors);
    if let Some(completions) = completions.int() {
        at_most(&most_failed, completions, "must be less than or equal to completions".into(), errors);
    }
    let detail = format!("must be less than or equal to {MOST_FAILED_INDEXES}");
    at_most(&most_failed, MOST_FAILED_INDEXES, detail, errors);
    let many = completions.int().is_some_and(|completions| completions > MANY_COMPLETIONS);
    if many && spec.get("backoffLimitPerIndex").exists() {
        most_failed.required_because(
            &format!("must be specified when completions is above {MANY_COMPLETIONS}"),
            errors,
        );
        for field in [&parallelism, &most_failed] {
            let detail = format!(
                "must be less than or equal to {MOST_WITH_MANY_COMPLETIONS} when completions are above {MANY_COMPLETIONS} and used with backoff limit per index"
            );
            at_most(field, MOST_WITH_MANY_COMPLETIONS, detail, errors);
        }
    }
}

/// The pods of a job end, so what restarts them must let them.
fn validate_template(spec: &Field<'_>, errors: &mut Errors) {
    let template = spec.get("template");
    pod_spec::validate_template(&template, errors);
    let pod = template.get("spec");
    let policy = pod.get("restartPolicy");
    match policy.text() {
        "" | "Always" => policy.complain(Reason::Required, r#"valid values: "OnFailure", "Never""#, errors),
        "OnFailure" if spec.get("podFailurePolicy").exists() => {
            policy.invalid(r#"only "Never" is supported when podFailurePolicy is specified"#, errors);
        }
        "OnFailure" | "Never" => {}
        _ => policy.not_supported(&["OnFailure", "Never"], errors),
    }
}

fn validate_pod_failure_policy(spec: &Field<'_>, errors: &mut Errors) {
    let policy = spec.get("podFailurePolicy");
    let rules = policy.get("rules");
    if rules.len() > MOST_RULES {
        rules.too_many(MOST_RULES, errors);
    }
    let pod = &spec.value()["template"]["spec"];
    let containers = ["containers", "initContainers"].into_iter().flat_map(|list| pod[list].as_array());
    let containers: HashSet<&str> = containers.flatten().filter_map(|one| one["name"].as_str()).collect();
    for rule in rules.items() {
        let action = rule.get("action");
        match action.text() {
            "" => action.complain(
                Reason::Required,
                format!("valid values: {ACTIONS:?}").replace(", ", " "),
                errors,
            ),
            "FailIndex" if !spec.get("backoffLimitPerIndex").exists() => {
                action.invalid("requires the backoffLimitPerIndex to be set", errors);
            }
            _ => action.one_of(&ACTIONS, errors),
        }
        let (exit_codes, conditions) = (rule.get("onExitCodes"), rule.get("onPodConditions"));
        if exit_codes.exists() {
            validate_exit_codes(&exit_codes, &containers, errors);
        }
        validate_pod_conditions(&conditions, errors);
        match (exit_codes.exists(), !conditions.is_empty()) {
            (true, true) => rules::invalid_without_value(
                &rule,
                "specifying both OnExitCodes and OnPodConditions is not supported",
                errors,
            ),
            (false, false) => rules::invalid_without_value(
                &rule,
                "specifying one of OnExitCodes and OnPodConditions is required",
                errors,
            ),
            _ => {}
        }
    }
}

fn validate_exit_codes(exit_codes: &Field<'_>, containers: &HashSet<&str>, errors: &mut Errors) {
    let operator = exit_codes.get("operator");
    if operator.required_because(r#"valid values: ["In" "NotIn"]"#, errors) {
        operator.one_of(&["In", "NotIn"], errors);
    }
    let container = exit_codes.get("containerName");
    if container.exists() && !containers.contains(container.text()) {
        container.invalid("must be one of the container or initContainer names in the pod template", errors);
    }
    let values = exit_codes.get("values");
    if values.is_empty() {
        values.invalid("at least one value is required", errors);
    } else if values.len() > MOST_EXIT_CODES {
        values.too_many(MOST_EXIT_CODES, errors);
    }
    let mut seen = HashSet::new();
    let mut last = i64::MIN;
    let mut ordered = true;
    for value in values.items() {
        let code = value.int().unwrap_or(0);
        if operator.text() == "In" && code == 0 {
            value.invalid("must not be 0 for the In operator", errors);
        }
        if !seen.insert(code) {
            value.duplicate(errors);
        }
        ordered &= last <= code;
        last = code;
    }
    if !ordered {
        values.invalid("must be ordered", errors);
    }
}

fn validate_pod_conditions(conditions: &Field<'_>, errors: &mut Errors) {
    if conditions.len() > MOST_POD_CONDITIONS {
        conditions.too_many(MOST_POD_CONDITIONS, errors);
    }
    for pattern in conditions.items() {
        pattern.get("type").conforms(names::is_qualified_name, errors);
        let status = pattern.get("status");
        if status.required_because(r#"valid values: ["False" "True" "Unknown"]"#, errors) {
            status.one_of(&["False", "True", "Unknown"], errors);
        }
    }
}

fn validate_success_policy(spec: &Field<'_>, policy: &Field<'_>, errors: &mut Errors) {
    let rules = policy.get("rules");
    rules
        .required_because("at least one rules must be specified when the successPolicy is specified", errors);
    if rules.len() > MOST_RULES {
        rules.too_many(MOST_RULES, errors);
    }
    // Absent completions are complained about elsewhere.
    let completions = spec.get("completions").int().unwrap_or(i64::MAX);
    for rule in rules.items() {
        let (count, indexes) = (rule.get("succeededCount"), rule.get("succeededIndexes"));
        if !count.exists() && !indexes.exists() {
            let detail = "at least one of succeededCount or succeededIndexes must be specified";
            rule.complain(Reason::Required, detail, errors);
        }
        if indexes.text().len() > MOST_SUCCEEDED_INDEXES_BYTES {
            indexes.too_long(MOST_SUCCEEDED_INDEXES_BYTES, errors);
        }
        let listed = count_indexes(indexes.text(), completions);
        if let Err(fault) = &listed {
            indexes.invalid(format!("error parsing succeededIndexes: {fault}"), errors);
        }
        count.non_negative(errors);
        let wanted = count.int().unwrap_or(0);
        if wanted > completions {
            let detail =
                format!("must be less than or equal to {completions} (the number of specified completions)");
            count.invalid(detail, errors);
        }
        let listed = listed.unwrap_or(0);
        if indexes.exists() && wanted > listed {
            let detail = format!(
                "must be less than or equal to {listed} (the number of indexes in the specified succeededIndexes field)"
            );
            count.invalid(detail, errors);
        }
    }
}

/// How many indexes a list such as `1,3-5,7` names, all below `completions` and in order.
pub(super) fn count_indexes(indexes: &str, completions: i64) -> Result<i64, String> {
    let mut total = 0;
    let mut last: Option<i64> = None;
    for interval in indexes.split(',').filter(|_| !indexes.is_empty()) {
        let (first, end) = parse_interval(interval, completions)?;
        if let Some(last) = last.filter(|&last| last >= first) {
            return Err(format!("non-increasing order, previous: {last}, current: {first}"));
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

/// First and last index of `5` or `3-5`.
pub(super) fn parse_interval(interval: &str, completions: i64) -> Result<(i64, i64), String> {
    let mut limits = interval.split('-');
    let (first, last) = (limits.next().unwrap_or_default(), limits.next());
    if limits.next().is_some() {
        return Err(format!(
            "the fragment {interval:?} violates the requirement that an index interval can have at most two parts separated by '-'"
        ));
    }
    let parse = |text: &str| match text.parse::<i64>() {
        Err(_) => Err(format!("cannot convert string to integer for index: {text:?}")),
        Ok(index) if index >= completions => Err(format!("too large index: {text:?}")),
        Ok(index) => Ok(index),
    };
    let first = parse(first)?;
    match last.map(parse).transpose()? {
        Some(last) if first >= last => {
            Err(format!("non-increasing order, previous: {first}, current: {last}"))
        }
        last => Ok((first, last.unwrap_or(first))),
    }
}
