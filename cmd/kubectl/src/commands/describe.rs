//! `kubectl describe`: an object as people read it, and what happened to it. Pods, nodes, deployments and services have
//! upstream's layout; other kinds are shown whole.

mod generic;
mod node;
mod page;
mod pod;
mod service;
mod workload;

use crate::connection::{ClusterFlags, Connection};
use crate::manifests::FileFlags;
use crate::resources::Resource;
use crate::select::{self, SelectFlags, name_of};
use anyhow::{Result, bail};
use page::Page;
use serde_json::Value;

/// What `describe` is told.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  kubectl describe pod web")]
pub struct Flags {
    #[command(flatten)]
    select: SelectFlags,
    #[command(flatten)]
    files: FileFlags,
    /// Also show what happened.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    show_events: bool,
    /// Accepted as upstream's.
    #[arg(long, hide = true)]
    chunk_size: Option<usize>,
}

/// Describes.
pub async fn run(cluster: &ClusterFlags, flags: Flags) -> Result<()> {
    let connection = Connection::open(cluster).await?;
    let found = if flags.files.any() {
        of_files(&connection, &flags.files).await?
    } else if flags.select.words.is_empty() {
        bail!(
            "You must specify the type of resource to describe. Use \"kubectl api-resources\" for a complete list of supported resources."
        );
    } else {
        select::objects(&connection, &flags.select).await?
    };
    if found.is_empty() {
        let all = flags.select.all_namespaces;
        eprintln!(
            "No resources found{}",
            if all { String::new() } else { format!(" in {} namespace.", connection.namespace) }
        );
    }
    for (index, (resource, object)) in found.iter().enumerate() {
        if index > 0 {
            print!("\n\n");
        }
        let mut page = Page::default();
        describe(&connection, resource, object, &mut page).await?;
        if flags.show_events && resource.kind != "Event" {
            events(&connection, object, &mut page).await?;
        }
        print!("{}", page.text());
    }
    Ok(())
}

async fn of_files(connection: &Connection, files: &FileFlags) -> Result<Vec<(Resource, Value)>> {
    let mut manifests = files.manifests(connection).await?;
    let mut found = Vec::new();
    for index in 0..manifests.all.len() {
        let resource = manifests.resource(connection, index).await?;
        let object = connection.get(&select::path_of(&resource, &manifests.all[index].value)).await?;
        found.push((resource, object));
    }
    Ok(found)
}

async fn describe(
    connection: &Connection,
    resource: &Resource,
    object: &Value,
    page: &mut Page,
) -> Result<()> {
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Pod") => pod::describe(object, page),
        ("", "Service") => {
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
            let selector = format!("kubernetes.io/service-name={}", name_of(object));
            let path = format!(
                "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?labelSelector={}",
                select::encode(&selector)
            );
            service::describe(object, &connection.get(&path).await.unwrap_or_default(), page);
        }
        ("", "Node") => {
            let selector =
                format!("spec.nodeName={},status.phase!=Succeeded,status.phase!=Failed", name_of(object));
            let path = format!("/api/v1/pods?fieldSelector={}", select::encode(&selector));
            let namespace = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
            let lease = connection.get(&format!("{namespace}/{}", name_of(object))).await.unwrap_or_default();
            node::describe(object, &connection.get(&path).await.unwrap_or_default(), &lease, page);
        }
        ("apps", "Deployment") => {
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
            let sets = connection
                .get(&format!("/apis/apps/v1/namespaces/{namespace}/replicasets"))
                .await
                .unwrap_or_default();
            workload::deployment(object, &sets, page);
        }
        ("certificates.k8s.io", "CertificateSigningRequest") => generic::signing_request(object, page),
        _ => generic::describe(resource, object, page),
    }
    Ok(())
}

async fn events(connection: &Connection, object: &Value, page: &mut Page) -> Result<()> {
    let metadata = &object["metadata"];
    let namespace = metadata["namespace"].as_str().unwrap_or("default");
    let text = |field: &str| metadata[field].as_str().unwrap_or_default();
    // Events about a node carry its name as its uid.
    let uid =
        if object["kind"] == "Node" { String::new() } else { format!(",involvedObject.uid={}", text("uid")) };
    let selector = format!("involvedObject.name={}{uid}", text("name"));
    let path = format!("/api/v1/namespaces/{namespace}/events?fieldSelector={}", select::encode(&selector));
    let list = connection.get(&path).await?;
    let mut items = list["items"].as_array().cloned().unwrap_or_default();
    items.retain(|event| event["involvedObject"]["kind"] == object["kind"]);
    items.sort_by_key(super::events::last_seen);
    if items.is_empty() {
        page.line("Events:\t<none>");
        return Ok(());
    }
    page.line("Events:");
    page.line("  Type\tReason\tAge\tFrom\tMessage");
    page.line("  ----\t------\t----\t----\t-------");
    for event in &items {
        let cells = super::events::cells(event);
        page.line(&format!("  {}", cells.join("\t")));
    }
    Ok(())
}
