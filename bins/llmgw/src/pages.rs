//! `llmgw completions`, `llmgw man`: what shells and `man` know of the commands, made from the commands.

use std::{io::Write as _, path::PathBuf, process::ExitCode};

use clap::{Args, Command};
use clap_complete::Shell;

use crate::failure::{Cause, Failure};

/// Print what a shell needs to complete these commands
///
/// For bash: llmgw completions bash > ~/.local/share/bash-completion/completions/llmgw
#[derive(Args, Clone, Debug)]
pub(crate) struct CompletionsArgs {
    /// Which shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Write the manual pages: one for each command
#[derive(Args, Clone, Debug)]
pub(crate) struct ManArgs {
    /// The directory that they are written to, made when it is not there, such as ~/.local/share/man/man1; the page of `llmgw` alone is printed
    /// when none is named
    directory: Option<PathBuf>,
}

pub(crate) fn completions(args: &CompletionsArgs, mut command: Command) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "llmgw", &mut script);
    printed(&script)
}

pub(crate) fn man(args: &ManArgs, command: Command) -> ExitCode {
    let Some(directory) = &args.directory else {
        let mut page = Vec::new();
        return match clap_mangen::Man::new(command).render(&mut page) {
            Ok(()) => printed(&page),
            Err(error) => failed(format!("making the page: {error}")),
        };
    };
    let written = std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(command, directory));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(format!("writing to {}: {error}", directory.display())),
    }
}

fn printed(bytes: &[u8]) -> ExitCode {
    match std::io::stdout().lock().write_all(bytes) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            failed(format!("writing the answer: {error}"))
        }
        _ => ExitCode::SUCCESS,
    }
}

fn failed(message: String) -> ExitCode {
    Failure::new(Cause::Refused, message).report()
}
