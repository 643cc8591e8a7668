//! The shim program.

fn main() -> std::process::ExitCode {
    shim_cmd::main(std::env::args_os())
}
