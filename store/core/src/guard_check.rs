//! Checks a list of guards against itself, by trying a representative of every kind of key.
//!
//! Matching looks at one segment at a time and compares it with literals only. So a name behaves like the one in
//! which every segment that no pattern mentions is replaced by a fresh symbol, and it is enough to try, for each
//! guard, its own pattern with every wildcard replaced by each literal of the whole list and by fresh symbols.

use std::collections::HashMap;

use crate::guard::{Guard, GuardError, Guards, Pattern, Segment};

/// How many representatives one guard may have.
const MAX_REPRESENTATIVES: usize = 200_000;

/// Refuses unreachable guards, resources whose own name leads elsewhere, and one resource under two policies.
pub(crate) fn check(guards: &Guards) -> Result<(), GuardError> {
    let alphabet = Alphabet::of(guards.list());
    let mut owner: HashMap<String, usize> = HashMap::new();
    for (at, guard) in guards.list().iter().enumerate() {
        let mut reached = false;
        let names = alphabet.names(&guard.keys).ok_or(GuardError::TooComplex { guard: at + 1 })?;
        for name in names {
            let Some((first, resource)) = guards.first_match(&name) else { continue };
            if first != at {
                continue;
            }
            reached = true;
            let (_, itself) = guards.first_match(&resource).unwrap_or((0, resource.clone()));
            if itself != resource {
                return Err(GuardError::Unstable { guard: at + 1, key: name, resource, other: itself });
            }
            let holder = *owner.entry(resource.clone()).or_insert(at);
            if guards.list()[holder].spec().policy != guard.spec().policy {
                return Err(GuardError::TwoPolicies { first: holder + 1, second: at + 1, resource });
            }
            // The resource's own name may be judged by an earlier guard that also yields it.
            let (judged_by, _) = guards.first_match(&resource).unwrap_or((at, String::new()));
            if guards.list()[judged_by].spec().policy != guard.spec().policy {
                return Err(GuardError::TwoPolicies { first: judged_by + 1, second: at + 1, resource });
            }
        }
        if !reached {
            return Err(GuardError::Unreachable { guard: at + 1, keys: guard.spec().keys.clone() });
        }
    }
    Ok(())
}

struct Alphabet {
    literals: Vec<String>,
    longest: usize,
}

impl Alphabet {
    fn of(guards: &[Guard]) -> Alphabet {
        let patterns = || guards.iter().flat_map(|guard| [&guard.keys, &guard.resource]);
        let mut literals: Vec<String> = patterns()
            .flat_map(|pattern| &pattern.segments)
            .filter_map(|segment| match segment {
                Segment::Literal(literal) => Some(literal.clone()),
                Segment::One => None,
            })
            .collect();
        literals.sort();
        literals.dedup();
        let longest = patterns().map(|pattern| pattern.segments.len()).max().unwrap_or(0);
        Alphabet { literals, longest }
    }

    /// Representatives of every kind of name the pattern matches; `None` if they are too many.
    fn names(&self, pattern: &Pattern) -> Option<Vec<String>> {
        let mut names: Vec<Vec<String>> = vec![Vec::new()];
        for segment in &pattern.segments {
            names = match segment {
                Segment::Literal(literal) => self.extend(&names, std::slice::from_ref(literal)),
                Segment::One => self.extend(&names, &self.choices(names[0].len())),
            };
            if names.len() > MAX_REPRESENTATIVES {
                return None;
            }
        }
        let mut all = names.clone();
        while pattern.rest && names[0].len() <= self.longest {
            names = self.extend(&names, &self.choices(names[0].len()));
            all.extend(names.iter().cloned());
            if all.len() > MAX_REPRESENTATIVES {
                return None;
            }
        }
        Some(all.into_iter().filter(|name| !name.is_empty()).map(|name| name.join("/")).collect())
    }

    /// Every literal, and a symbol that occurs nowhere else: not in a pattern, nor at another position.
    fn choices(&self, position: usize) -> Vec<String> {
        let mut fresh = format!("x{}", position + 1);
        while self.literals.contains(&fresh) {
            fresh.push('x');
        }
        self.literals.iter().cloned().chain([fresh]).collect()
    }

    fn extend(&self, names: &[Vec<String>], choices: &[String]) -> Vec<Vec<String>> {
        names
            .iter()
            .flat_map(|name| {
                choices.iter().map(move |choice| {
                    let mut longer = name.clone();
                    longer.push(choice.clone());
                    longer
                })
            })
            .collect()
    }
}
