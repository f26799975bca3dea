//! One lock: the line of its claims, and the rule that says who of them holds. Pure.

use kilit_core::{Claim, Mode, OwnerId, Share};

/// Claims in the order they came. Those that hold stand among those that wait.
#[derive(Debug)]
pub(crate) struct Line<T>(Vec<Place<T>>);

#[derive(Debug)]
pub(crate) struct Place<T> {
    pub(crate) owner: OwnerId,
    pub(crate) share: Share,
    pub(crate) holds: bool,
    pub(crate) data: T,
}

impl<T> Place<T> {
    fn hold(&mut self) -> &mut Self {
        self.holds = true;
        self
    }
}

impl<T> Line<T> {
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }

    /// Why a share cannot stand in this line, if it cannot: a semaphore's capacity is the same for all, and it is no
    /// lock of another kind.
    pub(crate) fn conflict(&self, share: Share) -> Option<String> {
        let other = self.0.iter().find(|place| place.share.capacity() != share.capacity())?.share;
        Some(match (other.mode(), share.mode()) {
            (Mode::Permit, Mode::Permit) => format!(
                "it is in use as a semaphore of {} permits, and {} were claimed of {}: every holder must agree",
                other.capacity(),
                share.units(),
                share.capacity()
            ),
            (Mode::Permit, _) => "it is in use as a semaphore; use another name for a lock".into(),
            _ => "it is in use as a lock; use another name for a semaphore".into(),
        })
    }

    /// Joins at the end. `data` of an owner that is here already is dropped.
    pub(crate) fn join(&mut self, claim: &Claim, data: T) {
        if self.find(claim.owner).is_none() {
            self.0.push(Place { owner: claim.owner, share: claim.share, holds: false, data });
        }
    }

    /// Leaves; the place that was left.
    pub(crate) fn leave(&mut self, owner: OwnerId) -> Option<Place<T>> {
        let at = self.0.iter().position(|place| place.owner == owner)?;
        Some(self.0.remove(at))
    }

    pub(crate) fn find(&mut self, owner: OwnerId) -> Option<&mut Place<T>> {
        self.0.iter_mut().find(|place| place.owner == owner)
    }

    /// How many stand in front of `owner`.
    pub(crate) fn ahead(&self, owner: OwnerId) -> usize {
        self.0.iter().take_while(|place| place.owner != owner).count()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn places(&self) -> impl Iterator<Item = &Place<T>> {
        self.0.iter()
    }

    /// Marks those who hold by now, and gives those who did not before. I hold when the units of everyone up to and
    /// including me fit the capacity; sums saturate.
    pub(crate) fn serve(&mut self) -> impl Iterator<Item = &mut Place<T>> {
        let mut sum = 0_u32;
        self.0
            .iter_mut()
            .take_while(move |place| {
                // Saturation must not make two exclusive claims fit: the sum is compared before it saturates.
                let fits = place.share.units() <= place.share.capacity() - sum.min(place.share.capacity());
                sum = sum.saturating_add(place.share.units());
                fits
            })
            .filter(|place| !place.holds)
            .map(Place::hold)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kilit_core::{LockName, LossNotice, Note};

    use super::*;

    fn claim(share: Share) -> Claim {
        Claim {
            name: LockName::new("x").unwrap(),
            owner: OwnerId::random(),
            share,
            ttl: Duration::from_secs(1),
            lock_delay: Duration::ZERO,
            note: Note::of_this_process(),
            notice: LossNotice::default(),
        }
    }

    /// The textbook's words: a claim holds when nobody in front conflicts with it.
    fn textbook(shares: &[Share]) -> Vec<bool> {
        let mut holds = vec![];
        for (i, share) in shares.iter().enumerate() {
            let front = &shares[..i];
            holds.push(match share.mode() {
                Mode::Exclusive => front.is_empty(),
                Mode::Shared => front.iter().all(|other| other.mode() == Mode::Shared),
                Mode::Permit => {
                    front.iter().map(|o| u64::from(o.units())).sum::<u64>() + u64::from(share.units())
                        <= u64::from(share.capacity())
                }
            });
        }
        holds
    }

    fn every_line(kinds: &[Share], length: usize) -> Vec<Vec<Share>> {
        let mut lines = vec![vec![]];
        for _ in 0..length {
            let longer: Vec<_> = lines
                .iter()
                .flat_map(|line| kinds.iter().map(|kind| [&line[..], &[*kind]].concat()))
                .collect();
            lines.extend(longer);
        }
        lines
    }

    #[test]
    fn the_rule_is_the_textbooks_for_every_line_of_six() {
        let locks = every_line(&[Share::EXCLUSIVE, Share::SHARED], 6);
        let permits = every_line(&[1, 2, 3].map(|units| Share::permits(units, 3).unwrap()), 6);
        for shares in locks.into_iter().chain(permits) {
            let mut line = Line::new();
            for share in &shares {
                line.join(&claim(*share), ());
            }
            line.serve().for_each(drop);
            let holds: Vec<_> = line.places().map(|place| place.holds).collect();
            assert_eq!(holds, textbook(&shares), "{shares:?}");
        }
    }

    #[test]
    fn mixed_kinds_conflict() {
        let mut line = Line::new();
        line.join(&claim(Share::SHARED), ());
        assert!(line.conflict(Share::EXCLUSIVE).is_none());
        assert!(line.conflict(Share::permits(1, 2).unwrap()).is_some());
        let mut line = Line::new();
        line.join(&claim(Share::permits(1, 2).unwrap()), ());
        assert!(line.conflict(Share::permits(2, 3).unwrap()).unwrap().contains("2 permits"));
        assert!(line.conflict(Share::EXCLUSIVE).is_some());
    }
}
