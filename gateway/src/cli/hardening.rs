//! Hardening of the `serve` process before it touches a file: its own files are private, and memory with keys in it
//! stays in the process.

use fencepost_objects::directory::SharedModes;
use rustix::fs::Mode;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit, umask};

/// The umask for files that are created without a mode of their own, those of the engine among them.
const PRIVATE: Mode = Mode::RWXG.union(Mode::RWXO);

/// Makes new files private. Published objects keep the modes that the umask of the caller gives them.
pub(super) fn make_files_private() -> SharedModes {
    SharedModes::under(umask(PRIVATE).bits())
}

/// Keeps the memory of this process out of core files, and out of reach of other programs of the same user.
pub(super) fn keep_memory_private() {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    if let Err(error) = setrlimit(Resource::Core, none) {
        tracing::warn!(%error, "core dumps cannot be switched off; they would hold the keys");
    }
    // The limit above does not hold where the system pipes cores into a program; this does.
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "debuggers of the same user cannot be kept out; they would see the keys");
    }
}
