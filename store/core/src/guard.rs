//! Guards: which resource protects a key, and under which policy.

use std::collections::BTreeSet;
use std::fmt;

use sha2::{Digest, Sha256};

use crate::guard_check;
use crate::{EngineName, Key, NameError, Policy, Resource, UNNAMED_ENGINE};

/// A guard as written in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardSpec {
    /// Pattern for keys: `*` matches one whole segment, `**` zero or more at the end.
    pub keys: String,
    /// Pattern for the resource: the n-th `*` takes what the n-th `*` of `keys` matched, `**` the rest. If absent, each
    /// key is its own resource.
    pub resource: Option<String>,
    /// The policy for matching keys.
    pub policy: Policy,
    /// The engine that keeps matching keys and their resources. If absent, the one without a name.
    pub engine: Option<EngineName>,
}

/// Why a list of guards cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GuardError {
    /// A pattern is malformed.
    #[error("guard {guard}: pattern `{pattern}`: {why}")]
    Pattern {
        /// Number of the guard, counted from 1.
        guard: usize,
        /// The malformed pattern.
        pattern: String,
        /// What is wrong with it.
        why: String,
    },
    /// The guard never matches, because earlier guards match all its keys.
    #[error(
        "guard {guard} (`{keys}`) is unreachable: guards before it match every key it could match; move it up or remove it"
    )]
    Unreachable {
        /// Number of the guard, counted from 1.
        guard: usize,
        /// The guard's pattern for keys.
        keys: String,
    },
    /// A resource's own name maps to another resource.
    #[error(
        "guard {guard} maps key `{key}` to resource `{resource}`, but that name itself belongs to resource `{other}`; it could not be claimed"
    )]
    Unstable {
        /// Number of the guard, counted from 1.
        guard: usize,
        /// An example key; `x1`, `x2` stand for any segment.
        key: String,
        /// The resource that the key maps to.
        resource: String,
        /// The resource that this name maps to in turn.
        other: String,
    },
    /// Two guards map to one resource under different policies.
    #[error(
        "guards {first} and {second} both lead to resource `{resource}` but have different rules; give them the same ones"
    )]
    TwoPolicies {
        /// Number of the first guard, counted from 1.
        first: usize,
        /// Number of the second guard, counted from 1.
        second: usize,
        /// An example resource; `x1`, `x2` stand for any segment.
        resource: String,
    },
    /// Two guards map to one resource on different engines.
    #[error(
        "guards {first} and {second} both lead to resource `{resource}` but name different engines; a resource has one \
         fence, on one engine"
    )]
    TwoEngines {
        /// Number of the first guard, counted from 1.
        first: usize,
        /// Number of the second guard, counted from 1.
        second: usize,
        /// An example resource; `x1`, `x2` stand for any segment.
        resource: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    Literal(String),
    One,
}

impl Segment {
    pub(crate) fn literal(&self) -> Option<&str> {
        match self {
            Segment::Literal(literal) => Some(literal),
            Segment::One => None,
        }
    }
}

/// A parsed pattern: its segments, and whether a `**` follows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    pub(crate) segments: Vec<Segment>,
    pub(crate) rest: bool,
}

impl Pattern {
    fn parse(text: &str) -> Result<Pattern, String> {
        let mut segments = Vec::new();
        let mut rest = false;
        for part in text.split('/') {
            match part {
                _ if rest => return Err("`**` is allowed only as the last segment".into()),
                "**" => rest = true,
                "*" => segments.push(Segment::One),
                part if part.contains('*') => {
                    return Err(format!("`{part}` mixes `*` with text; `*` stands for one whole segment"));
                }
                part => segments.push(Segment::Literal(part.to_owned())),
            }
        }
        // The rules for names apply: `*` and `**` are valid segments of a name.
        Key::new(text).map_err(|error: NameError| error.to_string())?;
        Ok(Pattern { segments, rest })
    }

    fn stars(&self) -> usize {
        self.segments.iter().filter(|segment| **segment == Segment::One).count()
    }

    /// What each `*` matched, and what `**` matched.
    fn capture<'n>(&self, name: &'n str) -> Option<(Vec<&'n str>, Option<&'n str>)> {
        let mut stars = Vec::new();
        let mut remaining = Some(name);
        for segment in &self.segments {
            let text = remaining?;
            let (head, tail) = match text.split_once('/') {
                Some((head, tail)) => (head, Some(tail)),
                None => (text, None),
            };
            match segment {
                Segment::Literal(literal) if literal != head => return None,
                Segment::Literal(_) => {}
                Segment::One => stars.push(head),
            }
            remaining = tail;
        }
        match remaining {
            Some(_) if !self.rest => None,
            tail => Some((stars, tail)),
        }
    }

    fn matches(&self, name: &str) -> bool {
        self.capture(name).is_some()
    }

    fn fill(&self, stars: &[&str], rest: Option<&str>) -> String {
        let mut stars = stars.iter();
        let mut parts: Vec<&str> = Vec::new();
        for segment in &self.segments {
            match segment {
                Segment::Literal(literal) => parts.push(literal),
                Segment::One => parts.extend(stars.next()),
            }
        }
        if self.rest {
            parts.extend(rest);
        }
        parts.join("/")
    }
}

