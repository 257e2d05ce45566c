//! Tests the properties that the layout relies on, and refuses a file system that lacks one.

use std::io::{Read, Write};

use rustix::io::Errno;

use super::dir::{Dir, kind};
use super::ownership::OpenError;

const PROBE: &str = "probe";
const COMPOSED: &str = "\u{e9}";
const DECOMPOSED: &str = "e\u{301}";

/// Runs all tests in a directory of their own, and removes it afterwards.
pub(super) fn run(ours: &Dir, shown: &str) -> Result<(), OpenError> {
    let result = clear(ours).and_then(|()| probe(ours));
    let cleared = clear(ours);
    let found = result.and_then(|found| cleared.map(|()| found)).map_err(|error| OpenError::Failed {
        path: shown.to_owned(),
        what: "trying out the file system in `.fencepost/probe`".to_owned(),
        error: error.to_string(),
    })?;
    match found {
        None => Ok(()),
        Some(fault) => Err(OpenError::Unfit { path: shown.to_owned(), why: format!("{fault}; use another one") }),
    }
}

/// Returns the first property that does not hold.
fn probe(ours: &Dir) -> std::io::Result<Option<&'static str>> {
    let dir = ours.open_or_make_dir(PROBE, 0o700)?;
    let mut old = dir.create("target", 0o600)?;
    old.write_all(b"old")?;
    let mut new = dir.create("source", 0o600)?;
    new.write_all(b"new")?;
    new.sync_all()?;
    let inode = dir.stat("source")?.map(|stat| stat.st_ino);
    let mut opened = dir.open_file("target")?.map(|(file, _)| file);
    dir.rename("source", &dir, "target")?;
    if dir.stat("source")?.is_some() || read(dir.open_file("target")?.map(|(file, _)| file).as_mut())? != b"new" {
        return Ok(Some("its file system does not replace a file by renaming another"));
    }
    if dir.stat("target")?.map(|stat| stat.st_ino) != inode {
        return Ok(Some("its file system gives a file another inode number when it is renamed"));
    }
    if read(opened.as_mut())? != b"old" {
        return Ok(Some("its file system does not keep an open file readable after another took its name"));
    }
    if dir.sync().is_err() {
        return Ok(Some("its file system cannot sync a directory, so a new name could be lost in a crash"));
    }
    dir.create("case", 0o600)?;
    if dir.stat("CASE")?.is_some() {
        return Ok(Some("its file system takes `case` and `CASE` for the same name, so two objects could be one file"));
    }
    dir.create(COMPOSED, 0o600)?;
    match dir.create(DECOMPOSED, 0o600) {
        Ok(_) if has(&dir, COMPOSED)? && has(&dir, DECOMPOSED)? => Ok(None),
        Ok(_) | Err(Errno::EXIST) => {
            Ok(Some("its file system rewrites names (Unicode normalisation), so two objects could be one file"))
        }
        Err(error) => Err(error.into()),
    }
}

fn read(file: Option<&mut std::fs::File>) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(file) = file {
        file.read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// Returns whether the listing has exactly this name.
fn has(dir: &Dir, name: &str) -> std::io::Result<bool> {
    for entry in dir.entries()? {
        if entry?.file_name().to_bytes() == name.as_bytes() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes the files of this run or of an interrupted one.
fn clear(ours: &Dir) -> std::io::Result<()> {
    match ours.stat(PROBE)? {
        None => return Ok(()),
        Some(stat) if !kind(&stat).is_dir() => return Ok(ours.remove_file(PROBE).map(drop)?),
        Some(_) => {}
    }
    let dir = ours.open_dir(PROBE)?;
    for entry in dir.entries()? {
        rustix::fs::unlinkat(&dir, entry?.file_name(), rustix::fs::AtFlags::empty())?;
    }
    ours.remove_dir(PROBE).map(drop)?;
    Ok(())
}
