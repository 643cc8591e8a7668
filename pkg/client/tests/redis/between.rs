//! Somebody between a program and Redis who loses, doubles, delays and mixes up what Redis says, by a seed; and between a
//! program and the API, who cuts connections.

use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// Until it is dropped.
pub struct Between {
    pub port: u16,
    task: JoinHandle<()>,
}

/// What becomes of a message.
#[derive(Clone, Copy, Debug)]
enum Fault {
    None,
    Drop,
    Double,
    Hold,
    Delay,
    Cut,
    Garble,
}

impl Between {
    /// Before the API: connections end when it likes.
    pub async fn cutting(server: SocketAddr, seed: u64) -> Between {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let task = tokio::spawn(async move {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut connections = JoinSet::new();
            while let Ok((mut program, _)) = listener.accept().await {
                let lasts = Duration::from_millis(random.u64(300..2500));
                connections.spawn(async move {
                    let Ok(mut server) = TcpStream::connect(server).await else { return };
                    let passing = tokio::io::copy_bidirectional(&mut program, &mut server);
                    let _ = tokio::time::timeout(lasts, passing).await;
                });
            }
        });
        Between { port, task }
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    /// Before Redis.
    pub async fn start(redis: u16, seed: u64) -> Between {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let task = tokio::spawn(async move {
            let mut random = fastrand::Rng::with_seed(seed);
            loop {
                let Ok((program, _)) = listener.accept().await else { return };
                let Ok(redis) = TcpStream::connect(("127.0.0.1", redis)).await else { continue };
                // Programs have one connection; when it ends the next one may come.
                let _ = pass(program, redis, &mut random).await;
            }
        });
        Between { port, task }
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(program: TcpStream, redis: TcpStream, random: &mut fastrand::Rng) -> std::io::Result<()> {
    let (mut from_program, mut to_program) = program.into_split();
    let (mut from_redis, mut to_redis) = redis.into_split();
    let asking = async move { tokio::io::copy(&mut from_program, &mut to_redis).await.map(drop) };
    let answering = async move {
        let (mut buffer, mut held): (Vec<u8>, Vec<Vec<u8>>) = Default::default();
        loop {
            while let Some(length) = frame(&buffer) {
                let frame: Vec<u8> = buffer.drain(..length).collect();
                let is_message = frame.starts_with(b"*3\r\n$7\r\nmessage");
                match if is_message { fault(random) } else { Fault::None } {
                    Fault::None => to_program.write_all(&frame).await?,
                    Fault::Drop => {}
                    Fault::Double => to_program.write_all(&[frame.clone(), frame].concat()).await?,
                    Fault::Hold => held.push(frame),
                    Fault::Delay => {
                        tokio::time::sleep(Duration::from_millis(random.u64(..30))).await;
                        to_program.write_all(&frame).await?;
                    }
                    Fault::Cut => return Ok(()),
                    Fault::Garble => to_program.write_all(b"%!?\r\n").await?,
                }
                if !held.is_empty() && random.u32(..3) == 0 {
                    to_program.write_all(&held.swap_remove(random.usize(..held.len()))).await?;
                }
            }
            if from_redis.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        }
    };
    tokio::select! { result = asking => result, result = answering => result }
}

fn fault(random: &mut fastrand::Rng) -> Fault {
    match random.u32(..1000) {
        0..80 => Fault::Drop,
        80..160 => Fault::Double,
        160..240 => Fault::Hold,
        240..300 => Fault::Delay,
        300..305 => Fault::Cut,
        305..307 => Fault::Garble,
        _ => Fault::None,
    }
}

/// How long the first reply is, if it is whole.
fn frame(buffer: &[u8]) -> Option<usize> {
    let end = buffer.iter().position(|byte| *byte == b'\n')? + 1;
    let number = || std::str::from_utf8(&buffer[1..end - 2]).ok()?.parse::<i64>().ok();
    let length = match buffer[0] {
        b'$' => end + usize::try_from(number()?).map_or(0, |length| length + 2),
        b'*' => {
            let mut at = end;
            for _ in 0..number()?.max(0) {
                at += frame(buffer.get(at..)?)?;
            }
            at
        }
        _ => end,
    };
    (buffer.len() >= length).then_some(length)
}
