//! What is forgotten in time: history that nobody can need any more, and events.

use crate::context::Context;
use crate::deletion::DeleteOptions;
use crate::server::Server;
use crate::verbs::delete;
use api::Value;
use jiff::Timestamp;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio_util::sync::CancellationToken;

/// Compacts the store at every interval up to where it was one interval ago, so that everything younger can still be
/// watched from and paged through. The caches forget with it: sixteen megabytes of the past of every kind were kept
/// through the quietest night.
pub async fn keep(server: Arc<Server>, shutdown: CancellationToken) {
    let mut before = None;
    loop {
        tokio::select! {
            () = tokio::time::sleep(server.config.compaction_interval) => {}
            () = shutdown.cancelled() => return,
        }
        if let Some(revision) = before {
            server.oldest_page.store(revision, Relaxed);
            server.registry.resources().iter().for_each(|resource| resource.cache.forget(revision));
            if let Err(error) = server.store.compact(revision).await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    revision,
                    "cannot compact the store; trying again later"
                );
            }
        }
        before = server.store.revision().await.ok().or(before);
        drop_old_events(&server).await;
    }
}

async fn drop_old_events(server: &Server) {
    let events = server.registry.built_in("", "events");
    let now = Timestamp::now();
    let context = Context::internal(now);
    for event in events.objects(None) {
        let is_old = serde_json::from_slice::<Value>(event.as_json())
            .ok()
            .and_then(|event| last_seen(&event))
            .is_some_and(|at| now.duration_since(at).unsigned_abs() > server.config.event_ttl && at < now);
        if is_old {
            // Gone already, or changed just now: either way nothing to do.
            let _ = delete::delete(
                server,
                &events,
                event.namespace(),
                event.name(),
                &DeleteOptions::default(),
                &context,
            )
            .await;
        }
    }
}

fn last_seen(event: &Value) -> Option<Timestamp> {
    let series = event["series"].get("lastObservedTime");
    let times = [
        series,
        event.get("lastTimestamp"),
        event.get("eventTime"),
        event["metadata"].get("creationTimestamp"),
    ];
    times.into_iter().flatten().filter_map(|time| time.as_str()?.parse().ok()).max()
}
