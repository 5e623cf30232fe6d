use tower_layer::Layer;

use super::{Located, Place, Point, ProbeService, Probes};

/// Puts a probe point in a stack.
///
/// Where it stands decides what it is, so each point has its place:
///
/// ```text
///   Completed ────▶ ProbeLayer
///                   FrontierLayer
///   Admitted ─────▶ ProbeLayer
///                   FenceLayer, DecodeLayer, QueueLayer, RetryLayer
///   BeforeBegin,    ProbeLayer, ProbeLayer
///   AfterCommit ──▶ InboxLayer
///   AfterMarker ──▶ ProbeLayer
///                   SequencerLayer
///   AfterEffect ──▶ ProbeLayer
///                   the effect
/// ```
///
/// ```
/// use tidegate_core::{Batch, Delivery};
/// use tidegate_testkit::{Located as _, Point, ProbeLayer, Probes};
///
/// // What the layers under an inbox are called with.
/// struct InTransaction {
///     request: Batch<Delivery<u32>>,
/// }
///
/// let probes = Probes::new();
/// let above = ProbeLayer::new(&probes, Point::BeforeBegin);
/// let below = ProbeLayer::new(&probes, Point::AfterMarker)
///     .located_by(|it: &InTransaction| it.request.places());
/// ```
#[derive(Clone, Debug)]
pub struct ProbeLayer<L = ByRequest> {
    probes: Probes,
    point: Point,
    locate: L,
}

/// Says which records a request is about.
///
/// A function `Fn(&R) -> Vec<Place>` does.
pub trait Locate<R> {
    /// The records that a request is about.
    fn locate(&self, request: &R) -> Vec<Place>;
}

/// The request says it: [`Located`].
#[derive(Clone, Copy, Debug, Default)]
pub struct ByRequest;

// ===== impl ProbeLayer =====

impl ProbeLayer {
    /// Stands at a point of a stack.
    ///
    /// # Panics
    ///
    /// When no layer can stand there: [`Point::CommitSent`] and
    /// [`Point::OffsetCommitSent`] are between the process and a server.
    #[must_use]
    pub fn new(probes: &Probes, point: Point) -> Self {
        assert!(
            point.side().is_some(),
            "no layer stands at {point}: a proxy holds what comes there"
        );
        Self { probes: probes.clone(), point, locate: ByRequest }
    }
}

impl<L> ProbeLayer<L> {
    /// Asks a function which records a request is about.
    #[must_use]
    pub fn located_by<M>(self, locate: M) -> ProbeLayer<M> {
        ProbeLayer { probes: self.probes, point: self.point, locate }
    }
}

impl<S, L: Clone> Layer<S> for ProbeLayer<L> {
    type Service = ProbeService<S, L>;

    fn layer(&self, inner: S) -> Self::Service {
        ProbeService::new(inner, self.probes.clone(), self.point, self.locate.clone())
    }
}

// ===== impl Locate =====

impl<R: Located> Locate<R> for ByRequest {
    fn locate(&self, request: &R) -> Vec<Place> {
        request.places()
    }
}

impl<F, R> Locate<R> for F
where
    F: Fn(&R) -> Vec<Place>,
{
    fn locate(&self, request: &R) -> Vec<Place> {
        self(request)
    }
}
