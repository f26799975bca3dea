//! Exclusion, judged at the resource: what the holders' work itself wrote down while it ran, never what lockers say.
//!
//! Each line of the log is appended with one `write` by the process that is inside, with the boot-time clock of the one
//! machine they all run on:
//!
//! ```text
//! NANOSECONDS enter|enter-shared|here|exit ID TOKEN SOURCE
//! ```
//!
//! `enter` is stamped after the lock was given and `exit` before it is given back, so two ranges that overlap are two
//! holders at once, whatever the scheduler did in between.

use std::{
    collections::HashMap,
    fmt,
    fs::{File, OpenOptions},
    io::{self, Write},
    path::Path,
    str::FromStr,
};

use kilit_core::{Clock, FencingToken, Moment, TokenSource, TokenValue};

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It came in, alone.
    Enter,
    /// It came in, beside others that share.
    EnterShared,
    /// It is still inside.
    Here,
    /// It is about to leave.
    Exit,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When, on the boot-time clock.
    pub at: Moment,
    /// What.
    pub event: Event,
    /// Who: visible ASCII. It may come again after it has left.
    pub id: String,
    /// Under which token.
    pub token: Option<FencingToken>,
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let event = match self.event {
            Event::Enter => "enter",
            Event::EnterShared => "enter-shared",
            Event::Here => "here",
            Event::Exit => "exit",
        };
        write!(f, "{} {event} {}", self.at.as_nanos(), self.id)?;
        match &self.token {
            Some(token) => write!(f, " {} {}", token.value(), token.source()),
            None => write!(f, " - -"),
        }
    }
}

impl FromStr for Entry {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let fields: Vec<_> = line.split(' ').collect();
        let [at, event, id, token, source] = fields[..] else { return Err("must have five fields".into()) };
        let event = match event {
            "enter" => Event::Enter,
            "enter-shared" => Event::EnterShared,
            "here" => Event::Here,
            "exit" => Event::Exit,
            other => return Err(format!("knows no event `{other}`")),
        };
        let at = at.parse().map(Moment::from_nanos).map_err(|error| format!("the time: {error}"))?;
        let token = match (token, source) {
            ("-", "-") => None,
            (value, source) => {
                let value: TokenValue = value.parse().map_err(|error| format!("the token: {error}"))?;
                let source = TokenSource::new(source).map_err(|error| format!("the source: {error}"))?;
                Some(FencingToken::new(source, value))
            }
        };
        Ok(Self { at, event, id: id.to_owned(), token })
    }
}

/// Who is inside, and writes that down.
#[derive(Debug)]
pub struct Visitor {
    log: File,
    id: String,
    token: Option<FencingToken>,
    clock: Clock,
}

impl Visitor {
    /// Opens the log at `path`, and makes it when it is not there. `id` must be different from that of everyone who is
    /// inside at the same time.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn new(path: &Path, id: impl Into<String>, token: Option<FencingToken>) -> io::Result<Self> {
        let log = OpenOptions::new().append(true).create(true).open(path)?;
        Ok(Self { log, id: id.into(), token, clock: Clock::system() })
    }

    /// Appends a line with the present time.
    ///
    /// # Errors
    /// When the line could not be written whole.
    pub fn write(&self, event: Event) -> io::Result<()> {
        let entry = Entry { at: self.clock.now(), event, id: self.id.clone(), token: self.token.clone() };
        let line = format!("{entry}\n");
        match (&self.log).write(line.as_bytes())? {
            written if written == line.len() => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }
}

/// A log and what the test knows about it.
#[derive(Clone, Debug, Default)]
pub struct Judge {
    entries: Vec<Entry>,
    damaged: Vec<String>,
    killed: HashMap<String, Moment>,
    without_tokens: bool,
}

/// What a clean log holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// How often somebody came in.
    pub visits: usize,
    /// How many of those were killed inside.
    pub killed: usize,
}

/// One stay inside. It lasts at least until the last line that was written in it.
struct Visit<'a> {
    id: &'a str,
    shared: bool,
    token: Option<&'a FencingToken>,
    enter: Moment,
    last: Moment,
    exited: bool,
}

