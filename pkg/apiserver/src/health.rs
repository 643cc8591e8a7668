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
        let only =
            if rest.is_empty() { "" } else { rest.strip_prefix('/').filter(|only| !only.is_empty())? };
        Some((*endpoint, only))
    })?;
    let excluded: Vec<&str> = query.all("exclude").collect();
    let checks = checks(server, endpoint, only, &excluded).await;
    if checks.is_empty() && !only.is_empty() {
        return None;
    }
    Some(report(endpoint, &checks, query.all("verbose").next().is_some()))
}

/// What there is to know of a server's health.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fact {
    /// It answers.
    Answers,
    /// The store answers it.
    Store,
    /// The first objects of the cluster are there, and so are the caches that they went through.
    Bootstrapped,
    /// What there is to know of the groups that are served, also by others, is in their APIServices.
    Registered,
    /// It is not about to end.
    Stays,
}

/// The checks by upstream's names, for those who ask for one. Which of upstream's parts a name is of is ours in another
/// place: here is the fact that it stands for.
const CHECKS: [(&str, Fact); 26] = [
    ("ping", Fact::Answers),
    ("log", Fact::Answers),
    ("etcd", Fact::Store),
    ("etcd-readiness", Fact::Store),
    ("informer-sync", Fact::Bootstrapped),
    ("poststarthook/start-apiserver-admission-initializer", Fact::Bootstrapped),
    ("poststarthook/generic-apiserver-start-informers", Fact::Bootstrapped),
    ("poststarthook/storage-readiness", Fact::Bootstrapped),
    ("poststarthook/start-apiextensions-informers", Fact::Bootstrapped),
    ("poststarthook/start-apiextensions-controllers", Fact::Bootstrapped),
    ("poststarthook/crd-informer-synced", Fact::Bootstrapped),
    ("poststarthook/start-system-namespaces-controller", Fact::Bootstrapped),
    ("poststarthook/start-service-ip-repair-controllers", Fact::Bootstrapped),
    ("poststarthook/rbac/bootstrap-roles", Fact::Bootstrapped),
    ("poststarthook/scheduling/bootstrap-system-priority-classes", Fact::Bootstrapped),
    ("poststarthook/priority-and-fairness-config-producer", Fact::Bootstrapped),
    ("poststarthook/bootstrap-controller", Fact::Bootstrapped),
    ("poststarthook/start-kube-aggregator-informers", Fact::Bootstrapped),
    ("poststarthook/start-cluster-authentication-info-controller", Fact::Registered),
    ("poststarthook/apiservice-registration-controller", Fact::Registered),
    ("poststarthook/apiservice-status-local-available-controller", Fact::Registered),
    ("poststarthook/apiservice-status-remote-available-controller", Fact::Registered),
    ("poststarthook/kube-apiserver-autoregistration", Fact::Registered),
    ("autoregister-completion", Fact::Registered),
    ("poststarthook/apiservice-openapi-controller", Fact::Registered),
    ("shutdown", Fact::Stays),
];

/// Those that only say whether somebody should be sent here.
const OF_READYZ: [&str; 3] = ["etcd-readiness", "informer-sync", "shutdown"];

struct Check {
    name: &'static str,
    healthy: bool,
}

/// The checks of an endpoint that are asked for. The store is asked only where one is about it.
async fn checks(server: &Server, endpoint: &str, only: &str, excluded: &[&str]) -> Vec<Check> {
    let is_asked = |name: &str| {
        (endpoint == "readyz" || !OF_READYZ.contains(&name))
            && (only.is_empty() || name == only)
            && !excluded.contains(&name)
    };
    let asked: Vec<(&str, Fact)> = CHECKS.into_iter().filter(|(name, _)| is_asked(name)).collect();
    let store_answers = match asked.iter().any(|(_, fact)| *fact == Fact::Store) {
        true => {
            let answer = tokio::time::timeout(STORAGE_TIMEOUT, server.store.revision()).await;
            matches!(answer, Ok(Ok(_)))
        }
        false => false,
    };
    let holds = |fact| match fact {
        Fact::Answers => true,
        Fact::Store => store_answers,
        Fact::Bootstrapped => server.is_bootstrapped(),
        Fact::Registered => server.api_services.is_registered(),
        Fact::Stays => !server.shutdown.is_cancelled(),
    };
    asked.into_iter().map(|(name, fact)| Check { name, healthy: holds(fact) }).collect()
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
    if server.config.redis.is_some() {
        server.publisher.render(&mut text);
    }
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
