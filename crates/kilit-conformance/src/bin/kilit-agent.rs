//! Another process of the conformance suite: contends for a lock, holds it, waits for it, or sweeps it with claims that
//! lose patience. It ends when its stdin does, since the test that started it is gone then.

#![forbid(unsafe_code)]

use std::{
    fs,
    io::{self, BufRead, Read},
    path::{Path, PathBuf},
    process::{self, ExitCode},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use clap::{Args, Parser, Subcommand};
use kilit_core::{EngineUrl, FenceError, LockName, Terms, blocking};
use kilit_testbed::{
    count,
    fence_sqlite::Stock,
    overlap::{Event, Visitor},
};

/// How many idle connections, or idle threads for blocking calls, an engine may keep for the next claim.
const KEPT: usize = 16;

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

#[derive(Parser)]
#[command(version, about = "Another process of kilit's conformance suite.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Holds the lock again and again, and counts in a file each time.
    Contend {
        #[command(flatten)]
        lock: Lock,
        /// The overlap log.
        log: PathBuf,
        /// The file to count in.
        counter: PathBuf,
        /// How often; without it, until stdin ends.
        #[arg(long)]
        rounds: Option<usize>,
    },
    /// Holds the lock until stdin ends, and does what its lines ask for: check, write, overwrite.
    Hold {
        #[command(flatten)]
        lock: Lock,
        /// A store with a fence, to write to.
        #[arg(long)]
        store: Option<PathBuf>,
    },
    /// Holds the lock and waits for it.
    Wait {
        #[command(flatten)]
        lock: Lock,
    },
    /// Drops hundreds of claims and fails at others, and looks whether descriptors and threads are left.
    Sweep {
        #[command(flatten)]
        lock: Lock,
    },
}

#[derive(Args)]
struct Lock {
    /// The engine.
    url: EngineUrl,
    /// The lock.
    name: LockName,
    /// Its TTL in milliseconds.
    #[arg(long, default_value_t = 20_000)]
    ttl_ms: u64,
    /// Its lock-delay in milliseconds.
    #[arg(long, default_value_t = 0)]
    lock_delay_ms: u64,
}

impl Lock {
    fn client(&self) -> Result<blocking::Client> {
        let mut known = kilit::engines().chain(kilit_testlease::ENGINES);
        let engine = known
            .find(|engine| engine.scheme == self.url.scheme() || engine.aliases.contains(&self.url.scheme()));
        Ok(blocking::Client::open(engine.ok_or("no engine has this scheme")?, self.url.clone())?)
    }

    fn mutex(&self, client: &blocking::Client) -> Result<blocking::Mutex> {
        let terms = Terms {
            ttl: Duration::from_millis(self.ttl_ms),
            lock_delay: Duration::from_millis(self.lock_delay_ms),
            ..Terms::default()
        };
        Ok(client.mutex(self.name.clone()).with(terms)?)
    }
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Contend { lock, log, counter, rounds } => contend(&lock, &log, &counter, rounds),
        Command::Hold { lock, store } => hold(&lock, store.as_deref()),
        Command::Wait { lock } => wait(&lock),
        Command::Sweep { lock } => sweep(&lock),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kilit-agent: {error}");
            ExitCode::FAILURE
        }
    }
}

fn contend(lock: &Lock, log: &Path, counter: &Path, rounds: Option<usize>) -> Result<()> {
    let asked_to_end = Arc::new(AtomicBool::new(false));
    thread::spawn({
        let asked_to_end = asked_to_end.clone();
        move || {
            let _ = io::stdin().read_to_end(&mut Vec::new());
            asked_to_end.store(true, SeqCst);
        }
    });
    let client = lock.client()?;
    let mutex = lock.mutex(&client)?;
    let goes_on = |round| rounds.map_or(!asked_to_end.load(SeqCst), |rounds| round < rounds);
    for _ in (0..).take_while(|round| goes_on(*round)) {
        let guard = mutex.acquire()?;
        let visitor = Visitor::new(log, process::id().to_string(), guard.token().cloned())?;
        visitor.write(Event::Enter)?;
        let counted: usize = fs::read_to_string(counter).map_or(0, |count| count.parse().unwrap_or_default());
        thread::yield_now();
        fs::write(counter, (counted + 1).to_string())?;
        visitor.write(Event::Exit)?;
        guard.release()?;
    }
    Ok(())
}

