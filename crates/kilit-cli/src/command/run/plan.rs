//! What a `kilit run` means, checked before anything is sent.

use std::{env, ffi::OsString, time::Duration};

use kilit::{LockName, Note, Share, Terms, deadline::drift_allowance};

use crate::{
    args::{self, Wait},
    engine::{Choice, is_secret},
    failure::{Failure, Result},
};

/// A run that is well formed.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) name: LockName,
    pub(super) share: Share,
    pub(super) terms: Terms,
    pub(super) wait: Wait,
    pub(super) margins: Margins,
    pub(super) command: Vec<OsString>,
    /// Variables that the command must not have.
    pub(super) hidden: Vec<&'static str>,
}

/// How long before a deadline the command must be told, and killed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Margins {
    /// Between TERM and KILL.
    pub(super) grace: Duration,
    /// Between KILL and the deadline: a kill takes a moment.
    pub(super) kill: Duration,
}

impl Plan {
    pub(super) fn new(args: args::Run) -> Result<(Self, Choice)> {
        let engine = Choice::new(&args.engine)?;
        engine.must_exclude_processes()?;
        let share = match (args.shared, args.permits) {
            (true, _) => Share::SHARED,
            (false, Some(share)) => share,
            (false, None) => Share::EXCLUSIVE,
        };
        let terms = Terms {
            ttl: args.ttl,
            purpose: args.purpose.into(),
            note: args.note.map_or_else(|| Ok(Note::of_this_process()), Note::new)?,
            max_hold: args.max_hold,
            lock_delay: args.lock_delay,
        };
        let plan = Self {
            name: args.name.lock()?,
            share,
            wait: if args.no_wait { Wait::For(Duration::ZERO) } else { args.wait },
            margins: Margins::new(terms.ttl, args.grace)?,
            terms,
            command: args.command,
            hidden: hidden(),
        };
        Ok((plan, engine))
    }
}

impl Margins {
    /// With the grace asked for, or the smaller of 3 s and a tenth of the TTL.
    fn new(ttl: Duration, grace: Option<Duration>) -> Result<Self> {
        let kill = (ttl / 20).min(Duration::from_millis(100));
        let default = Duration::from_secs(3).min(ttl / 10);
        // The lock is renewed at a third of the TTL. What grace and margin leave of the other two thirds is the
        // longest outage that is ridden out, and there must be some.
        let longest = (ttl * 3 / 5).saturating_sub(kill + drift_allowance(ttl));
        match grace {
            Some(grace) if grace > longest => Err(Failure::usage(format!(
                "--grace: {grace:?} does not fit a TTL of {ttl:?}, where it may be {longest:?} at most: \
                 the command must be dead before the lock can pass on; shorten it, or lengthen --ttl"
            ))),
            grace => Ok(Self { grace: grace.unwrap_or(default), kill }),
        }
    }

    /// From TERM to the deadline.
    pub(super) fn term(self) -> Duration {
        self.grace + self.kill
    }
}

/// An outer run's token is not ours, and secrets are kept.
fn hidden() -> Vec<&'static str> {
    let mut hidden = vec!["KILIT_PASSWORD", "KILIT_TOKEN", "KILIT_TOKEN_SOURCE"];
    if env::var_os("KILIT_ENGINE").is_some_and(|url| url.to_str().is_none_or(is_secret)) {
        hidden.push("KILIT_ENGINE");
    }
    hidden
}

#[cfg(test)]
mod tests {
    use kilit::TTL_RANGE;

    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_default_grace_fits_every_ttl() {
        for ttl in [ms(100), ms(1_000), ms(30_000), *TTL_RANGE.end()] {
            let margins = Margins::new(ttl, None).unwrap();
            assert_eq!(margins.grace, ms(3_000).min(ttl / 10));
            assert!(margins.term() + drift_allowance(ttl) < ttl * 2 / 3, "an outage can be ridden out");
            assert!(margins.kill >= ms(5));
        }
    }

    #[test]
    fn a_grace_that_does_not_fit_is_refused_with_the_limit() {
        Margins::new(ms(3_000), Some(ms(1_000))).unwrap();
        Margins::new(ms(2_000), Some(ms(1_000))).unwrap();
        Margins::new(ms(2_000), Some(Duration::ZERO)).unwrap();
        for grace in [ms(1_500), ms(2_000), Duration::MAX] {
            let failure = Margins::new(ms(2_000), Some(grace)).unwrap_err();
            assert_eq!(failure.code.number(), 64);
            assert!(failure.text.contains("1.078s at most"), "{failure}");
        }
    }
}
