//! From the change feed to caches of encoded objects, and from those to lists and watches.
//!
//! ```text
//!                 ┌> Cache of pods ──> objects (encoded once) ──> get, list
//! Store ──> Hub ──┤        │
//!       one feed  │        └> ring of events ──> View per distinct scope ──> Watcher, Watcher, …
//!                 └> Cache of …
//! ```
//!
//! - A [`Hub`] follows one feed of the store and drives all [`Cache`]s from it. [`Hub::wait`] tells when they have
//!   applied everything up to a revision.
//! - A [`Cache`] holds the objects of one resource as the bytes that are served, and a bounded window of the last
//!   changes. Lists come from it as of now or as of any revision in the window.
//! - A [`Watcher`] is a place in a ring of [`Event`]s that it shares with all others of the same [`Scope`]: it costs
//!   no memory when it is slow, and it never makes a writer wait.
//!
//! Never here: HTTP, authorization, versions and kinds (a resource is a key prefix and what its objects can be
//! selected by), and no write to the store.

mod cache;
mod event;
mod hub;
mod index;
mod object;
mod resource;
mod ring;
mod scan;
mod scope;
mod state;
mod view;
mod watcher;

pub use cache::{Cache, Listing, Page, Since};
pub use event::{Event, EventType, bookmark};
pub use hub::Hub;
pub use object::Object;
pub use resource::{Decode, DecodeError, ResourceConfig, SelectableField, Window};
pub use scope::Scope;
pub use store::Revision;
pub use watcher::{Batch, Chunk, Ended, Watcher};

/// Why a list or a watch cannot begin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The revision lies before the window of changes that is kept: list again.
    #[error("too old resource version: {asked} ({oldest})")]
    TooOld {
        /// The revision asked for.
        asked: Revision,
        /// The oldest revision from which a watch can start.
        oldest: Revision,
    },
    /// The revision is later than what the cache has seen.
    #[error("Too large resource version: {asked}, current: {current}")]
    Future {
        /// The revision asked for.
        asked: Revision,
        /// How far the cache is.
        current: Revision,
    },
    /// Another cache has taken the place of this one: list again.
    #[error("too old resource version: the resource was defined anew")]
    Replaced,
    /// The resource has been removed.
    #[error("the resource is not served any more")]
    Closed,
}
