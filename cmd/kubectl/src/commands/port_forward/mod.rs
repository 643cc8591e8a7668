//! `kubectl port-forward`.

mod tunnel;

use crate::connection::{ClusterFlags, Connection, is_not_found};
use crate::pods;
use crate::select::{self, SelectFlags, name_of};
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

/// What `port-forward` is told.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  kubectl port-forward service/web 8080:80\n  kubectl port-forward web :5432"
)]
pub struct Flags {
    /// The pod, or kind/name of what has pods.
    target: String,
    /// PORT, LOCAL:REMOTE, or :REMOTE for any free local port.
    #[arg(required = true)]
    ports: Vec<String>,
    /// Where to listen.
    #[arg(long, value_delimiter = ',', default_value = "localhost")]
    address: Vec<String>,
    /// How long to wait until the pod runs.
    #[arg(long, default_value = "1m", value_parser = crate::duration::parse)]
    pod_running_timeout: std::time::Duration,
}

/// A way from here into the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Way {
    /// 0 is any free one.
    local: u16,
    remote: u16,
}

/// Forwards until it is told to stop.
pub async fn run(cluster: &ClusterFlags, flags: Flags) -> Result<()> {
    let connection = Connection::open(cluster).await?;
    let pod = pods::running(&connection, &flags.target, flags.pod_running_timeout).await?;
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    if phase != "Running" {
        bail!("unable to forward port because pod is not running. Current status={phase}");
    }
    let service = service(&connection, &flags.target).await?;
    let ways: Vec<Way> =
        flags.ports.iter().map(|port| parse(port, &pod, service.as_ref())).collect::<Result<_>>()?;
    let addresses = addresses(&flags.address)?;
    let mut listeners = Vec::new();
    for way in &ways {
        listeners.extend(listen(way, &addresses).await);
    }
    if listeners.is_empty() {
        let shown: Vec<String> = ways.iter().map(|way| format!("{{{} {}}}", way.local, way.remote)).collect();
        bail!("unable to listen on any of the requested ports: [{}]", shown.join(" "));
    }
    let path = format!("{}/portforward", pods::path(&connection, name_of(&pod)));
    let connection = Arc::new(connection);
    let mut serving = JoinSet::new();
    for (listener, remote) in listeners {
        serving.spawn(serve(listener, remote, connection.clone(), path.clone()));
    }
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        Some(ended) = serving.join_next() => ended?,
        _ = terminate.recv() => Ok(()),
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

/// The service, if it is one that was named.
async fn service(connection: &Connection, word: &str) -> Result<Option<Value>> {
    let Some((kind, _)) = word.split_once('/') else { return Ok(None) };
    if !matches!(kind, "service" | "services" | "svc") {
        return Ok(None);
    }
    let select = SelectFlags { words: vec![word.to_owned()], ..SelectFlags::default() };
    Ok(select::objects(connection, &select).await?.into_iter().next().map(|(_, object)| object))
}

fn parse(text: &str, pod: &Value, service: Option<&Value>) -> Result<Way> {
    let (local, remote) = match text.split_once(':') {
        None => (None, text),
        Some((local, remote)) => (Some(local), remote),
    };
    let number = |text: &str| {
        text.parse::<u16>()
            .ok()
            .with_context(|| format!("error parsing local port '{text}': it is not a number below 65536"))
    };
    let target = match service {
        Some(service) => service_target(service, remote, pod)?,
        None => pod_port(pod, remote)
            .with_context(|| format!("Pod '{}' does not have a named port '{remote}'", name_of(pod)))?,
    };
    if target == 0 {
        bail!("remote port must be > 0");
    }
    let local = match local {
        Some("") => 0,
        Some(local) => number(local)?,
        // A name stands for the port that it names; a service's port keeps its own number here.
        None => remote.parse().unwrap_or(target),
    };
    Ok(Way { local, remote: target })
}

/// A number, or the number of a container's port that has this name.
fn pod_port(pod: &Value, word: &str) -> Option<u16> {
    if let Ok(number) = word.parse() {
        return Some(number);
    }
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    let mut ports = containers.filter_map(|container| container["ports"].as_array()).flatten();
    let port = ports.find(|port| port["name"] == word)?;
    u16::try_from(port["containerPort"].as_u64()?).ok()
}

/// Where a service's port leads in a pod.
fn service_target(service: &Value, word: &str, pod: &Value) -> Result<u16> {
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    let number = word.parse::<u64>().ok();
    let mut found = ports.filter(|port| number.map_or(port["name"] == word, |number| port["port"] == number));
    let name = name_of(service);
    let port = found.next().with_context(|| format!("Service {name} does not have a service port {word}"))?;
    let target = match &port["targetPort"] {
        Value::String(target) => pod_port(pod, target),
        Value::Number(target) if service["spec"]["clusterIP"] != "None" => {
            target.as_u64().and_then(|target| u16::try_from(target).ok())
        }
        _ => port["port"].as_u64().and_then(|port| u16::try_from(port).ok()),
    };
    target.with_context(|| format!("the pod has no port that {word} of service {name} leads to"))
}

fn addresses(words: &[String]) -> Result<Vec<IpAddr>> {
    let mut addresses = Vec::new();
    for word in words {
        match word.as_str() {
            "localhost" => {
                addresses.extend([IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)])
            }
            word => addresses.push(word.parse().with_context(|| format!("{word} is not a valid IP"))?),
        }
    }
    Ok(addresses)
}

