//! How a pod's worker is told that something has happened.

use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// Wakes one worker. Being woken twice before looking is being woken once.
#[derive(Debug, Default)]
pub struct Wake {
    notify: Notify,
    objects: AtomicBool,
}

impl Wake {
    /// Something about the pod may have changed.
    pub fn wake(&self) {
        self.notify.notify_one();
    }

    /// A ConfigMap or Secret that the pod uses has changed.
    pub fn object_changed(&self) {
        self.objects.store(true, Ordering::Release);
        self.notify.notify_one();
    }

    /// Until something happens.
    pub async fn woken(&self) {
        self.notify.notified().await;
    }

    /// Whether an object has changed since the last time.
    pub fn take_object_changed(&self) -> bool {
        self.objects.swap(false, Ordering::AcqRel)
    }
}
