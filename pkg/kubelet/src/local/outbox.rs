//! What has changed and nobody has taken yet: the last word on each pod, so that it never grows beyond them.

use crate::provider::Change;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::Notify;

/// Changes on their way.
#[derive(Default)]
pub struct Outbox {
    /// By uid; that of the node has none.
    latest: Mutex<BTreeMap<String, Change>>,
    filled: Notify,
}

impl Outbox {
    /// Something has changed.
    pub fn put(&self, change: Change) {
        let uid = match &change {
            Change::Status { pod, .. } => pod.metadata.uid.clone().unwrap_or_default(),
            Change::Gone(uid) => uid.clone(),
            Change::Node => String::new(),
        };
        self.latest.lock().insert(uid, change);
        self.filled.notify_one();
    }

    /// Waits for the next change.
    pub async fn next(self: Arc<Self>) -> Change {
        loop {
            let first = self.latest.lock().pop_first();
            if let Some((_, change)) = first {
                return change;
            }
            self.filled.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{Pod, PodStatus};

    #[tokio::test]
    async fn the_last_word_on_each_pod_is_kept() {
        let outbox = Arc::new(Outbox::default());
        let status = |uid: &str, phase: &str| {
            let mut pod = Pod::default();
            pod.metadata.uid = Some(uid.into());
            let status = Box::new(PodStatus { phase: Some(phase.into()), ..PodStatus::default() });
            Change::Status { pod: Arc::new(pod), status, finished: false }
        };
        outbox.put(status("a", "Pending"));
        outbox.put(status("b", "Pending"));
        outbox.put(status("a", "Running"));
        outbox.put(Change::Gone("b".into()));
        let first = outbox.clone().next().await;
        assert!(matches!(first, Change::Status { status, .. } if status.phase.as_deref() == Some("Running")));
        assert!(matches!(outbox.clone().next().await, Change::Gone(uid) if uid == "b"));
        assert!(outbox.latest.lock().is_empty());
    }
}
