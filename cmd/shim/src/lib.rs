//! The shim program: what containerd starts once per node to run its containers.

use std::ffi::OsString;
use std::process::ExitCode;

/// The program, for its man page. Its flags are containerd's.
pub fn command() -> clap::Command {
    clap::Command::new("containerd-shim-minik8s-v1")
        .about("Runs the containers of all pods of a node. containerd starts it, once")
}

/// Runs the program with these arguments, its own name first.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    shim::main(arguments)
}
