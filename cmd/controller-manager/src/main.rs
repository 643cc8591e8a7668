//! The controller-manager program.

fn main() -> std::process::ExitCode {
    controller_manager_cmd::main(std::env::args_os())
}
