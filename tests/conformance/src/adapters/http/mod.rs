//! HTTP APIs that a map file describes.

mod alias;
mod base;
mod begun;
mod build;
mod client;
mod file;
mod hint;
mod json;
mod map;
mod outcome;
mod place;
mod reply;
mod shape;
mod template;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use alias::Alias;
use base::Base;
use begun::HalfSent;
use client::{Connection, Endpoint};
use map::{Map, Mapped};
use reply::{Lost, Reply};
use shape::{Message, Shape};
use template::Unsendable;

use crate::answer::Answer;
use crate::manifest::Manifest;
use crate::op::Op;
use crate::proxy::Proxy;
use crate::subject::{Around, BackedUp, Begun, Broken, Hook, Part, Request, Restored, Route, Steps, Subject};
use crate::token::Token;
use crate::wait;

use super::hooks::{Commands, Hooks, free_ports};
use super::steps::Strace;
use super::writes::Writes;

/// How many connections through the proxy stay open after their answer.
const PARKED: usize = 32;

/// How long a service may take to answer a probe.
const PROBE: Duration = Duration::from_secs(5);

/// How long a service that the suite has not started may be too busy to answer a probe.
const BUSY: Duration = Duration::from_secs(30);

/// Settings that override the map.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// Other base addresses, one for each instance.
    pub base: Vec<String>,
    /// Another time limit for answers.
    pub timeout: Option<Duration>,
    /// Which commands of the map are run.
    pub hooks: HooksOfMap,
}

/// Which commands of a map are run. A map can run any program: its hooks are passed to a shell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HooksOfMap {
    /// Every command of the map.
    #[default]
    Run,
    /// No commands; cases that need one are skipped.
    Ignore,
}

/// Reads a map, starts the programs it names, and waits until the service answers.
pub fn open(path: &Path, overrides: &Overrides) -> Result<HttpSubject, Broken> {
    let mut map = Map::read(path)?;
    if !overrides.base.is_empty() {
        map.bases.clone_from(&overrides.base);
    }
    if let Some(timeout) = overrides.timeout {
        map.timeout = timeout;
    }
    if overrides.hooks == HooksOfMap::Ignore {
        map.commands = Commands::default();
    }
    HttpSubject::start(path, map)
}

/// An HTTP API under test.
pub struct HttpSubject {
    name: String,
    map: Map,
    instances: Vec<Instance>,
    /// The proxy in front of the first instance.
    proxy: Proxy,
    proxied: Endpoint,
    /// Connections on which a duplicate or delayed request may still be answered, so they are neither reused nor closed
    /// at once.
    parked: Mutex<VecDeque<Connection>>,
    writes: Writes,
    hooks: Hooks,
}

struct Instance {
    base: Base,
    endpoint: Arc<Endpoint>,
}