/// One checked guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    spec: GuardSpec,
    pub(crate) keys: Pattern,
    pub(crate) resource: Pattern,
}

impl Guard {
    /// The guard as it was written.
    pub fn spec(&self) -> &GuardSpec {
        &self.spec
    }

    fn parse(number: usize, spec: GuardSpec) -> Result<Guard, GuardError> {
        let wrong =
            |pattern: &str, why: String| GuardError::Pattern { guard: number, pattern: pattern.to_owned(), why };
        let keys = Pattern::parse(&spec.keys).map_err(|why| wrong(&spec.keys, why))?;
        let text = spec.resource.as_deref().unwrap_or(&spec.keys);
        let resource = Pattern::parse(text).map_err(|why| wrong(text, why))?;
        if resource.stars() > keys.stars() {
            return Err(wrong(text, format!("it has more `*` than `{}`", spec.keys)));
        }
        if resource.rest && !keys.rest {
            return Err(wrong(text, format!("it has a `**`, but `{}` has none", spec.keys)));
        }
        if resource.rest && resource.segments.is_empty() && !keys.segments.is_empty() {
            return Err(wrong(text, "a bare `**` could be empty; keep a segment before it".into()));
        }
        Ok(Guard { spec, keys, resource })
    }

    /// The resource that this guard maps a name to. The guard's own resource names map to themselves.
    pub(crate) fn map(&self, name: &str) -> Option<String> {
        if self.resource.matches(name) {
            return Some(name.to_owned());
        }
        let (stars, rest) = self.keys.capture(name)?;
        Some(self.resource.fill(&stars, rest))
    }
}

/// A key's resource and its policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guarded {
    /// The resource that protects the key.
    pub resource: Resource,
    /// The policy of that resource.
    pub policy: Policy,
}

/// All guards, in order: the first match wins, and a key that none matches is its own resource.
///
/// They are those of one engine, which refuses names that a guard keeps on another one. [`Guards::of_engine`] gives the
/// same guards to another engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guards {
    guards: Vec<Guard>,
    default: Policy,
    /// The engine whose guards they are.
    engine: Option<EngineName>,
}

impl Guards {
    /// Parses and checks a list of guards.
    pub fn new(specs: Vec<GuardSpec>) -> Result<Guards, GuardError> {
        let guards: Result<Vec<_>, _> =
            specs.into_iter().enumerate().map(|(at, spec)| Guard::parse(at + 1, spec)).collect();
        let guards = Guards { guards: guards?, default: Policy::default(), engine: None };
        guard_check::check(&guards)?;
        Ok(guards)
    }

    /// The guards, in order.
    pub fn list(&self) -> &[Guard] {
        &self.guards
    }

    /// The same guards, as those of this engine.
    pub fn of_engine(&self, engine: Option<&EngineName>) -> Guards {
        Guards { engine: engine.cloned(), ..self.clone() }
    }

    /// The engine whose guards they are; `None` for the one without a name.
    pub fn engine(&self) -> Option<&EngineName> {
        self.engine.as_ref()
    }

    /// The engines that guards name, each once.
    pub fn engines(&self) -> BTreeSet<&EngineName> {
        self.guards.iter().filter_map(|guard| guard.spec.engine.as_ref()).collect()
    }

    /// The engine that keeps a key or a resource of this name.
    pub fn engine_of(&self, name: &str) -> Option<&EngineName> {
        let (at, _) = self.first_match(name)?;
        self.guards[at].spec.engine.as_ref()
    }

    /// A guard that may keep names under this first segment on a named engine, with its number, counted from 1.
    pub fn named_engine_under(&self, segment: &str) -> Option<(usize, &Guard)> {
        let may_begin = |pattern: &Pattern| match pattern.segments.first() {
            Some(Segment::Literal(literal)) => literal == segment,
            Some(Segment::One) | None => true,
        };
        let reaches = |guard: &&Guard| may_begin(&guard.keys) || may_begin(&guard.resource);
        let named = |guard: &&Guard| guard.spec.engine.is_some();
        let found = self.guards.iter().enumerate().find(|(_, guard)| named(guard) && reaches(guard));
        found.map(|(at, guard)| (at + 1, guard))
    }

    /// Index and resource of the first guard that matches.
    pub(crate) fn first_match(&self, name: &str) -> Option<(usize, String)> {
        self.guards.iter().enumerate().find_map(|(at, guard)| guard.map(name).map(|resource| (at, resource)))
    }

    /// The resource and policy of a key. Fails only if the guard's resource name would exceed the length limit, or if
    /// another engine keeps the key: a store never judges by a fence that is not there.
    pub fn of_key(&self, key: &Key) -> Result<Guarded, NameError> {
        let found = self.first_match(key.as_str());
        let engine = found.as_ref().and_then(|(at, _)| self.guards[*at].spec.engine.as_ref());
        if engine != self.engine.as_ref() {
            return Err(engine.map_or(NameError::OnUnnamedEngine, |engine| NameError::OnEngine(engine.clone())));
        }
        Ok(match found {
            None => Guarded { resource: key.as_resource(), policy: self.default },
            Some((at, resource)) => Guarded {
                resource: if resource == key.as_str() { key.as_resource() } else { Resource::new(&resource)? },
                policy: self.guards[at].spec.policy,
            },
        })
    }

