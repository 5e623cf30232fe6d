use std::{os::unix::process::ExitStatusExt as _, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, bail};
use fastrand::Rng;
use nix::sys::signal::Signal;
use tidegate_testkit::{Command, Mode, Point, Proxy, Toward, When};
use tokio::time::{Instant, sleep, timeout};

use super::{super::common::LAYERS, goes_on, tally::Tally};
use crate::{
    case::Case,
    member::Member,
    services::KafkaProxy,
    worker::{Arguments, IMPATIENT},
};

/// A place in the group: a member with its two proxies, and what comes next
/// when it dies.
pub(super) struct Slot<'a> {
    case: &'a Case,
    tally: &'a Tally,
    chance: Rng,
    number: u64,
    lives: u32,
    member: Arc<Member>,
    kafka: KafkaProxy<'a>,
    database: Proxy,
}

/// How long a member may be without work.
const IDLE: Duration = Duration::from_secs(8);

/// The status of a process that ends at a point.
const AT_A_POINT: i32 = 9;

// ===== impl Slot =====

impl<'a> Slot<'a> {
    pub(super) async fn begin(
        case: &'a Case,
        tally: &'a Tally,
        number: u64,
        chance: Rng,
    ) -> Result<Self> {
        let kafka = case.services().kafka_proxy().await?;
        let database = case.database_proxy().await?;
        let arguments = arguments(case, number, 1, &kafka, &database)?;
        let member = case.start(arguments).await?;
        Ok(Self { case, tally, chance, number, lives: 1, member, kafka, database })
    }

    pub(super) fn member(&self) -> &Member {
        &self.member
    }

    /// Lets it suffer one fault after the other. At the end everything is as it
    /// should be.
    pub(super) async fn suffer(mut self, over: Instant) -> Result<Self> {
        while goes_on(self.millis(1_500, 7_000), over).await {
            if let Some(status) = self.member.end_now()? {
                if self.member.has_worked() {
                    bail!("{} ended by itself, with {status}", self.member.name());
                }
                // What it needs was not there when it started.
                self.tally.missed_one("not started");
                self.again().await?;
                continue;
            }
            self.fault().await.with_context(|| format!("a fault of {}", self.member.name()))?;
        }
        if let Some(status) = self.member.end_now()? {
            if self.member.has_worked() {
                bail!("{} ended by itself, with {status}", self.member.name());
            }
            self.again().await?;
        }
        Ok(self)
    }

    async fn fault(&mut self) -> Result<()> {
        match self.chance.u8(0..12) {
            0 => self.dies("killed (SIGKILL)", Signal::SIGKILL).await,
            1 => self.dies("asked to end (SIGTERM)", Signal::SIGTERM).await,
            2 => self.is_asked_twice().await,
            3 | 4 => self.freezes().await,
            5 => self.is_held().await,
            6 => self.ends_at_a_point().await,
            7 => self.panics().await,
            8 | 9 => self.broker_is_far().await,
            _ => self.database_is_far().await,
        }
    }

    // ===== processes =====

    async fn dies(&mut self, how: &'static str, signal: Signal) -> Result<()> {
        self.look().await?;
        if signal == Signal::SIGTERM {
            self.member.ask_to_end().await?;
        } else {
            self.member.signal(signal);
        }
        let status = self.member.ended().await?;
        let as_asked = match signal {
            Signal::SIGTERM => status.success(),
            _ => status.signal() == Some(signal as i32),
        };
        if !as_asked && self.member.has_worked() {
            bail!("it was {how} and ended with {status}");
        }
        self.tally.count(how, as_asked);
        self.case.fault(format!("{}: {how}", self.member.name()));
        self.again().await
    }

    async fn is_asked_twice(&mut self) -> Result<()> {
        self.look().await?;
        self.member.ask_to_end().await?;
        self.member.signal(Signal::SIGTERM);
        let status = self.member.ended().await?;
        if !status.success() && status.code() != Some(IMPATIENT) && self.member.has_worked() {
            bail!("it ended with {status} when it was asked to end, twice");
        }
        self.landed("asked twice to end");
        self.again().await
    }

    async fn freezes(&mut self) -> Result<()> {
        self.member.signal(Signal::SIGSTOP);
        self.case.fault(format!("{} is frozen (SIGSTOP)", self.member.name()));
        sleep(self.millis(500, 9_000)).await;
        // Else it had ended before.
        self.tally.count("frozen (SIGSTOP)", self.member.end_now()?.is_none());
        self.member.signal(Signal::SIGCONT);
        self.case.relief(format!("{} goes on", self.member.name()));
        Ok(())
    }

    /// Somebody starts it anew, soon or a little later.
    async fn again(&mut self) -> Result<()> {
        sleep(self.millis(0, 2_000)).await;
        self.lives += 1;
        let Self { number, lives, .. } = *self;
        let arguments = arguments(self.case, number, lives, &self.kafka, &self.database)?;
        self.member = self.case.start(arguments).await?;
        Ok(())
    }

    // ===== points =====

