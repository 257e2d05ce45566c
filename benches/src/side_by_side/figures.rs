//! Figures of several rounds, and their formatting.

/// The results of several rounds for one figure.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rounds(Vec<f64>);

impl Rounds {
    pub(crate) fn add(&mut self, figure: f64) {
        self.0.push(figure);
        self.0.sort_by(f64::total_cmp);
    }

    /// The median; the mean of the middle two for an even count. NaN if there are none.
    pub(crate) fn median(&self) -> f64 {
        let figures = &self.0;
        match figures.len() {
            0 => f64::NAN,
            odd if odd % 2 == 1 => figures[odd / 2],
            even => f64::midpoint(figures[even / 2 - 1], figures[even / 2]),
        }
    }

    pub(crate) fn highest(&self) -> f64 {
        self.0.last().copied().unwrap_or(f64::NAN)
    }

    /// The lowest and the highest.
    pub(crate) fn spread(&self) -> String {
        format!("{}–{}", grouped(self.0.first().copied().unwrap_or(f64::NAN)), grouped(self.highest()))
    }
}

impl FromIterator<f64> for Rounds {
    fn from_iter<I: IntoIterator<Item = f64>>(figures: I) -> Rounds {
        let mut rounds = Rounds::default();
        figures.into_iter().for_each(|figure| rounds.add(figure));
        rounds
    }
}

/// The quantile of sorted values: `part` of them are not above it.
pub(crate) fn quantile(sorted: &[u64], part: f64) -> u64 {
    let rank = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied().unwrap_or(0)
}

/// A whole number with commas between thousands.
pub(crate) fn grouped(figure: f64) -> String {
    if !figure.is_finite() {
        return "–".to_owned();
    }
    let digits = format!("{:.0}", figure.abs());
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if figure < 0.0 && digits != "0" { format!("-{text}") } else { text }
}

/// Two significant digits, from 0.012 to 1,234.
pub(crate) fn short(figure: f64) -> String {
    match figure.abs() {
        size if size >= 100.0 => grouped(figure),
        size if size >= 10.0 => format!("{figure:.1}"),
        size if size >= 0.1 || size == 0.0 => format!("{figure:.2}"),
        size if size.is_finite() => format!("{figure:.3}"),
        _ => "–".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_rounds() {
        assert_eq!([3.0, 1.0, 2.0].into_iter().collect::<Rounds>().median(), 2.0);
        assert_eq!([4.0, 1.0, 2.0, 3.0].into_iter().collect::<Rounds>().median(), 2.5);
        assert!(Rounds::default().median().is_nan());
        assert_eq!([1500.0, 7.0].into_iter().collect::<Rounds>().spread(), "7–1,500");
    }

    #[test]
    fn quantiles_are_values_that_were_seen() {
        let hundred: Vec<u64> = (1..=100).collect();
        assert_eq!((quantile(&hundred, 0.5), quantile(&hundred, 0.99), quantile(&hundred, 0.999)), (50, 99, 100));
        assert_eq!((quantile(&[7], 0.5), quantile(&[], 0.5)), (7, 0));
    }

    #[test]
    fn numbers_are_grouped() {
        let grouped: Vec<String> = [0.0, 999.4, 1000.0, 1_234_567.0, -1000.0].into_iter().map(grouped).collect();
        assert_eq!(grouped, ["0", "999", "1,000", "1,234,567", "-1,000"]);
        let short: Vec<String> = [0.0, 0.0123, 0.5, 12.34, 1234.0, f64::NAN].into_iter().map(short).collect();
        assert_eq!(short, ["0.00", "0.012", "0.50", "12.3", "1,234", "–"]);
    }
}
