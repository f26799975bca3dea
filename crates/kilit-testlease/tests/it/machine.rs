use std::time::Duration;

use kilit_core::{Claim, Moment, OwnerId, Share, Target, TokenValue};
use kilit_testlease::machine::{BARRED_FOR, Machine, Refusal, Taken, place_lasts};

use crate::{TTL, claim, name};

/// A machine does not mind when it begins.
fn start() -> Moment {
    Moment::from_nanos(1)
}

/// The textbook's lock beside the machine: who stands where, and by which words a claim holds.
#[derive(Clone, Default)]
struct Textbook {
    line: Vec<Entry>,
    left: Vec<OwnerId>,
    highest: u64,
}

#[derive(Clone)]
struct Entry {
    owner: OwnerId,
    alone: bool,
    token: Option<Option<u64>>,
    until: Moment,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Take(usize),
    Extend(usize),
    Cancel(usize),
    Pass(Duration),
}

impl Textbook {
    fn holders(&self) -> impl Iterator<Item = &Entry> {
        self.line.iter().filter(|entry| entry.token.is_some())
    }

    fn step(&mut self, machine: &mut Machine, step: Step, claims: &[Claim], now: Moment) {
        self.line.retain(|entry| entry.until > now);
        match step {
            Step::Take(who) => self.take(machine, &claims[who], now),
            Step::Extend(who) => {
                let Claim { name, owner, .. } = &claims[who];
                let held = self.line.iter_mut().find(|entry| entry.owner == *owner && entry.token.is_some());
                assert_eq!(machine.extend(name, *owner, TTL, now), held.is_some());
                held.into_iter().for_each(|entry| entry.until = now + TTL);
            }
            Step::Cancel(who) => {
                let Claim { name, owner, .. } = &claims[who];
                let held = self.holders().any(|entry| entry.owner == *owner);
                assert_eq!(machine.cancel(name, *owner, now), held);
                self.line.retain(|entry| entry.owner != *owner);
                self.left.push(*owner);
            }
            Step::Pass(_) => {}
        }
        self.check(machine, claims, now);
    }

    fn take(&mut self, machine: &mut Machine, claim: &Claim, now: Moment) {
        let ready = machine.is_ready(&claim.name, claim.owner, now);
        let taken = machine.take(claim, now);
        if self.left.contains(&claim.owner) {
            assert_eq!(taken, Err(Refusal::Withdrawn));
            return;
        }
        let alone = claim.share == Share::EXCLUSIVE;
        let known = self.line.iter().position(|entry| entry.owner == claim.owner);
        let at = known.unwrap_or(self.line.len());
        let front = &self.line[..at];
        let holds = if alone { front.is_empty() } else { front.iter().all(|entry| !entry.alone) };
        let token = known.and_then(|at| self.line[at].token);
        assert!(ready == (holds || known.is_none()), "is_ready says what the next take does");
        match taken.unwrap() {
            Taken::Lease(drawn) => {
                assert!(holds);
                match (token, drawn) {
                    (Some(before), _) => assert_eq!(drawn, before, "another take, the same token"),
                    (None, Some(drawn)) => {
                        assert!(alone && drawn > self.highest, "tokens rise");
                        self.highest = drawn;
                    }
                    (None, None) => assert!(!alone),
                }
                let entry = Entry { owner: claim.owner, alone, token: Some(drawn), until: now + TTL };
                self.line.splice(at..self.line.len().min(at + 1), [entry]);
            }
            Taken::InLine { ahead, free_in } => {
                assert!(!holds);
                assert_eq!(ahead as usize, at);
                assert_eq!(front.iter().map(|entry| entry.until.since(now)).min(), Some(free_in));
                let until = now + place_lasts(claim);
                let entry = Entry { owner: claim.owner, alone, token: None, until };
                self.line.splice(at..self.line.len().min(at + 1), [entry]);
            }
        }
    }

    fn check(&self, machine: &mut Machine, claims: &[Claim], now: Moment) {
        let (alone, shared): (Vec<_>, Vec<_>) = self.holders().partition(|entry| entry.alone);
        assert!(alone.len() <= 1 && (alone.is_empty() || shared.is_empty()), "two holders");
        let views = machine.inspect(Some(&claims[0].name), now);
        let seen =
            views.iter().flat_map(|view| &view.line).map(|place| (place.owner, place.holds, place.ends_in));
        let known = self.line.iter().map(|e| (e.owner, e.token.is_some(), e.until.since(now)));
        assert!(seen.eq(known), "{views:?}");
    }
}

/// Every history of `depth` steps.
fn explore(shares: &[Share], depth: usize) -> usize {
    let claims: Vec<_> = shares.iter().map(|share| claim("x", *share)).collect();
    let mut steps = vec![Step::Pass(TTL / 5), Step::Pass(TTL * 2 / 3)];
    for who in 0..claims.len() {
        steps.extend([Step::Take(who), Step::Extend(who), Step::Cancel(who)]);
    }
    let mut states = vec![(Machine::default(), Textbook::default(), start(), 0)];
    let mut histories = 0;
    while let Some((machine, textbook, now, length)) = states.pop() {
        if length == depth {
            histories += 1;
            continue;
        }
        for &step in &steps {
            let (mut machine, mut textbook) = (machine.clone(), textbook.clone());
            let now = if let Step::Pass(time) = step { now + time } else { now };
            textbook.step(&mut machine, step, &claims, now);
            states.push((machine, textbook, now, length + 1));
        }
    }
    histories
}

