//! Priority and fairness: which requests are worked on now, which wait, which are sent away.
//!
//! ```text
//! FlowSchemas, PriorityLevelConfigurations ─ keep ─ layout ──> schemas with their rules, levels with their seats
//! request ─ rules ─> schema, level, flow ─ queue_set ─> a seat, a place in a queue, or 429
//!                                             ↑ limits: what levels lend each other (shares)
//! ```
//!
//! All that can be decided without waiting is pure: [`rules`], [`layout`], [`queue_set`], [`shares`], [`upkeep`]. A seat is
//! taken when a request is whole, and given back when its answer is there: a list is sent, and a watch goes on, without
//! one. What passes through to nodes and pods (logs, exec, proxies) takes none.

mod counters;
mod in_flight;
mod keep;
mod layout;
mod level;
mod queue_set;
mod rules;
mod shares;
mod upkeep;

pub use in_flight::admit;
pub use keep::{keep, lend, pass};

use crate::auth::Attributes;
use crate::handler::Call;
use crate::registry::Resource;
use api::Value;
use api::kinds::flowcontrol::MANDATORY;
use counters::Counters;
use http::header::HeaderValue;
use level::{Asked, Layout, Level, Schema, Seat};
use parking_lot::RwLock;
use shares::{Allotment, Shares, Wish};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// So many objects of a list are worth a seat.
const OBJECTS_PER_SEAT: usize = 100;
/// No request takes more seats.
const MOST_SEATS: usize = 10;

/// Schemas and levels, and who waits for what.
pub struct FlowControl {
    /// The seats of all levels together.
    total: u32,
    now: RwLock<Arrangement>,
    /// With a key of this process: nobody can choose names that share the queues of others.
    hasher: RandomState,
    /// Told when a request did not get its seat at once.
    contended: Arc<Notify>,
}

/// What requests are compared with, at one moment.
#[derive(Clone)]
struct Arrangement {
    /// In the order in which they are asked.
    schemas: Vec<Arc<Schema>>,
    levels: Vec<Arc<Level>>,
    /// The schema of what no rule is about.
    last: Arc<Schema>,
}

impl FlowControl {
    /// With what is mandatory, until it is known what else there is.
    pub fn new(total: usize) -> FlowControl {
        let contended = Arc::new(Notify::new());
        let now = Instant::now();
        let level = Arc::new(Level::new(MANDATORY[1], false, contended.clone(), now));
        let last = Arc::new(Schema {
            name: MANDATORY[1].to_owned(),
            rules: rules::Rules::default(),
            distinguisher: rules::Distinguisher::ByUser,
            level: level.clone(),
            counters: Arc::default(),
            uids: [const { HeaderValue::from_static("") }; 2],
        });
        let arrangement = Arrangement { schemas: vec![last.clone()], levels: vec![level], last };
        let flows = FlowControl {
            total: u32::try_from(total).unwrap_or(u32::MAX).max(1),
            now: RwLock::new(arrangement),
            hasher: RandomState::new(),
            contended,
        };
        flows.arrange(&[], &[], now);
        flows
    }

    /// Takes in what is stored. Requests that wait or are worked on are not disturbed.
    fn arrange(&self, levels: &[Value], schemas: &[Value], now: Instant) {
        let before = self.now.read().clone();
        let specs = layout::levels(levels);
        let shares: Vec<Shares> = specs.iter().map(|spec| spec.shares).collect();
        let mut levels = Vec::new();
        let mut uids = Vec::new();
        for (spec, allotment) in specs.iter().zip(Allotment::of(self.total, &shares)) {
            let known = before.levels.iter().find(|level| level.name == spec.name);
            let level = known.cloned().unwrap_or_else(|| {
                Arc::new(Level::new(&spec.name, spec.is_exempt, self.contended.clone(), now))
            });
            level.lay_out(Layout { queuing: spec.queuing, allotment });
            levels.push(level);
            uids.push(header(&spec.uid));
        }
        let schemas = layout::schemas(schemas).into_iter().filter_map(|spec| {
            let index = specs.iter().position(|level| level.name == spec.level)?;
            let level = levels[index].clone();
            let is_same = |known: &&Arc<Schema>| known.name == spec.name && known.level.name == level.name;
            let counters = before.schemas.iter().find(is_same).map(|known| known.counters.clone());
            let uids = [header(&spec.uid), uids[index].clone()];
            let (name, rules, distinguisher) = (spec.name, spec.rules, spec.distinguisher);
            let counters = counters.unwrap_or_else(|| Arc::new(Counters::default()));
            Some(Arc::new(Schema { name, rules, distinguisher, level, counters, uids }))
        });
        let schemas: Vec<Arc<Schema>> = schemas.collect();
        let last = schemas.iter().find(|schema| schema.name == MANDATORY[1]).unwrap_or(&before.last).clone();
        for gone in before.levels.iter().filter(|old| !levels.iter().any(|level| Arc::ptr_eq(level, old))) {
            gone.retire(now);
        }
        *self.now.write() = Arrangement { schemas, levels, last };
        self.settle(now);
    }

    /// Divides the seats by what is wanted now. Whether anybody waits all the same.
    fn settle(&self, now: Instant) -> bool {
        let levels = self.now.read().levels.clone();
        let wishes: Vec<Wish> = levels.iter().map(|level| level.wish(now)).collect();
        for (level, limit) in levels.iter().zip(shares::divide(self.total, &wishes)) {
            level.set_limit(limit, now);
        }
        levels.iter().any(|level| level.has_waiting())
    }

    /// Which requests a request belongs to.
    fn classify(&self, request: &Attributes<'_>) -> Arc<Schema> {
        let now = self.now.read();
        let found = now.schemas.iter().find(|schema| schema.rules.match_request(request));
        found.unwrap_or(&now.last).clone()
    }

    /// Seats for a request, as soon as it is its turn; the schema of one that is sent away.
    async fn seat(
        &self,
        request: &Attributes<'_>,
        seats: u32,
        patience: Duration,
    ) -> Result<Seat, Arc<Schema>> {
        let schema = self.classify(request);
        let flow = match schema.level.is_exempt {
            true => 0,
            false => self.hasher.hash_one((schema.name.as_str(), schema.distinguisher.flow(request))),
        };
        match schema.ask(flow, seats) {
            Asked::Seat(seat) => Ok(seat),
            Asked::Wait(place) => place.wait(patience).await,
            Asked::Refused(schema) => Err(schema),
        }
    }

    /// Writes the lines of `/metrics`.
    pub fn render(&self, out: &mut String) {
        let now = self.now.read().clone();
        counters::render(out, &now.schemas, &now.levels);
    }
}

fn header(uid: &str) -> HeaderValue {
    HeaderValue::from_str(uid).unwrap_or(const { HeaderValue::from_static("") })
}

/// How many seats a request takes: a list as many as there are objects to go through.
pub fn width(resource: &Resource, call: &Call<'_>) -> u32 {
    let lists = match call.info.verb {
        "list" => true,
        "watch" => call.query.flag("sendInitialEvents"),
        _ => false,
    };
    if !lists || !call.target.name.is_empty() {
        return 1;
    }
    let limit = call.query.int("limit").ok().flatten().and_then(|limit| usize::try_from(limit).ok());
    seats_of_list(resource.cache.len(), limit.unwrap_or(0))
}

fn seats_of_list(objects: usize, limit: usize) -> u32 {
    let objects = if limit == 0 { objects } else { objects.min(limit) };
    objects.div_ceil(OBJECTS_PER_SEAT).clamp(1, MOST_SEATS) as u32
}

#[cfg(test)]
mod tests;
