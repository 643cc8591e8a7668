//! Following etcd: one watch of everything feeds the window that all feeds read.
//!
//! ```text
//! etcd ══ one watch of all keys ══> Follower ──> window ──> feeds
//!      ══ a watch of its own ═════> WatchHistory ──────────> a feed that is behind
//! ```
//!
//! Why one watch of all keys: each change is sent once, however many feeds there are; and whatever a single
//! watch has seen at a revision, it has seen everything before. Asking several watches for their progress
//! would not tell that: before 3.4.25 and 3.5.8, etcd answers such a request out of turn, ahead of changes
//! that are still under way. A write to a key of our own makes progress visible where nothing else does.
//!
//! Why no fragments: the client does not show whether more of a revision follows.

use super::members::call;
use super::{Link, OWN_KEYS};
use crate::window::{History, Window};
use crate::{Change, Error, KEYSPACES, Revision, unavailable};
use async_trait::async_trait;
use bytes::Bytes;
use etcd_client::{Event, EventType, WatchOptions, WatchResponse, WatchStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Behind the last key that anybody uses.
const KEYS_END: &str = "/registry0";
/// How long the watch may be broken before feeds are told.
const DOWN_AFTER: Duration = Duration::from_secs(3);
const RETRY_AFTER: Duration = Duration::from_millis(200);
/// How long a change usually takes to arrive; after that we make one of our own.
const PROGRESS_WAIT: Duration = Duration::from_millis(50);

/// The watch that all feeds share; it ends when this is dropped.
pub struct Follower {
    /// What it has seen.
    pub window: Arc<Window>,
    link: Arc<Link>,
    task: JoinHandle<()>,
}

impl Follower {
    /// Begins at the present.
    pub async fn start(link: Arc<Link>) -> Result<Self, Error> {
        // A change that is certain to be there is where those who are behind know that they have caught up.
        let revision = link.mark().await?;
        let window = Arc::new(Window::new(revision));
        let task = tokio::spawn(follow(link.clone(), window.clone(), revision));
        Ok(Self { window, link, task })
    }

    /// Sees to it that every feed says how far it is, once it is at a revision.
    pub async fn request_progress(&self, goal: Revision) -> Result<(), Error> {
        self.window.request_progress(goal);
        let arrived = self.window.reaches(goal);
        if tokio::time::timeout(PROGRESS_WAIT, arrived).await.is_err() {
            // The last change may be to somebody else's key: it will never arrive.
            self.link.mark().await?;
        }
        Ok(())
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
        self.window.set_down(Some("the store is closed".to_owned()));
    }
}

/// Why a watch ended.
enum Ended {
    Compacted,
    Broken(Error),
}

/// Follows for ever, over broken connections too.
async fn follow(link: Arc<Link>, window: Arc<Window>, mut after: Revision) {
    let mut down_since = None;
    loop {
        let ended = follow_once(&link, &window, &mut after, &mut down_since).await;
        let error = match ended {
            Ended::Broken(error) => error,
            // Feeds that have not read what is gone will be told so by etcd when they look for it.
            Ended::Compacted => match link.mark().await {
                Ok(revision) => {
                    after = revision;
                    window.restart(revision);
                    continue;
                }
                Err(error) => error,
            },
        };
        let since = *down_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= DOWN_AFTER {
            window.set_down(Some(format!("etcd has not been followed for {DOWN_AFTER:?}: {error}")));
        }
        tracing::debug!(%error, "watch of etcd ended");
        tokio::time::sleep(RETRY_AFTER).await;
    }
}

async fn follow_once(
    link: &Link,
    window: &Window,
    after: &mut Revision,
    down_since: &mut Option<Instant>,
) -> Ended {
    let mut watch = match open(link, *after).await {
        Ok(watch) => watch,
        Err(error) => return Ended::Broken(error),
    };
    loop {
        let response = match watch.message().await {
            Ok(Some(response)) => response,
            Ok(None) => return Ended::Broken(unavailable("watch etcd", "it ended the watch")),
            Err(error) => return Ended::Broken(unavailable("watch etcd", error)),
        };
        if response.canceled() {
            return match compacted(link, &response) {
                Some(_) => Ended::Compacted,
                None => Ended::Broken(unavailable("watch etcd", response.cancel_reason().to_owned())),
            };
        }
        if down_since.take().is_some() {
            window.set_down(None);
        }
        if let Some((changes, last)) = changes(link, &response, *after, "") {
            *after = last;
            window.publish(changes, last);
        }
    }
}

/// Reads what the window has forgotten, by a watch of its own.
pub struct WatchHistory {
    link: Arc<Link>,
    watch: Option<WatchStream>,
}

impl WatchHistory {
    /// Over a connection.
    pub fn new(link: Arc<Link>) -> Self {
        Self { link, watch: None }
    }
}

#[async_trait]
impl History for WatchHistory {
    async fn read(&mut self, prefix: &str, after: Revision) -> Result<(Vec<Change>, Revision), Error> {
        loop {
            let watch = match &mut self.watch {
                Some(watch) => watch,
                none => none.insert(open(&self.link, after).await?),
            };
            // There is a later change, or we would not be behind: it must arrive.
            let Some(response) = call("watch etcd", watch.message()).await? else {
                return Err(unavailable("watch etcd", "it ended the watch"));
            };
            if response.canceled() {
                return Err(match compacted(&self.link, &response) {
                    Some(oldest) => Error::Compacted { asked: after, oldest },
                    None => unavailable("watch etcd", response.cancel_reason().to_owned()),
                });
            }
            if let Some(found) = changes(&self.link, &response, after, prefix) {
                return Ok(found);
            }
        }
    }

    fn rest(&mut self) {
        self.watch = None;
    }
}

/// Watches all keys. It begins at `after` itself, not behind it: if that revision is compacted, etcd may have
/// forgotten deletions of that very revision, and says that it is compacted only if asked like this.
async fn open(link: &Link, after: Revision) -> Result<WatchStream, Error> {
    let start = link.physical(after).unwrap_or(1);
    let options = WatchOptions::new().with_range(KEYS_END).with_start_revision(start);
    let (mut client, turn) = link.members.watch();
    let watch = call("watch etcd", client.watch(OWN_KEYS, Some(options))).await;
    // Whoever tries again tries another member.
    let watch = watch.inspect_err(|_| link.members.leave(turn))?;
    // A watch from the future would wait in silence: an etcd that lost its data must not go unnoticed.
    let current = link.revision().await?;
    if current < after {
        return Err(unavailable(
            "watch etcd",
            format!("its revision went back from {after} to {current}: it has lost data"),
        ));
    }
    Ok(watch)
}

/// The oldest revision that is left, if this response says that the one asked for is gone.
fn compacted(link: &Link, response: &WatchResponse) -> Option<Revision> {
    let revision = response.compact_revision();
    (revision > 0).then(|| {
        let oldest = link.logical(revision);
        link.compacted.fetch_max(oldest, Ordering::Relaxed).max(oldest)
    })
}

/// The callers' changes of a response under a prefix, and the revision up to which these are all; `None` if
/// there is nothing new.
fn changes(
    link: &Link,
    response: &WatchResponse,
    after: Revision,
    prefix: &str,
) -> Option<(Vec<Change>, Revision)> {
    let fresh = |event: &&Event| event.kv().is_some_and(|kv| link.logical(kv.mod_revision()) > after);
    let last =
        response.events().iter().filter(fresh).filter_map(Event::kv).map(|kv| kv.mod_revision()).max()?;
    let events = response.events().iter().filter(fresh);
    let changes = events.filter_map(|event| change(link, event, prefix)).collect();
    Some((changes, link.logical(last)))
}

fn change(link: &Link, event: &Event, prefix: &str) -> Option<Change> {
    let kv = event.kv()?;
    let key = kv.key_str().ok()?;
    let ours = KEYSPACES.iter().any(|keyspace| key.starts_with(keyspace));
    if !ours || !key.starts_with(prefix) {
        return None;
    }
    let revision = link.logical(kv.mod_revision());
    let (value, created) = match event.event_type() {
        EventType::Put => (Some(Bytes::copy_from_slice(kv.value())), link.logical(kv.create_revision())),
        EventType::Delete => (None, revision),
    };
    Some(Change { key: key.to_owned(), value, revision, created })
}
