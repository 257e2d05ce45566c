//! The modes of files and directories that other processes may read.

/// Modes that are set explicitly on each file and directory, because the umask of the process makes everything
/// private.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedModes {
    /// The mode of a published object.
    pub file: u32,
    /// The mode of a bucket and of the directories in it.
    pub directory: u32,
}

impl SharedModes {
    /// 0644 and 0755 without the bits of a umask.
    pub fn under(umask: u32) -> SharedModes {
        SharedModes { file: 0o644 & !umask, directory: 0o755 & !umask }
    }
}

impl Default for SharedModes {
    fn default() -> SharedModes {
        SharedModes::under(0o022)
    }
}
