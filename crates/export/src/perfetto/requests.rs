//! Which request is in work on which track. Requests of one executor may overlap, and slices of one track may not, so
//! each request in work has its executor's track with another number.

use std::collections::HashMap;

use heddle_core::Layer;

/// Requests in work at once; beyond, they are shown as moments.
const OPEN: usize = 1 << 16;
/// Tracks of an executor.
const TRACKS: u16 = 256;

/// An executor of a layer.
pub type Executor = (Layer, u32);

/// The place of a request in work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    pub executor: Executor,
    pub track: u16,
}

/// The requests in work.
#[derive(Debug, Default)]
pub struct Requests {
    open: HashMap<(Layer, u64), Placement>,
    /// Tracks that are taken, by executor; removed when all are free.
    taken: HashMap<Executor, Vec<u16>>,
}

impl Requests {
    /// An executor takes a request: returns its place, the lowest track that is free.
    pub fn take(&mut self, request: u64, executor: Executor) -> Option<Placement> {
        if self.open.len() >= OPEN {
            return None;
        }
        let taken = self.taken.entry(executor).or_default();
        let track = (0..TRACKS).find(|track| !taken.contains(track))?;
        taken.push(track);
        let place = Placement { executor, track };
        self.open.insert((executor.0, request), place);
        Some(place)
    }

    /// A request is no longer in work: returns where it was.
    pub fn end(&mut self, layer: Layer, request: u64) -> Option<Placement> {
        let place = self.open.remove(&(layer, request))?;
        if let Some(taken) = self.taken.get_mut(&place.executor) {
            taken.retain(|&track| track != place.track);
            if taken.is_empty() {
                self.taken.remove(&place.executor);
            }
        }
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_overlap_have_tracks_of_their_own() {
        let (mut requests, executor) = (Requests::default(), (Layer::Steer, 3));
        let tracks = [7, 8].map(|id| requests.take(id, executor).unwrap().track);
        assert_eq!(tracks, [0, 1]);
        assert_eq!(requests.end(Layer::Steer, 7), Some(Placement { executor, track: 0 }));
        assert_eq!(requests.end(Layer::Runtime, 8), None, "another layer's");
        assert_eq!(requests.take(9, executor).unwrap().track, 0);
        assert!([8, 9].iter().all(|&id| requests.end(Layer::Steer, id).is_some()));
        assert!(requests.open.is_empty() && requests.taken.is_empty());
    }

    #[test]
    fn more_than_fit_are_refused() {
        let mut requests = Requests::default();
        let taken = (0..u64::from(TRACKS) + 9).filter_map(|id| requests.take(id, (Layer::Go, 0)));
        assert_eq!(taken.count(), usize::from(TRACKS));
    }
}
