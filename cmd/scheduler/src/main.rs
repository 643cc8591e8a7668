//! The scheduler program.

fn main() -> std::process::ExitCode {
    scheduler_cmd::main(std::env::args_os())
}
