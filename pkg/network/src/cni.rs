//! CNI: the network made by plugins, as a configuration list says.
//!
//! ```text
//! /etc/cni/net.d/10-x.conflist ──> plugin 1 ──ADD──> result ──prevResult──> plugin 2 ──ADD──> result ──> record
//!                                                                               DEL in the opposite order
//! ```
//!
//! The list and the result are kept in the pod's record, so that a pod is removed by the plugins that made it.
//! Plugins run one after the other, with the environment the specification gives them and nothing else but PATH.

use crate::records::{By, Record};
use crate::{Config, Error, Result, namespace};
use serde_json::{Map, Value, json};
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

const IFNAME: &str = "eth0";
/// A plugin that takes longer hangs: upstream's runtimes wait no longer either.
const PLUGIN_TIMEOUT: Duration = Duration::from_secs(220);
/// The first version of the specification with CHECK.
const CHECK_SINCE: (u32, u32) = (0, 4);

/// The configuration that is in force: the first file by name. `None` if there is no file; an error if it is broken.
pub fn load(dir: &Path) -> Result<Option<Value>> {
    let Ok(entries) = fs::read_dir(dir) else { return Ok(None) };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    let known = |path: &PathBuf| {
        path.extension()
            .is_some_and(|extension| ["conf", "conflist", "json"].iter().any(|known| extension == *known))
    };
    paths.retain(known);
    paths.sort();
    let Some(path) = paths.into_iter().next() else { return Ok(None) };
    let text = fs::read(&path).map_err(Error::io(format!("read {}", path.display())))?;
    match parse(&text) {
        Ok(list) => Ok(Some(list)),
        Err(message) => Err(Error::CniConfig { path, message }),
    }
}

/// A list, also if the file holds one plugin only.
fn parse(text: &[u8]) -> Result<Value, String> {
    let mut config: Value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    if config["plugins"].is_null() {
        let (name, version) = (config["name"].clone(), config["cniVersion"].clone());
        config = json!({"name": name, "cniVersion": version, "plugins": [config]});
    }
    if config["name"].as_str().is_none_or(str::is_empty) {
        return Err("it has no name".to_owned());
    }
    let plugins = config["plugins"].as_array().filter(|plugins| !plugins.is_empty());
    let plugins = plugins.ok_or("it has no plugins")?;
    for plugin in plugins {
        let kind = plugin["type"].as_str().unwrap_or_default();
        if kind.is_empty() || kind.contains('/') {
            return Err("a plugin has no type".to_owned());
        }
    }
    Ok(config)
}

/// Runs ADD of every plugin. What an attempt before this one left is removed first.
pub async fn attach(config: &Config, record: &Record) -> Result<Value> {
    let By::Cni { list, .. } = &record.by else { return Ok(Value::Null) };
    if namespace::is_namespace(&record.netns) {
        delete(config, record).await?;
    }
    namespace::create(&record.netns).await?;
    let mut result = Value::Null;
    for plugin in plugins(list) {
        match call(config, record, "ADD", plugin, &result).await {
            Ok(answer) => result = answer,
            Err(error) => {
                // The specification wants DEL after a failed ADD. Its own failure would hide the reason.
                if let Err(error) = delete(config, record).await {
                    tracing::warn!(%error, pod = %record.pod.name, "what a failed ADD left could not be removed");
                }
                return Err(error);
            }
        }
    }
    Ok(result)
}

/// Runs DEL of every plugin, the last one first, and removes the namespace.
pub async fn detach(config: &Config, record: &Record) -> Result<()> {
    delete(config, record).await?;
    namespace::remove(&record.netns)
}

/// Runs CHECK of every plugin.
pub async fn check(config: &Config, record: &Record) -> Result<()> {
    let By::Cni { list, result: Some(result) } = &record.by else { return Ok(()) };
    if version(list) < CHECK_SINCE || list["disableCheck"] == true {
        return Ok(());
    }
    for plugin in plugins(list) {
        call(config, record, "CHECK", plugin, result).await?;
    }
    Ok(())
}

async fn delete(config: &Config, record: &Record) -> Result<()> {
    let By::Cni { list, result } = &record.by else { return Ok(()) };
    for plugin in plugins(list).rev() {
        let previous = result.as_ref().filter(|_| version(list) >= CHECK_SINCE).unwrap_or(&Value::Null);
        call(config, record, "DEL", plugin, previous).await?;
    }
    Ok(())
}

/// The addresses that a result names.
pub fn addresses(result: &Value) -> Vec<IpAddr> {
    let address = |text: &Value| text.as_str()?.split('/').next()?.parse().ok();
    match result["ips"].as_array() {
        Some(ips) => ips.iter().filter_map(|ip| address(&ip["address"])).collect(),
        // Before version 0.3.0.
        None => ["ip4", "ip6"].iter().filter_map(|family| address(&result[family]["ip"])).collect(),
    }
}

fn plugins(list: &Value) -> std::slice::Iter<'_, Value> {
    list["plugins"].as_array().map(Vec::as_slice).unwrap_or_default().iter()
}

