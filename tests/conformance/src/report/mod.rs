//! Reports of a run, for people and for programs.
//!
//! [`Tree`] prints progress during the run, [`summary`] follows it, [`tap`] is for programs that read standard output,
//! and [`write_all`] writes `results.json`, `junit.xml`, `report.html` and the histories of failures into a directory.

mod claim;
mod files;
mod html;
mod json;
mod junit;
mod look;
mod setting;
mod tap;
mod terminal;
pub mod text;

pub use files::{Unwritten, Written, make_room, write_all};
pub use html::html;
pub use json::{FORMAT, FORMAT_VERSION, json};
pub use junit::junit;
pub use look::Look;
pub use setting::Setting;
pub use tap::tap;
pub use terminal::{Tree, summary};
