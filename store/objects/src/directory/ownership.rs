//! Opening a storage directory: it must exist, be used by this process alone, and be on a suitable file system.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use rustix::fs::{FlockOperation, flock, fstatfs, fstatvfs};
use rustix::io::Errno;

use super::dir::Dir;
use super::modes::SharedModes;
use super::names::is_bucket_name;
use super::probe;
use super::tree::Tree;

/// The directory for the gateway's own files.
pub(super) const OURS: &str = ".fencepost";
const PRIVATE_DIRECTORY: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;

/// Why a directory cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// It does not exist.
    #[error("there is no directory {0}: make it first, on the file system that shall hold the objects")]
    NotThere(String),
    /// Another gateway uses it.
    #[error("{path} is in use by another gateway{pid}: one gateway alone writes a directory; stop that one first")]
    InUse {
        /// The directory.
        path: String,
        /// ` (process 4711)`, or empty if the process is not known.
        pid: String,
    },
    /// Its fences are in another store.
    #[error(
        "the objects belong to the store {found}, and this is {own}: the fences of these objects are in the data directory \
         of that store. Use that one; or, if it is lost, remove `.fencepost/store` in the directory of the objects: then \
         all of them are taken in without a fence"
    )]
    OtherStore {
        /// The store that the directory belongs to.
        found: String,
        /// The store that tried to use it.
        own: String,
    },
    /// The store has objects, but was never used with this directory.
    #[error(
        "the index knows objects, and {path} was never served with it: is the disk mounted? If the files are there all \
         the same, restored or moved, run: echo {own} > {path}/.fencepost/store"
    )]
    NeverSeen {
        /// The directory.
        path: String,
        /// The store that tried to use it.
        own: String,
    },
    /// Its file system is shared over a network, or implemented by a FUSE program.
    #[error(
        "{path} is on {kind}, which cannot be used: others may change the files unseen, and the lock and the syncs that \
         the gateway relies on may not hold; use a directory on a local disk"
    )]
    Network {
        /// The directory.
        path: String,
        /// The kind of file system.
        kind: &'static str,
    },
    /// Its file system lacks a property that the layout relies on.
    #[error("{path} cannot be used: {why}")]
    Unfit {
        /// The directory.
        path: String,
        /// The missing property, and what to do.
        why: String,
    },
    /// A system call failed.
    #[error("{what} in {path}: {error}")]
    Failed {
        /// The directory.
        path: String,
        /// The operation that failed.
        what: String,
        /// The system's error.
        error: String,
    },
}

/// The lock on the directory. The system releases it when the process ends, for whatever reason.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

/// Opens a directory for exclusive use.
pub(super) fn open(path: &Path, modes: SharedModes) -> Result<Tree, OpenError> {
    let shown = path.display().to_string();
    let failed = |what: &str| {
        let (path, what) = (shown.clone(), what.to_owned());
        move |error: Errno| OpenError::Failed { path, what, error: error.to_string() }
    };
    let root = match Dir::root(path) {
        Ok(root) => root,
        Err(Errno::NOENT | Errno::NOTDIR) => return Err(OpenError::NotThere(shown)),
        Err(error) => return Err(failed("opening the directory")(error)),
    };
    check_local(&root, &shown)?;
    check_above(path, &shown)?;
    check_below(&root, &shown)?;
    if let Err(Errno::NOSYS | Errno::PERM) = root.open_dir(".") {
        let why = "this system does not offer openat2, which keeps the gateway from following links out of the \
                   directory: it needs Linux 5.6 or later, and a container runtime that allows the call";
        return Err(OpenError::Unfit { path: shown, why: why.to_owned() });
    }
    let ours = match root.open_or_make_dir(OURS, PRIVATE_DIRECTORY) {
        Ok(ours) => ours,
        Err(Errno::LOOP | Errno::NOTDIR | Errno::XDEV) => {
            let why = format!("its `{OURS}` must be a real directory on the same file system; remove what is there");
            return Err(OpenError::Unfit { path: shown, why });
        }
        Err(error) => return Err(failed("making `.fencepost`")(error)),
    };
    let lock = take_lock(&ours, &shown)?;
    let staging = ours.open_or_make_dir("staging", PRIVATE_DIRECTORY).map_err(failed("making `.fencepost/staging`"))?;
    for dir in [&ours, &root] {
        dir.sync().map_err(failed("syncing a directory"))?;
    }
    probe::run(&ours, &shown)?;
    let device = staging.stat_self().map_err(failed("looking at `.fencepost/staging`"))?.st_dev;
    if root.stat_self().map_err(failed("looking at it"))?.st_dev != device {
        let why = format!("`{OURS}/staging` is on another file system, and files are not renamed from one to another");
        return Err(OpenError::Unfit { path: shown, why });
    }
    let name_max = fstatvfs(&root).map_err(failed("asking for the longest file name"))?.f_namemax;
    Ok(Tree::new(root, staging, device, usize::try_from(name_max).unwrap_or(255), modes, lock))
}

/// Refuses a directory inside another object directory: two gateways with separate fences must not write the same
/// files.
fn check_above(path: &Path, shown: &str) -> Result<(), OpenError> {
    let whole = path.canonicalize().map_err(|error| OpenError::Failed {
        path: shown.to_owned(),
        what: "finding its place".to_owned(),
        error: error.to_string(),
    })?;
    match whole.ancestors().skip(1).find(|above| above.join(OURS).join("lock").exists()) {
        None => Ok(()),
        Some(above) => {
            let why = format!(
                "it lies in {}, which is itself a directory of objects: give dir:{0}, or a directory outside of it",
                above.display()
            );
            Err(OpenError::Unfit { path: shown.to_owned(), why })
        }
    }
}