fn version(list: &Value) -> (u32, u32) {
    let mut parts =
        list["cniVersion"].as_str().unwrap_or("0.1.0").split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

async fn call(
    config: &Config,
    record: &Record,
    command: &'static str,
    plugin: &Value,
    previous: &Value,
) -> Result<Value> {
    let By::Cni { list, .. } = &record.by else { return Ok(Value::Null) };
    let kind = plugin["type"].as_str().unwrap_or_default().to_owned();
    let failed = |message: String| Error::CniPlugin { plugin: kind.clone(), command, message };
    let path = config.cni_bin_dirs.iter().map(|dir| dir.join(&kind)).find(|path| path.is_file());
    let searched = || config.cni_bin_dirs.iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>();
    let path =
        path.ok_or_else(|| failed(format!("failed to find plugin \"{kind}\" in path {:?}", searched())))?;
    let netns = match command == "DEL" && !namespace::is_namespace(&record.netns) {
        true => String::new(),
        false => record.netns.display().to_string(),
    };
    let mut running = Command::new(path)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_else(|| "/usr/sbin:/usr/bin:/sbin:/bin".into()))
        .env("CNI_COMMAND", command)
        .env("CNI_CONTAINERID", &record.pod.uid)
        .env("CNI_NETNS", netns)
        .env("CNI_IFNAME", IFNAME)
        .env("CNI_PATH", searched().join(":"))
        .env("CNI_ARGS", arguments(record))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    let input = stdin_of(list, plugin, record, previous).to_string();
    if let Some(mut stdin) = running.stdin.take() {
        // A plugin that does not read its input says so by its exit code.
        let _ = stdin.write_all(input.as_bytes()).await;
    }
    let output = tokio::time::timeout(PLUGIN_TIMEOUT, running.wait_with_output()).await;
    let output = output.map_err(|_| failed("it did not end".to_owned()))?;
    let output = output.map_err(|error| failed(error.to_string()))?;
    let answer: Option<Value> = serde_json::from_slice(&output.stdout).ok();
    if output.status.success() {
        return Ok(answer.unwrap_or_else(|| previous.clone()));
    }
    let said = answer.as_ref().map(|answer| {
        let details = answer["details"].as_str().filter(|details| !details.is_empty());
        format!(
            "{}{}",
            answer["msg"].as_str().unwrap_or_default(),
            details.map(|d| format!("; {d}")).unwrap_or_default()
        )
    });
    Err(failed(said.unwrap_or_else(|| String::from_utf8_lossy(&output.stderr).trim().to_owned())))
}

fn arguments(record: &Record) -> String {
    let pod = &record.pod;
    format!(
        "IgnoreUnknown=1;K8S_POD_NAMESPACE={};K8S_POD_NAME={};K8S_POD_INFRA_CONTAINER_ID={};K8S_POD_UID={}",
        pod.namespace, pod.name, pod.uid, pod.uid
    )
}

/// A plugin's configuration as it gets it: with the list's name and version, the previous result, and the capabilities
/// that it declares.
fn stdin_of(list: &Value, plugin: &Value, record: &Record, previous: &Value) -> Value {
    let mut config: Map<String, Value> = plugin.as_object().cloned().unwrap_or_default();
    config.insert("name".to_owned(), list["name"].clone());
    config.insert("cniVersion".to_owned(), list["cniVersion"].clone());
    if !previous.is_null() {
        config.insert("prevResult".to_owned(), previous.clone());
    }
    let capabilities = config.remove("capabilities").unwrap_or_default();
    if capabilities["portMappings"] == true && !record.host_ports.is_empty() {
        let mappings: Vec<Value> = record
            .host_ports
            .iter()
            .map(|port| {
                let mut mapping = json!({
                    "hostPort": port.host_port,
                    "containerPort": port.container_port,
                    "protocol": port.protocol.lower(),
                });
                if let Some(ip) = port.host_ip {
                    mapping["hostIP"] = ip.to_string().into();
                }
                mapping
            })
            .collect();
        config.insert("runtimeConfig".to_owned(), json!({"portMappings": mappings}));
    }
    Value::Object(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HostPort, PodId, Protocol};

    #[test]
    fn the_first_configuration_by_name_counts() {
        let dir = tempfile::tempdir().unwrap();
        assert!(load(dir.path()).unwrap().is_none());
        assert!(load(&dir.path().join("none")).unwrap().is_none());
        fs::write(dir.path().join("20-b.conf"), r#"{"name":"b","cniVersion":"0.3.1","type":"ptp"}"#).unwrap();
        fs::write(dir.path().join("00-notes.txt"), "not one").unwrap();
        let list = load(dir.path()).unwrap().unwrap();
        assert_eq!((&list["name"], &list["plugins"][0]["type"]), (&json!("b"), &json!("ptp")));
        fs::write(dir.path().join("10-a.conflist"), r#"{"name":"a","plugins":[]}"#).unwrap();
        let error = load(dir.path()).unwrap_err().to_string();
        assert!(error.ends_with("10-a.conflist: it has no plugins"), "{error}");
    }

    #[test]
    fn a_plugin_gets_the_capabilities_it_declares() {
        let list = json!({"name": "net", "cniVersion": "0.4.0"});
        let port = HostPort { protocol: Protocol::Tcp, host_ip: None, host_port: 8080, container_port: 80 };
        let record = Record {
            pod: PodId { namespace: "n".into(), name: "p".into(), uid: "u".into() },
            netns: "/x".into(),
            host_ports: vec![port],
            by: By::Cni { list: list.clone(), result: None },
        };
        let portmap = json!({"type": "portmap", "capabilities": {"portMappings": true}});
        assert_eq!(
            stdin_of(&list, &portmap, &record, &json!({"ips": []})),
            json!({"type": "portmap", "name": "net", "cniVersion": "0.4.0", "prevResult": {"ips": []},
                "runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}})
        );
        let bridge = json!({"type": "bridge"});
        assert_eq!(
            stdin_of(&list, &bridge, &record, &Value::Null),
            json!({"type": "bridge", "name": "net", "cniVersion": "0.4.0"})
        );
    }
}
