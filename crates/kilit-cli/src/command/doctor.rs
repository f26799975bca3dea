//! `kilit doctor`: what endangers locks on an engine.

use kilit::{Finding, Level};

use crate::{
    args,
    engine::Choice,
    exit_code::ExitCode,
    failure::Result,
    output::{json, print},
};

pub(crate) async fn doctor(args: args::Doctor) -> Result<ExitCode> {
    let client = Choice::new(&args.engine)?.open().await?;
    let findings = client.diagnose().await?;
    print(&if args.json { json::document(&json::Findings::new(&findings)) } else { text(&findings) })?;
    let danger = findings.iter().any(|finding| finding.level == Level::Danger);
    Ok(if danger { ExitCode::No } else { ExitCode::Success })
}

fn text(findings: &[Finding]) -> String {
    if findings.is_empty() {
        return "nothing to report\n".to_owned();
    }
    let mut text = String::new();
    for finding in findings {
        text +=
            &format!("{:6} {}: {}\n", json::level(finding.level), finding.id, json::escape(&finding.text));
        if !finding.fix.is_empty() {
            text += &format!("       -> {}\n", json::escape(&finding.fix));
        }
    }
    text
}
