//! The control plane's static pods. Pure: a configuration becomes YAML.

use crate::cluster::{Cluster, joined};
use crate::datastore::{Datastore, ETCD_URL, etcd_arguments};
use crate::redis::{self, Redis};
use crate::{image, layout};
use anyhow::Result;
use serde_json::{Value, json};
use std::net::IpAddr;

/// What the control plane's pods are told.
#[derive(Debug, Clone)]
pub struct ControlPlane {
    /// What everybody is told.
    pub cluster: Cluster,
    /// Where this machine's API server is reached.
    pub advertise_address: IpAddr,
    /// The port it listens on.
    pub port: u16,
    /// Where objects are kept.
    pub datastore: Datastore,
    /// Where changes are told, if anywhere.
    pub redis: Option<Redis>,
    /// Further names for the serving certificate.
    pub names: Vec<String>,
}

impl ControlPlane {
    fn redis_arguments(&self, component: &str) -> Vec<String> {
        self.redis.as_ref().map(|redis| redis.arguments_of(component)).unwrap_or_default()
    }

    /// The names and the address by which functions are called.
    pub fn activator_names(&self) -> Vec<String> {
        let service = "knative.kube-system.svc";
        let mut names = vec!["knative".to_owned(), "knative.kube-system".to_owned(), service.to_owned()];
        names.extend([format!("{service}.{}", self.cluster.dns_domain), self.advertise_address.to_string()]);
        names
    }
}

/// All manifests: the file's name and its text.
pub fn all(plane: &ControlPlane) -> Result<Vec<(String, String)>> {
    let mut pods = vec![apiserver(plane), controller_manager(plane), scheduler(plane), knative(plane)];
    if plane.datastore == Datastore::Etcd {
        pods.push(etcd());
    }
    if plane.redis.as_ref().is_some_and(Redis::is_own) {
        pods.push(redis());
    }
    pods.into_iter()
        .map(|pod| {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            Ok((format!("{name}.yaml"), serde_saphyr::to_string(&pod)?))
        })
        .collect()
}

fn apiserver(plane: &ControlPlane) -> Value {
    let pki = layout::pki().display().to_string();
    let mut command = vec![
        "/apiserver".to_owned(),
        format!("--data-dir={}", layout::DATA),
        format!("--cert-dir={pki}"),
        format!("--kubeconfig-dir={}", layout::ETC),
        format!("--advertise-address={}", plane.advertise_address),
        format!("--secure-port={}", plane.port),
        format!("--service-cluster-ip-range={}", joined(&plane.cluster.service_cidrs)),
        format!("--service-account-issuer=https://kubernetes.default.svc.{}", plane.cluster.dns_domain),
    ];
    if !plane.names.is_empty() {
        command.push(format!("--tls-san={}", plane.names.join(",")));
    }
    let mut volumes =
        vec![program(), volume("kubernetes", layout::ETC, false), volume("data", layout::DATA, false)];
    match &plane.datastore {
        Datastore::Embedded => {}
        Datastore::Etcd => command.push(format!("--etcd-servers={ETCD_URL}")),
        Datastore::External { servers, files } => {
            command.push(format!("--etcd-servers={}", servers.join(",")));
            for ((flag, name), file) in
                [("cafile", "etcd-ca"), ("certfile", "etcd-cert"), ("keyfile", "etcd-key")]
                    .iter()
                    .zip(files.iter().flatten())
            {
                command.push(format!("--etcd-{flag}={file}"));
                volumes.push((
                    json!({"name": name, "hostPath": {"path": file, "type": "File"}}),
                    file.clone(),
                    true,
                ));
            }
        }
    }
    command.extend(plane.redis_arguments("kube-apiserver"));
    for (index, file) in plane.redis.iter().flat_map(Redis::foreign_files).enumerate() {
        let name = format!("redis-{index}");
        volumes.push((json!({"name": name, "hostPath": {"path": file, "type": "File"}}), file.clone(), true));
    }
    let probe = |path: &str, seconds: i32, failures: i32| {
        json!({
            "httpGet": {
                "host": plane.advertise_address.to_string(), "path": path, "port": plane.port, "scheme": "HTTPS",
            },
            "periodSeconds": seconds, "failureThreshold": failures, "timeoutSeconds": 15,
        })
    };
    let mut pod = pod("kube-apiserver", image::OWN, &command, "50m", volumes);
    let container = &mut pod["spec"]["containers"][0];
    // A store that is away does not come back by our being started again.
    container["startupProbe"] = probe("/livez?exclude=etcd", 1, 120);
    container["livenessProbe"] = probe("/livez?exclude=etcd", 10, 8);
    container["readinessProbe"] = probe("/readyz", 1, 3);
    pod
}

fn controller_manager(plane: &ControlPlane) -> Value {
    let config = layout::etc("controller-manager.conf").display().to_string();
    let pki = layout::pki();
    let mut command = vec![
        "/controller-manager".to_owned(),
        format!("--kubeconfig={config}"),
        "--allocate-node-cidrs=true".to_owned(),
        format!("--cluster-cidr={}", joined(&plane.cluster.pod_cidrs)),
        format!("--cluster-signing-cert-file={}", pki.join("ca.crt").display()),
        format!("--cluster-signing-key-file={}", pki.join("ca.key").display()),
        format!("--root-ca-file={}", pki.join("ca.crt").display()),
        "--use-service-account-credentials=true".to_owned(),
    ];
    command.extend(plane.redis_arguments("kube-controller-manager"));
    let volumes = vec![program(), volume("kubernetes", layout::ETC, true)];
    pod("kube-controller-manager", image::OWN, &command, "25m", volumes)
}

