//! What was typed. What it means is up to each command.

use std::{ffi::OsString, num::NonZeroU8, os::unix::ffi::OsStrExt, str::FromStr, time::Duration};

use clap::{ArgGroup, Parser, Subcommand, ValueEnum};
use kilit::{LockName, MAX_LOCK_DELAY, Purpose, Share, TTL_RANGE, TokenValue};

const EXIT_CODES: &str = "\
Exit status of `kilit run`: the command's own, or 128 + N when signal N ended it, or
   64  wrong usage, refused before anything was sent
   69  the engine could not be reached, or refused us
   75  not acquired within --wait; the command never ran
   79  the lock was lost before the command had ended, or at its release
  126  the command is not executable
  127  the command is not found

The other commands use the same codes where they apply. `status NAME` exits
with 0 when the lock is held and 1 when it is free, `break` with 1 when there
is no such hold, `doctor` with 1 when it finds a danger. A result that cannot
be written is 69 everywhere, unless its reader went away, as `head` does.";

const STATUS_HELP: &str = "\
--json prints one object for NAME: name, engine, held, mode, holders, waiters, queue, capacity; without NAME it prints \
{\"engine\": …, \"locks\": [that object, …]}, sorted by name, with only the locks that somebody holds or waits for. \
Without --json, a name is written as a shell takes it.

Exit status:
   0  NAME is held; or no NAME was given
   1  NAME is free
  64  wrong usage
  69  the engine could not be reached, or refused us; or the result could not be written";

const BREAK_HELP: &str = "\
The holder is asked to stop and has one notice bound (`kilit engines` prints it) to do so; then its hold is removed. \
Where that needs more, it is refused and named, and --force does it all the same: other holds on the same connection \
end with it, or the process that holds the lock is killed, a `kilit run` together with its command.

Exit status:
   0  the hold was ended
   1  there is no such hold
  64  wrong usage
  69  it cannot be done on this engine, or only with --force; or the engine could not be reached";

const DOCTOR_HELP: &str = "\
Each finding has an id, a level (info, warn or danger), a text, and what to do about it. --json prints \
{\"findings\": [{\"id\", \"level\", \"text\", \"fix\"}, …]}. Nothing is changed.

Exit status:
   0  no danger was found
   1  a danger was found
  64  wrong usage
  69  the engine could not be reached, or refused us; or the result could not be written";

const EXAMPLES: &str = "\
Examples:
  kilit run backup -- ./backup.sh          wait for the lock, run, release
  kilit run -n backup -- ./backup.sh       or exit with 75 at once when it is taken
  kilit run --wait 2m --ttl 10s deploy -- make deploy
  kilit status                             who holds what
  kilit break backup --token 42            end that one hold";

const RUN_HELP: &str = "\
The command has in its environment: KILIT_NAME; KILIT_TTL_MS; KILIT_TOKEN (decimal) and KILIT_TOKEN_SOURCE, both \
absent under --shared and where the engine has no tokens. Show the token to the resource with every write: only a \
resource that compares tokens is safe from a holder that was stopped for too long.

A lock is not re-entrant: a command that runs `kilit run` on its own NAME waits for itself, for ever without --wait.

The command leads a process group of its own. INT, TERM, HUP, QUIT, USR1, USR2, WINCH, TSTP and CONT reach the group \
once each; a second TERM or INT, or the end of --grace after a first, becomes KILL. When the command ends by itself, \
the lock is released at once, and members of its group that live on are named. When kilit ends it, the whole group is \
gone before the lock is released. If kilit itself is killed, a guardian process kills the group first and lets go of \
the lock after.

A run within a run has a group of its own: when the outer group is killed, the inner guardian ends the inner command, \
and the outer lock is kept until it has. When the command is stopped (^Z), the lock is kept and renewed: CONT to kilit \
continues it, INT or TERM ends it.

Not covered by the guardian, and only by a fence: processes that left the group (setsid); and kilit and its guardian \
killed or stopped together. If both are killed (`pkill -9 kilit` hits both), the command itself dies with them, but \
processes that it started may live on while the lock is free.

When the engine does not answer in time, the command gets TERM, then KILL, and is dead before the engine can give the \
lock to another. When the engine itself ended the hold (a break, a deleted key), the command is killed within the \
notice bound that `kilit engines` prints. Both exit with 79.";

