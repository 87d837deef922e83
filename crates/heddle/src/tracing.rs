//! `tracing` in recordings: a layer that makes marks of the program's spans and events (feature `tracing`).
//!
//! `heddle record` shows them beside the schedule: when a span ran, and when its task waited. The time between a span's
//! entry and exit is a slice on the task's track, and an event a moment.
//!
//! ```
//! use heddle::tracing::MarkLayer;
//! use tracing_subscriber::layer::SubscriberExt as _;
//!
//! let subscriber = tracing_subscriber::registry().with(MarkLayer::default());
//! tracing::subscriber::set_global_default(subscriber)?;
//! heddle::spawn(|| tracing::info_span!("parse", bytes = 12).in_scope(|| tracing::info!("done"))).join().unwrap();
//! # Ok::<(), tracing::subscriber::SetGlobalDefaultError>(())
//! ```
//!
//! # What is recorded
//!
//! Only names: of a span its own, of an event the one that it was given or its file and line. Fields and messages are
//! not, as an event of a recording has 32 bytes. A process has 512 names, which are taken when they are first recorded.
//!
//! Marks are of tasks. Spans that threads outside of a runtime enter are not recorded.
//!
//! To `tracing_subscriber::registry()` a task is a thread, and it panics if more than 4,096 threads that have used
//! spans exist at once. Async tasks count only while they are polled.
//!
//! The layer lets all spans and events through; a filter before it (`tracing_subscriber::filter`) leaves the frequent
//! ones out. Each recorded mark takes a run queue's lock, and room in its ring of 8,191 events.

use heddle_rt::mark::{self, Name, Phase};
use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};
use tracing_core::callsite::Identifier;
use tracing_core::span::Id;
use tracing_core::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// A layer that marks in recordings of the runtime when tasks enter and exit spans, and their events; see the module.
#[derive(Debug, Default)]
pub struct MarkLayer {
    names: RwLock<HashMap<Identifier, Name>>,
}

impl MarkLayer {
    /// Returns the name of what has this description.
    fn name(&self, metadata: &Metadata<'static>) -> Name {
        let id = metadata.callsite();
        let known = self.names.read().unwrap_or_else(PoisonError::into_inner).get(&id).copied();
        known.unwrap_or_else(|| {
            // `tracing` calls an event `event FILE:LINE`.
            let name = metadata.name();
            let name = Name::new(name.strip_prefix("event ").unwrap_or(name));
            self.names.write().unwrap_or_else(PoisonError::into_inner).insert(id, name);
            name
        })
    }

    fn mark_span<S>(&self, id: &Id, phase: Phase, context: &Context<'_, S>)
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        if mark::is_recorded()
            && let Some(metadata) = context.metadata(id)
        {
            mark::mark(self.name(metadata), phase, id.into_u64());
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for MarkLayer {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        if mark::is_recorded() {
            mark::mark(self.name(event.metadata()), Phase::Moment, 0);
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        self.mark_span(id, Phase::Begin, &context);
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        self.mark_span(id, Phase::End, &context);
    }
}
