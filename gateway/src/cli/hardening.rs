//! What `serve` does to its own process before it touches a file: files of its own are private.

use rustix::fs::Mode;
use rustix::process::umask;

use crate::objects::directory::SharedModes;

/// Of files that are made without a mode of their own, those of the engine among them.
const PRIVATE: Mode = Mode::RWXG.union(Mode::RWXO);

/// Makes new files private. Published objects keep the modes that the umask of the caller gives them.
pub(super) fn make_files_private() -> SharedModes {
    SharedModes::under(umask(PRIVATE).bits())
}
