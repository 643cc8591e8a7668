//! A component on a thread with a runtime of its own, so that it can be ended from anywhere.

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
    running: Option<(CancellationToken, JoinHandle<()>, oneshot::Receiver<()>)>,
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

    pub fn run(&mut self) {
        let (token, run, name) = (CancellationToken::new(), self.run.clone(), self.name);
        let (tell_ended, ended) = oneshot::channel();
        let shutdown = token.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
            let runtime = runtime.expect("a runtime");
            runtime.block_on(async {
                while !shutdown.is_cancelled() {
                    if let Err(error) = run(shutdown.clone()).await {
                        eprintln!("{name} ended: {error}");
                    }
                }
            });
            runtime.shutdown_timeout(Duration::from_secs(5));
            let _ = tell_ended.send(());
        });
        self.running = Some((token, thread, ended));
    }

    pub async fn stop(&mut self) {
        if let Some((token, thread, ended)) = self.running.take() {
            token.cancel();
            in_time(self.name, ended).await.expect("it ends by itself");
            thread.join().expect("its thread");
        }
    }
}

impl Drop for Component {
    fn drop(&mut self) {
        if let Some((token, _, _)) = self.running.take() {
            token.cancel();
        }
    }
}