/// Refuses a directory that contains another object directory as a bucket.
fn check_below(root: &Dir, shown: &str) -> Result<(), OpenError> {
    let reading = |error: Errno| OpenError::Failed {
        path: shown.to_owned(),
        what: "looking for other directories of objects".to_owned(),
        error: error.to_string(),
    };
    for entry in root.entries().map_err(reading)? {
        let entry = entry.map_err(reading)?;
        let Some(name) = entry.file_name().to_str().ok().filter(|name| is_bucket_name(name)) else { continue };
        let Ok(bucket) = root.open_dir(name) else { continue };
        if let Ok(ours) = bucket.open_dir(OURS)
            && ours.stat("lock").map_err(reading)?.is_some()
        {
            let why = format!(
                "its bucket `{name}` is itself a directory of objects: give dir:{shown}/{name}, or, if that is no longer \
                 served by itself, remove {name}/{OURS}"
            );
            return Err(OpenError::Unfit { path: shown.to_owned(), why });
        }
    }
    Ok(())
}

/// Records the store that the directory belongs to, or refuses another store. A store that already has objects is not
/// bound to a directory it has never used.
pub(super) fn belongs_to(root: &Dir, shown: &str, store: &[u8; 16], knows_objects: bool) -> Result<(), OpenError> {
    let failed = |error: String| OpenError::Failed {
        path: shown.to_owned(),
        what: "reading or writing `.fencepost/store`".to_owned(),
        error,
    };
    let own: String = store.iter().map(|byte| format!("{byte:02x}")).collect();
    let ours = root.open_dir(OURS).map_err(|error| failed(error.to_string()))?;
    let mut file = ours.open_or_create("store", PRIVATE_FILE).map_err(|error| failed(error.to_string()))?;
    let mut found = String::new();
    file.read_to_string(&mut found).map_err(|error| failed(error.to_string()))?;
    match found.trim() {
        "" if knows_objects => Err(OpenError::NeverSeen { path: shown.to_owned(), own }),
        // Empty after a crash during the first start, before anything was written.
        "" => {
            let written = writeln!(file, "{own}").and_then(|()| file.sync_all());
            written.map_err(|error| failed(error.to_string()))?;
            ours.sync().map_err(|error| failed(error.to_string()))
        }
        found if found == own => Ok(()),
        found => Err(OpenError::OtherStore { found: found.to_owned(), own }),
    }
}

fn take_lock(ours: &Dir, shown: &str) -> Result<Lock, OpenError> {
    let failed = |error: String| OpenError::Failed {
        path: shown.to_owned(),
        what: "locking `.fencepost/lock`".to_owned(),
        error,
    };
    let mut file = ours.open_or_create("lock", PRIVATE_FILE).map_err(|error| failed(error.to_string()))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let mut pid = String::new();
            // The pid only improves the message; ignore errors.
            let _ = file.read_to_string(&mut pid);
            let pid = pid.trim().parse::<u32>().map(|pid| format!(" (process {pid})")).unwrap_or_default();
            return Err(OpenError::InUse { path: shown.to_owned(), pid });
        }
        Err(error) => return Err(failed(error.to_string())),
    }
    file.set_len(0)
        .and_then(|()| writeln!(file, "{}", std::process::id()))
        .map_err(|error| failed(error.to_string()))?;
    Ok(Lock { _file: file })
}

fn check_local(root: &Dir, shown: &str) -> Result<(), OpenError> {
    let stat = fstatfs(root).map_err(|error| OpenError::Failed {
        path: shown.to_owned(),
        what: "asking for the kind of file system".to_owned(),
        error: error.to_string(),
    })?;
    // Magic numbers have 32 bits; some systems sign-extend them.
    match network_kind(stat.f_type as u32) {
        None => Ok(()),
        Some(kind) => Err(OpenError::Network { path: shown.to_owned(), kind }),
    }
}

/// The kind of a refused file system, by the magic numbers of `statfs(2)`.
///
/// On a network file system another machine can change a file unnoticed, `flock` may hold on one machine only, a
/// rename whose answer was lost may be executed twice, and a sync may end in a cache. Cluster file systems let other
/// machines write to the same disk. The program behind FUSE is unknown (sshfs, s3fs, rclone mount …).
fn network_kind(magic: u32) -> Option<&'static str> {
    Some(match magic {
        0x0000_6969 => "NFS",
        0x0000_517b | 0xff53_4d42 | 0xfe53_4d42 => "SMB/CIFS",
        0x0102_1997 => "9p",
        0x5346_414f | 0x6b41_4653 => "AFS",
        0x00c3_6400 => "CephFS",
        0x7375_7245 => "Coda",
        0x0000_564c => "NCP",
        0x0bd0_0bd0 => "Lustre",
        0x4750_4653 => "GPFS",
        0x0116_1970 => "GFS2",
        0x7461_636f => "OCFS2",
        0x786f_4256 => "a VirtualBox shared folder",
        0x6573_5546 => "FUSE",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_known_by_their_magic() {
        for (magic, kind) in [
            (0x6969, "NFS"),
            (0xff53_4d42, "SMB/CIFS"),
            (0x0102_1997, "9p"),
            (0x5346_414f, "AFS"),
            (0x00c3_6400, "CephFS"),
            (0x6573_5546, "FUSE"),
        ] {
            assert_eq!(network_kind(magic), Some(kind));
        }
        // ext4, XFS, btrfs, tmpfs, overlayfs, ZFS, F2FS
        for magic in [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0x2fc1_2fc1, 0xf2f5_2010] {
            assert_eq!(network_kind(magic), None);
        }
    }
}
