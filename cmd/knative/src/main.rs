//! The knative program.

fn main() -> std::process::ExitCode {
    knative_cmd::main(std::env::args_os())
}
