//! One file per verb. Each takes an understood request and gives an answer.

pub mod create;
pub mod delete;
pub mod get;
pub mod list;
pub mod patch;
pub mod update;
pub mod watch;
