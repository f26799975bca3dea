//! What an engine promises, as plain data, and what a user needs.

use std::{fmt, time::Duration};

use crate::{Error, ErrorKind, Mode, Result};

/// The first question to every user of a lock: if two holders run at once, what does it cost?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// Money: work is done twice. Any engine will do.
    #[default]
    Efficiency,
    /// Data. Needs tokens that rise over every acquisition, and a resource that checks them.
    Correctness,
}

macro_rules! levels {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $level:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum $name { $($(#[$doc])* $level,)* }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $(Self::$level => $text,)* })
            }
        }
    };
}

levels! {
    /// What exclusion rests on, weakest first.
    Exclusion {
        /// Excludes within one process only.
        Process = "one process",
        /// Bounded delays, bounded pauses and honest clocks.
        TimingAssumptions = "timing assumptions",
        /// A primary whose replicas lag: a failover can forget a hold.
        AsyncReplicas = "async replicas",
        /// One node: a restart may forget a hold, unless it is durable.
        OneNode = "one node",
        /// The kernel of one host.
        HostKernel = "host kernel",
        /// A majority of nodes that agree.
        Consensus = "consensus",
    }
}

levels! {
    /// How well tokens rise, weakest first.
    TokenStrength {
        /// There are none.
        None = "none",
        /// They start again when the engine does.
        LostOnRestart = "lost on restart",
        /// They rise as long as clocks differ by less than the time between two grants.
        ClockAssumed = "clock assumed",
        /// They are on disk before they are used.
        Durable = "durable",
        /// A majority of nodes has them before they are used.
        Consensus = "consensus",
    }
}

levels! {
    /// In which order waiters are served, weakest first.
    Order {
        /// No promise.
        Any = "any",
        /// First come, first served.
        Fifo = "fifo",
    }
}

/// A bound on a delay: a share of the TTL plus a fixed time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Per cent of the TTL.
    pub ttl_percent: u32,
    /// A fixed time on top.
    pub fixed: Duration,
}

impl Bound {
    /// At once, as far as the scheduler lets it.
    pub const AT_ONCE: Self = Self { ttl_percent: 0, fixed: Duration::ZERO };
    /// One whole TTL.
    pub const ONE_TTL: Self = Self { ttl_percent: 100, fixed: Duration::ZERO };

    /// A fixed time.
    pub const fn fixed(fixed: Duration) -> Self {
        Self { ttl_percent: 0, fixed }
    }

    /// The bound for a given TTL.
    pub fn of(self, ttl: Duration) -> Duration {
        (ttl / 100).saturating_mul(self.ttl_percent).saturating_add(self.fixed)
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fixed = format!("{:?}", self.fixed);
        let text = match (self.ttl_percent, self.fixed.is_zero()) {
            (0, true) => "at once".to_owned(),
            (0, false) => fixed,
            (100, true) => "TTL".to_owned(),
            (percent, true) => format!("{percent}% of TTL"),
            (percent, false) => format!("{percent}% of TTL + {fixed}"),
        };
        f.pad(&text)
    }
}

/// Which kinds of share an engine can give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modes {
    /// One holder. Every engine has this.
    pub exclusive: bool,
    /// Many readers.
    pub shared: bool,
    /// Counted permits.
    pub permits: bool,
}

impl Modes {
    /// Whether `mode` is among them.
    pub fn has(self, mode: Mode) -> bool {
        match mode {
            Mode::Exclusive => self.exclusive,
            Mode::Shared => self.shared,
            Mode::Permit => self.permits,
        }
    }
}

impl fmt::Display for Modes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [(self.exclusive, "exclusive"), (self.shared, "shared"), (self.permits, "permits")];
        let text: Vec<_> = all.iter().filter(|(has, _)| *has).map(|(_, text)| *text).collect();
        f.pad(&text.join(", "))
    }
}

/// What an engine promises. What depends on the server's settings is probed when the engine is opened; what could not
/// be found out counts as the weaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assurance {
    /// The engine's short name.
    pub engine: &'static str,
    /// What exclusion rests on.
    pub exclusion: Exclusion,
    /// How well tokens rise.
    pub token: TokenStrength,
    /// Whether the user has accepted clock-assumed tokens by name (`?accept=clock`).
    pub clock_accepted: bool,
    /// In which order waiters are served.
    pub order: Order,
    /// Which shares it can give.
    pub modes: Modes,
    /// Whether holds are leases: they end a TTL after the last renewal, and the holder's deadline falls before that.
    pub leases: bool,
    /// How soon a holder learns that the engine itself ended its hold (a break, a delete, an eviction).
    pub loss_notice: Bound,
    /// How soon the lock of a holder that vanished can be granted again.
    pub crash_release: Bound,
    /// How soon a waiter that the engine's push has not reached looks by itself.
    pub wait_look: Bound,
    /// Conditions and limits, a sentence each.
    pub notes: Vec<String>,
}

/// What a program needs of an engine. See [`Assurance::require`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Need {
    /// At least this exclusion.
    pub exclusion: Option<Exclusion>,
    /// At least this token.
    pub token: Option<TokenStrength>,
    /// At least this order.
    pub order: Option<Order>,
    /// This mode among those it can give.
    pub mode: Option<Mode>,
}

