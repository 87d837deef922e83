//! What an agent reports.
