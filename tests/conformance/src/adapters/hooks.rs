//! Hooks: shell commands that start the resource under test, disturb it and reset it.
//!
//! With `start` the suite owns the program: it can kill, restart and stop it without further commands. Without it the
//! resource runs already, and only the given commands can disturb it.

mod backup;
mod command;
mod copy;
mod limit;
mod ports;

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use rustix::process::Signal;
use serde::Deserialize;
use tempfile::TempDir;

use super::process::{self, Program};
use crate::subject::{Broken, Hook};
use crate::wait;

pub use limit::Limit;
pub use ports::free_ports;

/// How long a hook may take, unless the file sets another limit.
const LIMIT: Duration = Duration::from_secs(30);

/// How long a program may take to end after SIGTERM before it is killed.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often the suite checks whether the resource serves.
const LOOK: Duration = Duration::from_millis(10);

/// How much of a program's output an error shows.
const TAIL: u64 = 2000;

/// The commands of a `[hooks]` table. Each is given to `sh -c`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Commands {
    /// A program that serves in the foreground, started once for each instance. The suite owns it.
    pub start: Option<String>,
    /// Ends with 0 as soon as the resource serves; tried again until then.
    pub ready: Option<String>,
    /// Ends the resource abruptly, as a crash does.
    pub kill: Option<String>,
    /// Stops the resource if it runs, and starts it again with its data.
    pub restart: Option<String>,
    /// Pauses the processes of the resource, as a long stall does.
    pub pause: Option<String>,
    /// Resumes the paused processes.
    pub resume: Option<String>,
    /// Drops everything that was not synced.
    pub powerloss: Option<String>,
    /// Deletes all data; runs before every case.
    pub reset: Option<String>,
    /// Takes a backup.
    pub backup: Option<String>,
    /// Restores the last backup.
    pub restore: Option<String>,
    /// Sets the clock of the resource off by `CONFORM_CLOCK` seconds.
    pub clock: Option<String>,
    /// How long each command may take.
    pub limit: Option<Limit>,
}

impl Commands {
    /// The command of a hook, if there is one.
    pub fn get(&self, hook: Hook) -> Option<&str> {
        let command = match hook {
            Hook::Start => &self.start,
            Hook::Ready => &self.ready,
            Hook::Kill => &self.kill,
            Hook::Restart => &self.restart,
            Hook::Pause => &self.pause,
            Hook::Resume => &self.resume,
            Hook::Powerloss => &self.powerloss,
            Hook::Reset => &self.reset,
            Hook::Backup => &self.backup,
            Hook::Restore => &self.restore,
            Hook::Clock(_) => &self.clock,
        };
        command.as_deref()
    }

    /// Sets the command of a hook.
    pub fn set(&mut self, hook: Hook, command: &str) {
        let place = match hook {
            Hook::Start => &mut self.start,
            Hook::Ready => &mut self.ready,
            Hook::Kill => &mut self.kill,
            Hook::Restart => &mut self.restart,
            Hook::Pause => &mut self.pause,
            Hook::Resume => &mut self.resume,
            Hook::Powerloss => &mut self.powerloss,
            Hook::Reset => &mut self.reset,
            Hook::Backup => &mut self.backup,
            Hook::Restore => &mut self.restore,
            Hook::Clock(_) => &mut self.clock,
        };
        *place = Some(command.to_owned());
    }

    /// Rejects combinations of commands that make no sense.
    pub fn check(&self) -> Result<(), String> {
        if let Some(empty) =
            Hook::ALL.into_iter().find(|hook| self.get(*hook).is_some_and(|text| text.trim().is_empty()))
        {
            return Err(format!("the hook `{}` is empty: write a shell command, or leave it out", empty.name()));
        }
        if self.start.is_some() && self.restart.is_some() {
            return Err("`restart` cannot be given together with `start`: the suite restarts what it has started \
                        (SIGTERM, then `start` again)"
                .to_owned());
        }
        if self.pause.is_some() != self.resume.is_some() {
            return Err("`pause` and `resume` belong together: give both, or none".to_owned());
        }
        if self.backup.is_some() != self.restore.is_some() {
            return Err("`backup` and `restore` belong together: give both, or none".to_owned());
        }
        Ok(())
    }
}

