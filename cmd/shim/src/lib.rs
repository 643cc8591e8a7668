//! The shim program: what containerd starts once per node to run its containers.

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the program with these arguments, its own name first.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    shim::main(arguments)
}
