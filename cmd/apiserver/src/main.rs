//! The apiserver program.

fn main() -> std::process::ExitCode {
    apiserver_cmd::main(std::env::args_os())
}
