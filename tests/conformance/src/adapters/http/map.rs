//! A map that was read and checked.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use toml::Spanned;

use super::build::{Parts, outcomes, shape};
use super::file;
use super::outcome::Outcomes;
use super::shape::Shape;
use super::template::Field;
use crate::adapters::hooks::Commands;
use crate::manifest::{Equal, Manifest};
use crate::op::Verb;
use crate::subject::Broken;

/// How long an answer may take, unless the map sets another limit.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The version of the format.
const VERSION: u64 = 1;

/// The longest that a mutation may take to have its effect.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// An error in the map, and where it is in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) at: usize,
    pub(super) what: String,
}

impl Wrong {
    /// An error at this value.
    pub(super) fn at<T>(value: &Spanned<T>, what: impl Into<String>) -> Wrong {
        Wrong { at: value.span().start, what: what.into() }
    }
}

/// How one verb is requested, and what its answers mean.
#[derive(Clone, Debug)]
pub(super) struct Mapped {
    pub(super) shape: Shape,
    /// The shape of a `cas` without an expected value.
    pub(super) when_none: Option<Shape>,
    pub(super) outcomes: Outcomes,
}

/// Another request that changes a resource.
#[derive(Clone, Debug)]
pub(super) struct Mutation {
    pub(super) name: String,
    pub(super) before: Option<Shape>,
    pub(super) shape: Shape,
    pub(super) outcomes: Outcomes,
    /// How long after its answer it may take effect.
    pub(super) wait: Duration,
}

/// A checked map file.
#[derive(Clone, Debug)]
pub(super) struct Map {
    pub(super) manifest: Manifest,
    pub(super) bases: Vec<String>,
    pub(super) timeout: Duration,
    pub(super) verbs: BTreeMap<Verb, Mapped>,
    pub(super) mutations: Vec<Mutation>,
    pub(super) commands: Commands,
}

impl Map {
    /// Reads a map. The error names the file, the line, and what was expected.
    pub(super) fn read(path: &Path) -> Result<Map, Broken> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Broken(format!("the map {} cannot be read: {error}", path.display())))?;
        Map::parse(&text).map_err(|wrong| {
            let line = text.as_bytes()[..wrong.at.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1;
            Broken(format!("{}:{line}: {}", path.display(), wrong.what))
        })
    }

    fn parse(text: &str) -> Result<Map, Wrong> {
        let file: file::File = toml::from_str(text).map_err(|error| Wrong {
            at: error.span().map_or(0, |span| span.start),
            what: super::hint::hinted(error.message()),
        })?;
        if *file.map.get_ref() != VERSION {
            let what = format!("this is a map of version {}; this suite reads version {VERSION}", file.map.get_ref());
            return Err(Wrong::at(&file.map, what));
        }
        let file::File { resource, write, read, checked_read, claim, cas, delete, batch, .. } = file;
        let tables = [
            (Verb::Write, Some(write)),
            (Verb::Read, read),
            (Verb::CheckedRead, checked_read),
            (Verb::Claim, claim),
            (Verb::Cas, cas),
            (Verb::Delete, delete),
            (Verb::Batch, batch),
        ];
        let mut verbs = BTreeMap::new();
        for (verb, table) in tables {
            if let Some(table) = table {
                verbs.insert(verb, mapped(verb, &table, resource.equal)?);
            }
        }
        let bases = resource.base.get_ref().0.clone();
        if bases.is_empty() {
            return Err(Wrong::at(&resource.base, "`base` is empty: write the address of the service, or a list"));
        }
        for base in &bases {
            super::base::Base::check(base).map_err(|what| Wrong::at(&resource.base, what))?;
        }
        let mutations = file.mutation.iter().map(mutation).collect::<Result<_, _>>()?;
        let commands = match file.hooks {
            None => Commands::default(),
            Some(hooks) => {
                hooks.get_ref().check().map_err(|what| Wrong::at(&hooks, what))?;
                hooks.into_inner()
            }
        };
        let manifest = Manifest {
            caps: verbs.keys().copied().collect(),
            policy: resource.policy,
            equal: resource.equal,
            reads: resource.reads,
            high: resource.high,
            mismatch_raises: resource.mismatch_raises,
            kill: resource.kill,
            token_max: resource.token_max,
            text_tokens: true,
        };
        let timeout = resource.timeout.map_or(TIMEOUT, |limit| limit.0);
        Ok(Map { manifest, bases, timeout, verbs, mutations, commands })
    }
}

/// The fields that operations of a verb have.
fn fields(verb: Verb) -> &'static [Field] {
    match verb {
        Verb::Write | Verb::Batch => &[Field::Res, Field::Token, Field::Holder, Field::Value],
        Verb::Read => &[Field::Res],
        Verb::CheckedRead => &[Field::Res, Field::Token],
        Verb::Claim | Verb::Delete => &[Field::Res, Field::Token, Field::Holder],
        Verb::Cas => &[Field::Res, Field::Token, Field::Holder, Field::Expect, Field::Value],
    }
}

