//! A TCP proxy on loopback whose faults are switched while it runs.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc as std_mpsc,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpSocket, TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::{mpsc, watch},
    time::sleep,
};

/// What the proxy does to connections, old and new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Forwards.
    Pass,
    /// Forwards each piece this much later.
    Delay(Duration),
    /// Sockets stay open and nothing is forwarded. What was sent meanwhile arrives late, when this mode ends: so it is
    /// with packets on a network that heals.
    Blackhole,
    /// Requests go through, answers are thrown away. A connection that missed an answer is reset when this mode ends.
    DropReplies,
    /// Every connection is reset.
    Reset,
    /// Nobody listens, and every connection is reset.
    Refuse,
}

/// What has passed so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections that were accepted.
    pub connections: u64,
    /// Bytes forwarded to the server.
    pub to_server: u64,
    /// Bytes forwarded to the client.
    pub to_client: u64,
    /// Bytes of answers that were thrown away.
    pub dropped: u64,
}

/// A running proxy, on a thread of its own: usable in any test, with or without a runtime. Dropping it resets all its
/// connections.
#[derive(Debug)]
pub struct ChaosProxy {
    addr: SocketAddr,
    switch: mpsc::UnboundedSender<(Mode, std_mpsc::Sender<()>)>,
    tally: Arc<Tally>,
    thread: Option<JoinHandle<()>>,
}

impl ChaosProxy {
    /// Starts a proxy in front of `server`, in mode [`Pass`](Mode::Pass).
    ///
    /// # Panics
    /// When there is no loopback port left.
    pub fn start(server: SocketAddr) -> Self {
        let (switch, switched) = mpsc::unbounded_channel();
        let (tally, (ready, started)) = (Arc::new(Tally::default()), std_mpsc::channel());
        let thread = thread::Builder::new().name("chaos-proxy".into()).spawn({
            let tally = tally.clone();
            move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let runtime = runtime.expect("a runtime");
                runtime.block_on(async {
                    let port = Port::reserve().expect("a free loopback port");
                    let listener = port.listen().await;
                    ready.send(port.addr).expect("the starter waits");
                    serve(port, listener, server, switched, tally).await;
                });
            }
        });
        let thread = thread.expect("a thread");
        let addr = started.recv().expect("the proxy has started");
        Self { addr, switch, tally, thread: Some(thread) }
    }

    /// Where clients connect to.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Switches the mode. When this returns, nothing is handled in the old mode any more.
    ///
    /// # Panics
    /// When the proxy has died.
    pub fn set(&self, mode: Mode) {
        let (done, switched) = std_mpsc::channel();
        self.switch.send((mode, done)).expect("the proxy runs");
        switched.recv().expect("the proxy runs");
    }

    /// What has passed so far.
    pub fn counts(&self) -> Counts {
        let Tally { connections, to_server, to_client, dropped } = &*self.tally;
        Counts {
            connections: connections.load(Relaxed),
            to_server: to_server.load(Relaxed),
            to_client: to_client.load(Relaxed),
            dropped: dropped.load(Relaxed),
        }
    }
}

