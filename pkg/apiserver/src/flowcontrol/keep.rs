//! Keeps priority and fairness in step with its objects, and these as they should be.

use super::{layout, upkeep};
use crate::bootstrap;
use crate::context::Context;
use crate::error::Result;
use crate::registry::Resource;
use crate::server::Server;
use crate::storage::{Change, parse};
use api::kinds::flowcontrol::{GROUP, suggested};
use api::{Value, object};
use futures::future::try_join_all;
use jiff::Timestamp;
use listwatch::{Scope, Since};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Between two passes, so that apiservers that disagree do not write as fast as they can.
const LEAST_PAUSE: Duration = Duration::from_millis(200);
/// What could not be written is tried again after this.
const RETRY: Duration = Duration::from_secs(5);
/// While requests wait, seats are divided this often.
const DIVIDING_PAUSE: Duration = Duration::from_millis(10);

/// Keeps it so until shutdown.
pub async fn keep(server: Arc<Server>, shutdown: CancellationToken) {
    shutdown.run_until_cancelled(follow(&server)).await;
}

async fn follow(server: &Server) {
    let [schemas, levels] = resources(server);
    let all = Scope::default;
    while let (Ok(mut schemas), Ok(mut levels)) =
        (schemas.cache.watch(all(), Since::Now), levels.cache.watch(all(), Since::Now))
    {
        loop {
            let done = pass(server).await;
            if let Err(error) = &done {
                tracing::warn!(error = error.message, "cannot keep flow schemas and priority levels in step");
            }
            sleep(LEAST_PAUSE).await;
            tokio::select! {
                news = schemas.next() => if news.is_err() { break },
                news = levels.next() => if news.is_err() { break },
                () = sleep(RETRY), if done.is_err() => {}
            }
        }
    }
}

/// Gives levels what others do not want, whenever requests wait, and back what they lent. Until shutdown.
pub async fn lend(server: Arc<Server>, shutdown: CancellationToken) {
    let contended = server.flows.contended.clone();
    let dividing = async {
        loop {
            contended.notified().await;
            while server.flows.settle(Instant::now()) {
                sleep(DIVIDING_PAUSE).await;
            }
            sleep(DIVIDING_PAUSE).await;
        }
    };
    shutdown.run_until_cancelled(dividing).await;
}

/// Goes by what is stored now, and writes what should be otherwise.
pub async fn pass(server: &Server) -> Result<()> {
    let [schemas, levels] = resources(server);
    let arrange = || -> Result<()> {
        server.flows.arrange(&values(&levels)?, &values(&schemas)?, Instant::now());
        Ok(())
    };
    arrange()?;
    let suggested = suggested();
    let resource_of = |wanted: &Value| if wanted["kind"] == "FlowSchema" { &schemas } else { &levels };
    let context = Context::internal(Timestamp::now());
    let missing: Vec<&Value> = suggested
        .iter()
        .filter(|wanted| resource_of(wanted).cache.get("", object::name(wanted)).is_none())
        .collect();
    let create = |wanted: &&Value| {
        let plural = &resource_of(wanted).kind.plural;
        bootstrap::ensure(server, GROUP, plural, "", (*wanted).clone(), &context)
    };
    try_join_all(missing.iter().map(create)).await?;
    if !missing.is_empty() {
        server.catch_up().await?;
        arrange()?;
    }
    let keep = |wanted| change(server, resource_of(wanted), wanted, |current| upkeep::kept(current, wanted));
    try_join_all(suggested.iter().map(keep)).await?;
    remove_left_overs(server, [&schemas, &levels], &suggested).await?;
    let names: Vec<String> = layout::levels(&values(&levels)?).into_iter().map(|level| level.name).collect();
    let tell = |current: &Value| {
        let level = current["spec"]["priorityLevelConfiguration"]["name"].as_str().unwrap_or_default();
        upkeep::told(current, names.iter().any(|name| name == level), context.now)
    };
    let known = values(&schemas)?;
    try_join_all(known.iter().map(|schema| change(server, &schemas, schema, tell))).await?;
    Ok(())
}

fn resources(server: &Server) -> [Arc<Resource>; 2] {
    ["flowschemas", "prioritylevelconfigurations"].map(|plural| server.registry.built_in(GROUP, plural))
}

fn values(resource: &Resource) -> Result<Vec<Value>> {
    resource.objects(None).iter().map(|object| parse(object.as_json())).collect()
}

/// Writes what an object should be, if it is not so and still there.
async fn change(
    server: &Server,
    resource: &Resource,
    object: &Value,
    next: impl Fn(&Value) -> Option<Value>,
) -> Result<()> {
    let decide = |current: &Value| match next(current) {
        Some(next) => Ok(Change::Put(Box::new(next), Vec::new())),
        None => Ok(Change::Keep),
    };
    // Nearly always there is nothing to do, and nobody need be asked whether that is still so.
    let cached = resource.cache.get("", object::name(object));
    if let Some(cached) = cached
        && next(&parse(cached.as_json())?).is_none()
    {
        return Ok(());
    }
    match server.modify(resource, "", object::name(object), false, decide).await {
        Err(error) if error.reason != "NotFound" => Err(error),
        _ => Ok(()),
    }
}

async fn remove_left_overs(server: &Server, kinds: [&Arc<Resource>; 2], suggested: &[Value]) -> Result<()> {
    for resource in kinds {
        for known in values(resource)?.iter().filter(|known| upkeep::is_left_over(known, suggested)) {
            let decide = |current: &Value| match upkeep::is_left_over(current, suggested) {
                true => Ok(Change::Remove(Vec::new())),
                false => Ok(Change::Keep),
            };
            match server.modify(resource, "", object::name(known), false, decide).await {
                Err(error) if error.reason != "NotFound" => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}
