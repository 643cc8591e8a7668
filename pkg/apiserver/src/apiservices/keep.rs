//! Keeps everything in step with APIServices. Each that somebody else answers for is followed by a task of its own, so
//! that nobody waits for one that does not answer.

use super::{GROUP, authorities, available, is_remote, local, look};
use crate::error::Result;
use crate::identity::Credentials;
use crate::server::Server;
use crate::storage::parse;
use api::{Value, object};
use listwatch::{Scope, Since};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

/// Who answers is asked again after this, since nobody tells us when they stop.
const REFRESH: Duration = Duration::from_secs(30);
/// Who does not answer is asked again after this.
const RETRY: Duration = Duration::from_secs(1);
/// Between two passes, so that apiservers that disagree do not write as fast as they can.
const LEAST_PAUSE: Duration = Duration::from_millis(200);

/// Keeps everything in step until shutdown.
pub async fn keep(server: Arc<Server>, credentials: Arc<Credentials>, shutdown: CancellationToken) {
    let mut followed = Followed::new(server.clone(), shutdown.clone());
    shutdown.run_until_cancelled(keep_in_step(&server, &credentials, &mut followed)).await;
    followed.end().await;
}

async fn keep_in_step(server: &Arc<Server>, credentials: &Credentials, followed: &mut Followed) {
    let services = server.registry.built_in(GROUP, "apiservices").cache.clone();
    let maps = server.registry.built_in("", "configmaps").cache.clone();
    while let (Ok(mut changes), Ok(mut authority)) =
        (services.watch(Scope::default(), Since::Now), maps.watch(authorities::scope(), Since::Now))
    {
        loop {
            followed.update();
            let is_registered = register(server, credentials).await;
            sleep(LEAST_PAUSE).await;
            tokio::select! {
                news = changes.next() => if news.is_err() { break },
                news = authority.next() => if news.is_err() { break },
                () = server.api_services.kinds_changed.notified() => {}
                () = sleep(if is_registered { REFRESH } else { RETRY }) => {}
            }
        }
    }
}

/// Makes whoever looks find an APIService of all that is served here, and the authorities that speak for this server.
pub async fn register(server: &Arc<Server>, credentials: &Credentials) -> bool {
    let local = is_done(local::pass(server).await);
    let is_registered = is_done(authorities::publish(server, credentials).await) && local;
    server.api_services.registered.fetch_or(is_registered, Relaxed);
    is_registered
}

fn is_done(result: Result<()>) -> bool {
    if let Err(error) = &result {
        tracing::warn!(error = error.message, "cannot keep APIServices in step");
    }
    result.is_ok()
}

/// The APIServices that somebody else answers for.
struct Followed {
    server: Arc<Server>,
    shutdown: CancellationToken,
    tasks: TaskTracker,
    /// By name.
    now: BTreeMap<String, Follower>,
}

/// What follows one APIService as it is, until it is dropped.
struct Follower {
    asked: Value,
    _ends: DropGuard,
}

impl Followed {
    fn new(server: Arc<Server>, shutdown: CancellationToken) -> Followed {
        Followed { server, shutdown, tasks: TaskTracker::new(), now: BTreeMap::new() }
    }

    /// Takes on those that are new or have changed, and gives up those that are gone. Nobody is asked anything here:
    /// requests find at once who is there.
    fn update(&mut self) {
        let known = self.server.registry.built_in(GROUP, "apiservices").objects(None);
        let known = known.iter().filter_map(|object| parse(object.as_json()).ok());
        let wanted = known.filter(is_remote).map(|service| (object::name(&service).to_owned(), service));
        let wanted: BTreeMap<String, Value> = wanted.collect();
        let gone: Vec<String> = self.now.keys().filter(|name| !wanted.contains_key(*name)).cloned().collect();
        for name in gone {
            // First this, so that its task does not put it back.
            self.now.remove(&name);
            // The name of one is made of these, and cannot change.
            if let Some((version, group)) = name.split_once('.') {
                self.server.api_services.change(|table| table.remove(group, version));
            }
        }
        for (name, service) in wanted {
            let asked = asked(&service);
            if self.now.get(&name).is_none_or(|follower| follower.asked != asked) {
                self.now.remove(&name);
                let follower = self.follow(service, asked);
                self.now.insert(name, follower);
            }
        }
    }

    fn follow(&self, service: Value, asked: Value) -> Follower {
        let (foreign, backend) = look::known(&self.server, &service);
        self.server.api_services.change(|table| table.put(foreign, backend));
        let (server, ends) = (self.server.clone(), self.shutdown.child_token());
        let _ends = ends.clone().drop_guard();
        self.tasks.spawn(async move { ends.run_until_cancelled(follow(&server, service, &ends)).await });
        Follower { asked, _ends }
    }

    async fn end(self) {
        drop(self.now);
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// An APIService without what we and others like us write on it: what is left changes when somebody wants something.
fn asked(service: &Value) -> Value {
    let mut asked = service.clone();
    asked["status"] = Value::Null;
    for member in ["resourceVersion", "managedFields"] {
        asked["metadata"][member] = Value::Null;
    }
    asked
}

/// Looks at one again and again, and says what was found: first to our own requests, then to everybody.
async fn follow(server: &Arc<Server>, mut service: Value, ends: &CancellationToken) {
    loop {
        let looked = look::look(server, &service).await;
        let (foreign, backend, fault) = (looked.foreign, looked.backend, looked.fault);
        server.api_services.change(|table| {
            if !ends.is_cancelled() {
                table.put(foreign, backend);
            }
        });
        let said = match &fault {
            None => ("True", "Passed", "all checks passed"),
            Some((reason, message)) => ("False", *reason, message.as_str()),
        };
        service = server.lookup(GROUP, "apiservices", "", object::name(&service)).unwrap_or(service);
        let is_said = is_done(available::say(server, &service, said).await);
        sleep(if fault.is_none() && is_said { REFRESH } else { RETRY }).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn our_own_writes_are_no_news() {
        let service = |version: &str, label: &str, status: &str| {
            json!({"metadata": {"resourceVersion": version, "labels": {"a": label}}, "spec": {},
                "status": {"conditions": [{"type": "Available", "status": status}]}})
        };
        assert_eq!(asked(&service("1", "x", "True")), asked(&service("2", "x", "False")));
        assert_ne!(asked(&service("1", "x", "True")), asked(&service("2", "y", "True")));
    }
}
