//! The same files without a server: a careful program that writes each file under a temporary name, syncs it, renames
//! it, and syncs the directory.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::small::{Does, content, name, stocked};
use super::{LARGE, ObjectPeer, READ_OBJECTS, block};
use crate::figures::quantile;
use crate::{Outcome, Timing};

pub(crate) struct Direct {
    directory: PathBuf,
}

impl Direct {
    pub(crate) fn start(home: &Path) -> Result<Direct, String> {
        let direct = Direct { directory: home.join("direct") };
        let bytes = content(0);
        let filled = (0..READ_OBJECTS)
            .try_for_each(|object| write(&direct.directory.join(stocked(object)), 0, &mut [&bytes[..]].into_iter()));
        filled.map_err(|error| error.to_string())?;
        Ok(direct)
    }
}

/// Writes a file durably: once this returns, the complete file survives a crash of the machine.
fn write(path: &Path, thread: usize, pieces: &mut dyn Iterator<Item = &[u8]>) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    if !directory.exists() {
        fs::create_dir_all(directory)?;
    }
    let beside = directory.join(format!(".new-{thread}"));
    let mut file = File::create(&beside)?;
    for piece in pieces {
        file.write_all(piece)?;
    }
    file.sync_all()?;
    fs::rename(&beside, path)?;
    File::open(directory)?.sync_all()
}

/// Reads a file to its end, and returns its size in bytes.
fn read(path: &Path, buffer: &mut [u8]) -> io::Result<usize> {
    let (mut file, mut all) = (File::open(path)?, 0);
    loop {
        match file.read(buffer)? {
            0 => return Ok(all),
            bytes => all += bytes,
        }
    }
}

impl ObjectPeer for Direct {
    fn name(&self) -> &'static str {
        "files, synced"
    }

    fn small(&mut self, does: Does, connections: usize, time: Timing) -> Result<Outcome, String> {
        let begin = Instant::now() + time.warm_up;
        let end = begin + time.duration;
        let work = |thread: usize| -> io::Result<Vec<u64>> {
            let (bytes, mut buffer, mut micros) = (content(thread as u64), vec![0; 64 << 10], Vec::new());
            for sent in 0.. {
                let (path, started) = (self.directory.join(name(does, thread as u64, sent)), Instant::now());
                match does {
                    Does::Get => {
                        read(&path, &mut buffer)?;
                    }
                    Does::Put => write(&path, thread, &mut [&bytes[..]].into_iter())?,
                }
                let now = Instant::now();
                if now > end {
                    break;
                }
                if started >= begin {
                    micros.push(u64::try_from((now - started).as_micros()).unwrap_or(u64::MAX));
                }
            }
            Ok(micros)
        };
        let mut micros = Vec::new();
        std::thread::scope(|scope| -> Result<(), String> {
            let work = &work;
            let threads: Vec<_> = (0..connections).map(|thread| scope.spawn(move || work(thread))).collect();
            for thread in threads {
                let done = thread.join().map_err(|_| "a thread that writes files panicked".to_owned())?;
                micros.extend(done.map_err(|error| error.to_string())?);
            }
            Ok(())
        })?;
        micros.sort_unstable();
        let millis = |part| quantile(&micros, part) as f64 / 1000.0;
        let answers = micros.len() as f64;
        let rate = answers / time.duration.as_secs_f64();
        Ok(Outcome { rate, p50: millis(0.5), p99: millis(0.99), p999: millis(0.999), answers })
    }

    fn put_large(&mut self) -> Result<Duration, String> {
        let (block, begun) = (block(), Instant::now());
        let mut pieces = std::iter::repeat_n(&block[..], LARGE / block.len());
        write(&self.directory.join("large"), 0, &mut pieces).map_err(|error| error.to_string())?;
        Ok(begun.elapsed())
    }

    fn get_large(&mut self) -> Result<Duration, String> {
        let begun = Instant::now();
        let bytes = read(&self.directory.join("large"), &mut vec![0; 1 << 20]).map_err(|error| error.to_string())?;
        if bytes == LARGE { Ok(begun.elapsed()) } else { Err(format!("the large file has {bytes} bytes")) }
    }

    fn process(&self) -> Option<u32> {
        None
    }
}