fn scheduler(plane: &ControlPlane) -> Value {
    let config = layout::etc("scheduler.conf").display().to_string();
    let mut command = vec!["/scheduler".to_owned(), format!("--kubeconfig={config}")];
    command.extend(plane.redis_arguments("kube-scheduler"));
    let volumes = vec![program(), volume("kubernetes", layout::ETC, true)];
    pod("kube-scheduler", image::OWN, &command, "25m", volumes)
}

/// What runs functions. Others cannot be told where it is by a probe: it is asked when there is a call.
fn knative(plane: &ControlPlane) -> Value {
    let config = layout::etc("knative.conf").display().to_string();
    let pki = layout::pki();
    let mut command = vec![
        "/knative".to_owned(),
        format!("--kubeconfig={config}"),
        format!("--advertise-address={}", plane.advertise_address),
        format!("--tls-cert-file={}", pki.join("knative.crt").display()),
        format!("--tls-private-key-file={}", pki.join("knative.key").display()),
        format!("--requestheader-client-ca-file={}", pki.join("front-proxy-ca.crt").display()),
    ];
    command.extend(plane.redis_arguments("knative"));
    let volumes = vec![program(), volume("kubernetes", layout::ETC, true)];
    pod("knative", image::OWN, &command, "25m", volumes)
}

fn etcd() -> Value {
    let command: Vec<String> = std::iter::once("/etcd".to_owned()).chain(etcd_arguments()).collect();
    pod("etcd", image::ETCD, &command, "50m", vec![volume("data", layout::ETCD, false)])
}

/// Who tells of changes. It keeps nothing, so it has no volume but its configuration.
fn redis() -> Value {
    pod("redis", image::REDIS, &redis::command(), "25m", vec![volume("kubernetes", layout::ETC, true)])
}

/// A volume, where it is mounted, and whether it can only be read.
type Volume = (Value, String, bool);

/// The host's program over the image's equal one: so the kernel keeps one copy of it in memory for all our processes.
fn program() -> Volume {
    let volume = json!({"name": "program", "hostPath": {"path": layout::PROGRAM, "type": "File"}});
    (volume, image::PROGRAM.to_owned(), true)
}

/// A folder of the host, at the same place in the pod.
fn volume(name: &str, path: &str, read_only: bool) -> Volume {
    let volume = json!({"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}});
    (volume, path.to_owned(), read_only)
}

fn pod(name: &str, image: &str, command: &[String], cpu: &str, volumes: Vec<Volume>) -> Value {
    let mounts: Vec<Value> = volumes
        .iter()
        .map(|(volume, path, read_only)| {
            json!({"name": volume["name"], "mountPath": path, "readOnly": read_only})
        })
        .collect();
    let volumes: Vec<Value> = volumes.into_iter().map(|(volume, ..)| volume).collect();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "kube-system", "labels": {"component": name, "tier": "control-plane"},
        },
        "spec": {
            "hostNetwork": true,
            "priorityClassName": "system-node-critical",
            "priority": 2_000_001_000,
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": name, "image": image, "imagePullPolicy": "Never", "command": command,
                "resources": {"requests": {"cpu": cpu}},
                "volumeMounts": mounts,
                // A mistyped flag is in the kubelet's log then, and in the status of the pod.
                "terminationMessagePolicy": "FallbackToLogsOnError",
            }],
            "volumes": volumes,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bus::RedisFlags;

    fn plane(datastore: Datastore) -> ControlPlane {
        ControlPlane {
            cluster: Cluster {
                endpoint: "192.0.2.1:6443".into(),
                pod_cidrs: vec!["10.244.0.0/16".parse().expect("a range")],
                service_cidrs: vec!["222.222.0.0/16".parse().expect("a range")],
                dns_domain: "cluster.local".into(),
                redis: Vec::new(),
            },
            advertise_address: [192, 0, 2, 1].into(),
            port: 6443,
            redis: Redis::choose(RedisFlags::default(), datastore == Datastore::Etcd, [192, 0, 2, 1].into()),
            datastore,
            names: vec!["api.example.com".into()],
        }
    }

    fn check(datastore: Datastore, files: &[&str], flags: &[&str]) {
        let manifests = all(&plane(datastore)).expect("manifests");
        assert_eq!(manifests.iter().map(|(file, _)| file.as_str()).collect::<Vec<_>>(), files);
        let apiserver: Value = serde_saphyr::from_str(&manifests[0].1).expect("YAML");
        let command = apiserver["spec"]["containers"][0]["command"].as_array().expect("a command").clone();
        for flag in flags {
            assert!(command.iter().any(|argument| argument == flag), "no {flag} in {command:?}");
        }
    }

    #[test]
    fn each_datastore_has_its_pods_and_flags() {
        let embedded =
            ["kube-apiserver.yaml", "kube-controller-manager.yaml", "kube-scheduler.yaml", "knative.yaml"];
        check(Datastore::Embedded, &embedded, &["--service-cluster-ip-range=222.222.0.0/16"]);
        let with_etcd = [&embedded[..], &["etcd.yaml", "redis.yaml"]].concat();
        check(Datastore::Etcd, &with_etcd, &["--etcd-servers=http://127.0.0.1:2379"]);
        let files = Some(["/e/ca".into(), "/e/cert".into(), "/e/key".into()]);
        let external =
            Datastore::External { servers: vec!["https://a:1".into(), "https://b:1".into()], files };
        check(external, &embedded, &["--etcd-servers=https://a:1,https://b:1", "--etcd-keyfile=/e/key"]);
    }
}