/// Hold a lock while a command runs.
#[derive(Debug, Parser)]
#[command(
    name = "kilit",
    version,
    about = "Distributed locks that say exactly how far they can be trusted",
    after_help = EXAMPLES,
    after_long_help = long_help(),
    max_term_width = 110,
    disable_help_subcommand = true
)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

fn long_help() -> String {
    format!("{EXAMPLES}\n\n{EXIT_CODES}")
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Hold NAME while COMMAND runs
    Run(Box<Run>),
    /// Show who holds a lock and who waits for it, or all locks without NAME
    Status(Status),
    /// End one hold of NAME, and no other
    Break(Break),
    /// List the engines built in, their URL forms and what each promises
    Engines(Engines),
    /// Look at the engine's settings and say what endangers locks there
    Doctor(Doctor),
    /// Print shell completions
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the man page
    Man,
    /// Watch over the command of a `kilit run`
    #[command(hide = true)]
    Guardian {
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
}

#[derive(Debug, clap::Args)]
#[command(group = one_name(), after_long_help = run_help())]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) name: Name,

    #[command(flatten)]
    pub(crate) engine: Engine,

    /// How long to wait for the lock: a duration, `0` for one try, or `forever`
    #[arg(long, value_name = "DURATION", default_value = "forever", value_parser = str::parse::<Wait>)]
    pub(crate) wait: Wait,

    /// Make one try, as with `--wait 0`
    #[arg(short = 'n', conflicts_with = "wait")]
    pub(crate) no_wait: bool,

    /// How long the lock outlives a holder that has vanished, on engines with leases: 100ms to 7d
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = ttl)]
    pub(crate) ttl: Duration,

    /// Between TERM and KILL, when the lock is lost or kilit is told to end [default: 3s, or a tenth of the TTL if that
    /// is less]
    #[arg(long, value_name = "DURATION", value_parser = kilit::duration::parse)]
    pub(crate) grace: Option<Duration>,

    /// Hold the lock beside others that share it, and never beside one that does not
    #[arg(long, conflicts_with = "permits")]
    pub(crate) shared: bool,

    /// Hold N of TOTAL permits: not on any engine yet
    #[arg(long, value_name = "N/TOTAL", value_parser = permits)]
    pub(crate) permits: Option<Share>,

    /// What it costs if two holders run at once: `correctness` is refused where tokens cannot protect data
    #[arg(long, value_enum, default_value_t = PurposeArg::Efficiency)]
    pub(crate) purpose: PurposeArg,

    /// Stop renewing after this time: the hold ends one TTL later at most, and the command with it
    #[arg(long, value_name = "DURATION", value_parser = max_hold)]
    pub(crate) max_hold: Option<Duration>,

    /// How much longer the lock stays closed after a holder that vanished: 0 to 1h
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = lock_delay)]
    pub(crate) lock_delay: Duration,

    /// What `status` shows about this holder [default: host/pid]
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,

    /// One exit code, 1 to 255, for all of kilit's own outcomes but 64, 126 and 127
    #[arg(long, value_name = "CODE", value_parser = own_exit)]
    pub(crate) own_exit: Option<NonZeroU8>,

    /// The command and its arguments, after `--`; no shell is involved
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

fn run_help() -> String {
    format!("{RUN_HELP}\n\n{EXIT_CODES}")
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = STATUS_HELP)]
pub(crate) struct Status {
    #[command(flatten)]
    pub(crate) name: Name,

    #[command(flatten)]
    pub(crate) engine: Engine,

    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
#[command(group = one_name(), group = ArgGroup::new("target").required(true), after_long_help = BREAK_HELP)]
pub(crate) struct Break {
    #[command(flatten)]
    pub(crate) name: Name,

    #[command(flatten)]
    pub(crate) engine: Engine,

    /// The token of the hold to end, as `status` prints it
    #[arg(long, value_name = "N", group = "target")]
    pub(crate) token: Option<TokenValue>,

    /// The owner of the hold to end, where it has no token
    #[arg(long, value_name = "ID", group = "target")]
    pub(crate) owner: Option<String>,

    /// End it even where more ends with it: other holds, or the process
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Engines {
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,

    /// Print a table for a page of documentation
    #[arg(long, conflicts_with = "json")]
    pub(crate) markdown: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_long_help = DOCTOR_HELP)]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) engine: Engine,

    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which engine.