#[test]
fn every_short_history_of_exclusive_claims() {
    assert_eq!(explore(&[Share::EXCLUSIVE; 2], 6), 8_usize.pow(6));
}

#[test]
fn every_short_history_of_mixed_claims() {
    assert_eq!(explore(&[Share::EXCLUSIVE, Share::SHARED, Share::SHARED], 5), 11_usize.pow(5));
}

#[test]
fn permits_fill_their_capacity_in_order() {
    let permits = |units| claim("x", Share::permits(units, 3).unwrap());
    let (two, big, one) = (permits(2), permits(3), permits(1));
    let mut machine = Machine::default();
    assert_eq!(machine.take(&two, start()), Ok(Taken::Lease(None)));
    assert!(matches!(machine.take(&big, start()), Ok(Taken::InLine { ahead: 1, .. })));
    // It would fit, and does not pass the one in front.
    assert!(matches!(machine.take(&one, start()), Ok(Taken::InLine { ahead: 2, .. })));
    machine.cancel(&big.name, big.owner, start());
    assert_eq!(machine.take(&one, start()), Ok(Taken::Lease(None)));
}

#[test]
fn kinds_do_not_mix() {
    let mut machine = Machine::default();
    machine.take(&claim("x", Share::permits(1, 3).unwrap()), start()).unwrap();
    for share in [Share::EXCLUSIVE, Share::SHARED, Share::permits(1, 4).unwrap()] {
        assert_eq!(machine.take(&claim("x", share), start()), Err(Refusal::OtherCapacity(3)));
    }
    machine.take(&claim("y", Share::SHARED), start()).unwrap();
    let refused = machine.take(&claim("y", Share::permits(1, 3).unwrap()), start()).unwrap_err();
    assert!(refused.to_string().contains("as a lock"), "{refused}");
}

#[test]
fn tokens_rise_over_every_take_over() {
    let mut machine = Machine::default();
    let (x, mut now, mut last) = (name("x"), start(), 0);
    for round in 0..12 {
        let next = claim("x", Share::EXCLUSIVE);
        let Ok(Taken::Lease(Some(token))) = machine.take(&next, now) else { panic!("round {round}") };
        assert!(token > last);
        last = token;
        match round % 4 {
            0 => assert!(machine.cancel(&x, next.owner, now)),
            1 => assert!(machine.evict(&x, &Target::Token(TokenValue::new(token).unwrap()), now)),
            2 => assert!(machine.evict(&x, &Target::Owner(next.owner.to_string()), now)),
            _ => now = now + TTL,
        }
    }
    let other = machine.take(&claim("y", Share::EXCLUSIVE), now);
    assert_eq!(other, Ok(Taken::Lease(Some(1))), "each name has a counter of its own");
}

#[test]
fn tokens_keep_every_digit_and_end_without_a_wrap() {
    let mut machine = Machine::default();
    let x = name("x");
    let mut next = |last: u64| {
        machine.set_last_token(&x, last);
        let claim = claim("x", Share::EXCLUSIVE);
        let taken = machine.take(&claim, start());
        machine.cancel(&x, claim.owner, start());
        taken
    };
    assert_eq!(next(1 << 53), Ok(Taken::Lease(Some((1 << 53) + 1))));
    assert_eq!(next(TokenValue::MAX - 1), Ok(Taken::Lease(Some(TokenValue::MAX))));
    assert_eq!(next(TokenValue::MAX), Err(Refusal::Exhausted));
    assert_eq!(next(u64::MAX), Err(Refusal::Exhausted));
}

#[test]
fn evict_ends_the_hold_that_it_names_and_no_other() {
    let mut machine = Machine::default();
    let (x, old, new) = (name("x"), claim("x", Share::EXCLUSIVE), claim("x", Share::EXCLUSIVE));
    let first = Target::Token(TokenValue::new(1).unwrap());
    machine.take(&old, start()).unwrap();
    assert!(machine.evict(&x, &first, start()));
    assert!(!machine.evict(&x, &first, start()));
    assert!(!machine.extend(&x, old.owner, TTL, start()));
    assert_eq!(
        machine.take(&old, start()),
        Err(Refusal::Withdrawn),
        "a duplicate of its take brings it back"
    );
    machine.take(&new, start()).unwrap();
    assert!(!machine.evict(&x, &first, start()));
    assert!(machine.extend(&x, new.owner, TTL, start()));
}

#[test]
fn a_bar_is_bounded() {
    let mut machine = Machine::default();
    let late = claim("x", Share::EXCLUSIVE);
    assert!(!machine.cancel(&late.name, late.owner, start()), "also for what never came");
    assert_eq!(machine.take(&late, start() + BARRED_FOR.mul_f64(0.9)), Err(Refusal::Withdrawn));
    assert!(machine.take(&late, start() + BARRED_FOR).is_ok());
}

#[test]
fn a_lock_delay_keeps_the_lock_closed() {
    let mut machine = Machine::default();
    let mut vanished = claim("x", Share::EXCLUSIVE);
    vanished.lock_delay = TTL;
    machine.take(&vanished, start()).unwrap();
    let next = claim("x", Share::EXCLUSIVE);
    let in_line = machine.take(&next, start() + TTL).unwrap();
    assert_eq!(in_line, Taken::InLine { ahead: 1, free_in: TTL });
    assert_eq!(machine.take(&next, start() + TTL * 2), Ok(Taken::Lease(Some(2))));
}
