//! Durations as people write them: a number and a unit, `0` excepted.

use std::time::Duration;

/// Reads `500ms`, `30s`, `2m`, `1h30m`, or `0`.
///
/// # Errors
/// A sentence that says what is wrong and what a duration looks like.
pub fn parse(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.');
    let parsed = if plain { humantime::parse_duration(text).ok() } else { None };
    parsed.ok_or_else(|| {
        format!(
            "`{}` is not a duration: write a number and a unit, as in 500ms, 30s or 2m",
            text.escape_debug()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_needed() {
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("0"), Ok(Duration::ZERO));
        assert_eq!(parse("0s"), Ok(Duration::ZERO));
        assert_eq!(parse("1ns"), Ok(Duration::from_nanos(1)));
        assert!(parse("584y").is_ok());
        for bad in ["", "5", "-1", "-1s", "1e3s", " 5s", "5s ", "NaN", "inf", "99999999999999999999y"] {
            assert!(parse(bad).unwrap_err().contains("500ms"), "{bad}");
        }
    }
}