/// Listens on all addresses that can be had; the same port on all of them.
async fn listen(way: &Way, addresses: &[IpAddr]) -> Vec<(TcpListener, u16)> {
    let (mut listeners, mut errors, mut port) = (Vec::new(), Vec::new(), way.local);
    for address in addresses {
        match TcpListener::bind(SocketAddr::new(*address, port)).await {
            Ok(listener) => {
                let Ok(local) = listener.local_addr() else { continue };
                port = local.port();
                println!("Forwarding from {local} -> {}", way.remote);
                listeners.push((listener, way.remote));
            }
            Err(error) => {
                errors.push(format!("unable to create listener: Error listen {address}:{port}: {error}"))
            }
        }
    }
    if listeners.is_empty() {
        eprintln!(
            "Unable to listen on port {}: Listeners failed to create with the following errors: [{}]",
            way.local,
            errors.join(" ")
        );
    }
    listeners
}

/// Forwards what comes in, until the pod is gone.
async fn serve(listener: TcpListener, remote: u16, connection: Arc<Connection>, path: String) -> Result<()> {
    let local = listener.local_addr()?.port();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted?;
                println!("Handling connection for {local}");
                let (connection, path) = (connection.clone(), path.clone());
                connections.spawn(async move { forward(stream, &connection, &path, remote).await });
            }
            Some(Ok(Err(error))) = connections.join_next() => {
                eprintln!("error: an error occurred forwarding {local} -> {remote}: {error:#}");
                if is_not_found(&error) {
                    bail!("lost connection to pod");
                }
            }
        }
    }
}

async fn forward(stream: TcpStream, connection: &Connection, path: &str, remote: u16) -> Result<()> {
    let socket = connection.upgrade(path, tunnel::PROTOCOL).await.context("lost connection to pod")?;
    tunnel::carry(stream, socket, remote).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ports_are_numbers_names_and_those_of_services() {
        let pod = json!({"metadata": {"name": "web"}, "spec": {"containers": [{"ports": [{"name": "http", "containerPort": 8000}]}]}});
        let service = json!({"metadata": {"name": "web"}, "spec": {"clusterIP": "10.0.0.1", "ports": [
            {"name": "main", "port": 80, "targetPort": "http"}, {"port": 443, "targetPort": 8443}]}});
        let check = |text: &str, service: Option<&Value>, expected: (u16, u16)| {
            let way = parse(text, &pod, service).expect(text);
            assert_eq!((way.local, way.remote), expected, "{text}");
        };
        check("80", None, (80, 80));
        check("8080:80", None, (8080, 80));
        check(":80", None, (0, 80));
        check("http", None, (8000, 8000));
        check("80", Some(&service), (80, 8000));
        check("8080:main", Some(&service), (8080, 8000));
        check("443", Some(&service), (443, 8443));
        for wrong in ["x", "1:x", "70000", "1:0"] {
            assert!(parse(wrong, &pod, None).is_err(), "{wrong}");
        }
        assert!(parse("81", &pod, Some(&service)).is_err());
        assert_eq!(addresses(&["localhost".to_owned()]).expect("two").len(), 2);
        assert!(addresses(&["somewhere".to_owned()]).is_err());
    }
}
