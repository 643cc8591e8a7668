//! The runtime's contract, on a real containerd.

mod faults;
mod images;
mod lifecycle;
mod limits;
mod logs;
mod node;
mod registry;
mod security;
mod sessions;