impl Drop for ChaosProxy {
    fn drop(&mut self) {
        // A closed channel ends the proxy.
        self.switch = mpsc::unbounded_channel().0;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[derive(Debug, Default)]
struct Tally {
    connections: AtomicU64,
    to_server: AtomicU64,
    to_client: AtomicU64,
    dropped: AtomicU64,
}

/// A port that stays ours also while nobody listens on it.
struct Port {
    addr: SocketAddr,
    _reserved: TcpSocket,
}

impl Port {
    fn reserve() -> io::Result<Self> {
        let reserved = Self::bound(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        Ok(Self { addr: reserved.local_addr()?, _reserved: reserved })
    }

    async fn listen(&self) -> TcpListener {
        let listen = || Self::bound(self.addr)?.listen(1024);
        loop {
            match listen() {
                Ok(listener) => return listener,
                // The one before still has copies, see below; they are gone at their exec.
                Err(_) => sleep(Duration::from_millis(1)).await,
            }
        }
    }

    fn bound(addr: SocketAddr) -> io::Result<TcpSocket> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(addr)?;
        Ok(socket)
    }
}

/// Everything below runs on one thread: between a look at the mode and the write that follows it nothing can switch.
async fn serve(
    port: Port,
    listener: TcpListener,
    server: SocketAddr,
    mut switched: mpsc::UnboundedReceiver<(Mode, std_mpsc::Sender<()>)>,
    tally: Arc<Tally>,
) {
    let mode = watch::Sender::new(Mode::Pass);
    let mut connections = tokio::task::JoinSet::new();
    let mut listener = Some(listener);
    loop {
        tokio::select! {
            next = switched.recv() => {
                let Some((next, done)) = next else { return };
                match (next, &listener) {
                    (Mode::Refuse, Some(open)) => {
                        // A close alone would not do: a process that is just being started elsewhere in this one has
                        // a copy of the descriptor until its exec.
                        let _ = rustix::net::shutdown(open, rustix::net::Shutdown::Both);
                        listener = None;
                    }
                    (Mode::Refuse, None) | (_, Some(_)) => {}
                    (_, None) => listener = Some(port.listen().await),
                }
                mode.send_replace(next);
                if matches!(next, Mode::Reset | Mode::Refuse) {
                    // Dropping a connection's future resets it.
                    connections.shutdown().await;
                }
                let _ = done.send(());
            }
            accepted = accept(listener.as_ref()) => {
                let Ok(client) = accepted else { continue };
                tally.connections.fetch_add(1, Relaxed);
                if *mode.borrow() != Mode::Reset {
                    let (mode, tally) = (mode.subscribe(), tally.clone());
                    connections.spawn(async move {
                        // The end of a connection, whatever its reason, is the client's to notice.
                        let _ = connection(client, server, mode, &tally).await;
                    });
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> io::Result<TcpStream> {
    let Some(listener) = listener else { return std::future::pending().await };
    let (client, _) = listener.accept().await?;
    resetting(client)
}

/// A stream that is reset, not closed, when it is dropped.
fn resetting(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_zero_linger()?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn connection(
    mut client: TcpStream,
    server: SocketAddr,
    mode: watch::Receiver<Mode>,
    tally: &Tally,
) -> io::Result<()> {
    let mut gate = mode.clone();
    gate.wait_for(|mode| *mode != Mode::Blackhole).await.map_err(io::Error::other)?;
    let mut server = resetting(TcpStream::connect(server).await?)?;
    let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
    tokio::try_join!(
        requests(from_client, to_server, mode.clone(), tally),
        replies(from_server, to_client, mode, tally),
    )?;
    Ok(())
}

async fn requests(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    mut mode: watch::Receiver<Mode>,
    tally: &Tally,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let read = from.read(&mut buffer).await?;
        pass(&mut mode).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        // Counted first: who sees the effect sees the count.
        tally.to_server.fetch_add(read as u64, Relaxed);
        to.write_all(&buffer[..read]).await?;
    }
}

async fn replies(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    mut mode: watch::Receiver<Mode>,
    tally: &Tally,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    let mut broken = false;
    loop {
        let read = tokio::select! {
            biased;
            ended = mode.wait_for(|mode| *mode != Mode::DropReplies), if broken => {
                drop(ended);
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            read = from.read(&mut buffer) => read?,
        };
        let mode = pass(&mut mode).await?;
        if mode == Mode::DropReplies {
            broken = true;
            tally.dropped.fetch_add(read as u64, Relaxed);
            if read == 0 {
                // The server's end of the connection is an answer too.
                std::future::pending::<()>().await;
            }
            continue;
        }
        if read == 0 {
            return to.shutdown().await;
        }
        tally.to_client.fetch_add(read as u64, Relaxed);
        to.write_all(&buffer[..read]).await?;
    }
}

const BUFFER: usize = 64 * 1024;

/// Returns when a piece that has arrived may go on, and in which mode it does.
async fn pass(mode: &mut watch::Receiver<Mode>) -> io::Result<Mode> {
    let now = *mode.borrow();
    if let Mode::Delay(delay) = now {
        sleep(delay).await;
    }
    let open = mode.wait_for(|mode| *mode != Mode::Blackhole).await.map_err(io::Error::other)?;
    Ok(*open)
}