/// Checks whether the resource serves; `Err` gives the reason why not.
pub type Probe = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The hooks of one resource, with its programs and its directory. Dropping it ends the programs and removes the
/// directory.
pub struct Hooks {
    commands: Commands,
    limit: Duration,
    /// The directory that commands run in.
    here: PathBuf,
    /// One port for each instance.
    ports: Vec<u16>,
    probe: Probe,
    // Field order matters: programs end before their directory is removed.
    programs: Mutex<Vec<Running>>,
    data: TempDir,
    /// The last backup that was made by copying.
    kept: Mutex<Option<TempDir>>,
    output: TempDir,
}

struct Running {
    instance: usize,
    program: Program,
}

impl Hooks {
    /// Hooks for a resource with one instance per port. Nothing is started yet. Commands run in `here`.
    pub fn new(commands: Commands, here: &Path, ports: Vec<u16>, probe: Probe) -> Result<Hooks, Broken> {
        commands.check().map_err(Broken)?;
        let limit = commands.limit.map_or(LIMIT, |limit| limit.0);
        let here = here.to_owned();
        Ok(Hooks {
            commands,
            limit,
            here,
            ports,
            probe,
            programs: Mutex::default(),
            data: process::directory()?,
            kept: Mutex::default(),
            output: process::directory()?,
        })
    }

    /// The directory for the resource's data.
    pub fn dir(&self) -> &Path {
        self.data.path()
    }

    /// Whether the suite owns the program.
    pub fn owns(&self) -> bool {
        self.commands.start.is_some()
    }

    /// Whether this hook can be run, by a command or by the suite itself.
    pub fn has(&self, hook: Hook) -> bool {
        match hook {
            Hook::Ready => true,
            Hook::Start | Hook::Kill | Hook::Restart | Hook::Pause | Hook::Resume if self.owns() => true,
            Hook::Backup | Hook::Restore if self.owns() => self.commands.get(hook).is_some() || self.can_copy(),
            _ => self.commands.get(hook).is_some(),
        }
    }

    /// Runs a hook.
    pub fn run(&self, hook: Hook) -> Result<(), Broken> {
        match hook {
            Hook::Start => self.start(),
            Hook::Ready => self.ready(),
            Hook::Kill => {
                self.given(hook)?;
                self.running().drain(..).try_for_each(|mut running| running.program.kill())
            }
            Hook::Restart if self.owns() => {
                self.stop()?;
                self.start()?;
                self.ready()
            }
            Hook::Pause if !self.given(hook)? => self.running().iter().try_for_each(|running| running.program.pause()),
            Hook::Resume if !self.given(hook)? => self.signal(Signal::CONT),
            Hook::Pause | Hook::Resume => Ok(()),
            Hook::Restart | Hook::Reset => {
                self.given(hook)?;
                self.ready()
            }
            Hook::Backup => self.back_up(&|| Ok(()), &|| Ok(()))?.must_be_there(),
            Hook::Restore => self.restore(&|| Ok(()), &|| Ok(()))?.must_serve(),
            Hook::Powerloss | Hook::Clock(_) => self.given(hook).map(drop),
        }
    }

    /// The ids of all processes that `start` has started.
    pub fn processes(&self) -> Vec<i32> {
        self.running().iter().flat_map(|running| running.program.processes()).collect()
    }

    /// A message if a program has ended that the suite did not end.
    pub fn ended(&self) -> Option<String> {
        self.running().iter_mut().find_map(|running| {
            let status = running.program.ended()?;
            let stay = match status.success() {
                true => {
                    "; `start` must stay in the foreground: no `&` at its end, and no option to run in the background"
                }
                false => "",
            };
            Some(format!("the program of `start` has ended ({status}){stay}{}", self.said(running.instance)))
        })
    }

