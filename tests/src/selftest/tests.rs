use super::{Budget, selftest};

#[test]
fn try_it() {
    let budget = Budget { matrix: std::env::var("MATRIX").is_ok(), ..Budget::default() };
    let began = std::time::Instant::now();
    let report = selftest(&budget, &|_, _| ());
    println!("{}\n{:?}", report.text(), began.elapsed());
}
