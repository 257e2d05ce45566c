//! Other ways to the data of the reference than its verbs.

use std::collections::BTreeSet;

use super::record::Record;
use super::serve::Change;
use super::store::{Gone, Visit};
use super::{Bug, Reference};
use crate::answer::Answer;
use crate::op::{Verb, Write};
use crate::subject::Around;

/// Another way to the same data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The name with a trailing slash, which is another name.
    Slash,
    /// A bulk import.
    Import,
    /// Another resource is renamed to this name.
    Rename,
    /// The value is made to expire now.
    Expire,
}

impl Way {
    /// All ways, with their names in reports.
    pub(super) const ALL: [(Way, &'static str); 4] = [
        (Way::Slash, "the name with a slash at its end"),
        (Way::Import, "the bulk import"),
        (Way::Rename, "a rename of another resource"),
        (Way::Expire, "an expiry that is asked for"),
    ];
}

impl Way {
    /// The way as a case describes it.
    pub(super) fn around(self, name: &str) -> Around {
        match self {
            Way::Slash => Around::Spelling(name.to_owned()),
            Way::Import | Way::Rename | Way::Expire => Around::Request(name.to_owned()),
        }
    }
}

impl Reference {
    /// Performs a write that arrives by another way.
    pub(super) fn write_by(&self, visit: &mut Visit<'_>, way: Way, write: &Write) -> Result<Answer, Gone> {
        let mut change = self.change_of(Verb::Write, write, None);
        match (way, self.bug) {
            (Way::Slash, Some(Bug::AliasUnfenced)) | (Way::Import, Some(Bug::ImportUnfenced)) => {
                self.unfenced(visit, &change)
            }
            (Way::Slash, _) => {
                change.res.push('/');
                self.change(visit, &change)
            }
            (Way::Rename, Some(Bug::RenameUnfenced)) => {
                // The renamed resource brings the fence it had under its old name.
                let mut moved = Record::default();
                moved.force(write.token.number().unwrap_or_default(), &write.holder);
                moved.value = Some(write.value.clone());
                visit.put([(change.res, moved)])?;
                Ok(Answer::ok())
            }
            (Way::Import | Way::Rename, _) => self.change(visit, &change),
            (Way::Expire, Some(Bug::ExpiryDropsFence)) => {
                let high = self.known(visit, &change.res)?.high;
                visit.with(|disk, _| {
                    if let Some(record) = disk.get_mut(&change.res) {
                        *record = Record::default().with_value_of(record);
                    }
                })?;
                Ok(Answer::Stale { high })
            }
            (Way::Expire, bug) => {
                change.verb = Verb::Delete;
                change.value = None;
                let answer = self.change(visit, &change)?;
                if bug == Some(Bug::ExpiredForgotten) && answer.is_ok() {
                    visit.with(|disk, _| disk.insert(change.res, Record::default()))?;
                }
                Ok(answer)
            }
        }
    }

    /// A change without any check.
    pub(super) fn unfenced(&self, visit: &mut Visit<'_>, change: &Change<'_>) -> Result<Answer, Gone> {
        let _rows = visit.lock(&BTreeSet::from([change.res.clone()]))?;
        let mut record = self.known(visit, &change.res)?;
        if change.verb != Verb::Claim {
            record.value = change.value.map(str::to_owned);
        }
        visit.put([(change.res.clone(), record.clone())])?;
        Ok(Answer::Ok { value: (change.verb == Verb::Claim).then_some(record.value), high: record.high })
    }
}
