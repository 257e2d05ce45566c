//! A separate file system of a few hundred MiB: a tmpfs in a mount namespace. It needs no privileges where users may
//! create namespaces.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::process::binary;

/// A small file system. It ends with the test, together with the processes on it.
pub struct SmallDisk {
    /// Keeps the namespace alive until its standard input is closed.
    keeper: Child,
    mounted_on: TempDir,
}

impl SmallDisk {
    /// Creates a file system of this many MiB.
    pub fn of(mebibytes: u32) -> SmallDisk {
        let mounted_on = TempDir::new().expect("a temporary directory can be made");
        let script = format!("mount -t tmpfs -o size={mebibytes}m tmpfs \"$0\" && echo mounted && exec cat");
        let mut keeper = Command::new("unshare")
            .args(["-rm", "sh", "-c", &script])
            .arg(mounted_on.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("`unshare` of util-linux is there");
        let mut said = String::new();
        let output = keeper.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut said).expect("it can be read");
        assert_eq!(said.trim(), "mounted", "this test needs a tmpfs in a namespace (unshare -rm)");
        SmallDisk { keeper, mounted_on }
    }

    /// Its path for processes in the namespace.
    pub fn inside(&self) -> &Path {
        self.mounted_on.path()
    }

    /// The path of a file on it, for this process.
    pub fn outside(&self, name: &str) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.keeper.id()));
        let within = self.mounted_on.path().strip_prefix("/").expect("temporary directories are absolute");
        root.join(within).join(name)
    }

    /// A `fencepost` command that runs in the namespace.
    pub fn fencepost(&self) -> Command {
        let mut command = Command::new("nsenter");
        let target = self.keeper.id().to_string();
        command.args(["-t", &target, "-U", "-m", "--preserve-credentials"]).arg(binary());
        command
    }

    /// Bytes that are free.
    pub fn free(&self) -> u64 {
        let disk = rustix::fs::statvfs(self.outside("")).expect("a mounted file system answers");
        disk.f_bavail * disk.f_frsize
    }

    /// Fills the file system until this many bytes are free, or removes what was filled.
    pub fn leave_free(&self, bytes: u64) {
        let path = self.outside("filler");
        // The file does not exist the first time.
        let _ = std::fs::remove_file(&path);
        let mut filler = File::create(&path).expect("the disk can be written");
        let block = vec![0_u8; 1 << 20];
        while self.free() > bytes {
            let length = (self.free() - bytes).min(block.len() as u64) as usize;
            filler.write_all(&block[..length]).expect("there is room for the filler");
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // The keeper exits when its input ends; wait for it, so that no process is left.
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}