fn mapped(verb: Verb, table: &Spanned<file::Verb>, equal: Equal) -> Result<Mapped, Wrong> {
    let keys = table.get_ref();
    let wrong = |what: String| Wrong::at(table, what);
    only_for(verb, table)?;
    let made = shape(&Parts::of(keys), fields(verb), verb == Verb::Batch)?;
    let when_none = match &keys.when_none {
        None => None,
        Some(other) => {
            let without: Vec<Field> = fields(verb).iter().copied().filter(|field| *field != Field::Expect).collect();
            Some(shape(&Parts::of(keys).but(other.get_ref()), &without, false)?)
        }
    };
    for field in fields(verb) {
        let needed = *field != Field::Holder || equal == Equal::Holder;
        if needed && !made.says(*field) {
            let name = field.name();
            return Err(wrong(format!(
                "[{}] never says `{{{name}}}`: without it the service cannot know the {}{}",
                verb.name(),
                match field {
                    Field::Res => "resource",
                    Field::Expect => "value that is expected",
                    _ => name,
                },
                if *field == Field::Holder { " (`equal = \"holder\"`)" } else { "" }
            )));
        }
        if let Some(other) = &when_none
            && *field != Field::Expect
            && needed
            && !other.says(*field)
        {
            return Err(wrong(format!("[cas.when_none] never says `{{{}}}`", field.name())));
        }
    }
    if when_none.is_none() && made.says(Field::Expect) {
        super::build::expect_can_be_left_out(&made).map_err(wrong)?;
    }
    let outcomes = outcomes(keys)?;
    if matches!(verb, Verb::Read | Verb::CheckedRead) && outcomes.value.is_none() {
        return Err(wrong(format!("[{}] needs `value`: \"body\" or \"json:/pointer\"", verb.name())));
    }
    if verb != Verb::Read && keys.stale.is_empty() {
        return Err(wrong(format!(
            "[{}] needs `stale`: which answers say that a token is too old, such as [409]",
            verb.name()
        )));
    }
    if verb == Verb::Cas && keys.mismatch.is_empty() {
        return Err(wrong("[cas] needs `mismatch`: which answers say that the value is another, such as [412]".into()));
    }
    Ok(Mapped { shape: made, when_none, outcomes })
}

/// Rejects keys that make sense only for other verbs.
fn only_for(verb: Verb, table: &Spanned<file::Verb>) -> Result<(), Wrong> {
    let keys = table.get_ref();
    let reads = matches!(verb, Verb::Read | Verb::CheckedRead | Verb::Claim);
    let (cas, batch) = (verb == Verb::Cas, verb == Verb::Batch);
    let placed = [
        ("value", keys.value.as_ref().map(Spanned::span), reads, "reads and claims"),
        ("absent", keys.absent.first().map(Spanned::span), reads, "reads and claims"),
        ("current", keys.current.as_ref().map(Spanned::span), cas, "cas"),
        ("mismatch", keys.mismatch.first().map(Spanned::span), cas, "cas"),
        ("when_none", keys.when_none.as_ref().map(Spanned::span), cas, "cas"),
        ("each", keys.each.as_ref().map(Spanned::span), batch, "batch"),
        ("join", keys.join.as_ref().map(Spanned::span), batch, "batch"),
        ("stale", keys.stale.first().map(Spanned::span), verb != Verb::Read, "what carries a token"),
    ];
    for (key, span, here, for_what) in placed {
        if let (Some(span), false) = (span, here) {
            let what = format!("`{key}` means nothing in [{}]: it is for {for_what}", verb.name());
            return Err(Wrong { at: span.start, what });
        }
    }
    Ok(())
}

fn mutation(table: &Spanned<file::Mutation>) -> Result<Mutation, Wrong> {
    let keys = table.get_ref();
    let fields = [Field::Res, Field::Token, Field::Holder, Field::Value];
    let made = shape(&Parts::of_mutation(keys), &fields, false)?;
    if !made.says(Field::Res) {
        return Err(Wrong::at(table, "this mutation never says `{res}`: which resource does it change?"));
    }
    let before = match &keys.before {
        Some(before) => Some(shape(&Parts::of_before(before.get_ref()), &fields, false)?),
        None => None,
    };
    let outcomes = super::build::rules([&keys.ok, &[], &keys.stale, &[], &keys.error])?;
    let outcomes = Outcomes { rules: outcomes, ..Outcomes::default() };
    let wait = match &keys.wait {
        Some(wait) if wait.get_ref().0 > LONGEST_WAIT => {
            let what = "this is too long to be waited for in every run: let it happen within a minute".to_owned();
            return Err(Wrong { at: wait.span().start, what });
        }
        wait => wait.as_ref().map_or(Duration::ZERO, |wait| wait.get_ref().0),
    };
    Ok(Mutation { name: keys.name.get_ref().clone(), before, shape: made, outcomes, wait })
}
