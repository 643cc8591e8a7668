//! The kubelet program: flags to Config to run.

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the program with these arguments, its own name first.
pub fn main(_arguments: impl Iterator<Item = OsString>) -> ExitCode {
    ExitCode::FAILURE
}
