//! Hosts: threads in network and mount namespaces of their own, for tests that make devices, rules and mounts.
//!
//! ```text
//! Host::new() ── run, sh, serve, ask ──> in its namespaces
//! Host::connect([a, b, c])               one cable between them: 192.168.77.1, .2, .3
//! ```
//!
//! What a host made goes with it: its devices, its rules and its mounts, also if the test panics. What it started
//! is inside it too, and ends when its guard is dropped.

use std::future::Future;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};

/// Longer than anything takes; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

type Job = Box<dyn FnOnce() + Send>;

/// A thread in namespaces of its own.
pub struct Host {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    tid: i32,
}

impl Default for Host {
    fn default() -> Host {
        Host::new()
    }
}

impl Host {
    /// A host without any cable; its loopback is up, and nothing that it mounts is seen outside.
    pub fn new() -> Host {
        let host = Host::start(|| {
            unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)?;
            let flags = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
            mount(None::<&str>, "/", None::<&str>, flags, None::<&str>)?;
            Ok(())
        });
        host.sh("ip link set lo up");
        host
    }

    /// A thread in a network namespace that exists, such as a pod's. Its mounts are those of the host.
    pub fn inside(&self, netns: &Path) -> Host {
        let netns = netns.to_owned();
        self.run(move || {
            Host::start(move || {
                setns(std::fs::File::open(&netns)?, CloneFlags::CLONE_NEWNET)?;
                Ok(())
            })
        })
    }

    fn start(enter: impl FnOnce() -> io::Result<()> + Send + 'static) -> Host {
        let (jobs, queue) = mpsc::channel::<Job>();
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let entered = enter().map(|()| nix::unistd::gettid().as_raw());
            let _ = tell.send(entered);
            for job in queue {
                job();
            }
        });
        let tid = told.recv().expect("the host's thread").expect("namespaces: the tests run as root");
        Host { jobs: Some(jobs), thread: Some(thread), tid }
    }

    /// Runs something on the host, and waits for it. A panic there is a panic here.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, told) = mpsc::channel();
        let job: Job = Box::new(move || {
            let _ = tell.send(catch_unwind(AssertUnwindSafe(work)));
        });
        self.jobs.as_ref().expect("running until dropped").send(job).expect("the host's thread");
        match told.recv().expect("the host's thread") {
            Ok(result) => result,
            Err(panic) => resume_unwind(panic),
        }
    }

    /// The same for a future.
    pub fn block_on<T, Work, Working>(&self, work: Work) -> T
    where
        T: Send + 'static,
        Work: FnOnce() -> Working + Send + 'static,
        Working: Future<Output = T>,
    {
        self.run(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(work())
        })
    }

    /// Runs a script that must succeed, and gives back what it printed.
    pub fn sh(&self, script: &str) -> String {
        let output = self.try_sh(script);
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{script}: {out}{err}");
        out.trim_end().to_owned()
    }

    /// Runs a script that may fail.
    pub fn try_sh(&self, script: &str) -> Output {
        let script = script.to_owned();
        self.run(move || Command::new("sh").args(["-euc", &script]).output().expect("sh"))
    }

    /// The same for a program that the caller keeps running.
    pub fn spawn(&self, mut command: Command) -> std::process::Child {
        self.run(move || command.spawn().expect("a program"))
    }

    /// Answers every TCP connection to the port with `answer`, and closes it.
    pub fn serve(&self, port: u16, answer: &str) -> Server {
        let answer = answer.to_owned();
        self.run(move || {
            let listener = TcpListener::bind(("0.0.0.0", port)).expect("a free port");
            let stopped = Arc::new(AtomicBool::new(false));
            let (stop, socket) = (stopped.clone(), listener.as_raw_fd());
            let thread = std::thread::spawn(move || {
                for stream in listener.incoming() {
                    match stream {
                        Ok(mut stream) => {
                            let _ = stream.write_all(answer.as_bytes());
                        }
                        Err(_) if stop.load(Ordering::SeqCst) => break,
                        Err(_) => {}
                    }
                }
            });
            Server { stopped, socket: Some(socket), thread: Some(thread) }
        })
    }

    /// What a TCP server answers, or why it does not.
    pub fn ask(&self, address: &str) -> io::Result<String> {
        let address: SocketAddr = address.parse().expect("an address and a port");
        self.run(move || {
            let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        })
    }

    /// Connects hosts by a bridge on a host of its own; the n-th gets 192.168.77.n on `eth0`.
    pub fn connect(hosts: &[&Host]) -> Host {
        let switch = Host::new();
        switch.sh("ip link add lan type bridge && ip link set lan up");
        for (n, host) in hosts.iter().enumerate() {
            switch.sh(&format!(
                "ip link add p{n} type veth peer name eth0 netns {} && ip link set p{n} master lan up",
                host.tid
            ));
            host.sh(&format!(
                "ip link set eth0 up && ip addr add {}/24 dev eth0",
                IpAddr::from([192, 168, 77, n as u8 + 1])
            ));
        }
        switch
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.jobs.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A server on a host, until it is dropped.
pub struct Server {
    stopped: Arc<AtomicBool>,
    socket: Option<i32>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        if let Some(socket) = self.socket {
            // Wakes the thread that waits for connections.
            let _ = nix::sys::socket::shutdown(socket, nix::sys::socket::Shutdown::Both);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
