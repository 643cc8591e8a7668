//! Runs a command in a container and takes what it says.

use crate::error::chain;
use crate::runtime::{ContainerId, ExecSpec, Runtime};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};

/// More output is not kept.
const LONGEST_OUTPUT: u64 = 10 * 1024;

/// Its exit code and output. An error: it could not be run, or took too long.
pub(crate) async fn run(
    runtime: &dyn Runtime,
    container: &ContainerId,
    command: Vec<String>,
    timeout: Duration,
) -> Result<(i32, String), String> {
    let spec = ExecSpec { command: command.clone(), stdout: true, stderr: true, ..ExecSpec::default() };
    let running = async {
        let session = runtime.exec(container, &spec).await.map_err(|error| chain(&error))?;
        let (stdout, stderr, code) = tokio::join!(read(session.stdout), read(session.stderr), session.exit);
        let code = code.map_err(|error| chain(&error))?;
        Ok((code, format!("{stdout}{stderr}")))
    };
    match tokio::time::timeout(timeout, running).await {
        Ok(result) => result,
        Err(_) => {
            let command = command.join(" ");
            Ok((-1, format!("command timed out: \"{command}\" timed out after {}s", timeout.as_secs())))
        }
    }
}

async fn read(stream: Option<Box<dyn AsyncRead + Send + Unpin>>) -> String {
    let Some(mut stream) = stream else { return String::new() };
    let mut bytes = Vec::new();
    let _ = (&mut stream).take(LONGEST_OUTPUT).read_to_end(&mut bytes).await;
    // The rest is read too, so that the command does not wait for somebody to read it.
    let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&bytes).into_owned()
}