impl HttpSubject {
    fn start(path: &Path, map: Map) -> Result<HttpSubject, Broken> {
        let free = free_ports(map.bases.len())?;
        let mut instances = Vec::new();
        for (text, port) in map.bases.iter().zip(free) {
            if Base::wants_port(text) && map.commands.start.is_none() {
                return Err(Broken(format!(
                    "`base` is {text}, but nobody would listen there: `{{port}}` is a free port for what `start` in \
                     [hooks] starts; give `start`, or the port of the service that runs"
                )));
            }
            let base = Base::with_port(text, port)?;
            let endpoint = Arc::new(Endpoint::new(base.address()?));
            instances.push(Instance { base, endpoint });
        }
        let first = instances.first().ok_or_else(|| Broken("`base` is empty".to_owned()))?.endpoint.address();
        let here = path.parent().filter(|here| !here.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let ports = instances.iter().map(|instance| instance.base.port).collect();
        let served: Vec<_> =
            instances.iter().map(|instance| (instance.base.host.clone(), instance.endpoint.clone())).collect();
        let probe = Box::new(move || served.iter().try_for_each(|(host, endpoint)| serves(host, endpoint)));
        let hooks = Hooks::new(map.commands.clone(), here, ports, probe)?;
        if hooks.owns() {
            hooks.run(Hook::Start)?;
            hooks.run(Hook::Ready).map_err(|Broken(why)| match hooks.ended() {
                None if ignores_port(&map) => Broken(format!(
                    "{why}\n`base` has {{port}}, so the suite has chosen the port: does `start` use $CONFORM_PORT?"
                )),
                _ => Broken(why),
            })?;
        } else {
            instances.iter().try_for_each(|instance| {
                serves_already(&instance.base.host, &instance.endpoint).map_err(|why| {
                    Broken(format!("{why}: start the service first, or give `start` in [hooks] of {}", path.display()))
                })
            })?;
        }
        let proxy = Proxy::start(first);
        let proxied = Endpoint::new(proxy.address());
        let name = path.display().to_string();
        Ok(HttpSubject {
            name,
            map,
            instances,
            proxy,
            proxied,
            parked: Mutex::default(),
            writes: Writes::default(),
            hooks,
        })
    }

    /// The directory that the suite gave to the service.
    pub fn dir(&self) -> &Path {
        self.hooks.dir()
    }

    fn mapped(&self, op: &Op) -> Option<(&Shape, &Mapped)> {
        let mapped = self.map.verbs.get(&op.verb())?;
        let shape = match op {
            Op::Cas { expect: None, .. } => mapped.when_none.as_ref().unwrap_or(&mapped.shape),
            _ => &mapped.shape,
        };
        Some((shape, mapped))
    }

    fn instance(&self, request: &Request<'_>) -> Option<&Instance> {
        match request.route {
            Route::Direct => self.instances.get(request.client as usize % self.instances.len().max(1)),
            Route::Proxied => self.instances.first(),
        }
    }

    fn exchange(&self, instance: &Instance, request: &Request<'_>, message: &Message) -> Result<Reply, Lost> {
        let mut bytes = message.head(&instance.base.host, request);
        bytes.extend_from_slice(&message.body);
        let deadline = Instant::now() + self.map.timeout;
        match request.route {
            Route::Direct => instance.endpoint.exchange(&bytes, message.is_head(), deadline),
            Route::Proxied => {
                let connection = self.proxied.connect(deadline)?;
                let reply =
                    connection.send(&bytes, deadline).and_then(|_| connection.receive(message.is_head(), deadline));
                let mut parked = self.parked.lock();
                parked.push_back(connection);
                if parked.len() > PARKED {
                    parked.pop_front();
                }
                reply
            }
        }
    }

    /// The answer to record for a request that got no answer.
    fn lost(&self, Lost(why): Lost) -> Answer {
        match self.hooks.ended() {
            Some(ended) => Answer::unknown(format!("{why}; {ended}")),
            None => Answer::unknown(why),
        }
    }

    fn forget_connections(&self) {
        self.instances.iter().for_each(|instance| instance.endpoint.forget());
        self.parked.lock().clear();
    }

    fn mutate(&self, mutation: &map::Mutation, instance: &Instance, request: &Request<'_>) -> Answer {
        let prefix = &instance.base.prefix;
        if let Some(before) = &mutation.before {
            match before.message(request, prefix).map(|message| self.exchange(instance, request, &message)) {
                Ok(Ok(_)) => {}
                Ok(Err(lost)) => return self.lost(lost),
                Err(_) => return Answer::Unsupported,
            }
        }
        match mutation.shape.message(request, prefix) {
            // A read has no value and a batch no resource, so this way does not apply to them.
            Err(_) => Answer::Unsupported,
            Ok(message) => {
                let reply = self.exchange(instance, request, &message);
                // The mutation may take effect later, as an expiry does.
                wait::pause(mutation.wait);
                match reply {
                    Ok(reply) => answered(mutation.outcomes.answer(&reply)),
                    Err(lost) => self.lost(lost),
                }
            }
        }
    }
}

/// For a request by another way any answer counts, even one that the map does not describe: a later look shows whether
/// it changed something. Unknown is kept for requests that got no answer.
fn answered(answer: Answer) -> Answer {
    match answer {
        Answer::Unknown { why } => Answer::Error { definite: false, code: why },
        answer => answer,
    }
}

impl Subject for HttpSubject {
    fn describe(&self) -> String {
        let bases: Vec<_> = self.instances.iter().map(|instance| instance.base.to_string()).collect();
        format!("HTTP at {}, as {} says", bases.join(", "), self.name)
    }

    fn manifest(&self) -> &Manifest {
        &self.map.manifest
    }

    fn instances(&self) -> usize {
        self.instances.len()
    }

    fn call(&self, request: &Request<'_>) -> Result<Answer, Broken> {
        let (Some((shape, mapped)), Some(instance)) = (self.mapped(request.op), self.instance(request)) else {
            return Ok(Answer::Unsupported);
        };
        let message = match shape.message(request, &instance.base.prefix) {
            Ok(message) => message,
            // Nothing was sent, so nothing is proven.
            Err(Unsendable(_)) if request.op.tokens().iter().any(|token| matches!(token, Token::Both(..))) => {
                return Ok(Answer::Unsupported);
            }
            Err(Unsendable(why)) => return Ok(Answer::error(&why)),
        };
        Ok(match self.exchange(instance, request, &message) {
            Ok(reply) => {
                let answer = mapped.outcomes.answer(&reply);
                let sent = || format!("{} {}", message.method, message.target);
                self.writes.heard(request.op, &answer, sent, || format!("status {}", reply.status));
                answer
            }
            Err(lost) => self.lost(lost),
        })
    }

    fn has(&self, hook: Hook) -> bool {
        self.hooks.has(hook)
    }

