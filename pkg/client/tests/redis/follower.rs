//! An informer under test, and what its handlers heard.

use client::{AnyCache, Bus, Cache, Informers, RedisConfig, RedisIdentity};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use testing::eventually;
use tokio_util::sync::CancellationToken;

/// What was heard of each object, in order: its resourceVersions, and 0 when it was gone.
pub type Log = BTreeMap<String, Vec<u64>>;

/// One program's informer of ConfigMaps.
pub struct Follower {
    pub cache: Cache<ConfigMap>,
    heard: Arc<Mutex<Log>>,
    _informers: Informers,
    stop: CancellationToken,
}

impl Follower {
    /// Over Redis, or without one over HTTP alone.
    pub async fn start(client: Client, redis: Option<RedisConfig>) -> Follower {
        let stop = CancellationToken::new();
        let bus = Bus::of(redis.as_ref(), RedisIdentity::Files, &stop);
        let informers = Informers::new(client, stop.clone()).over(bus);
        let cache = informers.cache::<ConfigMap>();
        cache.synced().await;
        let heard: Arc<Mutex<Log>> = Arc::default();
        let log = heard.clone();
        cache.subscribe(move |change| {
            let version =
                change.new.as_ref().and_then(|new| new.resource_version()?.parse().ok()).unwrap_or(0);
            log.lock().expect("a log").entry(change.key().to_string()).or_default().push(version);
        });
        Follower { cache, heard, _informers: informers, stop }
    }

    /// What its handlers heard so far.
    pub fn log(&self) -> Log {
        self.heard.lock().expect("a log").clone()
    }

    /// What it knows: names and versions.
    pub fn known(&self) -> BTreeMap<String, String> {
        let named = |object: &Arc<ConfigMap>| (key(object), object.resource_version().unwrap_or_default());
        self.cache.list().iter().map(named).collect()
    }

    /// Waits until it knows what the API lists.
    pub async fn agrees(&self, what: &str, client: &Client) {
        eventually(what, async || {
            let listed = listed(client).await?;
            (self.cache.is_synced() && self.known() == listed).then_some(())
        })
        .await;
    }

    /// No handler heard anything twice, or out of order.
    pub fn assert_in_order(&self, what: &str) {
        for (key, versions) in self.log() {
            let mut last = 0;
            let mut was_gone = false;
            for version in versions {
                match version {
                    0 => assert!(!std::mem::replace(&mut was_gone, true), "{what}: {key} is gone twice"),
                    version => {
                        assert!(version > last, "{what}: {key} {version} after {last}");
                        (last, was_gone) = (version, false);
                    }
                }
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn key(object: &ConfigMap) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

/// What the API has; nothing while it does not answer.
pub async fn listed(client: &Client) -> Option<BTreeMap<String, String>> {
    let api: Api<ConfigMap> = Api::all(client.clone());
    let list = api.list(&ListParams::default()).await.ok()?;
    Some(list.iter().map(|object| (key(object), object.resource_version().unwrap_or_default())).collect())
}

/// Makes one change at random among a few objects; what fails is left to the next.
pub async fn change(client: &Client, random: &mut fastrand::Rng) {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let name = format!("changing-{}", random.u32(..12));
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.clone());
    object.data = Some([("value".to_owned(), random.u64(..).to_string())].into());
    if random.u32(..6) == 0 {
        let _ = api.delete(&name, &DeleteParams::default()).await;
    } else if api.replace(&name, &PostParams::default(), &object).await.is_err() {
        let _ = api.create(&PostParams::default(), &object).await;
    }
}
