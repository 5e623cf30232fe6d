use std::{collections::BTreeMap, fmt, str::FromStr};

use serde_json::Value;
use tidegate_testkit::{Event, NotALine};

/// What a worker tells the lab, a line each.
#[derive(Clone, Debug, PartialEq)]
pub enum Line {
    /// What its probes tell.
    Probe(Event),
    /// `counters <json>`: what its layers have counted, by name and labels.
    Counters(BTreeMap<String, f64>),
    /// `status <json>`: how its partitions stand.
    Status(Value),
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Probe(event) => event.fmt(f),
            Self::Counters(counters) => write!(f, "counters {}", serde_json::json!(counters)),
            Self::Status(status) => write!(f, "status {status}"),
        }
    }
}

impl FromStr for Line {
    type Err = NotALine;

    fn from_str(line: &str) -> Result<Self, NotALine> {
        let form = |_| NotALine::Form(line.to_owned());
        Ok(match line.split_once(' ') {
            Some(("counters", json)) => Self::Counters(serde_json::from_str(json).map_err(form)?),
            Some(("status", json)) => Self::Status(serde_json::from_str(json).map_err(form)?),
            _ => Self::Probe(line.parse()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Line;

    #[test]
    fn lines_are_read_as_they_are_written() {
        for line in
            [r#"counters {"a{b=c}":2.0}"#, r#"status [{"lag":null}]"#, "reached 3 transfers:0@7"]
        {
            assert_eq!(line.parse::<Line>().unwrap().to_string(), line);
        }
        for line in ["counters", "counters x", "status ]", ""] {
            assert!(line.parse::<Line>().is_err(), "{line}");
        }
    }
}
