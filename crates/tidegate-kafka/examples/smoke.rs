#![allow(missing_docs, clippy::all, unused)]
use std::{sync::{Arc, atomic::{AtomicU64, Ordering::Relaxed}}, task::{Context, Poll}, time::Duration, future::Ready};
use tidegate_core::*; use tidegate_kafka::*;
struct S { f: Frontier, n: Arc<AtomicU64>, delay: u64 }
impl tower_service::Service<Delivery> for S {
    type Response = Recorded; type Error = Error; type Future = std::pin::Pin<Box<dyn Future<Output=Result<Recorded, Error>> + Send>>;
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> { Poll::Ready(Ok(())) }
    fn call(&mut self, d: Delivery) -> Self::Future {
        let t = self.f.admit(d.record.offset); let n = self.n.clone(); let delay = self.delay;
        Box::pin(async move { let t = t.map_err(|e| Error::new(Class::Fatal, e))?; if delay > 0 { tokio::time::sleep(Duration::from_millis(delay)).await; } n.fetch_add(1, Relaxed); let _d = d; Ok(t.complete(Outcome::Applied)) })
    }
}
#[tokio::main]
async fn main() {
    tracing_subscriber::fmt().with_max_level(tracing::Level::INFO).init();
    let a: Vec<String> = std::env::args().collect();
    let n = Arc::new(AtomicU64::new(0));
    let mut c = KafkaConfig::new(&a[1], &a[2]).commit_interval(Duration::from_millis(200));
    for kv in &a[6..] { let (k, v) = kv.split_once('=').unwrap(); c = c.property(k, v); }
    let s = KafkaSource::new(c).unwrap().subscribe([a[3].clone()]);
    let st = s.status(); let n2 = n.clone(); let delay: u64 = a[4].parse().unwrap();
    let secs: u64 = a[5].parse().unwrap();
    let sh = async move { let mut last = 0; for _ in 0..secs { tokio::time::sleep(Duration::from_secs(1)).await; let t = n2.load(Relaxed); println!("{} rec/s; {}", t - last, st.partitions().iter().map(|p| format!("{}:{}@{:?}/{:?} lag {:?} if {}", p.partition.partition, p.state, p.frontier, p.committed, p.lag, p.in_flight)).collect::<Vec<_>>().join(" ")); last = t; } };
    let r = s.serve(move |x: Assignment| S { f: x.frontier(), n: n.clone(), delay }).with_graceful_shutdown(sh).await;
    println!("END {r:?}");
}
