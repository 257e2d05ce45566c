//! Reads of the index: committed entries, without the sequencer.

use fencepost_core::Key;

use crate::engine::Record;
use crate::reads::{Page, ReadError};
use crate::record::{self, ObjectRecord, RecordKey};
use crate::store::Store;

/// An entry of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listed {
    /// An object, or the marker of a folder, whose name ends in `/`.
    Object(String, Box<ObjectRecord>),
    /// A group: all names that start with this text, which ends with the delimiter.
    Prefix(String),
}

/// How many entries are read at a time while a list skips the members of groups.
const READ_AT_ONCE: usize = 256;

impl Store {
    /// The index entry of an object.
    pub async fn object(&self, key: &Key) -> Result<Option<ObjectRecord>, ReadError> {
        let found = self.record(&RecordKey::object(key)).await?;
        Ok(found.map(|bytes| ObjectRecord::decode(&bytes)).transpose()?)
    }

    /// The index entry of a folder marker.
    pub async fn folder(&self, folder: &Key) -> Result<Option<ObjectRecord>, ReadError> {
        let found = self.record(&RecordKey::folder(folder)).await?;
        Ok(found.map(|bytes| ObjectRecord::decode(&bytes)).transpose()?)
    }

    /// Objects ordered by name, without folder markers. `next` is always the name of an object.
    pub async fn objects(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<(Key, ObjectRecord)>, ReadError> {
        let (mut objects, mut after) = (Page { entries: Vec::new(), next: None }, after.map(str::to_owned));
        loop {
            // At least one, so that folder markers at the end of a full page are skipped.
            let wanted = limit.saturating_sub(objects.entries.len()).max(1);
            let page = self.page(record::object_prefix, prefix, after.as_deref(), wanted, entry).await?;
            for (name, object) in page.entries.into_iter().filter(|(name, _)| !is_folder(name)) {
                let key = Key::new(&name).map_err(|error| ReadError::Failed(error.to_string()))?;
                objects.entries.push((key, object));
            }
            match page.next {
                Some(next) if is_folder(&next) => after = Some(next),
                next => {
                    objects.next = next;
                    return Ok(objects);
                }
            }
        }
    }

    /// Objects ordered by name. Those with a delimiter after the prefix are grouped into one entry each. A group is
    /// skipped in one step, however many objects it has. `next` is the name to continue after.
    pub async fn list_objects(
        &self,
        prefix: &str,
        delimiter: Option<&str>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<Listed>, ReadError> {
        let under = record::object_prefix(prefix);
        let mut listed = Page { entries: Vec::with_capacity(limit.min(READ_AT_ONCE)), next: None };
        let mut from = match after {
            None => under.clone(),
            Some(after) if group(after, prefix, delimiter).as_deref() == Some(after) => behind(after),
            Some(after) => [record::object_prefix(after).as_slice(), &[0]].concat(),
        };
        loop {
            let wanted = (limit - listed.entries.len() + 1).min(READ_AT_ONCE);
            let page = self.page_from(under.clone(), from.clone(), true, wanted, entry).await?;
            let more = page.next.is_some();
            let mut passed: Option<String> = None;
            for (key, object) in page.entries {
                if passed.as_ref().is_some_and(|group| key.starts_with(group.as_str())) {
                    continue;
                }
                if listed.entries.len() == limit {
                    listed.next = listed.entries.last().map(Listed::name);
                    return Ok(listed);
                }
                match group(&key, prefix, delimiter) {
                    Some(group) => {
                        from = behind(&group);
                        listed.entries.push(Listed::Prefix(group.clone()));
                        passed = Some(group);
                    }
                    None => {
                        from = [record::object_prefix(&key).as_slice(), &[0]].concat();
                        listed.entries.push(Listed::Object(key, Box::new(object)));
                    }
                }
            }
            if !more {
                return Ok(listed);
            }
        }
    }
}

fn entry(name: &str, found: &Record) -> Result<(String, ObjectRecord), ReadError> {
    let key = Key::new(name.strip_suffix('/').unwrap_or(name));
    key.map_err(|error| ReadError::Failed(error.to_string()))?;
    Ok((name.to_owned(), ObjectRecord::decode(&found.bytes)?))
}

/// Returns whether this is the name of a folder marker.
fn is_folder(name: &str) -> bool {
    name.ends_with('/')
}

impl Listed {
    fn name(&self) -> String {
        match self {
            Listed::Object(name, _) => name.clone(),
            Listed::Prefix(prefix) => prefix.clone(),
        }
    }
}

/// The group that a name belongs to, if there is a delimiter after the prefix.
fn group(name: &str, prefix: &str, delimiter: Option<&str>) -> Option<String> {
    let delimiter = delimiter.filter(|delimiter| !delimiter.is_empty())?;
    let rest = name.strip_prefix(prefix)?;
    let at = rest.find(delimiter)?;
    Some(name[..prefix.len() + at + delimiter.len()].to_owned())
}

/// A key after every name that starts with this text: UTF-8 never contains the added byte.
fn behind(group: &str) -> Vec<u8> {
    [record::object_prefix(group).as_slice(), &[0xff]].concat()
}
