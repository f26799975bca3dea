//! `kilit status`: who holds and who waits.

use kilit::{Holder, LockStatus, Waiter};

use crate::{
    args,
    engine::Choice,
    exit_code::ExitCode,
    failure::Result,
    output::{
        json::{self, escape},
        print, rfc3339, say, word,
    },
};

pub(crate) async fn status(args: args::Status) -> Result<ExitCode> {
    let name = args.name.given()?;
    let choice = Choice::new(&args.engine)?;
    let client = choice.open().await?;
    let engine = client.assurance().engine;
    let mut locks = client.inspect(name.as_ref()).await?;
    let Some(name) = name else {
        print(&if args.json {
            json::document(&json::Locks::new(engine, &locks))
        } else {
            locks.iter().map(text).collect()
        })?;
        if locks.is_empty() && !args.json {
            say(format_args!("no lock is held or waited for {}", choice.place()));
        }
        return Ok(ExitCode::Success);
    };
    let lock = if locks.is_empty() { LockStatus::free(name) } else { locks.swap_remove(0) };
    print(&if args.json { json::document(&json::Status::new(engine, &lock)) } else { text(&lock) })?;
    Ok(if lock.is_held() { ExitCode::Success } else { ExitCode::No })
}

fn text(lock: &LockStatus) -> String {
    let name = word(&lock.name);
    let mut text = match lock.mode {
        None => format!("{name}: free\n"),
        Some(mode) => format!("{name}: held, {}\n", json::mode(mode)),
    };
    for one in &lock.holders {
        text += &format!("  holder {}\n", holder(one, lock.capacity));
    }
    for one in lock.queue.iter().flatten() {
        text += &format!("  waiter {}\n", waiter(one));
    }
    if let Some(path) = &lock.path {
        text += &format!("  file {}\n", escape(&path.display().to_string()));
    }
    text
}

fn holder(holder: &Holder, capacity: Option<u32>) -> String {
    let parts = [
        holder.foreign.then(|| "another program".to_owned()),
        holder.note.as_deref().map(escape),
        holder.token.as_ref().map(|token| format!("token {} of {}", token.value(), token.source())),
        holder.units.zip(capacity).map(|(units, capacity)| format!("{units} of {capacity} permits")),
        holder.since.and_then(rfc3339).map(|since| format!("since {since}")),
        holder.expires_in.map(|left| format!("expires in {left:.1?}")),
        holder.owner.as_deref().map(|owner| format!("owner {}", escape(owner))),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn waiter(waiter: &Waiter) -> String {
    let parts = [
        waiter.note.as_deref().map(escape),
        waiter.since.and_then(rfc3339).map(|since| format!("since {since}")),
        waiter.owner.as_deref().map(|owner| format!("owner {}", escape(owner))),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
