//! Services and ingresses.

use super::{HowFlags, pair};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// `create service`.
#[derive(clap::Subcommand)]
pub enum Service {
    /// Inside the cluster.
    Clusterip(ServiceFlags),
    /// On a port of every node.
    Nodeport(ServiceFlags),
    /// Behind a load balancer.
    Loadbalancer(ServiceFlags),
    /// Another name for a host.
    Externalname(ServiceFlags),
}

/// What a service is made of.
#[derive(clap::Args)]
pub struct ServiceFlags {
    name: String,
    /// PORT or PORT:TARGET, with commas between.
    #[arg(long, value_delimiter = ',')]
    tcp: Vec<String>,
    /// The service's address; None for none.
    #[arg(long)]
    clusterip: Option<String>,
    /// The port of the nodes.
    #[arg(long)]
    node_port: Option<u16>,
    /// The host that is meant.
    #[arg(long)]
    external_name: Option<String>,
    #[command(flatten)]
    how: HowFlags,
}

impl Service {
    pub fn object(self) -> Result<(Value, HowFlags)> {
        let (kind, flags) = match self {
            Service::Clusterip(flags) => ("ClusterIP", flags),
            Service::Nodeport(flags) => ("NodePort", flags),
            Service::Loadbalancer(flags) => ("LoadBalancer", flags),
            Service::Externalname(flags) => ("ExternalName", flags),
        };
        let needs_ports = kind != "ExternalName" && flags.clusterip.as_deref() != Some("None");
        if needs_ports && flags.tcp.is_empty() {
            bail!("at least one tcp port specifier must be provided");
        }
        let labels = json!({"app": flags.name});
        let mut spec = json!({"type": kind, "selector": labels});
        let ports =
            flags.tcp.iter().map(|text| port(text, flags.node_port)).collect::<Result<Vec<Value>>>()?;
        if !ports.is_empty() {
            spec["ports"] = ports.into();
        }
        if let Some(address) = flags.clusterip {
            spec["clusterIP"] = address.into();
        }
        if kind == "ExternalName" {
            spec["externalName"] = flags.external_name.context("--external-name is missing")?.into();
        }
        let object = json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": flags.name, "labels": labels}, "spec": spec});
        Ok((object, flags.how))
    }
}

fn port(text: &str, node_port: Option<u16>) -> Result<Value> {
    let (port, target) = text.split_once(':').unwrap_or((text, text));
    let number: u16 =
        port.parse().with_context(|| format!("--tcp {text:?}: expected PORT or PORT:TARGET"))?;
    let target = target.parse::<u16>().map_or_else(|_| Value::from(target), Value::from);
    let mut object =
        json!({"name": text.replace(':', "-"), "port": number, "protocol": "TCP", "targetPort": target});
    if let Some(node_port) = node_port {
        object["nodePort"] = node_port.into();
    }
    Ok(object)
}

/// `create ingress`.
#[derive(clap::Args)]
pub struct Ingress {
    name: String,
    /// The class.
    #[arg(long)]
    class: Option<String>,
    /// HOST/PATH=SERVICE:PORT[,tls=SECRET]; a path that ends in * means all below it.
    #[arg(long)]
    rule: Vec<String>,
    /// SERVICE:PORT for everything else.
    #[arg(long)]
    default_backend: Option<String>,
    /// KEY=VALUE.
    #[arg(long)]
    annotation: Vec<String>,
    #[command(flatten)]
    how: HowFlags,
}

impl Ingress {
    pub fn object(self) -> Result<(Value, HowFlags)> {
        if self.rule.is_empty() && self.default_backend.is_none() {
            bail!(
                "not enough information provided: every ingress has to either specify a default-backend (which catches all traffic) or a list of rules (which catch specific paths)"
            );
        }
        let mut object = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": self.name}, "spec": {}});
        for text in &self.annotation {
            let (key, value) = pair(text)?;
            object["metadata"]["annotations"][key] = value.into();
        }
        let spec = &mut object["spec"];
        if let Some(class) = self.class {
            spec["ingressClassName"] = class.into();
        }
        if let Some(text) = &self.default_backend {
            spec["defaultBackend"] = backend(text)?;
        }
        for text in &self.rule {
            add_rule(spec, text)?;
        }
        Ok((object, self.how))
    }
}

fn backend(text: &str) -> Result<Value> {
    let (name, port) = text.split_once(':').with_context(|| format!("{text:?}: expected SERVICE:PORT"))?;
    let port = port.parse::<u16>().map_or_else(|_| json!({"name": port}), |number| json!({"number": number}));
    Ok(json!({"service": {"name": name, "port": port}}))
}

fn add_rule(spec: &mut Value, text: &str) -> Result<()> {
    let (rule, tls) = text.split_once(',').map_or((text, None), |(rule, tls)| (rule, Some(tls)));
    let (place, service) = rule.split_once('=').with_context(|| {
        format!("rule {text} is invalid and should be in format host/path=svcname:svcport[,tls[=secret]]")
    })?;
    let (host, path) =
        place.split_once('/').map_or((place, "/".to_owned()), |(host, path)| (host, format!("/{path}")));
    let (path, kind) =
        path.strip_suffix('*').map_or((path.clone(), "Exact"), |path| (path.to_owned(), "Prefix"));
    let entry = json!({"path": path, "pathType": kind, "backend": backend(service)?});
    let append = |list: &mut Value, item: Value| match list.as_array_mut() {
        Some(items) => items.push(item),
        None => *list = json!([item]),
    };
    let same_host = |own: &&mut Value| own["host"].as_str().unwrap_or_default() == host;
    match spec["rules"].as_array_mut().into_iter().flatten().find(same_host) {
        Some(own) => append(&mut own["http"]["paths"], entry),
        None => {
            let mut own = json!({"http": {"paths": [entry]}});
            if !host.is_empty() {
                own["host"] = host.into();
            }
            append(&mut spec["rules"], own);
        }
    }
    if let Some(tls) = tls {
        let mut entry = json!({});
        if !host.is_empty() {
            entry["hosts"] = json!([host]);
        }
        if let Some(secret) = tls.strip_prefix("tls=").filter(|secret| !secret.is_empty()) {
            entry["secretName"] = secret.into();
        }
        append(&mut spec["tls"], entry);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_become_paths_of_hosts() {
        let mut spec = json!({});
        for rule in ["example.com/path*=svc:80,tls=my-cert", "example.com/=web:http", "/x=y:1"] {
            add_rule(&mut spec, rule).expect(rule);
        }
        let backend = |name: &str, port: Value| json!({"service": {"name": name, "port": port}});
        let expected = json!({
            "rules": [
                {"host": "example.com", "http": {"paths": [
                    {"path": "/path", "pathType": "Prefix", "backend": backend("svc", json!({"number": 80}))},
                    {"path": "/", "pathType": "Exact", "backend": backend("web", json!({"name": "http"}))}]}},
                {"http": {"paths": [{"path": "/x", "pathType": "Exact", "backend": backend("y", json!({"number": 1}))}]}},
            ],
            "tls": [{"hosts": ["example.com"], "secretName": "my-cert"}],
        });
        assert_eq!(spec, expected);
    }

    #[test]
    fn ports_have_targets() {
        assert_eq!(
            port("80:8080", None).expect("a port"),
            json!({"name": "80-8080", "port": 80, "protocol": "TCP", "targetPort": 8080})
        );
        assert_eq!(port("80:http", Some(30080)).expect("a port")["targetPort"], "http");
        assert!(port("x", None).is_err());
    }
}
