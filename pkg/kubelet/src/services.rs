//! What containers learn of services through their environment.

use client::Informers;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::runtime::watcher;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Containers wait this long for the first list of services.
const PATIENCE: Duration = Duration::from_secs(10);

/// What of a service goes into an environment.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    address: String,
    ports: Vec<(Option<String>, String, i32)>,
}

/// All services with an address, as little of them as is needed.
pub struct Services {
    known: RwLock<BTreeMap<(String, String), Known>>,
    /// A list that has not come to its end: until then what was known goes into environments.
    listing: Mutex<BTreeMap<(String, String), Known>>,
    ready: watch::Sender<bool>,
    has_api: bool,
}

impl Services {
    /// None yet; without an apiserver there never are any.
    pub fn new(has_api: bool) -> Services {
        let (known, listing) = Default::default();
        Services { known, listing, ready: watch::channel(!has_api).0, has_api }
    }

    /// Whether they have been listed.
    pub fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    /// Follows the services of the cluster until the token is cancelled.
    pub async fn run(&self, informers: Informers, shutdown: CancellationToken) {
        let services: Api<Service> = Api::all(informers.client().clone());
        let stream = informers.events(services, &watcher::Config::default());
        let mut stream = std::pin::pin!(stream);
        loop {
            let event = tokio::select! {
                event = stream.next() => event,
                () = shutdown.cancelled() => return,
            };
            let Some(event) = event else { return };
            self.apply(event);
        }
    }

    fn apply(&self, event: watcher::Event<Service>) {
        match event {
            watcher::Event::Init => self.listing.lock().clear(),
            watcher::Event::InitApply(service) => {
                self.listing.lock().extend(known(&service).map(|known| (key(&service), known)));
            }
            watcher::Event::Apply(service) => {
                let key = key(&service);
                match known(&service) {
                    Some(known) => self.known.write().insert(key, known),
                    None => self.known.write().remove(&key),
                };
            }
            watcher::Event::Delete(service) => {
                self.known.write().remove(&key(&service));
            }
            watcher::Event::InitDone => {
                *self.known.write() = std::mem::take(&mut *self.listing.lock());
                self.ready.send_replace(true);
            }
        }
    }

    /// The variables of a namespace's services (if links are wanted) and of the apiserver's.
    pub async fn env(&self, namespace: &str, links: bool) -> Result<BTreeMap<String, String>, String> {
        if self.has_api {
            let mut ready = self.ready.subscribe();
            let waited = tokio::time::timeout(PATIENCE, ready.wait_for(|ready| *ready)).await;
            if !matches!(waited, Ok(Ok(_))) {
                return Err("services have not yet been read at least once, cannot construct envvars".into());
            }
        }
        let mut env = BTreeMap::new();
        let known = self.known.read();
        for ((of, name), service) in known.iter() {
            let is_master = of == "default" && name == "kubernetes";
            if (links && of == namespace) || is_master {
                variables(name, service, &mut env);
            }
        }
        // A namespace's own service wins over the one that everybody gets.
        if links && let Some(own) = known.get(&(namespace.to_owned(), "kubernetes".to_owned())) {
            variables("kubernetes", own, &mut env);
        }
        Ok(env)
    }
}

fn key(service: &Service) -> (String, String) {
    let meta = &service.metadata;
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

fn known(service: &Service) -> Option<Known> {
    let spec = service.spec.as_ref()?;
    let address = spec.cluster_ip.clone().filter(|ip| !ip.is_empty() && ip != "None")?;
    let ports = spec.ports.iter().flatten();
    let ports = ports.map(|port| {
        (
            port.name.clone().filter(|name| !name.is_empty()),
            port.protocol.clone().unwrap_or("TCP".into()),
            port.port,
        )
    });
    Some(Known { address, ports: ports.collect() })
}

fn variables(name: &str, service: &Known, env: &mut BTreeMap<String, String>) {
    let upper = |name: &str| name.to_uppercase().replace('-', "_");
    let prefix = upper(name);
    let host = if service.address.contains(':') {
        format!("[{}]", service.address)
    } else {
        service.address.clone()
    };
    let Some((_, _, first)) = service.ports.first() else { return };
    env.insert(format!("{prefix}_SERVICE_HOST"), service.address.clone());
    env.insert(format!("{prefix}_SERVICE_PORT"), first.to_string());
    for (index, (port_name, protocol, port)) in service.ports.iter().enumerate() {
        if let Some(port_name) = port_name {
            env.insert(format!("{prefix}_SERVICE_PORT_{}", upper(port_name)), port.to_string());
        }
        let url = format!("{}://{host}:{port}", protocol.to_lowercase());
        if index == 0 {
            env.insert(format!("{prefix}_PORT"), url.clone());
        }
        let own = format!("{prefix}_PORT_{port}_{}", protocol.to_uppercase());
        env.insert(format!("{own}_PROTO"), protocol.to_lowercase());
        env.insert(format!("{own}_PORT"), port.to_string());
        env.insert(format!("{own}_ADDR"), service.address.clone());
        env.insert(own, url);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn variables_as_links_have_them() {
        let services = Services::new(false);
        let service = |namespace: &str, name: &str, ip: &str| {
            serde_json::from_value::<Service>(json!({"metadata": {"namespace": namespace, "name": name},
                "spec": {"clusterIP": ip, "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}}))
            .expect("a service")
        };
        services.apply(watcher::Event::Apply(service("shop", "my-db", "10.0.0.7")));
        services.apply(watcher::Event::Apply(service("shop", "headless", "None")));
        services.apply(watcher::Event::Apply(service("default", "kubernetes", "10.0.0.1")));
        let env = services.env("shop", true).await.expect("an environment");
        assert_eq!(env["MY_DB_SERVICE_HOST"], "10.0.0.7");
        assert_eq!(env["MY_DB_SERVICE_PORT_HTTP"], "80");
        assert_eq!(env["MY_DB_PORT_80_TCP"], "tcp://10.0.0.7:80");
        assert_eq!(env["KUBERNETES_SERVICE_HOST"], "10.0.0.1");
        assert!(!env.keys().any(|name| name.starts_with("HEADLESS")));
        let alone = services.env("shop", false).await.expect("an environment");
        assert!(alone.contains_key("KUBERNETES_SERVICE_HOST") && !alone.contains_key("MY_DB_SERVICE_HOST"));
    }

    #[tokio::test]
    async fn a_list_is_believed_when_it_is_whole() {
        let services = Services::new(true);
        let tell = |event| services.apply(event);
        let service = |name: &str| {
            serde_json::from_value::<Service>(json!({"metadata": {"namespace": "shop", "name": name},
                "spec": {"clusterIP": "10.0.0.7", "ports": [{"port": 80}]}}))
            .expect("a service")
        };
        [watcher::Event::Init, watcher::Event::InitApply(service("db")), watcher::Event::InitDone]
            .into_iter()
            .for_each(tell);
        let hosts = async || {
            let env = services.env("shop", true).await.expect("an environment");
            env.into_keys().filter(|name| name.ends_with("_HOST")).collect::<Vec<_>>()
        };
        // Cut off until all of it was history: it is listed anew, and one of them is gone meanwhile.
        [watcher::Event::Init, watcher::Event::InitApply(service("web"))].into_iter().for_each(tell);
        assert_eq!(hosts().await, ["DB_SERVICE_HOST"]);
        tell(watcher::Event::InitDone);
        assert_eq!(hosts().await, ["WEB_SERVICE_HOST"]);
    }
}