    fn hook(&self, hook: Hook) -> Result<(), Broken> {
        let done = self.hooks.run(hook);
        if matches!(hook, Hook::Kill | Hook::Restart | Hook::Powerloss | Hook::Backup | Hook::Restore) {
            self.forget_connections();
        }
        done
    }

    fn steps(&self) -> Result<Box<dyn Steps>, String> {
        match self.hooks.owns() {
            true => Ok(Box::new(Strace::watch(&self.hooks.processes())?)),
            false => Err("the suite has not started its process; with a `start` hook it can watch it".to_owned()),
        }
    }

    fn back_up(&self) -> Result<BackedUp, Broken> {
        let taken = self.hooks.back_up(&|| Ok(()), &|| Ok(()));
        self.forget_connections();
        taken
    }

    fn restore(&self) -> Result<Restored, Broken> {
        let restored = self.hooks.restore(&|| Ok(()), &|| Ok(()));
        self.forget_connections();
        restored
    }

    fn begin(&self, request: &Request<'_>, part: Part) -> Option<Result<Box<dyn Begun>, Broken>> {
        let (shape, mapped) = self.mapped(request.op)?;
        let instance = self.instance(request)?;
        let message = match shape.message(request, &instance.base.prefix) {
            Ok(message) => message,
            Err(Unsendable(why)) => return Some(Err(Broken(why))),
        };
        let endpoint = match request.route {
            Route::Direct => &*instance.endpoint,
            Route::Proxied => &self.proxied,
        };
        let head = message.head(&instance.base.host, request);
        let timeout = self.map.timeout;
        let begun = HalfSent::begin(endpoint, &head, &message, part, mapped.outcomes.clone(), timeout);
        Some(Ok(Box::new(begun)))
    }

    fn bypasses(&self) -> Vec<Around> {
        let aliases = Alias::ALL.iter().map(|alias| Around::Spelling(alias.describe()));
        aliases.chain(self.map.mutations.iter().map(|mutation| Around::Request(mutation.name.clone()))).collect()
    }

    fn bypass(&self, way: usize, request: &Request<'_>) -> Result<Answer, Broken> {
        let Some(instance) = self.instance(request) else { return Ok(Answer::Unsupported) };
        let Some(alias) = Alias::ALL.get(way) else {
            let mutation = self.map.mutations.get(way - Alias::ALL.len());
            let mutation = mutation.ok_or_else(|| Broken(format!("there is no way number {way} around the fence")))?;
            return Ok(self.mutate(mutation, instance, request));
        };
        let Some((shape, mapped)) = self.mapped(request.op) else { return Ok(Answer::Unsupported) };
        let message = match shape.message(request, &instance.base.prefix) {
            Ok(message) => alias.apply(&message, &instance.base.host),
            Err(Unsendable(why)) => return Ok(Answer::error(&why)),
        };
        let Some(message) = message else { return Ok(Answer::Unsupported) };
        Ok(match self.exchange(instance, request, &message) {
            Ok(reply) => answered(mapped.outcomes.answer(&reply)),
            Err(lost) => self.lost(lost),
        })
    }

    fn warnings(&self) -> Vec<String> {
        let verbs = self.map.verbs.iter().map(|(verb, mapped)| (format!("[{}]", verb.name()), &mapped.outcomes));
        let mutations =
            self.map.mutations.iter().map(|mutation| (format!("the mutation {}", mutation.name), &mutation.outcomes));
        let places = verbs.chain(mutations).flat_map(|(table, outcomes)| outcomes.never_there(&table));
        self.writes.warnings("map").into_iter().chain(places).collect()
    }

    fn proxy(&self) -> Option<&Proxy> {
        Some(&self.proxy)
    }
}

/// Whether the suite chooses the port but `start` does not contain it. The command may still read it from the
/// environment.
fn ignores_port(map: &Map) -> bool {
    let says = |start: &String| start.contains("CONFORM_PORT");
    map.bases.iter().any(|base| Base::wants_port(base)) && !map.commands.start.as_ref().is_some_and(says)
}

/// Checks whether a service answers in HTTP at this address.
fn serves(host: &str, endpoint: &Endpoint) -> Result<(), String> {
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nX-Conformance: ready\r\nConnection: close\r\n\r\n");
    let deadline = Instant::now() + PROBE;
    let connection = endpoint.connect(deadline);
    let reply = connection.and_then(|connection| {
        connection.send(request.as_bytes(), deadline)?;
        connection.receive(false, deadline)
    });
    reply.map(drop).map_err(|Lost(why)| format!("http://{host} does not answer ({why})"))
}

/// The same for a service that the suite has not started. One that is too busy to answer is asked again. A refused
/// connection means that it is not running, which ends the wait.
fn serves_already(host: &str, endpoint: &Endpoint) -> Result<(), String> {
    let began = Instant::now();
    loop {
        let asked = Instant::now();
        let found = serves(host, endpoint);
        if found.is_ok() || asked.elapsed() < PROBE || began.elapsed() >= BUSY {
            return found;
        }
    }
}
