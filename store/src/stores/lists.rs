//! Lists over all stores, merged in the order of names. At most one page of each store is in memory.

use fencepost_core::{FenceState, Resource};

use super::{Stores, read_on_engine};
use crate::reads::{KeyInfo, LockInfo, Page, ReadError};

impl Stores {
    /// Keys that have a value, ordered by name.
    pub async fn keys(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page<KeyInfo>, ReadError> {
        let mut pages = Vec::new();
        for (engine, store) in self.each() {
            let page = store.keys(prefix, after, limit).await;
            pages.push(page.map_err(|error| read_on_engine(engine, error))?);
        }
        Ok(self.merge(pages, limit, |info| info.key.as_str()))
    }

    /// Fences, ordered by name.
    pub async fn fences(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<(Resource, FenceState)>, ReadError> {
        let mut pages = Vec::new();
        for (engine, store) in self.each() {
            let page = store.fences(prefix, after, limit).await;
            pages.push(page.map_err(|error| read_on_engine(engine, error))?);
        }
        Ok(self.merge(pages, limit, |(resource, _)| resource.as_str()))
    }

    /// Locks that are held, ordered by name.
    pub async fn locks(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Page<LockInfo>, ReadError> {
        let mut pages = Vec::new();
        for (engine, store) in self.each() {
            let page = store.locks(prefix, after, limit).await;
            pages.push(page.map_err(|error| read_on_engine(engine, error))?);
        }
        Ok(self.merge(pages, limit, |lock| lock.resource.as_str()))
    }

    /// Merges a page of each store, in their order. What a store has left of names that another one keeps by now is
    /// left out: no request reaches it.
    fn merge<T>(&self, mut pages: Vec<Page<T>>, limit: usize, name: impl Fn(&T) -> &str) -> Page<T> {
        if self.is_one()
            && let Some(page) = pages.pop()
        {
            return page;
        }
        // Behind the end of a page that another one follows, names of that store are missing.
        let complete_to = pages.iter().filter_map(|page| page.next.clone()).min();
        let mut entries = Vec::new();
        for ((engine, _), page) in self.each().zip(pages) {
            let is_shown = |entry: &T| {
                let name = name(entry);
                complete_to.as_deref().is_none_or(|last| name <= last) && self.find(name).0 == engine
            };
            entries.extend(page.entries.into_iter().filter(is_shown));
        }
        entries.sort_by(|a, b| name(a).cmp(name(b)));
        let next = match entries.get(limit.saturating_sub(1)) {
            Some(last) if entries.len() > limit => Some(name(last).to_owned()),
            _ => complete_to,
        };
        entries.truncate(limit);
        Page { entries, next }
    }
}
