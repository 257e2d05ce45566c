//! The command line.

mod admin;
mod bench;
mod conform;
mod connect;
mod engine;
mod exit;
mod fence;
mod hardening;
mod kv;
mod lock;
#[cfg(feature = "postgres")]
mod migrate;
mod objects;
mod remap;
mod restored;
mod run;
mod s3;
mod secret_file;
mod serve;
mod stopped_store;
mod terminal;
mod txn;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::config::{Config, Flags};
use exit::Failed;

/// A fencing-aware storage gateway: stale lock holders are refused at the resource.
#[derive(Parser)]
#[command(name = "fencepost", version, about, after_help = exit::HELP, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve the gateway until SIGTERM or SIGINT
    Serve(serve::Serve),
    /// Read and write values
    #[command(subcommand)]
    Kv(kv::Kv),
    /// Raise a resource's fence and read its values, in one step
    Claim(fence::Claim),
    /// Do several things to several keys, all or nothing
    Txn(txn::Txn),
    /// Ask what became of requests with an idempotency key
    #[command(subcommand)]
    Outcome(txn::Outcome),
    /// Show and rotate fences
    #[command(subcommand)]
    Fence(fence::Fence),
    /// Use the built-in lock service
    #[command(subcommand)]
    Lock(lock::Lock),
    /// Run a program under a lock, with its token in the environment
    Run(run::Run),
    /// Get credentials for the S3 front end
    #[command(subcommand)]
    S3(s3::S3),
    /// Test whether a resource of your own is really safe
    Conform(conform::Conform),
    /// Check the objects behind the S3 front end, and remove leftovers
    #[command(subcommand)]
    Objects(objects::Objects),
    /// Have a running gateway read the rules of its guards and the keys of its S3 front end again (administrators only)
    Reload(admin::Reload),
    /// Measure a running gateway under load; writes to it
    Bench(bench::Bench),
    /// Work with the servers that engines use
    #[command(subcommand)]
    Engine(engine::Engine),
    /// Make or upgrade the schema of the engine postgres, with an account that may do so
    #[cfg(feature = "postgres")]
    Migrate(migrate::Migrate),
    /// Change the guard mapping of a stopped store; starts a new generation
    Remap(remap::Remap),
    /// Go on with an older copy of a stopped store, or a standby that lacks commits; starts a generation, frees all locks
    Restored(restored::Restored),
    /// Work with the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print the version
    Version,
    /// Print a completion script for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Check the configuration and print what it comes to
    Check(Box<Flags>),
}

/// Parses the arguments and runs the command.
pub fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(wrong) => return refuse(&wrong),
    };
    let result = match cli.command {
        Command::Serve(serve) => serve.run(),
        Command::Kv(kv) => kv.run(),
        Command::Claim(claim) => claim.run(),
        Command::Txn(txn) => txn.run(),
        Command::Outcome(outcome) => outcome.run(),
        Command::Fence(fence) => fence.run(),
        Command::Lock(lock) => lock.run(),
        Command::Run(run) => run.run(),
        Command::S3(s3) => s3.run(),
        Command::Conform(conform) => conform.run(),
        Command::Objects(objects) => objects.run(),
        Command::Reload(reload) => reload.run(),
        Command::Bench(bench) => bench.run(),
        Command::Engine(engine) => engine.run(),
        #[cfg(feature = "postgres")]
        Command::Migrate(migrate) => migrate.run(),
        Command::Remap(remap) => remap.run(),
        Command::Restored(restored) => restored.run(),
        Command::Config(ConfigCommand::Check(flags)) => check(&flags),
        Command::Version => print(&format!("fencepost {}", env!("CARGO_PKG_VERSION"))),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "fencepost", &mut script);
            exit::write(&script)
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => failed.report(),
    }
}

/// Help and versions are no failure. For `conform`, the exit code 2 of wrong arguments would mean an unknown verdict.
fn refuse(wrong: &clap::Error) -> ExitCode {
    // If printing fails, there is no other place to report it.
    let _ = wrong.print();
    let asked_for_a_verdict = std::env::args_os().nth(1).is_some_and(|command| command == "conform");
    match wrong.exit_code() {
        0 => ExitCode::SUCCESS,
        _ if asked_for_a_verdict => ExitCode::from(conform::HARNESS_FAILED),
        code => ExitCode::from(u8::try_from(code).unwrap_or(1)),
    }
}

fn print(line: &str) -> Result<(), Failed> {
    exit::write_text(&format!("{line}\n"))
}

fn check(flags: &Flags) -> Result<(), Failed> {
    let config = Config::load(flags).map_err(Failed::usage)?;
    print(&config.to_string())
}

#[cfg(test)]
mod docs_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_and_flag_has_help() {
        fn visit(command: &clap::Command) {
            assert!(command.get_about().is_some(), "{} has no help", command.get_name());
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{} {} has no help", command.get_name(), argument.get_id());
            }
            command.get_subcommands().for_each(visit);
        }
        let mut command = Cli::command();
        command.build();
        visit(&command);
    }
}
