//! The engine, without a cluster: what each type of node does, against a simple interpreter, and over crashes.

mod against_reference;
mod crashes;
mod nodes;
mod reference;
mod world;