    fn running(&self) -> MutexGuard<'_, Vec<Running>> {
        self.programs.lock()
    }

    /// Runs the command of a hook, if there is one. Returns whether there was.
    fn given(&self, hook: Hook) -> Result<bool, Broken> {
        let Some(command) = self.commands.get(hook) else { return Ok(false) };
        let mut shell = self.shell(command, 0);
        if let Hook::Clock(shift) = hook {
            shell.env("CONFORM_CLOCK", shift.to_string());
        }
        self.run_command(hook, shell)?;
        Ok(true)
    }

    fn run_command(&self, hook: Hook, shell: Command) -> Result<(), Broken> {
        let name = hook.name();
        command::run(&format!("the hook `{name}`"), shell, self.limit, &self.output.path().join(format!("hook-{name}")))
    }

    /// Shuts the programs down with SIGTERM.
    fn stop(&self) -> Result<(), Broken> {
        self.running().drain(..).try_for_each(|mut running| running.program.stop(PATIENCE))
    }

    fn signal(&self, signal: Signal) -> Result<(), Broken> {
        self.running().iter().try_for_each(|running| running.program.signal(signal))
    }

    fn start(&self) -> Result<(), Broken> {
        let Some(start) = &self.commands.start else { return Ok(()) };
        let mut running = self.running();
        for instance in 0..self.ports.len() {
            if running.iter().any(|running| running.instance == instance) {
                continue;
            }
            let mut command = self.shell(start, instance);
            let path = self.output_of(instance);
            let output = File::create(&path)
                .and_then(|output| Ok((output.try_clone()?, output)))
                .map_err(|error| Broken(format!("{} cannot be written: {error}", path.display())))?;
            command.stdout(output.0).stderr(output.1);
            running.push(Running { instance, program: command::started(command)? });
        }
        Ok(())
    }

    fn ready(&self) -> Result<(), Broken> {
        let deadline = Instant::now() + self.limit;
        loop {
            let found = match self.commands.get(Hook::Ready) {
                // Each attempt gets the whole time limit: one that is cut short could not report what is missing.
                Some(command) => self
                    .run_command(Hook::Ready, self.shell(command, 0))
                    .map_err(|broken| broken.0)
                    .and_then(|()| (self.probe)()),
                None => (self.probe)(),
            };
            // Checked even if the probe succeeded: if the program has ended, another process answered.
            if let Some(ended) = self.ended() {
                return Err(Broken(format!("the resource does not serve: {ended}")));
            }
            let Err(missing) = found else { return Ok(()) };
            if Instant::now() >= deadline {
                let said = self.running().iter().map(|running| self.said(running.instance)).collect::<String>();
                return Err(Broken(format!(
                    "the resource does not serve after {:?} (`limit` in [hooks]): {missing}{said}",
                    self.limit
                )));
            }
            wait::pause(LOOK);
        }
    }

    fn output_of(&self, instance: usize) -> PathBuf {
        self.output.path().join(format!("start-{instance}"))
    }

    /// The end of a program's output, for errors.
    fn said(&self, instance: usize) -> String {
        match tail(&self.output_of(instance)) {
            said if said.is_empty() => "; it printed nothing".to_owned(),
            said => format!("; it printed:\n{said}"),
        }
    }

    /// The environment variables that give every command an instance's data directory and port.
    pub fn environment(&self, instance: usize) -> [(&'static str, OsString); 2] {
        let port = self.ports.get(instance).or(self.ports.first()).copied().unwrap_or_default();
        [("CONFORM_DIR", self.data.path().into()), ("CONFORM_PORT", port.to_string().into())]
    }

    fn shell(&self, text: &str, instance: usize) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", text]).current_dir(&self.here).stdin(Stdio::null());
        command.envs(self.environment(instance));
        command.env("CONFORM_INSTANCE", instance.to_string());
        command.env("CONFORM_INSTANCES", self.ports.len().to_string());
        command
    }
}

/// The last part of a file, as text.
fn tail(path: &Path) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
        let mut bytes = Vec::new();
        file.take(TAIL).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    // Reading failed while reporting another error; that one matters more.
    String::from_utf8_lossy(&read().unwrap_or_default()).trim().to_owned()
}
