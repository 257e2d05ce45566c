//! The reference as a service: tokens are text, and several processes may serve one store.

use super::ways::Way;
use super::{Bug, Reference, Setup};
use crate::answer::Answer;
use crate::manifest::Manifest;
use crate::op::Op;
use crate::resource::FencedResource;
use crate::subject::{Around, Broken, Hook, Request, Steps, Subject};

/// A [`Reference`] that accepts anything a client may send.
pub struct Service {
    reference: Reference,
    instances: usize,
    manifest: Manifest,
}

impl Service {
    /// A service with this setup and bug; its pauses are drawn from the seed.
    pub fn new(setup: Setup, bug: Option<Bug>, seed: u64) -> Service {
        let reference = Reference::set_up(setup, bug, seed);
        let manifest = FencedResource::manifest(&reference);
        Service { reference, instances: setup.instances, manifest }
    }

    pub(super) fn has_bug(&self, bug: Bug) -> bool {
        self.reference.has(bug)
    }

    /// The reference behind it.
    pub fn reference(&self) -> &Reference {
        &self.reference
    }
}

impl Subject for Service {
    fn describe(&self) -> String {
        match self.reference.bug {
            None => "the reference".to_owned(),
            Some(bug) => format!("the reference with the bug {}", bug.mutant().name),
        }
    }

    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn instances(&self) -> usize {
        self.instances
    }

    fn call(&self, request: &Request<'_>) -> Result<Answer, Broken> {
        Ok(self.reference.serve(request.client as usize % self.instances, request.op))
    }

    fn bypasses(&self) -> Vec<Around> {
        Way::ALL.iter().map(|(way, name)| way.around(name)).collect()
    }

    fn bypass(&self, way: usize, request: &Request<'_>) -> Result<Answer, Broken> {
        match (Way::ALL.get(way), request.op) {
            (Some((way, _)), Op::Write(write)) => {
                let instance = request.client as usize % self.instances;
                Ok(self.reference.visit(instance, None, |visit| self.reference.write_by(visit, *way, write)))
            }
            _ => Ok(Answer::Unsupported),
        }
    }

    fn has(&self, hook: Hook) -> bool {
        self.reference.has_hook(hook)
    }

    fn hook(&self, hook: Hook) -> Result<(), Broken> {
        FencedResource::hook(&self.reference, hook).map_err(Broken)
    }

    fn steps(&self) -> Result<Box<dyn Steps>, String> {
        Ok(Box::new(self.reference.store.watch()))
    }
}
