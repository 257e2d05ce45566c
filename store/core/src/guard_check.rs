//! Checks a list of guards for conflicts with each other.
//!
//! Matching compares one segment at a time, and only with literals. So if a pattern matches a name whose free segments
//! are symbols that occur nowhere else, it matches every name of that shape. Such a *representative* is the name most
//! likely to escape a guard. One per guard, other pattern and length of the rest is enough.
//!
//! The resource that guard `i` maps a key to matches its own resource pattern, so only an earlier guard can map that
//! name elsewhere. For each earlier pattern the representative is adapted: its free segments become the literals that
//! the pattern requires, and stay fresh elsewhere.

use crate::guard::{Guard, GuardError, Guards, Pattern, Segment};

/// Rejects unreachable guards, resources whose own name maps elsewhere, and resources under two policies or on two
/// engines.
pub(crate) fn check(guards: &Guards) -> Result<(), GuardError> {
    let list = guards.list();
    let patterns = || list.iter().flat_map(|guard| [&guard.keys, &guard.resource]);
    // A rest longer than any pattern adds no new cases.
    let longest = patterns().map(|pattern| pattern.segments.len()).max().unwrap_or(0) + 1;
    let literals: Vec<&str> = patterns().flat_map(|pattern| &pattern.segments).filter_map(Segment::literal).collect();
    for (at, guard) in list.iter().enumerate() {
        let rests = if guard.keys.rest { 0..=longest } else { 0..=0 };
        let (mut reached, mut mapped) = (false, guard.keys == guard.resource);
        for rest in rests {
            let earlier = list[..at].iter().flat_map(|other| [Some(&other.keys), Some(&other.resource)]);
            for fit in earlier.chain([None]) {
                let Some(name) = representative(guard, rest, fit, &literals) else { continue };
                let Some((first, resource)) = guards.first_match(&name) else { continue };
                if first == at {
                    reached = true;
                    mapped |= resource != name;
                    stable(guards, at, name, resource)?;
                }
            }
        }
        if !reached {
            return Err(GuardError::Unreachable { guard: at + 1, keys: guard.spec().keys.clone() });
        }
        if !mapped {
            let pattern = guard.spec().resource.clone().unwrap_or_default();
            let why =
                format!("it matches every key of `{}` itself, so each would be its own resource", guard.spec().keys);
            return Err(GuardError::Pattern { guard: at + 1, pattern, why });
        }
    }
    Ok(())
}

/// Checks that the resource's own name maps to itself, under the same policy and on the same engine.
fn stable(guards: &Guards, at: usize, key: String, resource: String) -> Result<(), GuardError> {
    let Some((owner, other)) = guards.first_match(&resource) else { return Ok(()) };
    if other != resource {
        return Err(GuardError::Unstable { guard: at + 1, key, resource, other });
    }
    if guards.list()[owner].spec().policy != guards.list()[at].spec().policy {
        return Err(GuardError::TwoPolicies { first: owner + 1, second: at + 1, resource });
    }
    if guards.list()[owner].spec().engine != guards.list()[at].spec().engine {
        return Err(GuardError::TwoEngines { first: owner + 1, second: at + 1, resource });
    }
    Ok(())
}

/// A key of the guard with `rest` segments for `**`, whose resource matches `fit`; `None` if there is none.
fn representative(guard: &Guard, rest: usize, fit: Option<&Pattern>, literals: &[&str]) -> Option<String> {
    let stars = guard.keys.segments.iter().filter(|segment| **segment == Segment::One).count();
    // The required text of each `*` and each segment of the rest; `None` if it is free.
    let mut wanted: Vec<Option<&str>> = vec![None; stars + rest];
    if let Some(fit) = fit {
        let mut next_star = 0..;
        let mut resource: Vec<Result<&str, usize>> = Vec::new();
        for segment in &guard.resource.segments {
            resource.push(match segment {
                Segment::Literal(literal) => Ok(literal),
                Segment::One => Err(next_star.next()?),
            });
        }
        if guard.resource.rest {
            resource.extend((stars..stars + rest).map(Err));
        }
        if resource.len() < fit.segments.len() || (resource.len() > fit.segments.len() && !fit.rest) {
            return None;
        }
        for (asked, given) in fit.segments.iter().zip(&resource) {
            match (asked.literal(), given) {
                (None, _) => {}
                (Some(asked), Ok(given)) if asked == *given => {}
                (Some(_), Ok(_)) => return None,
                (Some(asked), Err(variable)) => wanted[*variable] = Some(asked),
            }
        }
    }
    let mut variables =
        wanted.into_iter().enumerate().map(|(at, wanted)| wanted.map_or_else(|| fresh(at, literals), str::to_owned));
    let mut name: Vec<String> = Vec::new();
    for segment in &guard.keys.segments {
        name.push(match segment {
            Segment::Literal(literal) => literal.clone(),
            Segment::One => variables.next()?,
        });
    }
    name.extend(variables);
    (!name.is_empty()).then(|| name.join("/"))
}

/// A symbol that occurs in no pattern and nowhere else in the name.
fn fresh(at: usize, literals: &[&str]) -> String {
    let mut symbol = format!("x{}", at + 1);
    while literals.contains(&symbol.as_str()) {
        symbol.push('x');
    }
    symbol
}
