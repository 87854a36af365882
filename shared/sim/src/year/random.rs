//! A deterministic random number generator.

/// SplitMix64: small, fast, and good enough for random choices (Steele, Lea and Flood, 2014).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A generator whose numbers all follow from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..end`; 0 if that is empty.
    pub fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.number() % end }
    }

    /// Whether an event with that probability happens.
    pub fn chance(&mut self, probability: f64) -> bool {
        let number = (self.number() >> 11) as f64 / (1u64 << 53) as f64;
        number < probability
    }

    /// A number of seconds in `least..most`.
    pub fn seconds(&mut self, least: i64, most: i64) -> i64 {
        let span = u64::try_from(most - least).unwrap_or_default();
        least + i64::try_from(self.below(span)).unwrap_or_default()
    }

    /// A random element of `all`; `None` if it is empty.
    pub fn one<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        let at = self.below(all.len() as u64);
        all.get(usize::try_from(at).unwrap_or_default())
    }
}
