//! Compiles the programs that run beside the kubelet (`programs/`), static and small, for it to embed.

use std::path::{Path, PathBuf};
use std::process::Command;

const PAUSE: &[&str] =
    &["-Crelocation-model=static", "-Clink-arg=-nostartfiles", "-Clink-arg=-nostdlib", "-Clink-arg=-static"];
const LOGGER: &[&str] = &["-Ctarget-feature=+crt-static"];

fn main() {
    println!("cargo::rerun-if-changed=programs");
    println!("cargo::rerun-if-changed=src/runtime/cri_log.rs");
    compile("pause", PAUSE);
    compile("logger", LOGGER);
}

fn compile(name: &str, flags: &[&str]) {
    let out = PathBuf::from(variable("OUT_DIR")).join(name);
    let status = Command::new(variable("RUSTC"))
        .args(["--edition=2024", "--crate-type=bin", "-Cpanic=abort", "-Copt-level=s", "-Cstrip=symbols"])
        .arg(format!("--target={}", variable("TARGET")))
        .args(flags)
        .arg(Path::new("programs").join(format!("{name}.rs")))
        .arg("-o")
        .arg(out)
        .status()
        .unwrap_or_else(|error| panic!("run rustc: {error}"));
    assert!(status.success(), "rustc could not compile programs/{name}.rs");
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name} for build scripts"))
}
