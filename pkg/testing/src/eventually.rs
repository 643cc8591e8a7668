//! Waiting for what happens by itself.

use std::future::Future;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Longer than anything takes; a test that waits this long has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Asks again and again until the condition holds, and gives back what it found. `what` is said when it never does.
pub async fn eventually<T, F>(what: &str, mut condition: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let ends = Instant::now() + PATIENCE;
    let mut pause = FIRST_PAUSE;
    loop {
        if let Some(found) = condition().await {
            return found;
        }
        assert!(Instant::now() < ends, "waited {PATIENCE:?} in vain: {what}");
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// The result of something that must end by itself.
pub async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    match timeout(PATIENCE, future).await {
        Ok(result) => result,
        Err(_) => panic!("waited {PATIENCE:?} in vain: {what}"),
    }
}
