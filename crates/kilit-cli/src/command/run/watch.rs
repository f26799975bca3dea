//! While the command runs: its end, signals, the clock and the lock's loss, whichever comes first.

use std::{pin::pin, process, time::Duration};

use kilit::{Client, Clock, Hold, LossReason, Moment};

use super::plan::{Margins, Plan};
use crate::{
    exit_code::ExitCode,
    guardian::{End, Guardian, News},
    output::say,
    sys::{
        Signal,
        group::Group,
        own_pid,
        signals::Signals,
        terminal::{Terminal, is_foreground},
    },
};

/// How long after a KILL that did not empty the group the next is sent.
const KILL_AGAIN: Duration = Duration::from_millis(100);

/// How often is looked whether the foreground has come to `kilit`: a shell that brings it there says nothing.
const LOOK_FOR_FOREGROUND: Duration = Duration::from_millis(200);

/// How a run went.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The command has ended by itself. Members of its group may live.
    Ended(ExitCode),
    /// The command has ended by a signal that went through `kilit`. Its group is gone.
    EndedByKilit(ExitCode),
    /// The lock was lost, or was about to be. The group is gone.
    Lost {
        /// Why.
        why: String,
        /// What became of the command.
        command: String,
    },
}

pub(super) struct Watch<'a> {
    hold: &'a Hold,
    guardian: &'a Guardian,
    terminal: Option<&'a Terminal>,
    signals: &'a mut Signals,
    clock: &'a Clock,
    plan: &'a Plan,
    margins: Margins,
    leases: bool,
    /// The deadline that the guardian knows of.
    told: Option<Moment>,
    /// TERM was sent, or KILL: the group must be gone before the lock is released.
    ending: bool,
    /// The command is stopped until its group has the terminal's foreground, which `kilit` has not got.
    wants_terminal: bool,
    /// When the group is killed.
    kill_at: Moment,
    /// Signals that were passed on.
    passed: Vec<Signal>,
    lost: Option<LossReason>,
}

impl<'a> Watch<'a> {
    pub(super) fn new(
        client: &'a Client,
        hold: &'a Hold,
        plan: &'a Plan,
        guardian: &'a Guardian,
        terminal: Option<&'a Terminal>,
        signals: &'a mut Signals,
    ) -> Self {
        Self {
            hold,
            guardian,
            terminal,
            signals,
            clock: client.clock(),
            plan,
            margins: plan.margins,
            leases: client.assurance().leases,
            told: None,
            ending: false,
            wants_terminal: false,
            kill_at: Moment::FAR,
            passed: Vec::new(),
            lost: None,
        }
    }

    /// Returns when the command has ended and, unless it did so by itself, its group is gone.
    pub(super) async fn until_the_end(mut self) -> Outcome {
        let end = loop {
            match self.drive(self.guardian.next()).await {
                News::Ended(end) => break end,
                News::WantsTerminal => self.give_terminal(),
                News::Stopped => self.on_stop(),
                News::GuardianIsGone => {
                    Group { guardian: own_pid(), ..self.group() }.kill();
                    return Outcome::Lost {
                        why: "was given up: the guardian was killed".to_owned(),
                        command: "was ended".to_owned(),
                    };
                }
            }
        };
        if self.lost.is_none() {
            // The clock decides, even over a good end: this process may have been stopped.
            self.lost = match (self.hold.check(), end) {
                (Err(loss), _) => Some(loss.reason),
                (Ok(()), End::Expired) => Some(self.silence()),
                (Ok(()), _) => None,
            };
            if self.lost.is_some() {
                self.kill();
            }
        }
        let by_signal = self.passed.iter().any(|signal| end == End::Killed(signal.as_raw()));
        if !self.ending && !by_signal {
            return Outcome::Ended(exit_code(end));
        }
        self.end_group().await;
        match self.lost {
            Some(reason) => Outcome::Lost { why: format!("was lost: {reason}"), command: account(end) },
            None => Outcome::EndedByKilit(exit_code(end)),
        }
    }

    /// What is left of the group gets the rest of its grace.
    async fn end_group(&mut self) {
        self.kill_at = self.kill_at.min(self.clock.now() + self.margins.grace);
        let group = self.group();
        self.drive(group.emptied()).await;
    }

    /// Does what is due until `end` comes.
    async fn drive<T>(&mut self, end: impl Future<Output = T>) -> T {
        let (mut end, mut standing) = (pin!(end), self.hold.standing());
        loop {
            let due = self.follow_deadline();
            tokio::select! {
                biased;
                () = self.hold.lost().cancelled(), if self.lost.is_none() => self.on_loss(),
                () = self.clock.sleep_until(due) => self.on_clock(),
                signal = self.signals.next() => self.pass_on(signal),
                end = &mut end => return end,
                Ok(()) = standing.changed() => {}
            }
        }
    }

