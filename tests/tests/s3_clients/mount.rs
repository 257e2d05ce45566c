//! `rclone mount`: with `--vfs-cache-mode off` a writing program gets the refusal, with `writes` it sees success.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use fencepost_conformance::wait::{self, PATIENCE};
use fencepost_harness::bucketed::Bucketed;
use fencepost_harness::servers::program;
use tempfile::TempDir;

use crate::client::{S3Client, Said, path, said};
use crate::rclone::{Build, Current, Rclone};

/// The bucket `reports` as a directory. Unmounted when it is dropped.
struct Mount {
    rclone: Child,
    dir: TempDir,
    /// Its environment and home.
    _client: Rclone<Current>,
}

impl Mount {
    fn new(client: Rclone<Current>, cache_mode: &str) -> Mount {
        let dir = TempDir::new().unwrap();
        let mount = dir.path().join("mnt");
        std::fs::create_dir(&mount).unwrap();
        let log = std::fs::File::create(dir.path().join("log")).unwrap();
        let mut command = client.program().command(&Current::program());
        command.args([
            "mount",
            "fp:reports",
            path(&mount),
            "--vfs-cache-mode",
            cache_mode,
            "--vfs-write-back",
            "100ms",
        ]);
        command.stdout(Stdio::null()).stderr(log);
        let rclone = command.spawn().unwrap();
        let mut mount = Mount { rclone, dir, _client: client };
        wait::until("rclone to mount", PATIENCE, || {
            let ended = mount.rclone.try_wait().unwrap();
            assert!(
                ended.is_none(),
                "rclone ended ({ended:?}; a mount needs /dev/fuse and fusermount3): {}",
                mount.log()
            );
            let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
            mounts.contains(path(&mount.directory())).then_some(())
        });
        mount
    }

    fn directory(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    /// Copies a file with `cp`, as a user would.
    fn copy_in(&self, text: &str, name: &str) -> Said {
        let file = self.dir.path().join("file");
        std::fs::write(&file, text).unwrap();
        said(Command::new("cp").arg(file).arg(self.directory().join(name)))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // This ends rclone too.
        let unmounted = Command::new(program("fusermount3", &[])).arg("-uz").arg(self.directory()).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            let _ = self.rclone.kill();
        }
        let _ = self.rclone.wait();
    }
}

fn mounted(gateway: &Bucketed, cache_mode: &str) -> Mount {
    let client = Rclone::new(&format!("http://{}", gateway.s3()), &gateway.credentials("reports", "33"));
    Mount::new(client, cache_mode)
}

fn read(gateway: &Bucketed, name: &str) -> String {
    let file: &Path = &gateway.objects().join("reports").join(name);
    std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

#[test]
fn without_a_cache_the_program_that_writes_is_told() {
    let gateway = Bucketed::start();
    let mount = mounted(&gateway, "off");
    mount.copy_in("of 33", "report").expect_ok("33 is the holder");
    assert_eq!(read(&gateway, "report"), "of 33", "cp has returned, so it is there");
    gateway.credentials("reports", "34");
    let late = mount.copy_in("late", "report");
    assert!(!late.ok, "cp was told that all is well: {late:?}\n{}", mount.log());
    wait::until("rclone to log why", PATIENCE, || mount.log().contains("StaleFencingToken").then_some(()));
    assert_eq!(read(&gateway, "report"), "of 33");
}

/// The reason why the documentation recommends `off`.
#[test]
fn with_a_cache_of_writes_it_is_not() {
    let gateway = Bucketed::start();
    let mount = mounted(&gateway, "writes");
    mount.copy_in("of 33", "report").expect_ok("33 is the holder");
    wait::until("the cache to be written back", PATIENCE, || {
        gateway.files().contains_key("reports/report").then_some(())
    });
    gateway.credentials("reports", "34");
    mount.copy_in("late", "report").expect_ok("rclone says so before it knows");
    wait::until("rclone to be refused", PATIENCE, || mount.log().contains("StaleFencingToken").then_some(()));
    assert_eq!(read(&gateway, "report"), "of 33", "the fence holds all the same");
}
