//! SVG elements that both kinds of figure use.

use super::html::escape;

/// A `text` element; `class` aligns and colours it.
pub(crate) fn text(class: &str, x: f64, y: f64, words: &str) -> String {
    format!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>\n", escape(words))
}

pub(crate) fn line(class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) -> String {
    format!(
        "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>\n"
    )
}

pub(crate) fn path(class: &str, d: &str) -> String {
    if d.is_empty() { String::new() } else { format!("<path class=\"{class}\" d=\"{d}\"/>\n") }
}

/// Shortens `words` to at most `limit` characters, with an ellipsis for those in the middle: systems differ in their
/// first words, and policies of one name in their last.
pub(crate) fn shortened(words: &str, limit: usize) -> String {
    let count = words.chars().count();
    if count <= limit {
        return words.to_owned();
    }
    let tail = limit.saturating_sub(1) / 2;
    let head = limit.saturating_sub(1) - tail;
    words.chars().take(head).chain(['…']).chain(words.chars().skip(count - tail)).collect()
}

/// Positions for labels that would ideally be at `wanted`: in the same order, at least `gap` apart, and within
/// `low..=high` as far as there is room.
pub(crate) fn spread(wanted: &[f64], gap: f64, low: f64, high: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|&a, &b| wanted[a].total_cmp(&wanted[b]));
    let mut positions = wanted.to_vec();
    let mut floor = low;
    for &at in &order {
        positions[at] = positions[at].max(floor);
        floor = positions[at] + gap;
    }
    let mut ceiling = high;
    for &at in order.iter().rev() {
        positions[at] = positions[at].min(ceiling);
        ceiling = positions[at] - gap;
    }
    positions
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn labels_do_not_overlap(wanted in prop::collection::vec(0f64..300.0, 0..12)) {
            let mut positions = spread(&wanted, 15.0, 0.0, 300.0);
            positions.sort_by(f64::total_cmp);
            for pair in positions.windows(2) {
                prop_assert!(pair[1] - pair[0] > 14.99);
            }
        }
    }

    #[test]
    fn long_names_are_shortened() {
        assert_eq!(shortened("two-queue", 9), "two-queue");
        assert_eq!(shortened("two-queue", 5), "tw…ue");
        assert_eq!(shortened("heddle/two-queue:quantum=200us", 17), "heddle/t…um=200us");
        assert_eq!(shortened("two-queue", 1), "…");
    }
}
