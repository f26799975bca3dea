//! The JSON documents that scripts rely on. Fields may be added, and none removed.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use kilit::{Assurance, Descriptor, Finding, Holder, Level, LockStatus, Mode, Waiter};
use serde::Serialize;

use super::rfc3339;

/// One document, with a line's end.
pub(crate) fn document(value: &impl Serialize) -> String {
    // Numbers, strings, lists and structs: there is nothing in them that JSON cannot hold.
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

#[derive(Serialize)]
pub(crate) struct Status {
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name_base64: Option<String>,
    engine: &'static str,
    held: bool,
    mode: Option<&'static str>,
    holders: Vec<HolderEntry>,
    waiters: Option<usize>,
    queue: Option<Vec<WaiterEntry>>,
    capacity: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
}

#[derive(Serialize)]
struct HolderEntry {
    token: Option<u64>,
    token_text: Option<String>,
    token_source: Option<String>,
    owner: Option<String>,
    note: Option<String>,
    since: Option<String>,
    expires_in_ms: Option<u64>,
    units: Option<u32>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    foreign: bool,
}

#[derive(Serialize)]
struct WaiterEntry {
    owner: Option<String>,
    note: Option<String>,
    since: Option<String>,
}

#[derive(Serialize)]
pub(crate) struct Locks {
    engine: &'static str,
    locks: Vec<Status>,
}

impl Status {
    pub(crate) fn new(engine: &'static str, status: &LockStatus) -> Self {
        let text = status.name.as_str();
        Self {
            name: text.map(str::to_owned),
            name_base64: text.is_none().then(|| STANDARD.encode(status.name.as_bytes())),
            engine,
            held: status.is_held(),
            mode: status.mode.map(mode),
            holders: status.holders.iter().map(holder).collect(),
            waiters: status.queue.as_ref().map(Vec::len),
            queue: status.queue.as_ref().map(|queue| queue.iter().map(waiter).collect()),
            capacity: status.capacity,
            path: status.path.as_ref().map(|path| path.display().to_string()),
        }
    }
}

impl Locks {
    pub(crate) fn new(engine: &'static str, locks: &[LockStatus]) -> Self {
        Self { engine, locks: locks.iter().map(|lock| Status::new(engine, lock)).collect() }
    }
}

pub(crate) fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
        Mode::Shared => "shared",
        Mode::Permit => "permit",
    }
}

fn holder(holder: &Holder) -> HolderEntry {
    let token = holder.token.as_ref();
    HolderEntry {
        token: token.map(|token| token.value().get()),
        token_text: token.map(|token| token.value().to_string()),
        token_source: token.map(|token| token.source().to_string()),
        owner: holder.owner.as_deref().map(escape),
        note: holder.note.as_deref().map(escape),
        since: holder.since.and_then(rfc3339),
        expires_in_ms: holder.expires_in.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX)),
        units: holder.units,
        foreign: holder.foreign,
    }
}

fn waiter(waiter: &Waiter) -> WaiterEntry {
    WaiterEntry {
        owner: waiter.owner.as_deref().map(escape),
        note: waiter.note.as_deref().map(escape),
        since: waiter.since.and_then(rfc3339),
    }
}

/// What others wrote, with what a terminal would obey made visible.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { escaped.extend(c.escape_default()) } else { escaped.push(c) }
    }
    escaped
}

#[derive(Serialize)]
pub(crate) struct Engines {
    engines: Vec<Engine>,
}

#[derive(Serialize)]
struct Engine {
    scheme: &'static str,
    aliases: &'static [&'static str],
    urls: &'static [&'static str],
    about: &'static str,
    settings: Vec<Setting>,
    assurance: Promise,
}

#[derive(Serialize)]
struct Setting {
    key: &'static str,
    about: &'static str,
}

#[derive(Serialize)]
struct Promise {
    exclusion: String,
    token: String,
    order: String,
    modes: Vec<&'static str>,
    leases: bool,
    loss_notice: String,
    crash_release: String,
    wait_look: String,
    notes: Vec<String>,
}

impl Engines {
    pub(crate) fn new(engines: impl Iterator<Item = &'static Descriptor>) -> Self {
        let engine = |engine: &'static Descriptor| Engine {
            scheme: engine.scheme,
            aliases: engine.aliases,
            urls: engine.urls,
            about: engine.about,
            settings: engine.settings.iter().map(|&(key, about)| Setting { key, about }).collect(),
            assurance: promise((engine.assurance)()),
        };
        Self { engines: engines.map(engine).collect() }
    }
}

fn promise(assurance: Assurance) -> Promise {
    let modes = [Mode::Exclusive, Mode::Shared, Mode::Permit];
    Promise {
        exclusion: assurance.exclusion.to_string(),
        token: assurance.token.to_string(),
        order: assurance.order.to_string(),
        modes: modes.into_iter().filter(|mode| assurance.modes.has(*mode)).map(mode).collect(),
        leases: assurance.leases,
        loss_notice: assurance.loss_notice.to_string(),
        crash_release: assurance.crash_release.to_string(),
        wait_look: assurance.wait_look.to_string(),
        notes: assurance.notes,
    }
}

#[derive(Serialize)]
pub(crate) struct Findings {
    findings: Vec<FindingEntry>,
}

#[derive(Serialize)]
struct FindingEntry {
    id: &'static str,
    level: &'static str,
    text: String,
    fix: String,
}

impl Findings {
    pub(crate) fn new(findings: &[Finding]) -> Self {
        let entry = |finding: &Finding| FindingEntry {
            id: finding.id,
            level: level(finding.level),
            text: finding.text.clone(),
            fix: finding.fix.clone(),
        };
        Self { findings: findings.iter().map(entry).collect() }
    }
}

pub(crate) fn level(level: Level) -> &'static str {
    match level {
        Level::Info => "info",
        Level::Warn => "warn",
        Level::Danger => "danger",
    }
}
