//! The modes of files and directories that other processes may read.

/// Given to each file and directory explicitly: the umask of the process makes everything private.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedModes {
    /// Of a published object.
    pub file: u32,
    /// Of a bucket, and of a directory in one.
    pub directory: u32,
}

impl SharedModes {
    /// 0644 and 0755, less what a umask takes off.
    pub fn under(umask: u32) -> SharedModes {
        SharedModes { file: 0o644 & !umask, directory: 0o755 & !umask }
    }
}

impl Default for SharedModes {
    fn default() -> SharedModes {
        SharedModes::under(0o022)
    }
}
