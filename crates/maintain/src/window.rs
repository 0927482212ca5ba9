use std::str::FromStr;

/// The hours of the day in which steps may begin, as in `01:00-05:00` or, past midnight, `22:30-04:00`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Minutes since midnight.
    from: u32,
    to: u32,
}

impl Window {
    /// Whether the window, from start to before end, has this minute of the day.
    #[must_use]
    pub fn contains(&self, minute: u32) -> bool {
        let Self { from, to } = *self;
        if from < to { (from..to).contains(&minute) } else { minute >= from || minute < to }
    }
}

impl FromStr for Window {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("\"{text}\" is no window: write it as 01:00-05:00");
        let minute = |time: &str| {
            let (hour, minute) = time.split_once(':')?;
            let (hour, minute): (u32, u32) = (hour.parse().ok()?, minute.parse().ok()?);
            (hour < 24 && minute < 60).then_some(60 * hour + minute)
        };
        let (from, to) = text.split_once('-').ok_or_else(wrong)?;
        let (from, to) = (minute(from).ok_or_else(wrong)?, minute(to).ok_or_else(wrong)?);
        if from == to { Err(wrong()) } else { Ok(Self { from, to }) }
    }
}

#[cfg(test)]
mod tests {
    use super::Window;

    #[test]
    fn windows_may_go_past_midnight() {
        let night: Window = "22:30-04:00".parse().unwrap();
        assert!([1350, 1439, 0, 239].iter().all(|&minute| night.contains(minute)));
        assert!([240, 1349, 720].iter().all(|&minute| !night.contains(minute)));
        let day: Window = "01:00-05:00".parse().unwrap();
        assert!(day.contains(60) && day.contains(299) && !day.contains(300) && !day.contains(59));
        for bad in ["", "1-2", "01:00-01:00", "24:00-01:00", "01:60-02:00", "01:00"] {
            assert!(bad.parse::<Window>().is_err(), "{bad}");
        }
    }
}
