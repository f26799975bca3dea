//! `kilit break`: an operator ends one hold.

use kilit::{Client, Evicted, LockName, Target};

use crate::{
    args,
    engine::Choice,
    exit_code::ExitCode,
    failure::{Failure, Result},
    output::{json::escape, say, word},
};

pub(crate) async fn break_(args: args::Break) -> Result<ExitCode> {
    let name = args.name.lock()?;
    let lock = word(&name);
    let target = match (args.token, args.owner) {
        (Some(token), _) => Target::Token(token),
        (None, Some(owner)) => Target::Owner(owner),
        (None, None) => return Err(Failure::usage("name the hold to end: --token N or --owner ID")),
    };
    let whose = match &target {
        Target::Token(token) => format!("token {token}"),
        Target::Owner(owner) => format!("owner {}", escape(owner)),
    };
    let client = Choice::new(&args.engine)?.open().await?;
    match client.evict(&name, target, args.force).await? {
        Evicted::Ended => {
            say(format_args!("lock {lock}: the hold of {whose} was ended"));
            Ok(ExitCode::Success)
        }
        Evicted::NoSuchHold => {
            let held = held_now(&client, &name).await;
            Err(Failure::new(ExitCode::No, format!("lock {lock}: there is no hold of {whose}; {held}")))
        }
        Evicted::NeedsForce(reasons) => Err(Failure::new(
            ExitCode::Unavailable,
            format!(
                "lock {lock}: more would end than the hold of {whose}; --force does it all the same:\n  {}",
                reasons.iter().map(|reason| escape(reason)).collect::<Vec<_>>().join("\n  ")
            ),
        )),
    }
}

/// What could have been meant.
async fn held_now(client: &Client, name: &LockName) -> String {
    let Ok(locks) = client.inspect(Some(name)).await else {
        return "who holds it now could not be found out".to_owned();
    };
    let holders = locks.iter().flat_map(|lock| &lock.holders);
    let holders: Vec<_> = holders
        .map(|holder| match (&holder.token, &holder.owner) {
            (Some(token), _) => format!("token {}", token.value()),
            (None, Some(owner)) => format!("owner {}", escape(owner)),
            (None, None) => "another program".to_owned(),
        })
        .collect();
    match holders.is_empty() {
        true => "it is free".to_owned(),
        false => format!("held now: {}", holders.join(", ")),
    }
}
