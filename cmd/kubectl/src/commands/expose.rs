//! `kubectl expose`: a service for what runs.

use crate::change::{ChangeFlags, create};
use crate::connection::{ClusterFlags, Connection};
use crate::resources::Resource;
use crate::select::{ObjectFlags, name_of};
use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};

/// What `expose` is told.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  kubectl expose deployment web --port=80 --target-port=8000")]
pub struct Flags {
    #[command(flatten)]
    objects: ObjectFlags,
    /// The service's name; that of what it exposes unless told.
    #[arg(long)]
    name: Option<String>,
    /// The service's port.
    #[arg(long)]
    port: Option<String>,
    /// The pods' port, by number or name.
    #[arg(long)]
    target_port: Option<String>,
    /// TCP, UDP or SCTP.
    #[arg(long)]
    protocol: Option<String>,
    /// ClusterIP, NodePort, LoadBalancer or ExternalName.
    #[arg(long = "type")]
    kind: Option<String>,
    /// The labels of the pods, instead of those that it has.
    #[arg(long = "pod-labels", hide = true)]
    pod_labels: Option<String>,
    /// Labels of the service: a=b,c=d.
    #[arg(long)]
    labels: Option<String>,
    /// The address it should have; None is no address.
    #[arg(long)]
    cluster_ip: Option<String>,
    /// An address outside that leads to it.
    #[arg(long)]
    external_ip: Option<String>,
    /// The address that a load balancer should have.
    #[arg(long)]
    load_balancer_ip: Option<String>,
    /// None or ClientIP.
    #[arg(long)]
    session_affinity: Option<String>,
    #[command(flatten)]
    change: ChangeFlags,
}

/// What services are to the API.
pub fn services() -> Resource {
    Resource {
        version: "v1".into(),
        plural: "services".into(),
        kind: "Service".into(),
        namespaced: true,
        ..Resource::default()
    }
}

/// Exposes.
pub async fn run(cluster: &ClusterFlags, mut flags: Flags) -> Result<()> {
    let connection = Connection::open(cluster).await?;
    // Here -l does not choose objects: it says which pods the service leads to.
    let selector = flags.objects.selector.take().or(flags.pod_labels.take());
    for (resource, object) in flags.objects.choose(&connection, false).await? {
        let service = service(&flags, selector.as_deref(), &resource, &object)?;
        create(&connection, &flags.change, "kubectl-expose", (&services(), &service), "exposed").await?;
    }
    Ok(())
}

fn service(flags: &Flags, selector: Option<&str>, resource: &Resource, object: &Value) -> Result<Value> {
    let labels = match selector {
        Some(text) => pairs(text)?,
        None => selector_of(resource, object)?,
    };
    let ports = ports(flags, object)?;
    let mut metadata = json!({"name": flags.name.as_deref().unwrap_or_else(|| name_of(object))});
    if let Some(namespace) = object["metadata"]["namespace"].as_str() {
        metadata["namespace"] = namespace.into();
    }
    match &flags.labels {
        Some(labels) => metadata["labels"] = pairs(labels)?.into(),
        None if object["metadata"]["labels"].is_object() => {
            metadata["labels"] = object["metadata"]["labels"].clone();
        }
        None => {}
    }
    let mut spec = json!({"ports": ports, "selector": labels});
    let texts = [
        ("type", &flags.kind),
        ("clusterIP", &flags.cluster_ip),
        ("loadBalancerIP", &flags.load_balancer_ip),
        ("sessionAffinity", &flags.session_affinity),
    ];
    for (field, value) in texts {
        if let Some(value) = value {
            spec[field] = value.clone().into();
        }
    }
    if let Some(address) = &flags.external_ip {
        spec["externalIPs"] = json!([address]);
    }
    Ok(json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}))
}

/// `a=b,c=d`.
pub fn pairs(text: &str) -> Result<Map<String, Value>> {
    text.split(',')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (key, value) =
                pair.split_once('=').with_context(|| format!("unexpected label spec: {pair}"))?;
            Ok((key.to_owned(), value.into()))
        })
        .collect()
}

fn selector_of(resource: &Resource, object: &Value) -> Result<Map<String, Value>> {
    let (labels, complaint) = match resource.kind.as_str() {
        "Pod" => (&object["metadata"]["labels"], "the pod has no labels and cannot be exposed"),
        "Service" | "ReplicationController" => {
            (&object["spec"]["selector"], "it has no selector and cannot be exposed")
        }
        "Deployment" | "ReplicaSet" => {
            if object["spec"]["selector"]["matchExpressions"]
                .as_array()
                .is_some_and(|rules| !rules.is_empty())
            {
                bail!(
                    "couldn't retrieve selectors via --selector flag or introspection: couldn't convert expressions - \"{}\" to map-based selector format",
                    object["spec"]["selector"]["matchExpressions"]
                );
            }
            (
                &object["spec"]["selector"]["matchLabels"],
                "invalid deployment: no selectors, therefore cannot be exposed",
            )
        }
        kind => bail!("cannot expose a {kind}"),
    };
    labels.as_object().filter(|labels| !labels.is_empty()).cloned().context(complaint)
}

/// The service's ports: the one that was said, or those that the containers have.
fn ports(flags: &Flags, object: &Value) -> Result<Vec<Value>> {
    let spec = match object["kind"].as_str() {
        Some("Pod") => &object["spec"],
        _ => &object["spec"]["template"]["spec"],
    };
    let containers = spec["containers"].as_array().into_iter().flatten();
    let own: Vec<(String, Option<String>)> = match &flags.port {
        Some(port) => port.split(',').map(|port| (port.trim().to_owned(), None)).collect(),
        None => {
            let of_service =
                object["spec"]["ports"].as_array().into_iter().flatten().map(|port| (&port["port"], port));
            let of_pods = containers
                .filter_map(|container| container["ports"].as_array())
                .flatten()
                .map(|port| (&port["containerPort"], port));
            let known = of_service.chain(of_pods);
            known
                .map(|(number, port)| (number.to_string(), port["protocol"].as_str().map(str::to_owned)))
                .collect()
        }
    };
    if own.is_empty() {
        bail!(
            "couldn't find port via --port flag or introspection\nSee 'kubectl expose -h' for help and examples"
        );
    }
    let several = own.len() > 1;
    own.iter()
        .enumerate()
        .map(|(index, (text, protocol))| {
            let number: u16 = text.parse().with_context(|| format!("{text:?} is not a port"))?;
            let target = match &flags.target_port {
                Some(target) => target.parse::<u16>().map_or_else(|_| json!(target), |number| json!(number)),
                None => json!(number),
            };
            let protocol = flags.protocol.as_deref().or(protocol.as_deref()).unwrap_or("TCP");
            let mut port = json!({"port": number, "targetPort": target, "protocol": protocol.to_uppercase()});
            if several {
                port["name"] = format!("port-{}", index + 1).into();
            }
            Ok(port)
        })
        .collect()
}
