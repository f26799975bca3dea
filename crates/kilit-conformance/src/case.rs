//! What a case is, and how one runs.

use std::{
    panic::{self, AssertUnwindSafe},
    path::PathBuf,
    pin::Pin,
    time::Duration,
};

use kilit_core::{Exclusion, Mode, Order, Purpose, TokenStrength};

use crate::Subject;

/// No case takes this long.
const LONGEST: Duration = Duration::from_secs(90);

/// One statement about an engine, and its proof.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// `theme::case`.
    pub name: &'static str,
    /// What an engine and its set-up need for it.
    pub asks: &'static [Ability],
    /// Panics when the statement is wrong.
    pub run: for<'a> fn(&'a Subject) -> Pin<Box<dyn Future<Output = ()> + 'a>>,
}

/// One engine, set up in one way.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its name in the matrix.
    pub name: &'static str,
    /// Makes a lock space of its own.
    pub set_up: fn() -> Pin<Box<dyn Future<Output = Subject>>>,
    /// The program that plays other processes.
    pub agent: &'static str,
}

/// What a case asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// Holds that end by themselves.
    Leases,
    /// Tokens of any strength.
    Tokens,
    /// No tokens fit for correctness.
    WeakTokens,
    /// Tokens fit for correctness.
    FitTokens,
    /// Shared holds.
    Shared,
    /// No shared holds.
    NoShared,
    /// Permits.
    Permits,
    /// No permits.
    NoPermits,
    /// First come, first served.
    Fifo,
    /// A URL for processes, each for itself at least.
    Url,
    /// Exclusion between processes.
    Processes,
    /// An operator can end a hold.
    Evict,
    /// An operator cannot.
    NoEvict,
    /// A hold can be taken away without its holder's doing.
    TakeAway,
    /// A party's link can be harmed.
    Link,
    /// Something else than kilit can end a hold.
    Break,
    /// The engine can be started again.
    Restart,
    /// The engine's clock can be moved.
    Jump,
    /// The token counter can be set.
    Counter,
}

impl Case {
    /// Why the case does not apply to `subject`; `None` when it does.
    pub async fn does_not_apply(&self, subject: &Subject) -> Option<&'static str> {
        for ability in self.asks {
            if let Err(why) = ability.of(subject).await {
                return Some(why);
            }
        }
        None
    }
}

impl Ability {
    /// # Errors
    /// What is in the way.
    async fn of(self, subject: &Subject) -> Result<(), &'static str> {
        let party = subject.party().await;
        let assurance = party.assurance();
        let (weak, link) = (assurance.fit_for(Purpose::Correctness).is_err(), party.link.is_some());
        let (has, lacks) = match self {
            Self::Leases => (assurance.leases, "it has no leases"),
            Self::Tokens => (assurance.token > TokenStrength::None, "it has no tokens"),
            Self::WeakTokens => (weak, "its tokens are fit for correctness"),
            Self::FitTokens => (!weak, "its tokens are not fit for correctness"),
            Self::Shared => (assurance.modes.has(Mode::Shared), "it has no shared holds"),
            Self::NoShared => (!assurance.modes.has(Mode::Shared), "it has shared holds"),
            Self::Permits => (assurance.modes.has(Mode::Permit), "it has no permits"),
            Self::NoPermits => (!assurance.modes.has(Mode::Permit), "it has permits"),
            Self::Fifo => (assurance.order == Order::Fifo, "it serves waiters in any order"),
            Self::Url => (subject.url.is_some(), "its set-up lives within this process"),
            Self::Processes => (
                subject.url.is_some() && assurance.exclusion > Exclusion::Process,
                "its set-up excludes within this process",
            ),
            Self::Evict => (subject.evicts, "holds cannot be ended from outside"),
            Self::NoEvict => (!subject.evicts, "holds can be ended from outside"),
            Self::TakeAway => (
                subject.break_hold.is_some() || subject.evicts || link && assurance.leases,
                "nothing takes a hold away from a living holder",
            ),
            Self::Link => (link, "it has no link"),
            Self::Break => (subject.break_hold.is_some(), "only kilit can end a hold"),
            Self::Restart => (subject.restart.is_some(), "it has no server to start again"),
            Self::Jump => (subject.jump.is_some(), "it has no clock of its own to move"),
            Self::Counter => (subject.last_token.is_some(), "its counter cannot be set"),
        };
        if has { Ok(()) } else { Err(lacks) }
    }
}

/// Runs the case `name` of a column, unless it does not apply, which [the matrix](crate::matrix) records.
///
/// # Panics
/// When the case fails.
pub fn run(name: &str, column: &Column) {
    block_on(async {
        let mut subject = (column.set_up)().await;
        subject.agent = Some(PathBuf::from(column.agent));
        run_on(name, &subject).await;
    });
}

/// Runs the case `name` on a subject, and gives its verdict instead of a panic.
///
/// # Errors
/// What the case said when it failed.
pub fn verdict(name: &str, set_up: impl Future<Output = Subject>) -> Result<(), String> {
    let run = || block_on(async { run_on(name, &set_up.await).await });
    panic::catch_unwind(AssertUnwindSafe(run)).map_err(|payload| {
        let text = payload.downcast::<String>().map(|text| *text);
        text.or_else(|other| other.downcast::<&str>().map(|text| text.to_string())).unwrap_or_default()
    })
}

/// Runs the case `name` on a subject.
///
/// # Panics
/// When the case fails.
pub async fn run_on(name: &str, subject: &Subject) {
    let case = crate::suite::CASES.iter().find(|case| case.name == name).expect("there is such a case");
    if let Some(why) = case.does_not_apply(subject).await {
        println!("{name}: n/a: {why}");
        return;
    }
    if tokio::time::timeout(LONGEST, (case.run)(subject)).await.is_err() {
        panic!("{name} did not end within {LONGEST:?}");
    }
}

/// Runs `future` on a runtime of its own, with two workers, so that tasks truly meet.
pub(crate) fn block_on(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(future);
    runtime.shutdown_timeout(Duration::from_secs(1));
}
