//! A component on a thread with a runtime of its own, so that it can be ended from anywhere, in order or without warning.

use crate::in_time;
use std::pin::Pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

type Running = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// Something with `run(config, shutdown)`, running until it is stopped or dropped. One that ends by itself, having lost its
/// lease, is started again, as whatever supervises it would do.
pub struct Component {
    name: &'static str,
    run: Arc<dyn Fn(CancellationToken) -> Running + Send + Sync>,
    running: Option<Thread>,
}

struct Thread {
    drain: CancellationToken,
    kill: CancellationToken,
    thread: JoinHandle<()>,
    ended: oneshot::Receiver<()>,
}

impl Component {
    pub fn start<F>(
        name: &'static str,
        run: impl Fn(CancellationToken) -> F + Send + Sync + 'static,
    ) -> Component
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        let mut component =
            Component { name, run: Arc::new(move |token| Box::pin(run(token))), running: None };
        component.run();
        component
    }

    /// Another one of the same, running.
    pub fn twin(&self) -> Component {
        let mut twin = Component { name: self.name, run: self.run.clone(), running: None };
        twin.run();
        twin
    }

    pub fn run(&mut self) {
        let (drain, kill) = (CancellationToken::new(), CancellationToken::new());
        let (tell_ended, ended) = oneshot::channel();
        let (run, name, tokens) = (self.run.clone(), self.name, (drain.clone(), kill.clone()));
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
            let runtime = runtime.expect("a runtime");
            let (drain, kill) = tokens;
            runtime.block_on(async {
                let again_and_again = async {
                    while !drain.is_cancelled() {
                        if let Err(error) = run(drain.clone()).await {
                            eprintln!("{name} ended: {error}");
                        }
                    }
                };
                tokio::select! {
                    () = again_and_again => {}
                    () = kill.cancelled() => {}
                }
            });
            // Of one that is killed nothing more is done: what it was about to write is not written.
            let patience = if kill.is_cancelled() { Duration::ZERO } else { Duration::from_secs(5) };
            runtime.shutdown_timeout(patience);
            let _ = tell_ended.send(());
        });
        self.running = Some(Thread { drain, kill, thread, ended });
    }

    /// Ends it as SIGTERM does.
    pub async fn stop(&mut self) {
        if let Some(Thread { drain, thread, ended, .. }) = self.running.take() {
            drain.cancel();
            in_time(self.name, ended).await.expect("it ends by itself");
            thread.join().expect("its thread");
        }
    }

    /// Ends it as SIGKILL does.
    pub async fn kill(&mut self) {
        if let Some(Thread { kill, thread, ended, .. }) = self.running.take() {
            kill.cancel();
            in_time(self.name, ended).await.expect("it is ended");
            thread.join().expect("its thread");
        }
    }
}

impl Drop for Component {
    fn drop(&mut self) {
        if let Some(Thread { drain, .. }) = self.running.take() {
            drain.cancel();
        }
    }
}
