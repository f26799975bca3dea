//! `kilit engines`: what is built in, and what each engine promises.

use kilit::Assurance;

use crate::{
    args,
    exit_code::ExitCode,
    failure::Result,
    output::{json, print, table::Table},
};

pub(crate) fn engines(format: &args::Engines) -> Result<ExitCode> {
    print(&match (format.json, format.markdown) {
        (true, _) => json::document(&json::Engines::new(kilit::engines())),
        (_, true) => promises().markdown(),
        _ => format!("{}\n{}", forms(), promises().text()),
    })?;
    Ok(ExitCode::Success)
}

fn forms() -> String {
    let mut text = String::new();
    for engine in kilit::engines() {
        text += &format!("{}: {}\n", engine.scheme, engine.about);
        for url in engine.urls {
            text += &format!("    {url}\n");
        }
        for (key, about) in engine.settings {
            text += &format!("      ?{key}=  {about}\n");
        }
        for note in (engine.assurance)().notes {
            text += &format!("    - {note}\n");
        }
    }
    text
}

fn promises() -> Table {
    let mut table = Table::new(&[
        "engine",
        "exclusion",
        "token",
        "order",
        "holds",
        "loss notice",
        "released after a crash",
    ]);
    for engine in kilit::engines() {
        let Assurance { exclusion, token, order, modes, loss_notice, crash_release, .. } =
            (engine.assurance)();
        table.push(vec![
            engine.scheme.to_owned(),
            exclusion.to_string(),
            token.to_string(),
            order.to_string(),
            modes.to_string(),
            loss_notice.to_string(),
            crash_release.to_string(),
        ]);
    }
    table
}
