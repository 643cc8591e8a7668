//! Everything there is to know about the objects of the API, and nothing about how they travel.
//!
//! ```text
//! kinds/*.rs ──> Kind ──> identity, schema, defaults, rules, columns
//!                            │
//!           bytes ──decode──>│──check──> Value ──default──> Value ──validate──> Errors
//! ```
//!
//! An object is JSON ([`serde_json::Value`]) checked against the [`schema`] of its kind, for built-in kinds
//! as for custom ones. Rules look at objects through [`Field`]s, which know where they stand, so that a
//! complaint always carries its path.
//!
//! This crate does no I/O, knows no clock and keeps no state beyond the tables it is made of.

pub mod admission;
pub mod crd;
pub mod decode;
pub mod dialect;
pub mod domains;
pub mod equality;
pub mod expression;
pub mod field;
pub mod jsonpath;
pub mod kind;
pub mod kinds;
pub mod meta;
pub mod names;
pub mod node_selector;
pub mod object;
pub mod place;
pub mod printing;
pub mod protobuf;
pub mod quantity;
pub mod quota;
pub mod schema;
pub mod selector;
pub mod table;
pub mod taints;

pub use field::{Errors, Field, FieldError};
pub use kind::{Column, Kind, Scope};
pub use object::Value;
pub use quantity::Quantity;
pub use schema::Schema;
