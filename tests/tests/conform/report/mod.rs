//! The output of a run: verdicts, the terminal, files for programs, and the page, which is opened in a real browser.

mod browser;
mod files;
mod made_up;
mod page;
mod real;
mod terminal;
mod verdict;
