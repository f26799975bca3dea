//! `kilit run`: hold a lock while a command runs.

mod plan;
mod watch;

use std::{
    io,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use kilit::{Client, Error, ErrorKind, FencingToken, Hold, Mode};
use tokio::time::timeout;

use self::{
    plan::Plan,
    watch::{Outcome, Watch},
};
use crate::{
    args::{self, Wait},
    engine::Choice,
    exit_code::ExitCode,
    failure::{Failure, Result},
    guardian::{Guardian, NotStarted, Start, Waiting},
    output::{json::escape, say},
    sys::{group::Group, signals::Signals, terminal::Terminal},
};

/// How long the withdrawal of a claim, or the release of a lock that is lost, may keep `kilit` from ending.
const FAREWELL: Duration = Duration::from_millis(500);

pub(crate) fn run(args: args::Run) -> Result<ExitCode> {
    let (plan, engine) = Plan::new(args)?;
    // Before the runtime, while this process has one thread.
    let guardian = Waiting::spawn(&plan.command, &plan.hidden)
        .map_err(|error| Failure::system("start a guardian", &error))?;
    super::block_on(hold_and_run(plan, engine, guardian))
}

/// Acquire, start, watch, release.
async fn hold_and_run(plan: Plan, engine: Choice, guardian: Waiting) -> Result<ExitCode> {
    let mut signals = Signals::listen().map_err(|error| Failure::system("listen for signals", &error))?;
    let (client, hold, token) = match acquire(&plan, engine, &mut signals).await {
        Ok(acquired) => acquired,
        Err(failure) => {
            guardian.dismiss();
            return Err(failure);
        }
    };
    let terminal = Terminal::of_this_process();
    let foreground = terminal.as_ref().is_some_and(Terminal::hand_over);
    let guardian = match start(&plan, &hold, token.as_ref(), foreground, guardian).await {
        Ok(guardian) => guardian,
        Err(failure) => {
            terminal.inspect(|terminal| terminal.take_back(None));
            confirm(hold.release().await, failure.code)?;
            return Err(failure);
        }
    };
    let watch = Watch::new(&client, &hold, &plan, &guardian, terminal.as_ref(), &mut signals);
    let outcome = watch.until_the_end().await;
    terminal.inspect(|terminal| terminal.take_back(Some(guardian.group())));
    conclude(outcome, hold, guardian).await
}

/// Opens the engine and waits for the lock, unless a signal says that the wait is over.
async fn acquire(
    plan: &Plan,
    engine: Choice,
    signals: &mut Signals,
) -> Result<(Client, Hold, Option<FencingToken>)> {
    let begun = Instant::now();
    let open = engine.open_within(plan.wait.first_contact());
    let client = unless_told_to_end(signals, open).await?;
    let wait = plan.wait.after(begun.elapsed());
    match unless_told_to_end(signals, claim(&client, plan, wait)).await {
        Ok((hold, token)) => Ok((client, hold, token)),
        Err(failure) => {
            // What was dropped is still to be withdrawn.
            let _ = timeout(FAREWELL, client.shutdown()).await;
            Err(failure)
        }
    }
}

async fn unless_told_to_end<T>(signals: &mut Signals, work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::select! {
        biased;
        signal = signals.next_fatal() => {
            Err(Failure::new(ExitCode::Signal(signal.as_raw()), "told to end before it had the lock"))
        }
        done = work => done,
    }
}

async fn claim(client: &Client, plan: &Plan, wait: Wait) -> Result<(Hold, Option<FencingToken>)> {
    // What the engine cannot promise is wrong usage: nothing was asked of it yet.
    plan.terms.check(client.assurance(), plan.share).map_err(|error| Failure::usage(error.to_string()))?;
    let name = plan.name.clone();
    match plan.share.mode() {
        Mode::Exclusive => {
            let mutex = client.mutex(name).with(plan.terms.clone())?;
            let guard = match wait {
                Wait::For(patience) => mutex.acquire_within(patience).await?,
                Wait::Forever => mutex.acquire().await?,
            };
            Ok(guard.into_parts())
        }
        Mode::Shared => {
            let shared = client.shared(name).with(plan.terms.clone())?;
            let guard = match wait {
                Wait::For(patience) => shared.acquire_within(patience).await?,
                Wait::Forever => shared.acquire().await?,
            };
            Ok((guard.into_hold(), None))
        }
        Mode::Permit => Err(Failure::usage("--permits is not supported yet on any engine")),
    }
}

/// Has the guardian start the command, with what it must know in its environment.
async fn start(
    plan: &Plan,
    hold: &Hold,
    token: Option<&FencingToken>,
    foreground: bool,
    guardian: Waiting,
) -> Result<Guardian> {
    let mut env = vec![
        ("KILIT_NAME".to_owned(), plan.name.as_bytes().to_vec()),
        ("KILIT_TTL_MS".to_owned(), plan.terms.ttl.as_millis().to_string().into_bytes()),
    ];
    if let Some(token) = token {
        env.push(("KILIT_TOKEN".to_owned(), token.value().to_string().into_bytes()));
        env.push(("KILIT_TOKEN_SOURCE".to_owned(), token.source().to_string().into_bytes()));
    }
    let lock = match share(hold) {
        Ok(lock) => lock,
        Err(failure) => {
            guardian.dismiss();
            return Err(failure);
        }
    };
    let kill_at = hold.deadline().map(|deadline| deadline.before(plan.margins.kill));
    guardian.start(Start { env, lock, kill_at, foreground }).await.map_err(|why| {
        let command = escape(&plan.command[0].to_string_lossy());
        match why {
            NotStarted::Command(error) if error.kind() == io::ErrorKind::NotFound => {
                Failure::new(ExitCode::NotFound, format!("{command}: not found"))
            }
            NotStarted::Command(error) => {
                Failure::new(ExitCode::NotExecutable, format!("{command}: cannot be executed: {error}"))
            }
            NotStarted::System(error) => Failure::system("start the command", &error),
            NotStarted::TooLate => Failure::new(
                ExitCode::Lost,
                format!("lock {} was lost before the command was started", plan.name),
            ),
            NotStarted::GuardianIsGone => Failure::new(
                ExitCode::Lost,
                format!("lock {} was given up: the guardian was killed", plan.name),
            ),
        }
    })
}

/// A duplicate of the lock's file, where there is one, of a lock that is still held.
fn share(hold: &Hold) -> Result<Option<OwnedFd>> {
    hold.check().map_err(|loss| Error::from(loss).on_lock(hold.name()))?;
    hold.duplicate().map_err(|error| Failure::system("share the lock with a guardian", &error))
}

/// Releases the lock, and says how it all went.
async fn conclude(outcome: Outcome, hold: Hold, guardian: Guardian) -> Result<ExitCode> {
    let name = hold.name().clone();
    match outcome {
        Outcome::Lost { why, command } => {
            guardian.finish();
            // The network may be the reason, and nobody waits for that.
            let _ = timeout(FAREWELL, hold.release()).await;
            Err(Failure::new(ExitCode::Lost, format!("lock {name} {why}; the command {command}")))
        }
        Outcome::EndedByKilit(code) => {
            guardian.finish();
            confirm(hold.release().await, code)
        }
        Outcome::Ended(code) => {
            let released = hold.release().await;
            let group = guardian.group();
            guardian.finish();
            name_survivors(group);
            confirm(released, code)
        }
    }
}

/// The command's own code, unless its lock was found lost.
fn confirm(released: kilit::Result<()>, code: ExitCode) -> Result<ExitCode> {
    match released {
        Ok(()) => Ok(code),
        Err(error) if error.kind() == ErrorKind::Lost => Err(error.into()),
        Err(error) => {
            say(format_args!("the command has ended, and the release was not confirmed: {error}"));
            Ok(code)
        }
    }
}

/// The command has ended by itself: what it left behind runs on without the lock.
fn name_survivors(group: Group) {
    let survivors: Vec<_> = group
        .members()
        .iter()
        .map(|member| format!("{} ({})", member.pid.as_raw_nonzero(), escape(&member.command)))
        .collect();
    if !survivors.is_empty() {
        say(format_args!(
            "the command has ended and the lock was released; of its group these live on: {}",
            survivors.join(", ")
        ));
    }
}
