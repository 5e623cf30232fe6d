use std::{collections::HashMap, fmt, io, str::FromStr};

use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt as _, AsyncWrite, AsyncWriteExt as _},
    sync::mpsc,
    task::JoinSet,
};

use super::{Held, NotAPlace, NotAPoint, Place, Point, Probes, When};

/// What an experiment tells the probes of another process, a line each.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command {
    /// `hold <id> <point> <when>`: hold what comes, under this number.
    Hold {
        /// The number of the barrier.
        id: u64,
        /// Where.
        point: Point,
        /// What.
        when: When,
    },
    /// `release <id>`: let go what is held under this number.
    Release {
        /// The number of the barrier.
        id: u64,
    },
    /// `panic <point> <when>`: let the work that comes panic.
    Panic {
        /// Where.
        point: Point,
        /// What.
        when: When,
    },
    /// `exit <status> <point> <when>`: end the process when work comes.
    Exit {
        /// The status of the process.
        status: i32,
        /// Where.
        point: Point,
        /// What.
        when: When,
    },
    /// `disarm <point>`: forget all that is armed there.
    Disarm {
        /// Where.
        point: Point,
    },
}

/// What the probes of a process tell an experiment, a line each.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// `done <command>`: the command was carried out.
    Done(Command),
    /// `reached <id> <place>..`: something is held under this number, for the
    /// first time.
    Reached {
        /// The number of the barrier.
        id: u64,
        /// The records that it is about.
        places: Vec<Place>,
    },
    /// `refused <line>`: this is no command, or its number is taken, or names
    /// no barrier.
    Refused(String),
}

/// A line is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotALine {
    /// It has other words, or more or fewer, than the forms that there are.
    #[error("`{0}` has none of the forms of a line")]
    Form(String),
    /// It names a point that is none.
    #[error(transparent)]
    Point(#[from] NotAPoint),
    /// It names a place that is none.
    #[error(transparent)]
    Place(#[from] NotAPlace),
}

impl Probes {
    /// Carries out the commands that come over a pipe, and tells what is
    /// reached, until the pipe ends.
    ///
    /// What is held then is released: an experiment that is gone holds nothing.
    ///
    /// # Errors
    ///
    /// When the pipe breaks.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it releases what it holds.
    pub async fn serve<C, E>(&self, commands: C, mut events: E) -> io::Result<()>
    where
        C: AsyncBufRead + Unpin,
        E: AsyncWrite + Unpin,
    {
        let mut lines = commands.lines();
        let mut held = HashMap::new();
        let mut waits = JoinSet::new();
        let (reached, mut reports) = mpsc::channel(16);
        loop {
            let event = tokio::select! {
                line = lines.next_line() => match line? {
                    Some(line) => self.obey(&line, &mut held, &mut waits, &reached),
                    None => return Ok(()),
                },
                Some(report) = reports.recv() => report,
            };
            events.write_all(format!("{event}\n").as_bytes()).await?;
            events.flush().await?;
        }
    }

    fn obey(
        &self,
        line: &str,
        held: &mut HashMap<u64, Held>,
        waits: &mut JoinSet<()>,
        reached: &mpsc::Sender<Event>,
    ) -> Event {
        let refused = || Event::Refused(line.to_owned());
        let Ok(command) = line.parse::<Command>() else {
            return refused();
        };
        match &command {
            Command::Hold { id, .. } if held.contains_key(id) => return refused(),
            Command::Hold { id, point, when } => {
                let barrier = self.hold(*point, when.clone());
                let (id, gate, reached) = (*id, barrier.gate.clone(), reached.clone());
                waits.spawn(async move {
                    let places = gate.reached().await;
                    // The experiment is gone.
                    drop(reached.send(Event::Reached { id, places }).await);
                });
                held.insert(id, barrier);
            }
            Command::Release { id } => match held.remove(id) {
                Some(barrier) => barrier.release(),
                None => return refused(),
            },
            Command::Panic { point, when } => self.panic(*point, when.clone()),
            Command::Exit { status, point, when } => self.exit(*point, when.clone(), *status),
            Command::Disarm { point } => self.disarm(*point),
        }
        Event::Done(command)
    }
}

// ===== impl Command =====

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hold { id, point, when } => write!(f, "hold {id} {point} {when}"),
            Self::Release { id } => write!(f, "release {id}"),
            Self::Panic { point, when } => write!(f, "panic {point} {when}"),
            Self::Exit { status, point, when } => write!(f, "exit {status} {point} {when}"),
            Self::Disarm { point } => write!(f, "disarm {point}"),
        }
    }
}

impl FromStr for Command {
    type Err = NotALine;

    fn from_str(line: &str) -> Result<Self, NotALine> {
        let form = |_| NotALine::Form(line.to_owned());
        Ok(match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["hold", id, point, when] => Self::Hold {
                id: id.parse().map_err(form)?,
                point: point.parse()?,
                when: when.parse()?,
            },
            ["release", id] => Self::Release { id: id.parse().map_err(form)? },
            ["panic", point, when] => Self::Panic { point: point.parse()?, when: when.parse()? },
            ["exit", status, point, when] => Self::Exit {
                status: status.parse().map_err(form)?,
                point: point.parse()?,
                when: when.parse()?,
            },
            ["disarm", point] => Self::Disarm { point: point.parse()? },
            _ => return Err(NotALine::Form(line.to_owned())),
        })
    }
}

// ===== impl Event =====

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(command) => write!(f, "done {command}"),
            Self::Reached { id, places } => {
                write!(f, "reached {id}")?;
                places.iter().try_for_each(|place| write!(f, " {place}"))
            }
            Self::Refused(line) => write!(f, "refused {line}"),
        }
    }
}

impl FromStr for Event {
    type Err = NotALine;

    fn from_str(line: &str) -> Result<Self, NotALine> {
        let form = || NotALine::Form(line.to_owned());
        let (word, rest) = line.split_once(' ').ok_or_else(form)?;
        Ok(match word {
            "done" => Self::Done(rest.parse()?),
            "reached" => {
                let mut words = rest.split_whitespace();
                let id = words.next().and_then(|id| id.parse().ok()).ok_or_else(form)?;
                Self::Reached { id, places: words.map(str::parse).collect::<Result<_, _>>()? }
            }
            "refused" => Self::Refused(rest.to_owned()),
            _ => return Err(form()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Command, Event};

    #[test]
    fn lines_are_read_as_they_are_written() {
        for line in [
            "hold 3 after-effect transfers:0@7",
            "release 3",
            "panic before-begin *:*@*",
            "exit 9 after-marker *:1@5..",
            "disarm completed",
        ] {
            assert_eq!(line.parse::<Command>().unwrap().to_string(), line);
            let done = format!("done {line}");
            assert_eq!(done.parse::<Event>().unwrap().to_string(), done);
        }
        for line in ["reached 3 transfers:0@7 transfers:0@8", "refused hold on"] {
            assert_eq!(line.parse::<Event>().unwrap().to_string(), line);
        }
    }

    #[test]
    fn what_is_no_line_is_refused() {
        for line in ["", "hold", "hold x after-effect *:*@*", "hold 1 nowhere *:*@*", "release"] {
            assert!(line.parse::<Command>().is_err(), "{line}");
        }
        for line in ["", "done", "done x", "reached x", "else 1"] {
            assert!(line.parse::<Event>().is_err(), "{line}");
        }
    }
}