#[derive(Debug, clap::Args)]
pub(crate) struct Engine {
    /// The engine's URL; `kilit engines` lists the forms [default: `file:`, in a directory of this user]
    ///
    /// `file:` alone is a directory of the user: $XDG_STATE_HOME/kilit where that is set, else /var/lib/kilit for root
    /// and ~/.local/state/kilit for others. Different users or environments (sudo, cron) do not exclude each other.
    /// For jobs of several users, name one directory: `--engine file:///var/lib/shop-locks`. For jobs of several hosts,
    /// name a server: `--engine redis://host`. Its password is best given in KILIT_PASSWORD, or in a file by
    /// `?password_file=FILE`: a command line can be read by every user.
    #[arg(long = "engine", value_name = "URL", env = "KILIT_ENGINE", hide_env_values = true)]
    pub(crate) url: Option<String>,
}

/// The lock's name, byte for byte.
#[derive(Debug, clap::Args)]
pub(crate) struct Name {
    /// The lock's name: 1 to 512 bytes
    #[arg(value_name = "NAME")]
    plain: Option<OsString>,

    /// The lock's name, when it begins with `-`, as in `--name=-x`
    #[arg(long = "name", value_name = "NAME", allow_hyphen_values = true, conflicts_with = "plain")]
    dashed: Option<OsString>,
}

/// One name, in either form.
fn one_name() -> ArgGroup {
    ArgGroup::new("lock").args(["plain", "dashed"]).required(true)
}

impl Name {
    /// The name that was given, if there was one.
    pub(crate) fn given(&self) -> kilit::Result<Option<LockName>> {
        let name = self.plain.as_ref().or(self.dashed.as_ref());
        name.map(|name| LockName::new(name.as_bytes())).transpose()
    }

    /// The name, where one must be given.
    pub(crate) fn lock(&self) -> kilit::Result<LockName> {
        // The parser has seen to it; an empty name is refused as such.
        self.given()?.map_or_else(|| LockName::new(""), Ok)
    }
}

/// How long to wait for the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    For(Duration),
    Forever,
}

impl Wait {
    /// What is left of it after some time. Not less than one try.
    pub(crate) fn after(self, passed: Duration) -> Self {
        match self {
            Self::For(patience) => Self::For(patience.saturating_sub(passed)),
            Self::Forever => Self::Forever,
        }
    }

    /// How long an engine that was never reached is tried.
    pub(crate) fn first_contact(self) -> Duration {
        const LONGEST: Duration = Duration::from_secs(10);
        match self {
            Self::For(patience) => patience.min(LONGEST),
            Self::Forever => LONGEST,
        }
    }
}

impl FromStr for Wait {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "forever" => Ok(Self::Forever),
            _ => kilit::duration::parse(text).map(Self::For).map_err(|why| format!("{why}, or `forever`")),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PurposeArg {
    /// Money: work is done twice
    Efficiency,
    /// Data
    Correctness,
}

impl From<PurposeArg> for Purpose {
    fn from(purpose: PurposeArg) -> Self {
        match purpose {
            PurposeArg::Efficiency => Self::Efficiency,
            PurposeArg::Correctness => Self::Correctness,
        }
    }
}

fn ttl(text: &str) -> Result<Duration, String> {
    let ttl = kilit::duration::parse(text)?;
    TTL_RANGE.contains(&ttl).then_some(ttl).ok_or_else(|| "it is outside 100ms to 7d".to_owned())
}

fn lock_delay(text: &str) -> Result<Duration, String> {
    let delay = kilit::duration::parse(text)?;
    (delay <= MAX_LOCK_DELAY).then_some(delay).ok_or_else(|| "it is outside 0 to 1h".to_owned())
}

fn max_hold(text: &str) -> Result<Duration, String> {
    let longest = kilit::duration::parse(text)?;
    let some = (!longest.is_zero()).then_some(longest);
    some.ok_or_else(|| "0 holds nothing; leave it out for no limit".to_owned())
}

fn own_exit(text: &str) -> Result<NonZeroU8, String> {
    text.parse().map_err(|_| "an exit code is a number from 1 to 255".to_owned())
}

fn permits(text: &str) -> Result<Share, String> {
    let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    let (units, total) = text
        .split_once('/')
        .and_then(|(units, total)| Some((number(units)?, number(total)?)))
        .ok_or("write it as N/TOTAL, as in 1/4")?;
    Share::permits(units, total).map_err(|error| error.to_string())
}