    /// The policy of a resource. `Ok(Err(_))` contains the resource that this name belongs to.
    pub fn of_resource(&self, name: &Resource) -> Result<Result<Guarded, Resource>, NameError> {
        let guarded = self.of_key(&name.as_key())?;
        Ok(if guarded.resource == *name { Ok(guarded) } else { Err(guarded.resource) })
    }

    /// The mapping in its stored form. Policies are not part of it. If guards name engines, the engine of each guard and
    /// the engine of this store are: a resource that moves to another engine would forget its fence, and so would all
    /// resources of two engines that change places.
    pub fn mapping(&self) -> Mapping {
        let (mut text, mut hash) = (String::new(), Sha256::new());
        let has_engines = !self.engines().is_empty();
        hash.update(if has_engines { MAPPING_HASH_WITH_ENGINES } else { MAPPING_HASH });
        let mut part = |part: &str| {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        };
        if has_engines {
            let engine = self.engine.as_ref().map_or(UNNAMED_ENGINE, EngineName::as_str);
            part(engine);
            text.push_str(&format!("[engine {engine}]\n"));
        }
        for GuardSpec { keys, resource, engine, .. } in self.guards.iter().map(|guard| &guard.spec) {
            let resource = resource.as_deref().unwrap_or(keys);
            part(keys);
            part(resource);
            text.push_str(&format!("{keys}{ARROW}{resource}"));
            if has_engines {
                let engine = engine.as_ref().map_or(UNNAMED_ENGINE, EngineName::as_str);
                part(engine);
                text.push_str(&format!("{ON_ENGINE}{engine}"));
            }
            text.push('\n');
        }
        Mapping { hash: hash.finalize().into(), text }
    }
}

/// Prefix of the hashed data of a mapping. No mapping text begins like this, so a hash of the old form never equals one
/// of the new.
const MAPPING_HASH: &[u8] = b"\0fencepost mapping 2\0";

/// The same, of a mapping with engines.
const MAPPING_HASH_WITH_ENGINES: &[u8] = b"\0fencepost mapping 3\0";

/// Precedes the engine of a guard in the text of a mapping. Patterns may contain it; names of engines may not.
const ON_ENGINE: &str = " on engine ";

/// Separates the two patterns of a guard in the text of a mapping. Patterns may contain it.
const ARROW: &str = " -> ";

/// The guard mapping, which is part of the stored state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// SHA-256 of both patterns of every guard, and of the engines if guards name any, each preceded by its length:
    /// different mappings have different hashes.
    pub hash: [u8; 32],
    /// `keys -> resource`, one line per guard, in order; for people to read. With engines, `[engine NAME]` precedes them:
    /// version 0.1 wrote no such line, so none of its hashes is that of this text.
    pub text: String,
}

/// The named engines in the text of a stored mapping.
pub fn engines_of_mapping(text: &str) -> BTreeSet<&str> {
    let mut lines = text.lines();
    if !lines.next().is_some_and(|first| first.starts_with("[engine ")) {
        return BTreeSet::new();
    }
    lines
        .filter_map(|line| line.rsplit_once(ON_ENGINE))
        .map(|(_, engine)| engine)
        .filter(|engine| *engine != UNNAMED_ENGINE)
        .collect()
}

/// The result of comparing a mapping with a stored hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SameMapping {
    /// The mapping is the stored one.
    Yes,
    /// The mapping is the stored one, but the stored hash has the old form and should be rewritten.
    OldForm,
    /// The stored hash has the old form, and its text could also be that of another mapping.
    Ambiguous,
    /// The mapping is a different one.
    No,
}

impl Mapping {
    /// The hash that version 0.1 stored: that of the text.
    pub fn old_hash(&self) -> [u8; 32] {
        Sha256::digest(self.text.as_bytes()).into()
    }

    /// Compares the mapping with a stored hash. Version 0.1 hashed the text, in which `a -> b -> c` has two meanings.
    pub fn compare(&self, stored: &[u8; 32]) -> SameMapping {
        if *stored == self.hash {
            return SameMapping::Yes;
        }
        if *stored != self.old_hash() {
            return SameMapping::No;
        }
        match self.text.lines().all(has_one_meaning) {
            true => SameMapping::OldForm,
            false => SameMapping::Ambiguous,
        }
    }
}

/// Returns whether a line can be split in only one way. Arrows may share a space: `a -> -> b`.
fn has_one_meaning(line: &str) -> bool {
    line.as_bytes().windows(ARROW.len()).filter(|window| *window == ARROW.as_bytes()).count() == 1
}

impl fmt::Display for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&describe_mapping(&self.text))
    }
}

/// A stored mapping in one line.
pub fn describe_mapping(text: &str) -> String {
    match text.trim_end() {
        "" => "each key is its own resource".to_owned(),
        text => text.replace('\n', ", "),
    }
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
