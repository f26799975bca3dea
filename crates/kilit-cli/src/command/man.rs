//! `kilit man`: the man page, made of the same words as `--help`.

use std::io;

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use crate::{
    args::Args,
    exit_code::ExitCode,
    failure::{Failure, Result},
    output::print,
};

pub(crate) fn man() -> Result<ExitCode> {
    let page = page().map_err(|error| Failure::system("write the man page", &error))?;
    print(&String::from_utf8_lossy(&page))?;
    Ok(ExitCode::Success)
}

/// One page: the command, then each of its subcommands with their options.
fn page() -> io::Result<Vec<u8>> {
    let mut kilit = Args::command();
    kilit.build();
    let mut page = Vec::new();
    Man::new(kilit.clone()).render(&mut page)?;
    for command in kilit.get_subcommands().filter(|command| !command.is_hide_set()) {
        section(command, &mut page)?;
    }
    Ok(page)
}

fn section(command: &Command, page: &mut Vec<u8>) -> io::Result<()> {
    let man = Man::new(command.clone());
    page.extend(format!(".SH \"KILIT {}\"\n", command.get_name().to_uppercase()).bytes());
    let mut body = Vec::new();
    man.render_synopsis_section(&mut body)?;
    man.render_description_section(&mut body)?;
    man.render_options_section(&mut body)?;
    man.render_extra_section(&mut body)?;
    // Within the section of the subcommand.
    page.extend(String::from_utf8_lossy(&body).replace(".SH ", ".SS ").bytes());
    Ok(())
}
