//! The kubectl program.

fn main() -> std::process::ExitCode {
    kubectl_cmd::main(std::env::args_os())
}
