//! The deadline rule: a holder gives up before its engine does.
//!
//! A lease runs on the engine's clock from the moment the engine handled the request, which is not before the moment
//! the request left. So a holder that counts from *before it sent*, and allows for the two clocks running at different
//! rates, ends its hold first. (Gray and Cheriton, "Leases", 1989, section 2.)

use std::time::Duration;

use crate::Moment;

/// How far two clocks may drift apart over a TTL: 1 % of it and 2 ms for the coarsest tick in between.
pub fn drift_allowance(ttl: Duration) -> Duration {
    ttl / 100 + Duration::from_millis(2)
}

/// When a hold counts as lost: `sent`, the moment before the request left, plus the TTL, less the allowance for drift.
pub fn lease_deadline(sent: Moment, ttl: Duration) -> Moment {
    sent + ttl.saturating_sub(drift_allowance(ttl))
}

/// When the keeper renews a hold with this deadline: when two thirds of the TTL are left, which is a third of it after
/// the request left. `jitter`, from 0 to 1, makes it up to a thirtieth sooner, so that many clients do not renew in
/// step.
pub fn renew_at(deadline: Moment, ttl: Duration, jitter: f64) -> Moment {
    deadline.before((ttl * 2 / 3).saturating_sub(drift_allowance(ttl)) + (ttl / 30).mul_f64(jitter))
}

/// How long one renewal may take before it is tried again: a tenth of the TTL.
pub fn renewal_timeout(ttl: Duration) -> Duration {
    ttl / 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_ends_before_the_engine() {
        let sent = Moment::from_nanos(1_000_000_000);
        for ms in [100, 300, 5_000, 30_000, 604_800_000] {
            let ttl = Duration::from_millis(ms);
            assert!(lease_deadline(sent, ttl) < sent + ttl);
            assert!(lease_deadline(sent, ttl) > sent + ttl * 9 / 10);
            for jitter in [0.0, 1.0] {
                let renew_at = renew_at(lease_deadline(sent, ttl), ttl, jitter);
                assert!(renew_at <= sent + ttl / 3 + Duration::from_millis(1));
                assert!(renew_at >= sent + ttl * 29 / 100);
            }
        }
        assert_eq!(lease_deadline(sent, Duration::from_millis(1)), sent);
    }
}
