use bytes::Bytes;
use fencepost_core::Key;
use proptest::prelude::*;

use super::*;

const NAMES: usize = 12;

fn key(number: usize) -> RecordKey {
    RecordKey::value(&Key::new(&format!("k{number:02}")).unwrap())
}

fn everything() -> Scan {
    Scan { from: Vec::new(), inclusive: true, prefix: Vec::new(), limit: usize::MAX, max_bytes: usize::MAX }
}

/// What an engine does, with maps in place of tables.
struct Engine {
    recent: Recent,
    tables: BTreeMap<RecordKey, Record>,
    leaving: Option<Leaving>,
    /// What was found missing, and what the tables had, by readers that are slow.
    slow: Vec<(RecordKey, State, u64)>,
    committed: BTreeMap<RecordKey, Record>,
    last: u64,
}

#[derive(Clone, Debug)]
enum Act {
    Commit(Vec<(usize, Option<usize>)>),
    Leave,
    /// The first so many of the leaving records reach the tables.
    Save(usize),
    Left,
    /// A reader asks the tables, and keeps what it found at once, or later.
    Read {
        number: usize,
        slowly: bool,
    },
    KeepSlow,
}

fn any_act() -> impl Strategy<Value = Act> {
    let bytes = prop_oneof![0..200_usize, Just(MAX_CLEAN_BYTES), Just(MAX_CLEAN_BYTES + 1)];
    let changes = prop::collection::vec((0..NAMES, prop::option::weighted(0.8, bytes)), 1..6);
    prop_oneof![
        4 => changes.prop_map(Act::Commit),
        2 => Just(Act::Leave),
        2 => (0..NAMES).prop_map(Act::Save),
        2 => Just(Act::Left),
        4 => (0..NAMES, any::<bool>()).prop_map(|(number, slowly)| Act::Read { number, slowly }),
        1 => Just(Act::KeepSlow),
    ]
}

impl Engine {
    fn save(&mut self, most: usize) {
        let Some(leaving) = &self.leaving else { return };
        for (key, state) in leaving.sorted().into_iter().take(most) {
            match state {
                Some(record) => drop(self.tables.insert(key.clone(), record.clone())),
                None => drop(self.tables.remove(key)),
            }
        }
    }

    fn play(&mut self, act: &Act) {
        match act {
            Act::Commit(changes) => {
                let first = self.last + 1;
                let mut written = Vec::new();
                for (number, bytes) in changes {
                    self.last += 1;
                    let bytes = bytes.map(|bytes| Bytes::from(vec![self.last as u8; bytes]));
                    match &bytes {
                        Some(bytes) => {
                            let record = Record::whole(Version(self.last), bytes.clone());
                            self.committed.insert(key(*number), record);
                        }
                        None => drop(self.committed.remove(&key(*number))),
                    }
                    written.push((key(*number), bytes.map_or(Change::Delete, Change::Put)));
                }
                self.recent.publish(written, Version(first));
            }
            Act::Leave => self.leaving = self.recent.leave(),
            Act::Save(most) => self.save(*most),
            Act::Left => {
                self.save(usize::MAX);
                if let Some(leaving) = self.leaving.take() {
                    assert!(leaving.last <= self.last);
                    self.recent.left(leaving);
                }
            }
            Act::Read { number, slowly } => {
                let key = key(*number);
                if let Found::Missing(changes) = self.recent.find(&key) {
                    let state = self.tables.get(&key).cloned();
                    match slowly {
                        true => self.slow.push((key, state, changes)),
                        false => self.recent.keep(&key, &state, changes),
                    }
                }
            }
            Act::KeepSlow => {
                for (key, state, changes) in self.slow.drain(..) {
                    self.recent.keep(&key, &state, changes);
                }
            }
        }
    }

