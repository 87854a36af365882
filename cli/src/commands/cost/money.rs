//! Amounts of money, exact to AWS' ten decimals.

use std::fmt;
use std::ops::Add;
use std::str::FromStr;

/// In ten-thousand-millionths of the currency's unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Money(u128);

const DECIMALS: usize = 10;
const ONE: u128 = 10_u128.pow(DECIMALS as u32);
const CENT: u128 = ONE / 100;

impl Money {
    pub(super) fn times(self, number: u64) -> Self {
        Self(self.0 * u128::from(number))
    }

    pub(super) fn over(self, number: u64) -> Self {
        Self(self.0 / u128::from(number.max(1)))
    }

    /// All digits that are not 0, for unit prices.
    pub(super) fn exact(self) -> String {
        let text = format!("{}.{:0width$}", self.0 / ONE, self.0 % ONE, width = DECIMALS);
        let kept = text.trim_end_matches('0');
        if kept.ends_with('.') { format!("{kept}0") } else { kept.to_owned() }
    }
}

impl Add for Money {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

/// To the cent, halves up.
impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cents = (self.0 + CENT / 2) / CENT;
        write!(f, "{}.{:02}", cents / 100, cents % 100)
    }
}

impl FromStr for Money {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        if part.len() > DECIMALS
            || whole.is_empty()
            || !(whole.to_owned() + part).bytes().all(|c| c.is_ascii_digit())
        {
            return Err(());
        }
        let (whole, part): (u128, u128) =
            (whole.parse().map_err(drop)?, format!("{part:0<DECIMALS$}").parse().map_err(drop)?);
        whole.checked_mul(ONE).and_then(|whole| whole.checked_add(part)).map(Self).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn money_is_exact_and_shown_to_the_cent() {
        let hourly: Money = "0.0416000000".parse().unwrap();
        assert_eq!(hourly.exact(), "0.0416");
        assert_eq!(hourly.times(730).to_string(), "30.37");
        assert_eq!(hourly.times(730 * 1000).to_string(), "30368.00");
        let half: Money = "0.005".parse().unwrap();
        assert_eq!(
            (half.to_string(), (half + half).to_string(), half.over(2).to_string()),
            ("0.01".to_owned(), "0.01".to_owned(), "0.00".to_owned())
        );
        assert_eq!("40.96".parse::<Money>().unwrap().over(1024).exact(), "0.04");
        assert_eq!("12".parse::<Money>().unwrap().exact(), "12.0");
        for bad in ["", ".5", "-1", "1e3", "0.12345678901", "x", "1.2.3"] {
            assert_eq!(bad.parse::<Money>(), Err(()), "{bad}");
        }
    }
}