impl Judge {
    /// Reads a log; a log that is not there is empty.
    ///
    /// # Panics
    /// When it cannot be read.
    pub fn read(path: &Path) -> Self {
        match std::fs::read_to_string(path) {
            Ok(text) => Self::of(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::default(),
            Err(error) => panic!("the overlap log {}: {error}", path.display()),
        }
    }

    /// Reads the text of a log.
    pub fn of(text: &str) -> Self {
        let mut judge = Self::default();
        for line in text.split_inclusive('\n') {
            match line.strip_suffix('\n').ok_or("is cut off".to_owned()).and_then(str::parse) {
                Ok(entry) => judge.entries.push(entry),
                Err(why) => judge.damaged.push(format!("the line {line:?} {why}")),
            }
        }
        // Written in about this order, but the clock is read a moment before the line is appended.
        judge.entries.sort_by_key(|entry| entry.at);
        judge
    }

    /// Every line, in order of time.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Declares that `id` was killed inside and need not have left. `dead_by` is a moment at which it was known to be
    /// dead: no line of it may be later.
    pub fn killed(mut self, id: impl Into<String>, dead_by: Moment) -> Self {
        self.killed.insert(id.into(), dead_by);
        self
    }

    /// Declares that the lock gives no tokens. Otherwise whoever enters alone must have one.
    pub fn without_tokens(mut self) -> Self {
        self.without_tokens = true;
        self
    }

    /// Judges.
    ///
    /// # Panics
    /// With every fault, when there is one.
    #[track_caller]
    pub fn expect_clean(&self) -> Verdict {
        self.verdict().unwrap_or_else(|faults| panic!("the overlap log shows faults:\n{}", faults.join("\n")))
    }

    /// Judges.
    ///
    /// # Errors
    /// Every fault, a sentence each.
    pub fn verdict(&self) -> Result<Verdict, Vec<String>> {
        let mut faults = self.damaged.clone();
        let visits = self.visits(&mut faults);
        self.judge_ends(&visits, &mut faults);
        self.judge_overlaps(&visits, &mut faults);
        self.judge_tokens(&visits, &mut faults);
        if !faults.is_empty() {
            return Err(faults);
        }
        Ok(Verdict { visits: visits.len(), killed: visits.iter().filter(|visit| !visit.exited).count() })
    }

    /// The stays, in order of entering.
    fn visits(&self, faults: &mut Vec<String>) -> Vec<Visit<'_>> {
        let mut visits: Vec<Visit<'_>> = Vec::new();
        let mut inside: HashMap<&str, usize> = HashMap::new();
        for entry in &self.entries {
            let (id, enters) = (&*entry.id, matches!(entry.event, Event::Enter | Event::EnterShared));
            match (inside.get(id), enters) {
                (None, true) => {
                    inside.insert(id, visits.len());
                    visits.push(Visit {
                        id,
                        shared: entry.event == Event::EnterShared,
                        token: entry.token.as_ref(),
                        enter: entry.at,
                        last: entry.at,
                        exited: false,
                    });
                }
                (Some(_), true) => faults.push(format!("{id} entered twice: {entry}")),
                (None, false) => faults.push(format!("{id} was not inside: {entry}")),
                (Some(&at), false) => {
                    visits[at].last = entry.at;
                    if entry.event == Event::Exit {
                        visits[at].exited = true;
                        inside.remove(id);
                    }
                }
            }
        }
        visits
    }