    /// Tells the guardian when the deadline has moved. Returns the next moment to look at the clock.
    fn follow_deadline(&mut self) -> Moment {
        let deadline = self.hold.deadline();
        let kill_at = deadline.map(|deadline| deadline.before(self.margins.kill));
        if deadline != self.told && self.guardian.set_deadline(kill_at) {
            self.told = deadline;
        }
        let look = if self.wants_terminal { self.clock.now() + LOOK_FOR_FOREGROUND } else { Moment::FAR };
        let due = self.kill_at.min(look);
        let Some(deadline) = deadline else { return due };
        // A renewal is no news; it is seen soon enough.
        let look = self.clock.now() + self.hold.ttl() / 10;
        let term = if self.lost.is_none() { deadline.before(self.margins.term()) } else { Moment::FAR };
        due.min(term).min(look)
    }

    fn on_clock(&mut self) {
        let now = self.clock.now();
        if let Some(deadline) = self.hold.deadline().filter(|_| self.lost.is_none())
            && now >= deadline.before(self.margins.term())
        {
            self.lost = Some(self.silence());
            self.terminate(Signal::TERM, deadline.before(self.margins.kill));
        }
        if now >= self.kill_at {
            self.kill();
        }
        if self.wants_terminal {
            self.give_terminal();
        }
    }

    /// The command stands still for want of the foreground. Until `kilit` itself has it, that is looked for again.
    fn give_terminal(&mut self) {
        let Some(terminal) = self.terminal else { return };
        let group = self.group();
        // It may have been continued by somebody else.
        self.wants_terminal = group.is_stopped();
        if self.wants_terminal && terminal.give(group) {
            self.wants_terminal = false;
            group.signal(Signal::CONT);
        }
    }

    /// The keys of the terminal are to reach `kilit`, which does not stop, instead of a command that is stopped.
    fn on_stop(&self) {
        // It may have been continued since.
        let Some(terminal) = self.terminal.filter(|_| self.group().is_stopped()) else { return };
        terminal.take_back(Some(self.group()));
        if is_foreground() {
            say(format_args!(
                "the command was stopped, and the lock is kept: `kill -CONT {}` continues the command, ^C ends it",
                process::id()
            ));
        }
    }

    fn on_loss(&mut self) {
        let Err(loss) = self.hold.check() else { return };
        self.lost = Some(loss.reason);
        // By silence, the clock has not been looked at in time: a stop. On a session engine, another may hold it now.
        if loss.reason.by_silence() || !self.leases {
            self.kill();
        } else {
            self.terminate(Signal::TERM, self.clock.now() + self.margins.grace);
        }
    }

    fn pass_on(&mut self, signal: Signal) {
        if signal == Signal::CONT {
            self.terminal.inspect(|terminal| terminal.give_again(self.group()));
        }
        let asks_to_end = |signal: &Signal| matches!(*signal, Signal::TERM | Signal::INT);
        if !asks_to_end(&signal) {
            self.group().signal(signal);
        } else if self.passed.iter().any(asks_to_end) {
            self.kill();
        } else {
            self.terminate(signal, self.clock.now() + self.margins.grace);
        }
        if !self.passed.contains(&signal) {
            self.passed.push(signal);
        }
    }

    /// Asks the group to end, and sees to it that it is killed at `kill_at`.
    fn terminate(&mut self, signal: Signal, kill_at: Moment) {
        self.begin_ending();
        self.group().signal(signal);
        self.kill_at = self.kill_at.min(kill_at);
    }

    fn kill(&mut self) {
        self.begin_ending();
        self.group().signal(Signal::KILL);
        self.kill_at = self.clock.now() + KILL_AGAIN;
    }

    fn begin_ending(&mut self) {
        if !self.ending {
            self.ending = true;
            self.guardian.begin_ending();
        }
    }

    /// Why the deadline comes without a renewal.
    fn silence(&self) -> LossReason {
        match self.plan.terms.max_hold {
            Some(longest) if self.hold.held_for() >= longest => LossReason::MaxHold,
            _ => LossReason::Silence,
        }
    }

    fn group(&self) -> Group {
        self.guardian.group()
    }
}

fn exit_code(end: End) -> ExitCode {
    match end {
        // A status has eight bits.
        End::Exited(code) => ExitCode::Command(code as u8),
        End::Killed(signal) => ExitCode::Signal(signal),
        End::Expired => ExitCode::Lost,
    }
}

fn account(end: End) -> String {
    match end {
        End::Exited(code) => format!("exited with {code}"),
        End::Killed(_) | End::Expired => "was ended".to_owned(),
    }
}
