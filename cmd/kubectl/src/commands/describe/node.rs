//! Nodes, and what runs on them.

use super::page::{Page, items, joined, shown, text, time};
use crate::connection::Refusal;
use anyhow::Result;
use api::Quantity;
use serde_json::Value;

pub fn describe(node: &Value, pods: &Value, lease: &Result<Value>, page: &mut Page) {
    page.field("Name", text(node, "/metadata/name"));
    let roles: Vec<&str> = node["metadata"]["labels"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(label, _)| label.strip_prefix("node-role.kubernetes.io/"))
        .collect();
    page.field("Roles", if roles.is_empty() { "<none>".to_owned() } else { roles.join(",") }.as_str());
    page.labels_and_annotations(node);
    page.field("CreationTimestamp", &time(text(node, "/metadata/creationTimestamp")));
    let mut taints: Vec<&Value> = items(node, "/spec/taints").collect();
    taints.sort_by_key(|taint| (text(taint, "/effect"), text(taint, "/key")));
    let taints: Vec<String> = taints
        .into_iter()
        .map(|taint| match text(taint, "/value") {
            "" => format!("{}:{}", text(taint, "/key"), text(taint, "/effect")),
            value => format!("{}={value}:{}", text(taint, "/key"), text(taint, "/effect")),
        })
        .collect();
    page.field("Taints", taints.first().map_or("<none>", String::as_str));
    taints.iter().skip(1).for_each(|taint| page.line(&format!("\t{taint}")));
    page.field("Unschedulable", &(node["spec"]["unschedulable"] == true).to_string());
    match lease {
        Ok(lease) => {
            page.line("Lease:");
            let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or("<unset>");
            page.line(&format!("  HolderIdentity:\t{holder}"));
            page.line(&format!("  AcquireTime:\t{}", time(text(lease, "/spec/acquireTime"))));
            page.line(&format!("  RenewTime:\t{}", time(text(lease, "/spec/renewTime"))));
        }
        Err(error) => {
            let why =
                error.downcast_ref::<Refusal>().map_or_else(|| error.to_string(), |why| why.message.clone());
            page.field("Lease", &format!("Failed to get lease: {why}"));
        }
    }
    let mut conditions = items(node, "/status/conditions").peekable();
    if conditions.peek().is_some() {
        page.line("Conditions:\n  Type\tStatus\tLastHeartbeatTime\tLastTransitionTime\tReason\tMessage");
        page.line("  ----\t------\t-----------------\t------------------\t------\t-------");
        for condition in conditions {
            let part = |path: &str| text(condition, path).to_owned();
            let times = (time(&part("/lastHeartbeatTime")), time(&part("/lastTransitionTime")));
            page.line(&format!(
                "  {} \t{} \t{} \t{} \t{} \t{}",
                part("/type"),
                part("/status"),
                times.0,
                times.1,
                part("/reason"),
                part("/message")
            ));
        }
    }
    page.line("Addresses:");
    items(node, "/status/addresses").for_each(|address| {
        page.line(&format!("  {}:\t{}", text(address, "/type"), text(address, "/address")))
    });
    for (title, list) in [("Capacity", "/status/capacity"), ("Allocatable", "/status/allocatable")] {
        let Some(quantities) = node.pointer(list).and_then(Value::as_object) else { continue };
        page.line(&format!("{title}:"));
        quantities.iter().for_each(|(name, value)| page.line(&format!("  {name}:\t{}", shown(value))));
    }
    page.line("System Info:");
    let info = [
        ("Machine ID", "machineID"),
        ("System UUID", "systemUUID"),
        ("Boot ID", "bootID"),
        ("Kernel Version", "kernelVersion"),
        ("OS Image", "osImage"),
        ("Operating System", "operatingSystem"),
        ("Architecture", "architecture"),
        ("Container Runtime Version", "containerRuntimeVersion"),
        ("Kubelet Version", "kubeletVersion"),
        ("Kube-Proxy Version", "kubeProxyVersion"),
    ];
    for (title, field) in info {
        page.line(&format!("  {title}:\t{}", node["status"]["nodeInfo"][field].as_str().unwrap_or_default()));
    }
    page.given("PodCIDR", node["spec"].get("podCIDR"));
    if node["spec"]["podCIDRs"].is_array() {
        page.field("PodCIDRs", &joined(&node["spec"]["podCIDRs"], ","));
    }
    page.given("ProviderID", node["spec"].get("providerID"));
    workload(node, pods, page);
}

fn workload(node: &Value, pods: &Value, page: &mut Page) {
    let pods: Vec<&Value> = items(pods, "/items").collect();
    page.line(&format!("Non-terminated Pods:\t({} in total)", pods.len()));
    page.line("  Namespace\tName\t\tCPU Requests\tCPU Limits\tMemory Requests\tMemory Limits\tAge");
    page.line("  ---------\t----\t\t------------\t----------\t---------------\t-------------\t---");
    let allocatable = |name: &str| milli(&node["status"]["allocatable"][name]);
    let share = |amount: i128, name: &str| match allocatable(name) {
        0 => "0%".to_owned(),
        all => format!("{}%", amount * 100 / all),
    };
    let amount = |pod: &Value, kind: &str, name: &str| -> i128 {
        items(pod, "/spec/containers").map(|container| milli(&container["resources"][kind][name])).sum()
    };
    let cell = |amount: i128, name: &str| format!("{} ({})", quantity(amount, name), share(amount, name));
    let kinds = [("requests", "cpu"), ("limits", "cpu"), ("requests", "memory"), ("limits", "memory")];
    for pod in &pods {
        let cells: Vec<String> =
            kinds.iter().map(|(kind, name)| cell(amount(pod, kind, name), name)).collect();
        let age = api::printing::since(pod["metadata"]["creationTimestamp"].as_str(), jiff::Timestamp::now());
        page.line(&format!(
            "  {}\t{}\t\t{}\t{age}",
            text(pod, "/metadata/namespace"),
            text(pod, "/metadata/name"),
            cells.join("\t")
        ));
    }
    page.line("Allocated resources:\n  (Total limits may be over 100 percent, i.e., overcommitted.)");
    page.line("  Resource\tRequests\tLimits\n  --------\t--------\t------");
    for name in ["cpu", "memory", "ephemeral-storage"] {
        let total = |kind: &str| -> i128 { pods.iter().map(|pod| amount(pod, kind, name)).sum() };
        page.line(&format!("  {name}\t{}\t{}", cell(total("requests"), name), cell(total("limits"), name)));
    }
}

fn milli(value: &Value) -> i128 {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return 0,
    };
    text.parse::<Quantity>().map_or(0, |quantity| i128::from(quantity.milli_value()))
}

fn quantity(milli: i128, name: &str) -> String {
    match name {
        "cpu" if milli % 1000 != 0 => format!("{milli}m"),
        "cpu" => (milli / 1000).to_string(),
        _ if milli == 0 => "0".to_owned(),
        _ if milli % (1000 * 1024 * 1024) == 0 => format!("{}Mi", milli / 1000 / 1024 / 1024),
        _ if milli % (1000 * 1024) == 0 => format!("{}Ki", milli / 1000 / 1024),
        _ => (milli / 1000).to_string(),
    }
}
