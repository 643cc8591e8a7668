//! One read of the present revision for all who ask at the same time.

use crate::{Error, Revision, unavailable};
use parking_lot::Mutex as Lock;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Mutex;

/// Shares reads: whoever asks gets the answer of a read that was begun after they asked, never an older one.
#[derive(Default)]
pub struct SharedRead {
    /// How many reads were begun.
    begun: AtomicU64,
    /// Held by whoever reads; the others wait here and then find the answer.
    turn: Mutex<()>,
    /// The last answer, and the number of the read that gave it.
    last: Lock<Option<(u64, Result<Revision, String>)>>,
}

impl SharedRead {
    /// The answer of such a read.
    pub async fn read<F>(&self, read: impl FnOnce() -> F) -> Result<Revision, Error>
    where
        F: Future<Output = Result<Revision, Error>>,
    {
        let asked = self.begun.load(Ordering::SeqCst);
        let _turn = self.turn.lock().await;
        match &*self.last.lock() {
            Some((number, answer)) if *number > asked => {
                return answer.clone().map_err(|why| unavailable("read the revision of etcd", why));
            }
            _ => {}
        }
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let answer = read().await;
        let shared = answer.as_ref().map(|revision| *revision).map_err(describe);
        *self.last.lock() = Some((number, shared));
        answer
    }
}

/// An error and its causes, for those who cannot have the error itself.
fn describe(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::join_all;
    use std::sync::Arc;
    use tokio::sync::Semaphore;

    #[tokio::test]
    async fn those_who_wait_share_the_next_read_but_never_the_running_one() {
        let reads = Arc::new(SharedRead::default());
        let (gate, count) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicU64::new(0)));
        let ask = || {
            let (reads, gate, count) = (reads.clone(), gate.clone(), count.clone());
            async move {
                let read = || async {
                    let number = count.fetch_add(1, Ordering::SeqCst) + 1;
                    gate.acquire().await.map_err(|e| unavailable("wait", e))?.forget();
                    Ok(number)
                };
                reads.read(read).await.unwrap()
            }
        };
        let mut first = Box::pin(ask());
        assert!(futures::poll!(&mut first).is_pending());
        let mut late: Vec<_> = (0..5).map(|_| Box::pin(ask())).collect();
        for asker in &mut late {
            assert!(futures::poll!(asker).is_pending());
        }
        gate.add_permits(2);
        assert_eq!(first.await, 1);
        assert_eq!(join_all(late).await, [2; 5]);
    }
}
