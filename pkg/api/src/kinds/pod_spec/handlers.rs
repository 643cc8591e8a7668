//! Rules for probes and for what runs when a container starts and stops.

use super::validate::Pod;
use crate::field::{Errors, Field, Reason};
use crate::names;

/// Complains about the probes and the lifecycle of a container.
pub(super) fn validate_probes_and_lifecycle(container: &Field<'_>, pod: &Pod, errors: &mut Errors) {
    let lifecycle = container.get("lifecycle");
    for name in ["postStart", "preStop"] {
        let handler = lifecycle.get(name);
        if handler.exists() {
            validate_handler(&handler, &["exec", "httpGet", "tcpSocket", "sleep"], pod, errors);
        }
    }
    let signal = lifecycle.get("stopSignal");
    if signal.exists() {
        validate_stop_signal(&signal, &pod.os, errors);
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = container.get(name);
        if !probe.exists() {
            continue;
        }
        validate_probe(&probe, pod, errors);
        let threshold = probe.get("successThreshold");
        let grace = probe.get("terminationGracePeriodSeconds");
        if name == "readinessProbe" {
            if grace.exists() {
                grace.invalid("must not be set for readinessProbes", errors);
            }
        } else if threshold.int() != Some(1) {
            threshold.invalid_value(threshold.int().unwrap_or(0), "must be 1", errors);
        }
    }
}

/// Complains about a port given as a number or as a name.
pub fn validate_port_or_name(port: &Field<'_>, errors: &mut Errors) {
    match port.str() {
        Some(_) => port.conforms(names::is_port_name, errors),
        None => {
            let number = port.int().unwrap_or(0);
            if !(1..=65535).contains(&number) {
                port.invalid_value(number, "must be between 1 and 65535, inclusive", errors);
            }
        }
    }
}

fn validate_probe(probe: &Field<'_>, pod: &Pod, errors: &mut Errors) {
    validate_handler(probe, &["exec", "httpGet", "tcpSocket", "grpc"], pod, errors);
    for name in
        ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
    {
        probe.get(name).non_negative(errors);
    }
    let grace = probe.get("terminationGracePeriodSeconds");
    if grace.int().is_some_and(|seconds| seconds <= 0) {
        grace.invalid("must be greater than 0", errors);
    }
}

/// Exactly one of the named actions, and that one well formed.
fn validate_handler(handler: &Field<'_>, actions: &[&str], pod: &Pod, errors: &mut Errors) {
    let mut found = false;
    for &name in actions {
        let action = handler.get(name);
        if !action.exists() {
            continue;
        }
        if std::mem::replace(&mut found, true) {
            action.forbidden("may not specify more than 1 handler type", errors);
            continue;
        }
        match name {
            "exec" => {
                action.get("command").required(errors);
            }
            "httpGet" => validate_http_get(&action, errors),
            "sleep" => validate_sleep(&action, pod, errors),
            _ => validate_port_or_name(&action.get("port"), errors),
        }
    }
    if !found {
        handler.complain(Reason::Required, "must specify a handler type", errors);
    }
}

fn validate_http_get(action: &Field<'_>, errors: &mut Errors) {
    action.get("path").required(errors);
    validate_port_or_name(&action.get("port"), errors);
    let scheme = action.get("scheme");
    if !matches!(scheme.text(), "HTTP" | "HTTPS") {
        scheme.not_supported(&["HTTP", "HTTPS"], errors);
    }
    let headers = action.get("httpHeaders");
    for header in headers.items() {
        let name = header.get("name");
        for fault in names::is_http_header_name(name.text()) {
            headers.invalid_value(name.text(), fault, errors);
        }
    }
}

fn validate_sleep(action: &Field<'_>, pod: &Pod, errors: &mut Errors) {
    let seconds = action.get("seconds").int().unwrap_or(0);
    if let Some(grace) = pod.grace_period_seconds
        && !(0..=grace).contains(&seconds)
    {
        let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        action.invalid_value(seconds, detail, errors);
    }
}

fn validate_stop_signal(signal: &Field<'_>, os: &str, errors: &mut Errors) {
    match os {
        "" => signal.forbidden("may not be set for containers with empty `spec.os.name`", errors),
        "windows" => signal.one_of(&["SIGKILL", "SIGTERM"], errors),
        _ => {
            let supported = linux_signals();
            let supported: Vec<&str> = supported.iter().map(String::as_str).collect();
            signal.one_of(&supported, errors);
        }
    }
}

fn linux_signals() -> Vec<String> {
    const NAMED: [&str; 34] = [
        "ABRT", "ALRM", "BUS", "CHLD", "CLD", "CONT", "FPE", "HUP", "ILL", "INT", "IO", "IOT", "KILL",
        "PIPE", "POLL", "PROF", "PWR", "QUIT", "SEGV", "STKFLT", "STOP", "SYS", "TERM", "TRAP", "TSTP",
        "TTIN", "TTOU", "URG", "USR1", "USR2", "VTALRM", "WINCH", "XCPU", "XFSZ",
    ];
    let real_time =
        (1..=15).map(|n| format!("SIGRTMIN+{n}")).chain((1..=14).map(|n| format!("SIGRTMAX-{n}")));
    NAMED
        .iter()
        .map(|name| format!("SIG{name}"))
        .chain(["SIGRTMIN".into(), "SIGRTMAX".into()])
        .chain(real_time)
        .collect()
}