    fn judge_ends(&self, visits: &[Visit<'_>], faults: &mut Vec<String>) {
        for visit in visits.iter().filter(|visit| !visit.exited) {
            match self.killed.get(visit.id) {
                None => faults.push(format!("{} never left, and nobody killed it", visit.id)),
                Some(&dead_by) if visit.last > dead_by => {
                    let late = visit.last.since(dead_by);
                    faults.push(format!("{} was at work {late:?} after its death", visit.id));
                }
                Some(_) => {}
            }
        }
    }

    /// In order of entering, it is enough to look back at who was inside longest: alone, and in all.
    fn judge_overlaps(&self, visits: &[Visit<'_>], faults: &mut Vec<String>) {
        let (mut alone, mut any): (Option<&Visit<'_>>, Option<&Visit<'_>>) = (None, None);
        for visit in visits {
            let before = if visit.shared { alone } else { any };
            if let Some(before) = before.filter(|before| before.last >= visit.enter) {
                faults.push(format!(
                    "{} entered while {} was inside, which was at work for {:?} more",
                    visit.id,
                    before.id,
                    before.last.since(visit.enter)
                ));
            }
            let later = |longest: Option<&Visit<'_>>| longest.is_none_or(|longest| longest.last < visit.last);
            if later(any) {
                any = Some(visit);
            }
            if !visit.shared && later(alone) {
                alone = Some(visit);
            }
        }
    }

    fn judge_tokens(&self, visits: &[Visit<'_>], faults: &mut Vec<String>) {
        let mut highest: Option<(&str, &FencingToken)> = None;
        for visit in visits.iter().filter(|visit| !visit.shared) {
            let Some(token) = visit.token else {
                if !self.without_tokens {
                    faults.push(format!("{} has no token", visit.id));
                }
                continue;
            };
            if let Some((before, highest)) = highest
                && !token.compare(highest).is_some_and(|order| order.is_gt())
            {
                faults.push(format!("the token of {} is {token}, after {before} with {highest}", visit.id));
            }
            highest = Some((visit.id, token));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(log: &str) -> Vec<String> {
        Judge::of(log).verdict().unwrap_err()
    }

    #[track_caller]
    fn one_fault(log: &str, word: &str) {
        let faults = faults(log);
        assert!(faults.len() == 1 && faults[0].contains(word), "{faults:?}");
    }

    #[test]
    fn a_clean_log_passes() {
        let log = "10 enter a 1 s\n20 here a 1 s\n30 exit a 1 s\n31 enter b 2 s\n40 exit b 2 s\n\
                   41 enter a 7 s\n42 exit a 7 s\n";
        assert_eq!(Judge::of(log).expect_clean(), Verdict { visits: 3, killed: 0 });
        assert_eq!(Judge::of("").expect_clean(), Verdict { visits: 0, killed: 0 });
    }

    #[test]
    fn lines_are_judged_in_order_of_time() {
        Judge::of("31 enter b 2 s\n10 enter a 1 s\n40 exit b 2 s\n30 exit a 1 s\n").expect_clean();
    }

    #[test]
    fn overlaps_are_caught() {
        one_fault("10 enter a 1 s\n20 enter b 2 s\n30 exit a 1 s\n40 exit b 2 s\n", "b entered while a");
        one_fault("10 enter a 1 s\n20 enter b 2 s\n30 exit b 2 s\n40 exit a 1 s\n", "b entered while a");
        one_fault("10 enter a 1 s\n20 exit a 1 s\n20 enter b 2 s\n40 exit b 2 s\n", "b entered while a");
    }

    #[test]
    fn an_overlap_with_the_one_before_the_last_is_caught() {
        let log = "10 enter a 1 s\n20 enter b 2 s\n25 exit b 2 s\n30 enter c 3 s\n35 exit c 3 s\n\
                   50 exit a 1 s\n";
        assert_eq!(faults(log).len(), 2, "{:?}", faults(log));
    }

    #[test]
    fn shared_holders_overlap_each_other_only() {
        let both = "10 enter-shared a - -\n20 enter-shared b - -\n30 exit a - -\n40 exit b - -\n";
        Judge::of(both).expect_clean();
        one_fault("10 enter-shared a - -\n20 enter b 1 s\n30 exit a - -\n40 exit b 1 s\n", "while a");
        one_fault("10 enter a 1 s\n20 enter-shared b - -\n30 exit a 1 s\n40 exit b - -\n", "while a");
    }

    #[test]
    fn tokens_that_do_not_rise_are_caught() {
        let two = |a: &str, b: &str| format!("1 enter a {a}\n2 exit a {a}\n3 enter b {b}\n4 exit b {b}\n");
        Judge::of(&two("9 s", "10 s")).expect_clean();
        for (a, b) in [("2 s", "2 s"), ("2 s", "1 s"), ("1 s", "2 other")] {
            one_fault(&two(a, b), "the token of b");
        }
        one_fault(&two("1 s", "- -"), "b has no token");
        Judge::of(&two("- -", "- -")).without_tokens().expect_clean();
    }

    #[test]
    fn who_did_not_leave_must_have_been_killed() {
        let log = "10 enter a 1 s\n20 here a 1 s\n";
        one_fault(log, "never left");
        let dead_by = |nanos| Judge::of(log).killed("a", Moment::from_nanos(nanos)).verdict();
        assert_eq!(dead_by(25), Ok(Verdict { visits: 1, killed: 1 }));
        assert!(dead_by(15).unwrap_err()[0].contains("after its death"));
    }

    #[test]
    fn work_after_the_next_holder_came_is_caught_in_a_killed_one_too() {
        let log = "10 enter a 1 s\n20 here a 1 s\n25 enter b 2 s\n30 here a 1 s\n40 exit b 2 s\n";
        let faults = Judge::of(log).killed("a", Moment::from_nanos(35)).verdict().unwrap_err();
        assert!(faults.len() == 1 && faults[0].contains("b entered while a"), "{faults:?}");
    }

    #[test]
    fn damaged_logs_are_not_clean() {
        for log in ["10 enter a", "10 enter a 1 s\n20 exit a 1 s", "x enter a 1 s\n", "10 leave a 1 s\n"] {
            Judge::of(log).verdict().unwrap_err();
        }
        one_fault("10 exit a 1 s\n", "was not inside");
        let twice = "10 enter a 1 s\n20 enter a 2 s\n30 exit a 1 s\n";
        assert!(faults(twice)[0].contains("entered twice"));
    }
}
