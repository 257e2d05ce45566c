//! How a run was started, and the commands that repeat a part of it.

use super::text::quoted;

/// The command line of a run, for reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    /// The version of the tool.
    pub version: String,
    /// The adapter, with the options that matter for it: `http --map resource.toml`.
    pub adapter: Vec<String>,
    /// The part after the options: `-- ./adapter.py`.
    pub program: Vec<String>,
    /// The value of `--rounds`.
    pub rounds: Option<u64>,
    /// The value of `--case-limit`, as it was written.
    pub case_limit: Option<String>,
}

impl Setting {
    /// The command that runs one case again with the same seed.
    pub fn again(&self, case: &str, seed: u64) -> String {
        let mut words = vec!["fencepost".to_owned(), "conform".to_owned()];
        words.extend(self.adapter.iter().cloned());
        words.extend(["--only".to_owned(), case.to_owned(), "--seed".to_owned(), seed.to_string()]);
        words.extend(self.rounds.iter().flat_map(|rounds| ["--rounds".to_owned(), rounds.to_string()]));
        words.extend(self.case_limit.iter().flat_map(|limit| ["--case-limit".to_owned(), limit.clone()]));
        words.extend(self.program.iter().cloned());
        words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
    }

    /// The command that judges a recorded history again.
    pub fn recheck(&self, file: &str) -> String {
        format!("fencepost conform recheck {}", quoted(file))
    }
}

#[cfg(test)]
mod tests {
    use super::Setting;

    #[test]
    fn options_stand_before_the_adapter() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let setting = Setting {
            version: "0.1.0".into(),
            adapter: words(&["exec", "--instances", "2"]),
            program: words(&["--", "python3", "my adapter.py"]),
            rounds: Some(20),
            case_limit: Some("1h".into()),
        };
        assert_eq!(
            setting.again("C01", 7),
            "fencepost conform exec --instances 2 --only C01 --seed 7 --rounds 20 --case-limit 1h -- python3 'my adapter.py'"
        );
    }
}
