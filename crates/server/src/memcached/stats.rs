//! The reply to `stats`.

use super::VERSION;
use crate::item_state::now_ms;
use crate::service::Service;
use heddle_proto::memcached::line;
use heddle_store::Section;

impl<S: Section> Service<S> {
    /// Appends the general statistics, by memcached's names. Other groups (`items`, `slabs`, ...) are empty.
    pub(super) fn stats(&self, group: &[u8], out: &mut Vec<u8>) {
        if group.is_empty() {
            for (name, value) in self.general() {
                line(out, &format!("STAT {name} {value}"));
            }
            line(out, &format!("STAT version {VERSION}"));
        }
        line(out, "END");
    }

    fn general(&self) -> [(&'static str, u64); 16] {
        let counters = &self.counters;
        let (hits, misses) = (counters.get_hits.get(), counters.get_misses.get());
        [
            ("pid", std::process::id().into()),
            ("uptime", self.uptime_s()),
            ("time", now_ms() / 1000),
            ("pointer_size", usize::BITS.into()),
            ("curr_connections", self.connections.now() as u64),
            ("total_connections", counters.connections_accepted.get()),
            ("rejected_connections", counters.connections_refused.get()),
            // memcached counts keys.
            ("cmd_get", hits + misses),
            ("cmd_set", counters.requests_set.get()),
            ("cmd_touch", counters.requests_touch.get()),
            ("cmd_delete", counters.requests_delete.get()),
            ("get_hits", hits),
            ("get_misses", misses),
            ("curr_items", self.store.store().len_estimate()),
            ("limit_maxbytes", self.bounds.limits.store_memory as u64),
            ("request_errors", counters.request_errors.get()),
        ]
    }
}
