//! The node's API on its port, with a certificate.

use crate::config::{ApiConfig, Config, ServerConfig};
use crate::error::Error;
use crate::server::Serving;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::path::Path;
use tokio::net::TcpListener;

/// The configuration as `/configz` shows it.
pub(crate) fn shown(config: &Config) -> Value {
    json!({
        "staticPodPath": config.manifests,
        "clusterDNS": config.dns.servers,
        "clusterDomain": config.dns.domain,
        "maxPods": config.max_pods,
        "podPidsLimit": if config.pod_pids_limit > 0 { config.pod_pids_limit } else { -1 },
        "cgroupRoot": config.cgroup_root,
        "podLogsDir": config.paths.pod_logs,
        "containerLogMaxSize": config.log_max_bytes.to_string(),
        "containerLogMaxFiles": config.log_max_files,
        "evictionPressureTransitionPeriod": format!("{}s", config.pressure_stays.as_secs()),
        "imageGCHighThresholdPercent": config.image_gc_high_percent,
        "imageGCLowThresholdPercent": config.image_gc_low_percent,
        "nodeStatusUpdateFrequency": "10s",
        "nodeStatusReportFrequency": "5m0s",
        "nodeLeaseDurationSeconds": 40,
    })
}

/// Takes the port.
pub(crate) async fn bind(config: &ServerConfig) -> Result<TcpListener, Error> {
    TcpListener::bind(config.address).await.map_err(|source| {
        let what = format!(
            "listen on {}: is another kubelet running there? (--port 0 takes a free port)",
            config.address
        );
        Error::Server(Box::new(std::io::Error::new(source.kind(), format!("{what}: {source}"))))
    })
}

/// The certificate to show, and whom to believe.
pub(crate) fn serving(
    config: &Config,
    server: &ServerConfig,
    addresses: &[String],
) -> Result<Serving, Error> {
    let client_ca = match (&server.client_ca, &config.api) {
        (Some(file), _) => read(file)?,
        (None, ApiConfig::Kubeconfig(file)) => authority(file)?,
        (None, _) => String::new(),
    };
    let made = match &server.certificate {
        Some((certificate, key)) => Serving::new(&read(certificate)?, &read(key)?, &client_ca),
        None => {
            let mut names = addresses.to_vec();
            names.push(config.hostname.clone());
            names.push("127.0.0.1".into());
            Serving::self_signed(&config.node_name, &names, &client_ca, Timestamp::now())
        }
    };
    made.map_err(|error| Error::Server(error.into()))
}

fn read(file: &Path) -> Result<String, Error> {
    std::fs::read_to_string(file).map_err(|source| Error::File {
        doing: "read",
        path: file.to_owned(),
        source,
    })
}

/// Who signed the apiserver's certificate signs those of its clients too.
fn authority(kubeconfig: &Path) -> Result<String, Error> {
    let failed = |error: kube::config::KubeconfigError| Error::Server(error.into());
    let parsed = kube::config::Kubeconfig::read_from(kubeconfig).map_err(failed)?;
    let current =
        parsed.contexts.iter().find(|context| Some(&context.name) == parsed.current_context.as_ref());
    let name = current.and_then(|context| context.context.as_ref()).map(|context| &context.cluster);
    let cluster = parsed.clusters.iter().find(|cluster| Some(&cluster.name) == name);
    let Some(cluster) = cluster.and_then(|cluster| cluster.cluster.as_ref()) else {
        return Ok(String::new());
    };
    if let Some(data) = &cluster.certificate_authority_data {
        let decoded = BASE64_STANDARD.decode(data).ok().and_then(|pem| String::from_utf8(pem).ok());
        return Ok(decoded.unwrap_or_default());
    }
    cluster.certificate_authority.as_ref().map_or(Ok(String::new()), |file| read(Path::new(file)))
}
