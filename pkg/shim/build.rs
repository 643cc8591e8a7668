//! Compiles the keeper (`programs/keeper.rs`), static and small, for the shim to embed.

use std::path::{Path, PathBuf};
use std::process::Command;

const FLAGS: &[&str] =
    &["-Crelocation-model=static", "-Clink-arg=-nostartfiles", "-Clink-arg=-nostdlib", "-Clink-arg=-static"];

fn main() {
    println!("cargo::rerun-if-changed=programs");
    println!("cargo::rerun-if-changed=src/script.rs");
    let status = Command::new(variable("RUSTC"))
        .args(["--edition=2024", "--crate-type=bin", "-Cpanic=abort", "-Copt-level=s", "-Cstrip=symbols"])
        .arg(format!("--target={}", variable("TARGET")))
        .args(FLAGS)
        .arg(Path::new("programs").join("keeper.rs"))
        .arg("-o")
        .arg(PathBuf::from(variable("OUT_DIR")).join("keeper"))
        .status()
        .unwrap_or_else(|error| panic!("run rustc: {error}"));
    assert!(status.success(), "rustc could not compile programs/keeper.rs");
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name} for build scripts"))
}
