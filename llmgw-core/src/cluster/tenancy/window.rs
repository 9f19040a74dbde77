//! Windows of time that limits are counted in: they begin with the clock, in UTC.

use std::{fmt, time::Duration};

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;

/// How long a window is.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Period {
    /// From one full minute to the next.
    Minute,
    /// From one full hour to the next.
    Hour,
    /// A day, from midnight.
    Day,
    /// A calendar month.
    Month,
    /// For ever.
    Total,
}

/// A window of time.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Window {
    /// How long it is.
    pub period: Period,
    /// When it began.
    pub begins: Timestamp,
}

// === impl Window ===

impl Window {
    /// The window that `now` is in.
    #[must_use]
    pub fn of(period: Period, now: Timestamp) -> Self {
        let begins = match period {
            Period::Minute => whole(now, MINUTE),
            Period::Hour => whole(now, HOUR),
            Period::Day => whole(now, DAY),
            Period::Month => {
                let (year, month) = month_of(now);
                first_of(year, month)
            }
            Period::Total => Timestamp(0),
        };
        Self { period, begins }
    }

    /// When it is over, and the next one begins; `None` when it never is.
    #[must_use]
    pub fn ends(self) -> Option<Timestamp> {
        let after = |millis: i64| Timestamp(self.begins.0.saturating_add(millis));
        match self.period {
            Period::Minute => Some(after(MINUTE)),
            Period::Hour => Some(after(HOUR)),
            Period::Day => Some(after(DAY)),
            Period::Month => {
                let (year, month) = month_of(self.begins);
                let next = if month == 12 {
                    (year.saturating_add(1), 1)
                } else {
                    (year, month + 1)
                };
                Some(first_of(next.0, next.1))
            }
            Period::Total => None,
        }
    }

    /// How long it lasts from `now` on; `None` when it never ends.
    #[must_use]
    pub fn left(self, now: Timestamp) -> Option<Duration> {
        Some(self.ends()?.since(now))
    }
}

// === impl Period ===

impl Period {
    /// The period as it stands in tables and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Month => "month",
            Self::Total => "total",
        }
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

fn whole(now: Timestamp, millis: i64) -> Timestamp {
    Timestamp(now.0.div_euclid(millis).saturating_mul(millis))
}

/// The year and the month, from 1, of a time: Howard Hinnant's `civil_from_days`.
fn month_of(time: Timestamp) -> (i64, i64) {
    let days = time.0.div_euclid(DAY).saturating_add(719_468);
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    // From March on, so that the day that may be missing is the last.
    let from_march = (5 * of_year + 2) / 153;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    (year + era * 400 + i64::from(month <= 2), month)
}

/// The beginning of a month: Howard Hinnant's `days_from_civil`.
fn first_of(year: i64, month: i64) -> Timestamp {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let from_march = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * from_march + 2) / 5;
    let days = of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    Timestamp((era * 146_097 + days - 719_468).saturating_mul(DAY))
}

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PERIODS: [Period; 5] = [
        Period::Minute,
        Period::Hour,
        Period::Day,
        Period::Month,
        Period::Total,
    ];

    /// Seconds, as `date -u -d … +%s` says them.
    fn month(now: i64) -> (i64, i64) {
        let window = Window::of(Period::Month, Timestamp(now * 1_000));
        (window.begins.0 / 1_000, window.ends().unwrap().0 / 1_000)
    }

    #[test]
    fn months_are_those_of_the_calendar() {
        // 2024-02-29 12:00:00: February of a leap year.
        assert_eq!(month(1_709_208_000), (1_706_745_600, 1_709_251_200));
        // 2025-12-31 23:59:59, and a second later.
        assert_eq!(month(1_767_225_599), (1_764_547_200, 1_767_225_600));
        assert_eq!(month(1_767_225_600), (1_767_225_600, 1_769_904_000));
        // 1970-01-01 and the day before.
        assert_eq!(month(0), (0, 2_678_400));
        assert_eq!(month(-1), (-2_678_400, 0));
    }

    #[test]
    fn a_total_never_ends() {
        let window = Window::of(Period::Total, Timestamp(77));
        assert_eq!((window.begins, window.ends()), (Timestamp(0), None));
        assert_eq!(window.left(Timestamp(77)), None);
        let minute = Window::of(Period::Minute, Timestamp(61_500));
        assert_eq!(
            minute.left(Timestamp(61_500)),
            Some(Duration::from_millis(58_500))
        );
    }

    proptest! {
        #[test]
        fn now_is_within_its_window_and_the_next_begins_where_it_ends(
            now in -4_000_000_000_000_i64..8_000_000_000_000,
        ) {
            for period in PERIODS {
                let window = Window::of(period, Timestamp(now));
                let Some(ends) = window.ends() else { continue };
                prop_assert!(window.begins.0 <= now && now < ends.0, "{window:?}");
                prop_assert_eq!(Window::of(period, ends).begins, ends);
                prop_assert_eq!(Window::of(period, window.begins), window);
            }
        }
    }
}
