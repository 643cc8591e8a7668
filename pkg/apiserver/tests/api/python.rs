//! The Python client against a fresh apiserver: testcases/python.

use std::path::{Path, PathBuf};
use std::process::Command;
use testing::{run_script, testcases};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tour_of_the_python_client() {
    let requirements = testcases().join("python/requirements.txt");
    let python = environment(&requirements);
    let mut tour = Command::new(python);
    tour.arg(testcases().join("python/tour.py")).env("NO_PROXY", "127.0.0.1").env("no_proxy", "127.0.0.1");
    run_script(tour).await;
}

/// The interpreter of a virtual environment with the client in it. It is kept in the target directory, and made again
/// when the requirements have changed.
fn environment(requirements: &Path) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let dir = target.join("python-client");
    let python = dir.join("bin/python");
    let wanted = std::fs::read_to_string(requirements).expect("requirements");
    let made_of = dir.join("made-of");
    if std::fs::read_to_string(&made_of).is_ok_and(|made_of| made_of == wanted) {
        return python;
    }
    succeed(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&dir));
    succeed(
        Command::new(&python)
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"])
            .arg(requirements),
    );
    std::fs::write(made_of, wanted).expect("a note of what was installed");
    python
}

fn succeed(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
