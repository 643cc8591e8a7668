//! `kubectl describe`: an object as people read it, and what happened to it. Kinds that upstream has a layout for have the
//! same here; other kinds are shown whole.

mod access;
mod config;
mod generic;
mod network;
mod node;
mod page;
mod pod;
mod request;
mod storage;
mod volume;
mod workload;

use crate::connection::{ClusterFlags, Connection, Refusal};
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
    let (found, is_prefixed) = if flags.files.any() {
        (of_files(&connection, &flags.files).await?, false)
    } else if flags.select.words.is_empty() {
        bail!(
            "You must specify the type of resource to describe. Use \"kubectl api-resources\" for a complete list of supported resources."
        );
    } else {
        select::objects_or_prefixed(&connection, &flags.select).await?
    };
    if found.is_empty() {
        let all = flags.select.all_namespaces;
        eprintln!(
            "No resources found{}",
            if all { String::new() } else { format!(" in {} namespace.", connection.namespace) }
        );
    }
    for (index, (resource, object)) in found.iter().enumerate() {
        if index > 0 && !is_prefixed {
            print!("\n\n");
        }
        let mut page = Page::default();
        describe(&connection, resource, object, &mut page).await;
        if flags.show_events && has_events(resource) {
            events(&connection, object, &mut page).await?;
        }
        // Upstream's parts those that a prefix means otherwise.
        print!("{}{}", page.text(), if is_prefixed { "\n" } else { "" });
    }
    Ok(())
}

async fn of_files(connection: &Connection, files: &FileFlags) -> Result<Vec<(Resource, Value)>> {
    let mut found = files.objects(connection).await?;
    for (resource, object) in &mut found {
        *object = connection.get(&select::path_of(resource, object)).await?;
    }
    Ok(found)
}

async fn describe(connection: &Connection, resource: &Resource, object: &Value, page: &mut Page) {
    let (name, namespace) = (name_of(object), object["metadata"]["namespace"].as_str().unwrap_or_default());
    // What cannot be had is not shown: the object itself can.
    let get = |path: String| async move { connection.get(&path).await.unwrap_or_default() };
    let core = |plural: &str| format!("/api/v1/namespaces/{namespace}/{plural}");
    let pods = || async { get(format!("{}{}", core("pods"), selected(object))).await };
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Pod") => pod::describe(object, page),
        ("", "Service") => network::service(object, &get(slices_of(namespace, name)).await, page),
        ("", "Node") => {
            let selector = format!("spec.nodeName={name},status.phase!=Succeeded,status.phase!=Failed");
            let pods = get(format!("/api/v1/pods?fieldSelector={}", select::encode(&selector))).await;
            let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
            let lease = connection.get(&format!("{leases}/{name}")).await;
            node::describe(object, &pods, &lease, page);
        }
        ("", "Namespace") => {
            let of = |plural: &str| get(format!("/api/v1/namespaces/{name}/{plural}"));
            config::namespace(object, &of("resourcequotas").await, &of("limitranges").await, page);
        }
        ("", "Secret") => config::secret(object, page),
        ("", "ConfigMap") => config::config_map(object, page),
        ("", "ServiceAccount") => config::service_account(object, page),
        ("", "LimitRange") => config::limit_range(object, page),
        ("", "ResourceQuota") => config::quota(object, page),
        ("", "PersistentVolume") => storage::persistent_volume(object, page),
        ("", "PersistentVolumeClaim") => storage::claim(object, &get(core("pods")).await, page),
        ("", "Endpoints") => network::endpoints(object, page),
        ("", "ReplicationController") | ("apps", "ReplicaSet") => {
            workload::replicas(object, &pods().await, page);
        }
        ("apps", "Deployment") => {
            let sets = get(format!("/apis/apps/v1/namespaces/{namespace}/replicasets")).await;
            workload::deployment(object, &sets, page);
        }
        ("apps", "StatefulSet") => workload::stateful_set(object, &pods().await, page),
        ("apps", "DaemonSet") => workload::daemon_set(object, &pods().await, page),
        ("batch", "Job") => workload::job(object, page),
        ("batch", "CronJob") => workload::cron_job(object, page),
        ("policy", "PodDisruptionBudget") => workload::disruption_budget(object, page),
        ("autoscaling", "HorizontalPodAutoscaler") if resource.version == "v2" => {
            workload::autoscaler(object, page);
        }
        ("discovery.k8s.io", "EndpointSlice") => network::endpoint_slice(object, page),
        ("networking.k8s.io", "Ingress") => {
            let mut services = network::Backends::new();
            for service in network::backends_of(object) {
                let found = connection.get(&format!("{}/{service}", core("services"))).await;
                let found = match found {
                    Ok(found) => Ok((found, get(slices_of(namespace, service)).await)),
                    Err(error) => Err(error
                        .downcast::<Refusal>()
                        .map_or_else(|error| error.to_string(), |refusal| refusal.message)),
                };
                services.insert(service.to_owned(), found);
            }
            network::ingress(object, &services, page);
        }
        ("networking.k8s.io", "IngressClass") => network::ingress_class(object, page),
        ("networking.k8s.io", "NetworkPolicy") => network::policy(object, page),
        ("networking.k8s.io", "ServiceCIDR") => network::service_range(object, page),
        ("networking.k8s.io", "IPAddress") => network::address(object, page),
        ("storage.k8s.io", "StorageClass") => storage::storage_class(object, page),
        ("storage.k8s.io", "CSINode") => storage::csi_node(object, page),
        ("storage.k8s.io", "VolumeAttributesClass") => storage::volume_attributes_class(object, page),
        ("scheduling.k8s.io", "PriorityClass") => config::priority_class(object, page),
        ("rbac.authorization.k8s.io", "Role" | "ClusterRole") => access::role(object, page),
        ("rbac.authorization.k8s.io", _) => access::binding(object, page),
        ("certificates.k8s.io", "CertificateSigningRequest") => access::signing_request(object, page),
        _ => generic::describe(object, page),
    }
}

/// Kinds whose pages upstream ends without events.
fn has_events(resource: &Resource) -> bool {
    const WITHOUT: [&str; 5] = ["Namespace", "Secret", "LimitRange", "ResourceQuota", "NetworkPolicy"];
    resource.group != "rbac.authorization.k8s.io" && !WITHOUT.contains(&resource.kind.as_str())
}

/// The query for pods with the labels that an object selects.
fn selected(object: &Value) -> String {
    let selector = crate::pods::selector_of(object).unwrap_or_default();
    format!("?labelSelector={}", select::encode(&selector))
}

/// The path of a service's slices.
fn slices_of(namespace: &str, service: &str) -> String {
    let selector = select::encode(&format!("kubernetes.io/service-name={service}"));
    format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?labelSelector={selector}")
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
        let mut cells = super::events::cells(event);
        if let Some(part) = event["involvedObject"]["fieldPath"].as_str().filter(|part| !part.is_empty()) {
            cells[4].insert_str(0, &format!("{part}: "));
        }
        page.line(&format!("  {}", cells.join("\t")));
    }
    Ok(())
}
