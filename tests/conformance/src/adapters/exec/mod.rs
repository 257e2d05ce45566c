//! Adapters that are programs speaking JSON lines: any language can plug in.
//!
//! Each instance is a process. It reads one request per line from its standard input, and prints one answer per line,
//! in any order. Clients are spread over the instances by their numbers.

mod life;
mod lines;
mod listener;
mod protocol;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use super::hooks::{Commands, Hooks, free_ports};
use super::steps::Strace;
use super::writes::Writes;
use crate::answer::Answer;
use crate::manifest::Manifest;
use crate::subject::{BackedUp, Broken, Hook, Request, Restored, Steps, Subject};
use life::Life;

pub use protocol::{PROTO, RESULTS};

/// How an adapter is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many adapters serve one store; client n goes to instance n modulo this.
    pub instances: usize,
    /// How long a request may take before its outcome is unknown.
    pub timeout: Duration,
    /// How long an adapter may take to answer `init`.
    pub ready: Duration,
    /// Commands for the resource behind the adapter.
    pub hooks: Commands,
    /// Whether lines on the adapter's standard error are echoed. Error messages show the last lines in any case.
    pub echo: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            instances: 1,
            timeout: Duration::from_secs(5),
            ready: Duration::from_secs(30),
            hooks: Commands::default(),
            echo: false,
        }
    }
}

/// A resource behind adapter programs. Dropping it ends them and removes their directory.
pub struct ExecSubject {
    command: Vec<String>,
    options: Options,
    manifest: Manifest,
    /// Whether any adapter has ever answered a request.
    answered: Arc<AtomicBool>,
    writes: Writes,
    // Field order matters: adapters end before the server behind them, and before their directory is removed.
    adapters: Adapters,
    hooks: Hooks,
}

/// One adapter per instance, running or not.
#[derive(Default)]
struct Adapters(Mutex<Vec<Arc<Life>>>);

/// Starts the adapters of a command and reads their manifests.
pub fn open(command: &[String], options: Options) -> Result<ExecSubject, Broken> {
    if options.instances == 0 {
        return Err(Broken("--instances is 0: at least one adapter must run".to_owned()));
    }
    let port = free_ports(1)?;
    let hooks = Hooks::new(options.hooks.clone(), Path::new("."), port, Box::new(|| Ok(())))?;
    let mut subject = ExecSubject {
        command: command.to_vec(),
        options,
        manifest: Manifest::default(),
        answered: Arc::default(),
        writes: Writes::default(),
        adapters: Adapters::default(),
        hooks,
    };
    if subject.hooks.owns() {
        subject.hooks.run(Hook::Start)?;
    }
    subject.hooks.run(Hook::Ready)?;
    subject.start_ended()?;
    let mut said = subject.answers_to_init()?.into_iter();
    subject.manifest = said.next().unwrap_or_default();
    for (place, manifest) in said.enumerate() {
        subject.must_be_the_same(place + 1, &manifest)?;
    }
    Ok(subject)
}

impl ExecSubject {
    /// Starts every adapter that does not run; the others keep running.
    fn start_ended(&self) -> Result<(), Broken> {
        let mut adapters = self.adapters.all();
        for instance in 0..self.options.instances {
            let runs = adapters.get(instance).is_some_and(|life| !life.is_over());
            if runs {
                continue;
            }
            let life = Life::start(&self.command, &self.hooks, instance, self.options.echo, &self.answered)?;
            let life = Arc::new(life);
            match adapters.get_mut(instance) {
                Some(place) => *place = life,
                None => adapters.push(life),
            }
        }
        Ok(())
    }

    /// Waits until all have answered `init`. Returns the manifests of those that had not answered before.
    fn answers_to_init(&self) -> Result<Vec<Manifest>, Broken> {
        let adapters = self.adapters.all().clone();
        let answers = adapters.iter().map(|life| life.ready(self.options.ready));
        Ok(answers.collect::<Result<Vec<_>, Broken>>()?.into_iter().flatten().collect())
    }

    fn must_be_the_same(&self, instance: usize, said: &Manifest) -> Result<(), Broken> {
        if *said == self.manifest {
            return Ok(());
        }
        let show = |manifest: &Manifest| serde_json::to_string(manifest).unwrap_or_default();
        Err(Broken(format!(
            "the adapter (instance {instance}) answered init with\n  {}\nand the first one with\n  {}\nAll instances, and one \
             that is started again, serve the same resource: let them answer the same.",
            show(said),
            show(&self.manifest)
        )))
    }

    fn ready(&self) -> Result<(), Broken> {
        self.hooks.run(Hook::Ready)?;
        self.start_ended()?;
        let answers = self.answers_to_init()?;
        answers.iter().enumerate().try_for_each(|(instance, said)| self.must_be_the_same(instance, said))
    }