impl Need {
    /// Nothing yet.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// At least this exclusion.
    pub fn exclusion(self, level: Exclusion) -> Self {
        Self { exclusion: Some(level), ..self }
    }

    /// At least this token.
    pub fn token(self, level: TokenStrength) -> Self {
        Self { token: Some(level), ..self }
    }

    /// At least this order.
    pub fn order(self, level: Order) -> Self {
        Self { order: Some(level), ..self }
    }

    /// This mode.
    pub fn mode(self, mode: Mode) -> Self {
        Self { mode: Some(mode), ..self }
    }
}

impl Assurance {
    /// Checks that the engine promises all that is needed.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported), with a list of everything that falls short.
    pub fn require(&self, need: Need) -> Result<()> {
        let mut short = Vec::new();
        let mut at_least = |what: &str, needed: Option<String>, given: &dyn fmt::Display| {
            if let Some(needed) = needed {
                short.push(format!("{what} must be at least `{needed}` and is `{given}`"));
            }
        };
        at_least(
            "exclusion",
            need.exclusion.filter(|l| self.exclusion < *l).map(|l| l.to_string()),
            &self.exclusion,
        );
        at_least(
            "token",
            need.token.filter(|l| self.counted_token() < *l).map(|l| l.to_string()),
            &self.token,
        );
        at_least("order", need.order.filter(|l| self.order < *l).map(|l| l.to_string()), &self.order);
        if let Some(mode) = need.mode.filter(|mode| !self.modes.has(*mode)) {
            let needed = match mode {
                Mode::Exclusive => "exclusive holds",
                Mode::Shared => "shared holds",
                Mode::Permit => "permits",
            };
            short.push(format!("{needed} are needed, and it has only: {}", self.modes));
        }
        if short.is_empty() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Unsupported, short.join("; ")).on_engine(self.engine))
    }

    /// Checks that the engine is fit for `purpose`.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) for [`Purpose::Correctness`] where tokens do not rise over every
    /// acquisition.
    pub fn fit_for(&self, purpose: Purpose) -> Result<()> {
        if purpose == Purpose::Efficiency || self.counted_token() >= TokenStrength::Durable {
            return Ok(());
        }
        let hint = match self.token {
            TokenStrength::ClockAssumed => "; `?accept=clock` accepts tokens that assume clocks",
            _ => "; use an engine with durable tokens (`kilit engines` lists them)",
        };
        let message = format!(
            "purpose correctness needs fencing tokens that rise over every acquisition, and this engine's are \
             `{}`{hint}",
            self.token
        );
        Err(Error::new(ErrorKind::Unsupported, message).on_engine(self.engine))
    }

    /// The token's strength, with clock-assumed ones raised to durable when the user has accepted the assumption.
    fn counted_token(&self) -> TokenStrength {
        match self.token {
            TokenStrength::ClockAssumed if self.clock_accepted => TokenStrength::Durable,
            token => token,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weak() -> Assurance {
        Assurance {
            engine: "weak",
            exclusion: Exclusion::TimingAssumptions,
            token: TokenStrength::ClockAssumed,
            clock_accepted: false,
            order: Order::Any,
            modes: Modes { exclusive: true, shared: false, permits: false },
            leases: true,
            loss_notice: Bound { ttl_percent: 34, fixed: Duration::ZERO },
            crash_release: Bound::ONE_TTL,
            wait_look: Bound::fixed(Duration::from_millis(500)),
            notes: vec![],
        }
    }

    #[test]
    fn require_lists_everything_that_falls_short() {
        let need = Need::nothing()
            .exclusion(Exclusion::Consensus)
            .token(TokenStrength::Durable)
            .order(Order::Fifo)
            .mode(Mode::Shared);
        let text = weak().require(need).unwrap_err().to_string();
        for word in ["exclusion", "token", "order", "shared holds are needed, and it has only: exclusive"] {
            assert!(text.contains(word), "{text}");
        }
        weak().require(Need::nothing().token(TokenStrength::LostOnRestart)).unwrap();
    }

    #[test]
    fn correctness_needs_durable_tokens_or_an_accepted_clock() {
        assert!(weak().fit_for(Purpose::Correctness).unwrap_err().to_string().contains("accept=clock"));
        weak().fit_for(Purpose::Efficiency).unwrap();
        Assurance { clock_accepted: true, ..weak() }.fit_for(Purpose::Correctness).unwrap();
        Assurance { token: TokenStrength::None, clock_accepted: true, ..weak() }
            .fit_for(Purpose::Correctness)
            .unwrap_err();
    }

    #[test]
    fn bounds_are_shares_of_the_ttl() {
        let bound = Bound { ttl_percent: 34, fixed: Duration::from_millis(5) };
        assert_eq!(bound.of(Duration::from_secs(10)), Duration::from_millis(3405));
        assert_eq!(bound.to_string(), "34% of TTL + 5ms");
        assert_eq!(Bound::AT_ONCE.to_string(), "at once");
    }
}
