//! `kilit break`: an operator ends one hold.

use kilit::{Evicted, Target};

use crate::{
    args,
    engine::Choice,
    exit_code::ExitCode,
    failure::{Failure, Result},
    output::{json::escape, say},
};

pub(crate) async fn break_(args: args::Break) -> Result<ExitCode> {
    let name = args.name.lock()?;
    let target = match (args.token, args.owner) {
        (Some(token), _) => Target::Token(token.parse()?),
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
            say(format_args!("lock {name}: the hold of {whose} was ended"));
            Ok(ExitCode::Success)
        }
        Evicted::NoSuchHold => {
            Err(Failure::new(ExitCode::No, format!("lock {name}: there is no hold of {whose}")))
        }
        Evicted::NeedsForce(reasons) => Err(Failure::new(
            ExitCode::Unavailable,
            format!(
                "lock {name}: more would end than the hold of {whose}; --force does it all the same:\n  {}",
                reasons.iter().map(|reason| escape(reason)).collect::<Vec<_>>().join("\n  ")
            ),
        )),
    }
}