    /// Whether only the adapters, or programs the suite started itself, work in the directory.
    fn owns_data(&self) -> bool {
        let commands = &self.options.hooks;
        self.hooks.owns() || commands.kill.is_none() && commands.restart.is_none()
    }

    fn each(&self, act: impl Fn(&Life) -> Result<(), Broken>) -> Result<(), Broken> {
        let adapters = self.adapters.all().clone();
        adapters.iter().try_for_each(|life| act(life))
    }
}

impl Adapters {
    fn all(&self) -> MutexGuard<'_, Vec<Arc<Life>>> {
        self.0.lock()
    }
}

impl Drop for Adapters {
    fn drop(&mut self) {
        for life in self.all().drain(..) {
            // One that cannot be stopped is killed when it is dropped.
            let _ = if life.is_over() { life.kill() } else { life.stop() };
        }
    }
}

impl Subject for ExecSubject {
    fn describe(&self) -> String {
        let command = self.command.join(" ");
        let hurt = if self.hooks.has(Hook::Kill) { "the adapter and what lies behind it" } else { "the adapter" };
        match self.options.instances {
            1 => format!("the adapter `{command}`; a kill ends {hurt}"),
            several => format!("{several} adapters `{command}`; a kill ends {hurt}"),
        }
    }

    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn instances(&self) -> usize {
        self.options.instances
    }

    fn call(&self, request: &Request<'_>) -> Result<Answer, Broken> {
        let life = {
            let adapters = self.adapters.all();
            let place = request.client as usize % self.options.instances;
            adapters.get(place).cloned().ok_or_else(|| Broken("no adapter was started".to_owned()))?
        };
        let answer = life.call(request, self.options.timeout)?;
        let error = || match &answer {
            Answer::Error { code, .. } if !code.is_empty() => format!("`{code}`"),
            _ => "an error".to_owned(),
        };
        self.writes.heard(request.op, &answer, || crate::words::operation(request.op), error);
        Ok(answer)
    }

    fn never_answered(&self) -> Result<(), Broken> {
        self.each(Life::never_answered)
    }

    fn has(&self, hook: Hook) -> bool {
        match hook {
            Hook::Start | Hook::Ready | Hook::Kill | Hook::Restart | Hook::Pause | Hook::Resume => true,
            Hook::Backup | Hook::Restore => self.hooks.has(hook) || self.owns_data() && self.hooks.can_copy(),
            Hook::Powerloss | Hook::Reset | Hook::Clock(_) => self.hooks.has(hook),
        }
    }

    fn hook(&self, hook: Hook) -> Result<(), Broken> {
        let own = self.hooks.has(hook);
        // Correct the clock even if an adapter has ended because the clock was wrong.
        if !matches!(hook, Hook::Clock(_)) {
            self.each(Life::check)?;
        }
        match hook {
            Hook::Start if self.hooks.owns() => self.hooks.run(hook),
            Hook::Start => self.start_ended(),
            Hook::Ready => self.ready(),
            Hook::Kill => {
                self.each(|life| {
                    life.doom();
                    Ok(())
                })?;
                if own {
                    self.hooks.run(hook)?;
                }
                self.each(Life::kill)
            }
            Hook::Restart => {
                self.each(Life::stop)?;
                if own {
                    self.hooks.run(hook)?;
                }
                self.ready()
            }
            Hook::Pause if own => {
                self.each(|life| {
                    life.mark_paused();
                    Ok(())
                })?;
                self.hooks.run(hook)
            }
            Hook::Pause => self.each(Life::pause),
            Hook::Resume if own => {
                self.hooks.run(hook)?;
                self.each(|life| {
                    life.mark_resumed();
                    Ok(())
                })
            }
            Hook::Resume => self.each(Life::resume),
            Hook::Backup => self.back_up()?.must_be_there(),
            Hook::Restore => self.restore()?.must_serve(),
            Hook::Powerloss | Hook::Reset | Hook::Clock(_) => self.hooks.run(hook),
        }
    }

    fn warnings(&self) -> Vec<String> {
        self.writes.warnings("adapter").into_iter().collect()
    }

    /// The steps of the server that the suite has started, or else those of the adapters.
    fn steps(&self) -> Result<Box<dyn Steps>, String> {
        if !self.owns_data() {
            return Err("the suite has not started the server behind the adapter; with a `start` hook it can watch it"
                .to_owned());
        }
        let processes = match self.hooks.owns() {
            true => self.hooks.processes(),
            false => self.adapters.all().iter().flat_map(|life| life.processes()).collect(),
        };
        Ok(Box::new(Strace::watch(&processes)?))
    }

    fn back_up(&self) -> Result<BackedUp, Broken> {
        self.each(Life::check)?;
        self.hooks.back_up(&|| self.each(Life::stop), &|| self.ready())
    }

    fn restore(&self) -> Result<Restored, Broken> {
        self.each(Life::check)?;
        self.hooks.restore(&|| self.each(Life::stop), &|| self.ready())
    }
}
