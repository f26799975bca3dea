//! What endangers locks on these servers, in words.

use kilit_core::{Finding, Level, Result};

use crate::{
    engine::RedisLease,
    probe::{Facts, examine},
};

/// From when on the difference between two clocks is worth a word.
const CLOCKS_APART_MS: u64 = 1000;

impl RedisLease {
    /// As [`Lease::diagnose`](kilit_core::family::Lease::diagnose).
    pub(crate) async fn examine(&self) -> Result<Vec<Finding>> {
        let facts = examine(&self.topology).await?;
        let mut findings: Vec<_> = facts.iter().flat_map(of_one).collect();
        let needed = self.shared.config.min_replicas;
        if needed == 0 && facts.iter().any(|one| one.replicas.is_some_and(|count| count > 0)) {
            findings.push(Finding {
                id: "async-replicas",
                level: Level::Warn,
                text: "replicas lag behind: a failover can forget a lock that is held".into(),
                fix: "set ?min_replicas=1 to have acquisitions confirmed; only a fence makes it safe".into(),
            });
        }
        Ok(findings)
    }
}

/// What one server's settings mean for locks.
fn of_one(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let server = &facts.server;
    let mut say = |id, level, text: String, fix: &str| {
        findings.push(Finding { id, level, text: format!("{server}: {text}"), fix: fix.to_owned() });
    };
    match &facts.version {
        Some(version) => say("version", Level::Info, format!("Redis {version}"), ""),
        None => say(
            "rights",
            Level::Warn,
            "it does not tell its version and settings, which then count as the weaker".into(),
            "allow this user INFO and CONFIG GET (ACL: +info +config|get)",
        ),
    }
    match facts.evicts() {
        Some(true) => say(
            "eviction",
            Level::Danger,
            format!(
                "with maxmemory-policy {} it throws locks away when its memory is full",
                facts.policy.as_deref().unwrap_or("?")
            ),
            "set maxmemory-policy noeviction, or give locks a server of their own",
        ),
        Some(false) => {}
        None => say(
            "eviction",
            Level::Warn,
            "whether it throws locks away when its memory is full is not known".into(),
            "set maxmemory-policy noeviction",
        ),
    }
    match (facts.appends, facts.fsync.as_deref(), facts.saves) {
        (Some(true), Some("always"), _) => {
            say("persistence", Level::Info, "every write is on disk before it is answered".into(), "");
        }
        (Some(true), _, _) => say(
            "persistence",
            Level::Warn,
            "a crash forgets the locks of the last second or so: two holders until the first one notices"
                .into(),
            "set appendfsync always, or restart it only after the longest TTL",
        ),
        (_, _, Some(true)) => say(
            "persistence",
            Level::Warn,
            "a crash forgets the locks since the last snapshot, and a restart brings old ones back".into(),
            "set appendonly yes and appendfsync always, or restart it only after the longest TTL",
        ),
        _ => say(
            "persistence",
            Level::Warn,
            "a restart forgets all locks and tokens: two holders until the first one notices".into(),
            "set appendonly yes and appendfsync always, or restart it only after the longest TTL",
        ),
    }
    if facts.replicas.is_some_and(|count| count > 0) && facts.min_replicas_to_write == Some(0) {
        say(
            "min-replicas",
            Level::Info,
            "a master that is cut off from its replicas goes on giving locks (min-replicas-to-write 0)"
                .into(),
            "",
        );
    }
    if let Some((ahead, uncertain)) = facts.clock_ahead {
        let apart = ahead.unsigned_abs().saturating_sub(uncertain);
        let level = if apart > CLOCKS_APART_MS { Level::Warn } else { Level::Info };
        let fix = if level == Level::Warn {
            "set both clocks by NTP: tokens come from the server's clock"
        } else {
            ""
        };
        say("clock", level, format!("its clock is {} this machine's (±{uncertain} ms)", offset(ahead)), fix);
    }
    findings
}

fn offset(ahead_ms: i64) -> String {
    let word = if ahead_ms < 0 { "behind" } else { "ahead of" };
    format!("{} ms {word}", ahead_ms.unsigned_abs())
}
