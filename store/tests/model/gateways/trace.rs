//! The steps to a state in words, which are made only when they are wanted.

/// What happened so far, if it is kept.
pub(super) struct Trace(Option<Vec<String>>);

impl Trace {
    pub(super) fn none() -> Trace {
        Trace(None)
    }

    pub(super) fn kept() -> Trace {
        Trace(Some(Vec::new()))
    }

    pub(super) fn say(&mut self, words: impl FnOnce() -> String) {
        if let Some(steps) = &mut self.0 {
            steps.push(words());
        }
    }

    /// A read is told only if it is the last step.
    pub(super) fn reads(&mut self, words: impl FnOnce() -> String) {
        if let Some(steps) = &mut self.0 {
            *steps = vec![words()];
        }
    }

    /// What was said in this step, as one line.
    pub(super) fn take(&mut self) -> String {
        self.0.as_mut().map(|steps| std::mem::take(steps).join("; ")).unwrap_or_default()
    }
}