    fn check(&self) -> Result<(), TestCaseError> {
        for key in (0..NAMES).map(key) {
            let found = match self.recent.find(&key) {
                Found::Here(state) => state,
                Found::Missing(_) => self.tables.get(&key).cloned(),
            };
            prop_assert_eq!(found.as_ref(), self.committed.get(&key));
        }
        let mut merged = self.tables.clone();
        for (key, state) in self.recent.unsaved(&everything()).into_ordered(&everything()) {
            match state {
                Some(record) => drop(merged.insert(key, record)),
                None => drop(merged.remove(&key)),
            }
        }
        prop_assert_eq!(&merged, &self.committed);
        Ok(())
    }
}

proptest! {
    /// Whatever happens between commits, saving and slow readers: memory and tables together are what was committed.
    #[test]
    fn memory_and_tables_are_what_was_committed(
        acts in prop::collection::vec(any_act(), 1..60),
        clean_bytes in prop_oneof![Just(0_usize), Just(64 << 10), Just(8 << 20)],
    ) {
        let (recent, tables, committed) = (Recent::new(clean_bytes, 0), BTreeMap::new(), BTreeMap::new());
        let mut engine = Engine { recent, tables, leaving: None, slow: Vec::new(), committed, last: 0 };
        for act in &acts {
            engine.play(act);
            engine.check()?;
        }
    }
}

/// What is to be saved is named again until it has left, with the position that it reaches.
#[test]
fn records_that_have_not_left_are_named_again() {
    let recent = Recent::new(1 << 20, 40);
    assert!(recent.leave().is_none());
    let put = |number| vec![(key(number), Change::Put(Bytes::from_static(b"x")))];
    recent.publish(put(1), Version(41));
    assert_eq!(recent.leave().map(|leaving| leaving.last), Some(41));
    recent.publish(put(2), Version(42));
    let again = recent.leave().unwrap();
    assert_eq!((again.last, again.sorted().len()), (41, 1));
    recent.left(again);
    let next = recent.leave().unwrap();
    assert_eq!((next.last, next.sorted()[0].0), (42, &key(2)));
}

/// Bytes and records are counted as they are: a record that is written again takes no more room.
#[test]
fn fresh_records_are_counted() {
    let recent = Recent::new(1 << 20, 0);
    let put = |number, bytes| vec![(key(number), Change::Put(Bytes::from(vec![0; bytes])))];
    recent.publish(put(1, 100), Version(1));
    let one = recent.fresh_bytes();
    recent.publish(put(1, 60), Version(2));
    assert_eq!((recent.fresh_bytes(), recent.fresh_records()), (one - 40, 1));
    recent.publish(put(2, 100), Version(3));
    assert_eq!((recent.fresh_bytes(), recent.fresh_records()), (2 * one - 40, 2));
    recent.leave();
    assert_eq!((recent.fresh_bytes(), recent.fresh_records()), (0, 0));
}

/// A list holds up commits while it collects what the tables do not have, so records that are leaving are not copied then.
#[test]
fn a_list_copies_only_fresh_records_between_commits() {
    let put = |number: usize| (key(number), Change::Put(Bytes::from_static(b"v")));
    let recent = Recent::new(1 << 20, 0);
    recent.publish((0..NAMES).map(put).collect(), Version(1));
    let leaving = recent.leave().unwrap();
    recent.publish(vec![(key(0), Change::Delete), put(NAMES)], Version(100));
    assert_eq!(recent.unsaved_records(), NAMES + 2);
    let unsaved = recent.unsaved(&everything());
    assert_eq!(unsaved.fresh.len(), 2);
    let ordered = unsaved.into_ordered(&everything());
    assert_eq!(ordered.keys().cloned().collect::<Vec<_>>(), (0..=NAMES).map(key).collect::<Vec<_>>());
    assert_eq!(ordered[&key(0)], None, "a fresh record replaces a leaving one");
    recent.left(leaving);
    assert_eq!(recent.unsaved_records(), 2);
}
