//! What tests run under a lock.

#![forbid(unsafe_code)]

use std::{
    ffi::OsString,
    io::{self, ErrorKind, Read, Write},
    net::Ipv4Addr,
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, atomic::AtomicBool},
    thread::sleep,
    time::{Duration, Instant},
};

use clap::{Args, Parser, Subcommand};
use kilit_core::{Clock, Error, FenceError, FencingToken, Refused, TokenSource};
use kilit_testbed::{
    fence_sqlite::Stock,
    overlap::{Event, Judge, Visitor},
    until_eof,
};
use kilit_testlease::{Node, serve};
use tokio::net::TcpListener;

/// The fence has seen a higher token.
const STALE: u8 = 3;
/// The fence's mark is of another token source.
const WRONG_SOURCE: u8 = 4;

/// Work for kilit's tests. The fencing token is read from KILIT_TOKEN and KILIT_TOKEN_SOURCE.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Appends an enter line to the overlap log.
    Enter(Line),
    /// Appends an exit line to the overlap log.
    Exit(Line),
    /// Enters, works, exits.
    Hold {
        #[command(flatten)]
        line: Line,
        /// How long it works, in milliseconds.
        ms: u64,
    },
    /// Enters, and appends a line every few milliseconds until it is killed, or for a minute.
    Beat {
        #[command(flatten)]
        line: Line,
        /// The time between two lines, in milliseconds.
        #[arg(long, default_value_t = 2)]
        every: u64,
        /// Goes on after TERM, INT and HUP.
        #[arg(long)]
        ignore_term: bool,
    },
    /// Judges an overlap log: prints what is wrong with it and exits 1, or how many have entered.
    Judge {
        /// The overlap log.
        log: PathBuf,
        /// The lock gives no tokens.
        #[arg(long)]
        without_tokens: bool,
    },
    /// Writes a value to a SQLite file, in one transaction with its fence. Exits 3 when the token is stale, 4 when it
    /// is of another source; nothing is written then.
    Write {
        /// The SQLite file.
        db: PathBuf,
        /// What is guarded.
        resource: String,
        /// Its new value.
        value: String,
    },
    /// Prints a value from a SQLite file.
    Read {
        /// The SQLite file.
        db: PathBuf,
        /// What is guarded.
        resource: String,
    },
    /// Serves leases on loopback, with nothing on disk, and prints the port once it listens.
    LeaseServer {
        /// The port; 0 for a free one.
        #[arg(long, default_value_t = 0)]
        port: u16,
        /// Ends when stdin does.
        #[arg(long)]
        until_eof: bool,
    },
    /// Becomes another program, which is killed when stdin ends.
    UntilEof {
        /// The program.
        program: OsString,
        /// Its arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Kills the parent process when stdin ends.
    WatchStdin {
        /// The parent's process id.
        pid: i32,
    },
}

#[derive(Args)]
struct Line {
    /// The overlap log.
    log: PathBuf,
    /// Who this is [default: the token for enter and exit, the process id for the others].
    #[arg(long)]
    id: Option<String>,
    /// Enters beside others that share.
    #[arg(long)]
    shared: bool,
}

impl Line {
    fn enter(&self) -> Event {
        if self.shared { Event::EnterShared } else { Event::Enter }
    }

    fn visitor(&self) -> io::Result<Visitor> {
        let id = self.id.clone().unwrap_or_else(|| std::process::id().to_string());
        Visitor::new(&self.log, id, token()?)
    }

    /// As two processes that must go by the same id.
    fn half_visitor(&self) -> io::Result<Visitor> {
        let token = token()?;
        let by_token = token.as_ref().map(|token| format!("token-{}", token.value()));
        let id = self.id.clone().or(by_token);
        let id = id.ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "no token: --id is needed"))?;
        Visitor::new(&self.log, id, token)
    }
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("kilit-testbed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode, Box<dyn std::error::Error>> {
    match command {
        Command::Enter(line) => line.half_visitor()?.write(line.enter())?,
        Command::Exit(line) => line.half_visitor()?.write(Event::Exit)?,
        Command::Hold { line, ms } => {
            let visitor = line.visitor()?;
            visitor.write(line.enter())?;
            sleep(Duration::from_millis(ms));
            visitor.write(Event::Exit)?;
        }
        Command::Beat { line, every, ignore_term } => {
            if ignore_term {
                use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
                for signal in [SIGTERM, SIGINT, SIGHUP] {
                    signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
                }
            }
            let (visitor, start) = (line.visitor()?, Instant::now());
            visitor.write(line.enter())?;
            while start.elapsed() < Duration::from_secs(60) {
                sleep(Duration::from_millis(every));
                visitor.write(Event::Here)?;
            }
            visitor.write(Event::Exit)?;
        }
        Command::Judge { log, without_tokens } => {
            let judge = Judge::read(&log);
            let judge = if without_tokens { judge.without_tokens() } else { judge };
            println!("{} visits", judge.verdict().map_err(|faults| faults.join("\n"))?.visits);
        }
        Command::Write { db, resource, value } => {
            let token = token()?.ok_or("no token: KILIT_TOKEN is not set")?;
            return report(Stock::open(&db)?.write(resource.as_bytes(), &value, &token));
        }
        Command::Read { db, resource } => {
            let value = Stock::open(&db)?.read(resource.as_bytes())?;
            println!("{}", value.ok_or("there is no such value")?);
        }
        Command::LeaseServer { port, until_eof } => lease_server(port, until_eof)?,
        Command::UntilEof { program, arguments } => {
            let error = until_eof::become_program(&program, &arguments);
            return Err(format!("{}: {error}", program.display()).into());
        }
        Command::WatchStdin { pid } => until_eof::watch_stdin(pid)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn report(written: Result<(), FenceError<Error>>) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let Err(error) = written else { return Ok(ExitCode::SUCCESS) };
    let code = match &error {
        FenceError::Refused(Refused::Stale { .. }) => STALE,
        FenceError::Refused(Refused::WrongSource { .. }) => WRONG_SOURCE,
        _ => return Err(error.into()),
    };
    eprintln!("kilit-testbed: {error}");
    Ok(code.into())
}

fn lease_server(port: u16, until_eof: bool) -> io::Result<()> {
    if until_eof {
        std::thread::spawn(|| {
            let _ = io::copy(&mut io::stdin().by_ref(), &mut io::sink());
            std::process::exit(0);
        });
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let mut stdout = io::stdout();
        writeln!(stdout, "{}", listener.local_addr()?.port())?;
        stdout.flush()?;
        serve(listener, Arc::new(Node::new(Clock::system()))).await;
        Ok(())
    })
}

fn token() -> io::Result<Option<FencingToken>> {
    let var = |key: &str| std::env::var(key).ok();
    let bad = |error| io::Error::new(ErrorKind::InvalidInput, error);
    match (var("KILIT_TOKEN"), var("KILIT_TOKEN_SOURCE")) {
        (None, None) => Ok(None),
        (Some(value), Some(source)) => Ok(Some(FencingToken::new(
            TokenSource::new(source).map_err(|error| bad(error.to_string()))?,
            value.parse().map_err(|error: kilit_core::Error| bad(error.to_string()))?,
        ))),
        _ => Err(bad("KILIT_TOKEN and KILIT_TOKEN_SOURCE must both be set, or neither".into())),
    }
}