    async fn is_held(&mut self) -> Result<()> {
        let point = self.point();
        let held = self.member.hold(point, When::any()).await?;
        match timeout(IDLE, self.member.reached(&held)).await {
            Ok(places) => {
                places?;
                self.landed("held at a point");
                sleep(self.millis(100, 5_000)).await;
            }
            Err(_) => self.tally.missed_one("held at a point"),
        }
        self.member.release(held).await
    }

    async fn ends_at_a_point(&mut self) -> Result<()> {
        let (point, when) = (self.point(), When::any());
        self.look().await?;
        self.member.order(Command::Exit { status: AT_A_POINT, point, when }).await.or_else(
            // It may have come there before it could say that it was told.
            |error| if self.member.silent_since().is_some() { Ok(()) } else { Err(error) },
        )?;
        match timeout(IDLE, self.member.ended()).await {
            Ok(status) => {
                let status = status?;
                if status.code() != Some(AT_A_POINT) {
                    bail!("it ended with {status} at {point}");
                }
                self.landed("ended at a point");
                self.again().await
            }
            Err(_) => {
                self.tally.missed_one("ended at a point");
                self.disarm(point).await?;
                // It may have come there after all.
                match self.member.end_now()? {
                    Some(status) if status.code() == Some(AT_A_POINT) => self.again().await,
                    Some(status) => bail!("it ended with {status} at {point}"),
                    None => Ok(()),
                }
            }
        }
    }

    async fn panics(&mut self) -> Result<()> {
        let (point, when) = (self.point(), When::any());
        let mark = self.member.mark();
        self.member.order(Command::Panic { point, when }).await?;
        sleep(self.millis(200, 2_000)).await;
        let panicked = |message: &str| message.contains("panicked");
        if self.member.log()[mark..].iter().any(|event| panicked(&event.message)) {
            self.landed("a panic at a point");
        } else {
            self.tally.missed_one("a panic at a point");
        }
        self.disarm(point).await?;
        match self.member.end_now()? {
            Some(status) => bail!("it ended with {status} after a panic at {point}"),
            None => Ok(()),
        }
    }

    async fn disarm(&self, point: Point) -> Result<()> {
        let disarmed = self.member.order(Command::Disarm { point }).await;
        if self.member.silent_since().is_some() {
            return self.member.ended().await.map(drop);
        }
        disarmed
    }

    fn point(&mut self) -> Point {
        LAYERS[self.chance.usize(0..LAYERS.len())]
    }

    // ===== networks =====

    async fn broker_is_far(&mut self) -> Result<()> {
        let mode = self.mode();
        self.tally.count("the broker is far", self.kafka.traffic().open > 0);
        self.kafka.set(mode).await;
        self.case.fault(format!("between {} and the broker: {mode:?}", self.member.name()));
        sleep(self.millis(500, 9_000)).await;
        self.kafka.set(Mode::Pass).await;
        self.case.relief(format!("between {} and the broker: nothing", self.member.name()));
        Ok(())
    }

    async fn database_is_far(&mut self) -> Result<()> {
        let is_connected = self.database.traffic().open > 0;
        if self.chance.u8(0..3) == 0 {
            self.database.close_connections();
            self.tally.count("database connections are lost", is_connected);
            self.case.fault(format!("{} loses its database connections", self.member.name()));
            return Ok(());
        }
        let mode = self.mode();
        self.database.set(mode).await;
        self.tally.count("the database is far", is_connected);
        self.case.fault(format!("between {} and the database: {mode:?}", self.member.name()));
        sleep(self.millis(500, 6_000)).await;
        self.database.set(Mode::Pass).await;
        self.case.relief(format!("between {} and the database: nothing", self.member.name()));
        Ok(())
    }

    fn mode(&mut self) -> Mode {
        match self.chance.u8(0..6) {
            0 => Mode::Delay(self.millis(20, 400)),
            1 => Mode::Throttle(self.chance.u32(5_000..50_000)),
            2 => Mode::HalfOpen(Toward::Server),
            3 => Mode::HalfOpen(Toward::Client),
            4 => Mode::Refuse,
            _ => Mode::Cut,
        }
    }

    // ===== chance and counts =====

    /// Looks at what it has counted, before it dies.
    async fn look(&self) -> Result<()> {
        self.member.counters().await.map(drop)
    }

    fn landed(&self, fault: &'static str) {
        self.case.fault(format!("{}: {fault}", self.member.name()));
        self.tally.landed_one(fault);
    }

    fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.chance.u64(from..to))
    }
}

fn arguments(
    case: &Case,
    number: u64,
    lives: u32,
    kafka: &KafkaProxy<'_>,
    database: &Proxy,
) -> Result<Arguments> {
    Ok(Arguments {
        kafka: kafka.addr().to_string(),
        database: case.schema.url_through(database.addr())?,
        // What it holds, others wait for.
        idle_transaction: 12_000,
        // Some of a partition may be done above what is not.
        lanes: 4,
        ..case.arguments(&format!("m{number}-{lives}"))
    })
}
