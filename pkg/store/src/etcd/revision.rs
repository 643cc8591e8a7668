//! One read of the present revision for all who ask at the same time.
//!
//! ```text
//! ask ─┐
//! ask ─┼─ gather ──> read 1 ──> answer, to all three at once
//! ask ─┘
//! ask ─── gather ──────> read 2 …          begun later, so never older than who asked
//! ```

use crate::{Error, Revision, unavailable};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use std::future::Future;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Reads at once. One more than one: who comes while a read is on its way need not wait for its end.
const READS: usize = 2;
/// How often those who are about to ask are let go first.
const MOST_YIELDS: usize = 4;

type Answer = Result<Revision, Arc<str>>;

/// Shares reads: whoever asks gets the answer of a read that was begun after they asked, never an older one.
pub struct SharedRead(Arc<Inner>);

struct Inner {
    /// The read that is not begun yet, and how many wait for it.
    gathering: Mutex<Option<(Shared<BoxFuture<'static, Answer>>, usize)>>,
    turns: Semaphore,
}

impl Default for SharedRead {
    fn default() -> Self {
        SharedRead(Arc::new(Inner { gathering: Mutex::default(), turns: Semaphore::new(READS) }))
    }
}

impl Drop for SharedRead {
    /// A read that nobody waits for any more holds on to what it is kept in.
    fn drop(&mut self) {
        self.0.gathering.lock().take();
    }
}

impl SharedRead {
    /// The answer of such a read.
    pub async fn read<F>(&self, read: impl FnOnce() -> F + Send + 'static) -> Result<Revision, Error>
    where
        F: Future<Output = Result<Revision, Error>> + Send,
    {
        let answer = {
            let mut gathering = self.0.gathering.lock();
            match &mut *gathering {
                Some((answer, waiting)) => {
                    *waiting += 1;
                    answer.clone()
                }
                none => {
                    let inner = self.0.clone();
                    let answer = async move { inner.gathered(read).await }.boxed().shared();
                    none.insert((answer, 1)).0.clone()
                }
            }
        };
        answer.await.map_err(|why| unavailable("read the revision of etcd", why.to_string()))
    }
}

impl Inner {
    /// Reads, when all who are about to ask have done so. Whoever of them waits drives this.
    async fn gathered<F>(&self, read: impl FnOnce() -> F) -> Answer
    where
        F: Future<Output = Result<Revision, Error>>,
    {
        let mut known = 0;
        for _ in 0..MOST_YIELDS {
            let waiting = self.gathering.lock().as_ref().map_or(0, |(_, waiting)| *waiting);
            if waiting == known {
                break;
            }
            known = waiting;
            tokio::task::yield_now().await;
        }
        let _turn = self.turns.acquire().await.map_err(|error| Arc::from(error.to_string()))?;
        // From here on it is begun: who asks now needs a later one.
        drop(self.gathering.lock().take());
        read().await.map_err(|error| describe(&error).into())
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
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Reads that are numbered as they begin, and end when they are let.
    struct Reads {
        shared: SharedRead,
        gate: Arc<Semaphore>,
        begun: Arc<AtomicU64>,
    }

    impl Reads {
        fn new() -> Reads {
            Reads { shared: SharedRead::default(), gate: Arc::new(Semaphore::new(0)), begun: Arc::default() }
        }

        async fn ask(&self) -> Revision {
            let (gate, begun) = (self.gate.clone(), self.begun.clone());
            let read = || async move {
                let number = begun.fetch_add(1, Ordering::SeqCst) + 1;
                gate.acquire().await.map_err(|e| unavailable("wait", e))?.forget();
                Ok(number)
            };
            self.shared.read(read).await.unwrap()
        }

        /// Lets an asker go on until this many reads are begun.
        async fn until_begun(&self, asker: &mut (impl Future<Output = Revision> + Unpin), reads: u64) {
            while self.begun.load(Ordering::SeqCst) < reads {
                assert!(futures::poll!(&mut *asker).is_pending());
                tokio::task::yield_now().await;
            }
        }
    }

    #[tokio::test]
    async fn those_who_ask_together_share_a_read_but_never_one_that_was_begun_before() {
        let reads = Reads::new();
        let mut first: Vec<_> = (0..3).map(|_| Box::pin(reads.ask())).collect();
        for asker in &mut first {
            assert!(futures::poll!(asker).is_pending());
        }
        reads.until_begun(&mut first[0], 1).await;
        let mut late: Vec<_> = (0..5).map(|_| Box::pin(reads.ask())).collect();
        for asker in &mut late {
            assert!(futures::poll!(asker).is_pending());
        }
        reads.until_begun(&mut late[0], 2).await;
        let mut latest = Box::pin(reads.ask());
        assert!(futures::poll!(&mut latest).is_pending());
        reads.gate.add_permits(3);
        assert_eq!(join_all(first).await, [1; 3]);
        assert_eq!(join_all(late).await, [2; 5]);
        assert_eq!(latest.await, 3);
    }

    #[tokio::test]
    async fn who_goes_away_leaves_the_others_their_answer() {
        let reads = Reads::new();
        let mut impatient = Box::pin(reads.ask());
        assert!(futures::poll!(&mut impatient).is_pending());
        let mut patient = Box::pin(reads.ask());
        assert!(futures::poll!(&mut patient).is_pending());
        reads.until_begun(&mut impatient, 1).await;
        drop(impatient);
        reads.gate.add_permits(1);
        assert_eq!(patient.await, 1);
        // All of them: the read goes too, and what comes then begins anew.
        let mut alone = Box::pin(reads.ask());
        assert!(futures::poll!(&mut alone).is_pending());
        drop(alone);
        reads.gate.add_permits(1);
        assert_eq!(tokio::time::timeout(std::time::Duration::from_secs(60), reads.ask()).await, Ok(2));
    }
}
