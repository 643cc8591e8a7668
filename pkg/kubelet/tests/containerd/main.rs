//! The runtime's contract, on a real containerd.

mod lifecycle;
mod node;
