//! What drives every controller: queues, workers, retries, conflicts, writes, and waiting for the caches.
//!
//! ```text
//! caches ──changed keys──> Queue ──> observe(key) ──> View ──> plan(view, now) ──> Plan
//!    ^                                                                              │ writes, status, events
//!    └────────── wait until the caches have seen what was written <── execute <─────┘
//! ```
//!
//! A controller is a type that implements [`Controller`]: `observe` takes an owned view from the caches for a key, and
//! `plan` is a pure function of that view and the time. It has no queue, no retry, no client and no clock. A key is planned
//! by one worker at a time, and not planned again before the caches have seen everything that the last plan wrote: so
//! a plan never acts twice for the same reason. A write that conflicts is not repeated: the key is observed and planned
//! again, after a while that grows with every failure.
//!
//! # A controller
//!
//! ```no_run
//! use controllers::runtime::{Context, Controller, Driver, Plan, Task, Write};
//! use client::{Cache, Key};
//! use jiff::Timestamp;
//! use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
//! use std::sync::Arc;
//!
//! /// Puts a ConfigMap `hello` into every namespace.
//! struct Greeter {
//!     namespaces: Cache<Namespace>,
//!     config_maps: Cache<ConfigMap>,
//! }
//!
//! struct View {
//!     namespace: Arc<Namespace>,
//!     greeting: Option<Arc<ConfigMap>>,
//! }
//!
//! impl Controller for Greeter {
//!     type View = View;
//!
//!     async fn observe(&self, key: &Key) -> kube::Result<Option<View>> {
//!         let Some(namespace) = self.namespaces.get(key) else { return Ok(None) };
//!         let greeting = self.config_maps.get(&Key::new(&key.name, "hello"));
//!         Ok(Some(View { namespace, greeting }))
//!     }
//!
//!     fn plan(&self, view: &View, _now: Timestamp) -> Plan {
//!         let mut plan = Plan::default();
//!         if view.greeting.is_none() && view.namespace.metadata.deletion_timestamp.is_none() {
//!             let mut greeting = ConfigMap::default();
//!             greeting.metadata.namespace = view.namespace.metadata.name.clone();
//!             greeting.metadata.name = Some("hello".into());
//!             plan.writes.push(Write::create(&greeting));
//!         }
//!         plan
//!     }
//! }
//!
//! /// What the list in `lib.rs` names.
//! pub fn start(context: &Context) -> Task {
//!     let (namespaces, config_maps) = (context.informers.cache(), context.informers.cache());
//!     let greeter = Greeter { namespaces: namespaces.clone(), config_maps: config_maps.clone() };
//!     Driver::new(context, greeter)
//!         .owns(&namespaces)
//!         .watches(&config_maps, |change| {
//!             let key = change.key();
//!             if key.name == "hello" { vec![Key::cluster(key.namespace)] } else { vec![] }
//!         })
//!         .task()
//! }
//! ```
//!
//! What does not fit this shape (the garbage collector's graph, say) may return any future as its [`Task`], made of the
//! same parts: [`Queue`], [`execute`], the caches.

mod clock;
mod driver;
mod execute;
mod owners;
mod plan;
mod queue;
mod write;

pub use clock::Clock;
pub use driver::{Context, Controller, Driver, Task};
pub use execute::{Failure, Seen, execute, write};
pub use owners::{Claim, claim, controlled_by, controller_of, owner_key, owner_reference};
pub use plan::{Note, Plan};
pub use queue::Queue;
pub use write::{Target, Verb, Write};
