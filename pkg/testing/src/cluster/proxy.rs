//! A stretch of bad network: bytes go through, slowly if asked, until they are cut off.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// A proxy to one address. TLS goes through it as it is.
pub struct Proxy {
    address: SocketAddr,
    state: Arc<State>,
    stop: CancellationToken,
}

struct State {
    delay_ms: AtomicU64,
    connections: std::sync::Mutex<CancellationToken>,
}

impl Proxy {
    /// A proxy on a free port.
    pub async fn start(target: SocketAddr) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound above");
        let state = Arc::new(State {
            delay_ms: AtomicU64::new(0),
            connections: std::sync::Mutex::new(CancellationToken::new()),
        });
        let stop = CancellationToken::new();
        let (shared, ended) = (state.clone(), stop.clone());
        tokio::spawn(async move {
            loop {
                let accepted = tokio::select! {
                    accepted = listener.accept() => accepted,
                    () = ended.cancelled() => return,
                };
                if let Ok((stream, _)) = accepted {
                    let token = shared.connections.lock().expect("no panics").child_token();
                    tokio::spawn(forward(stream, target, shared.clone(), token));
                }
            }
        });
        Proxy { address, state, stop }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts all connections that there are.
    pub fn cut(&self) {
        let mut connections = self.state.connections.lock().expect("no panics");
        std::mem::take(&mut *connections).cancel();
    }

    /// Lets every piece wait so long from now on.
    pub fn slow(&self, delay: Duration) {
        self.state.delay_ms.store(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Ends it.
    pub fn stop(&self) {
        self.stop.cancel();
        self.cut();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn forward(client: TcpStream, target: SocketAddr, state: Arc<State>, token: CancellationToken) {
    let Ok(server) = TcpStream::connect(target).await else { return };
    // Small pieces are requests: they do not wait to become large ones.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (mut client_read, mut client_write) = client.into_split();
    let (mut server_read, mut server_write) = server.into_split();
    tokio::select! {
        () = token.cancelled() => {}
        () = copy(&mut client_read, &mut server_write, &state) => {}
        () = copy(&mut server_read, &mut client_write, &state) => {}
    }
}

async fn copy(from: &mut (impl AsyncReadExt + Unpin), to: &mut (impl AsyncWriteExt + Unpin), state: &State) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let delay = state.delay_ms.load(Ordering::Relaxed);
        if delay > 0 {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