fn hold(lock: &Lock, store: Option<&Path>) -> Result<()> {
    let client = lock.client()?;
    let mutex = lock.mutex(&client)?;
    println!("claims");
    let guard = mutex.acquire()?;
    match guard.token() {
        Some(token) => println!("held {} {}", token.value(), token.source()),
        None => println!("held"),
    }
    for line in io::stdin().lock().lines() {
        // The clock is read before anything else is done.
        let held = guard.check().is_ok();
        let said = match (&*line?, held) {
            ("check", true) => "checked held",
            ("check", false) => "checked lost",
            ("write", false) => "wrote nothing",
            ("write", true) => &format!("wrote {}", write(store, &guard)?),
            // As if it had been stopped between the check and the write.
            ("overwrite", _) => &format!("overwrote {}", write(store, &guard)?),
            (other, _) => return Err(format!("knows no `{other}`").into()),
        };
        println!("{said}");
    }
    Ok(guard.release()?)
}

fn write(store: Option<&Path>, guard: &blocking::Guard) -> Result<&'static str> {
    let token = guard.token().ok_or("the engine has no tokens")?;
    let mut stock = Stock::open(store.ok_or("no --store was given")?)?;
    match stock.write(guard.name().as_bytes(), &process::id().to_string(), token) {
        Ok(()) => Ok("admitted"),
        Err(FenceError::Refused(kilit_core::Refused::Stale { .. })) => Ok("stale"),
        Err(other) => Err(other.into()),
    }
}

fn wait(lock: &Lock) -> Result<()> {
    let client = lock.client()?;
    let mutex = lock.mutex(&client)?;
    let guard = mutex.acquire()?;
    let waiter = thread::spawn(move || mutex.acquire_within(Duration::from_secs(60)).map(drop));
    // It waits when the engine says so, or soon where it does not say.
    let until = Instant::now() + Duration::from_millis(200);
    while Instant::now() < until && !shows_a_waiter(&client, &lock.name)? {
        thread::sleep(Duration::from_millis(5));
    }
    println!("waiting");
    io::stdin().read_to_end(&mut Vec::new())?;
    guard.release()?;
    Ok(waiter.join().map_err(|_| "the waiter panicked")??)
}

fn shows_a_waiter(client: &blocking::Client, name: &LockName) -> Result<bool> {
    let all = client.inspect(Some(name))?;
    Ok(all.iter().any(|status| status.queue.as_ref().is_some_and(|queue| !queue.is_empty())))
}

fn sweep(lock: &Lock) -> Result<()> {
    let (fds, threads) = (|| count::open_fds(process::id()), || count::threads(process::id()));
    // What tokio opens once for a process.
    block_on(async {})?;
    let (bare_fds, bare_threads) = (fds(), threads());
    let client = lock.client()?;
    let (mutex, patience) = (client.mutex(lock.name.clone()), Duration::from_secs(10));
    let drop_claims = |count: u64| {
        let mutex = kilit_core::Client::clone(&client).mutex(lock.name.clone());
        block_on(async move {
            for round in 0..count {
                let claim = mutex.acquire();
                let patience = async {
                    match round % 3 {
                        0 => tokio::time::sleep(Duration::from_micros(100 * (round % 20))).await,
                        _ => {
                            for _ in 0..round % 8 {
                                tokio::task::yield_now().await;
                            }
                        }
                    }
                };
                tokio::select! {
                    guard = claim => drop(guard),
                    () = patience => {}
                }
            }
        })
    };
    let fail = |count| -> Result<()> {
        for _ in 0..count {
            match mutex.try_acquire() {
                Err(error) if error.is_held_by_another() => {}
                other => return Err(format!("the lock is held, and a try gave {other:?}").into()),
            }
        }
        Ok(())
    };
    // Whatever is made once and kept is made here.
    drop_claims(20)?;
    let guard = mutex.acquire_within(patience)?;
    fail(5)?;
    drop_claims(20)?;
    guard.release()?;
    let (warm_fds, warm_threads) = (fds(), threads());

    drop_claims(200)?;
    let guard = mutex.acquire_within(patience)?;
    fail(300)?;
    drop_claims(200)?;
    guard.release()?;
    drop(mutex.acquire_within(patience)?);
    // A leak grows with the number of claims; what is kept for the next one does not.
    at_most("descriptors", patience, warm_fds + KEPT, fds)?;
    at_most("threads", patience, warm_threads + KEPT, threads)?;
    drop((mutex, client));
    at_most("descriptors without a client", patience, bare_fds, fds)?;
    at_most("threads without a client", patience, bare_threads, threads)?;
    println!("swept");
    Ok(())
}

fn at_most(what: &str, within: Duration, most: usize, now: impl Fn() -> usize) -> Result<()> {
    let until = Instant::now() + within;
    while now() > most {
        if Instant::now() > until {
            return Err(format!("{what}: {} are left, and {most} may be", now()).into());
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn block_on<T>(future: impl Future<Output = T>) -> io::Result<T> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(future))
}
