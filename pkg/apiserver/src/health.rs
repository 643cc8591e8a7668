//! `/healthz`, `/livez`, `/readyz`, `/version`, `/metrics`: what load balancers, probes and graphs ask.

use crate::answer::{self, Answer};
use crate::metrics;
use crate::request::Query;
use crate::server::Server;
use http::StatusCode;
use http::header::HeaderValue;
use serde_json::json;
use std::fmt::Write;
use std::time::Duration;

/// The version of the API that is served, and of this program.
pub const KUBERNETES_VERSION: &str = "v1.35.0";

/// A store that takes longer than this to answer is not healthy.
const STORAGE_TIMEOUT: Duration = Duration::from_secs(2);

/// Answers the paths of this module; `None` for others.
pub async fn handle(server: &Server, path: &str, query: &Query) -> Option<Answer> {
    match path {
        "/version" | "/version/" => return Some(answer::json(StatusCode::OK, &version())),
        "/metrics" => return Some(render_metrics(server)),
        _ => {}
    }
    let (endpoint, only) = ["healthz", "livez", "readyz"].iter().find_map(|endpoint| {
        let rest = path.strip_prefix('/')?.strip_prefix(endpoint)?;
        let only = if rest.is_empty() { "" } else { rest.strip_prefix('/')? };
        Some((*endpoint, only))
    })?;
    let excluded: Vec<&str> = query.all("exclude").collect();
    let checks: Vec<Check> = checks(server, endpoint)
        .await
        .into_iter()
        .filter(|check| (only.is_empty() || check.name == only) && !excluded.contains(&check.name))
        .collect();
    if checks.is_empty() {
        return None;
    }
    Some(report(endpoint, &checks, query.all("verbose").next().is_some()))
}

struct Check {
    name: &'static str,
    healthy: bool,
}

async fn checks(server: &Server, endpoint: &str) -> Vec<Check> {
    let mut checks = vec![Check { name: "ping", healthy: true }];
    if endpoint != "livez" {
        let answered = tokio::time::timeout(STORAGE_TIMEOUT, server.store.revision()).await;
        checks.push(Check { name: "etcd", healthy: matches!(answered, Ok(Ok(_))) });
        checks.push(Check { name: "poststarthook/bootstrap", healthy: server.is_bootstrapped() });
    }
    if endpoint == "readyz" {
        checks.push(Check { name: "shutdown", healthy: !server.shutdown.is_cancelled() });
    }
    checks
}

fn report(endpoint: &str, checks: &[Check], verbose: bool) -> Answer {
    let healthy = checks.iter().all(|check| check.healthy);
    let code = if healthy { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    if healthy && !verbose {
        return answer::text(code, "ok");
    }
    let mut text = String::new();
    for check in checks {
        let _ = match check.healthy {
            true => writeln!(text, "[+]{} ok", check.name),
            false => writeln!(text, "[-]{} failed: reason withheld", check.name),
        };
    }
    let _ = writeln!(text, "{endpoint} check {}", if healthy { "passed" } else { "failed" });
    answer::text(code, text)
}

fn version() -> serde_json::Value {
    json!({
        "major": "1", "minor": "35", "gitVersion": format!("{KUBERNETES_VERSION}+minik8s-{}", env!("CARGO_PKG_VERSION")),
        "emulationMajor": "1", "emulationMinor": "35", "minCompatibilityMajor": "1", "minCompatibilityMinor": "34",
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "none",
        "compiler": "rustc", "platform": format!("linux/{}", architecture()),
    })
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn render_metrics(server: &Server) -> Answer {
    let (mut counts, mut times) = (String::new(), String::new());
    let mut objects = String::new();
    for resource in server.registry.resources().iter() {
        let kind = &resource.kind;
        resource.metrics.render(&kind.group, &kind.version, &kind.plural, &mut counts, &mut times);
        let _ = writeln!(
            objects,
            "apiserver_storage_objects{{resource=\"{}\"}} {}",
            kind.group_resource(),
            resource.cache.len()
        );
    }
    let mut text = String::new();
    server.metrics.render(&mut text);
    server.flows.render(&mut text);
    text.push_str("# HELP apiserver_request_total Requests by verb, resource and answer.\n# TYPE apiserver_request_total counter\n");
    text.push_str(&counts);
    text.push_str("# HELP apiserver_request_duration_seconds How long answers took.\n# TYPE apiserver_request_duration_seconds histogram\n");
    text.push_str(&times);
    text.push_str(
        "# HELP apiserver_storage_objects Objects by resource.\n# TYPE apiserver_storage_objects gauge\n",
    );
    text.push_str(&objects);
    metrics::render_process(&mut text);
    let content_type = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    answer::typed(StatusCode::OK, content_type, text.into())
}
