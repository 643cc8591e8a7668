//! One file per command.

pub mod apply;
pub mod auth;
pub mod config;
pub mod cordon;
pub mod delete;
pub mod describe;
pub mod edit;
pub mod events;
pub mod functions;
pub mod get;
pub mod logs;
pub mod mark;
pub mod patch;
pub mod rollout;
pub mod scale;
pub mod server;
pub mod top;
pub mod wait;
