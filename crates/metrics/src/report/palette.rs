//! Gives each system one colour and one marker, the same in every figure of a report.

/// Colours in the style sheet (`--k0` ...): Okabe and Ito's, which the colour-blind can distinguish,
/// darkened or lightened for contrast with the page.
const COLOURS: usize = 8;

/// Shapes of markers. Their number is coprime to that of the colours: together they distinguish 40 systems.
const SHAPES: usize = 5;

/// The systems in the order of first appearance.
#[derive(Clone, Debug, Default)]
pub(crate) struct Palette(Vec<String>);

/// A system's index in the palette.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look(usize);

impl Palette {
    pub(crate) fn look(&mut self, system: &str) -> Look {
        Look(self.0.iter().position(|known| known == system).unwrap_or_else(|| {
            self.0.push(system.to_owned());
            self.0.len() - 1
        }))
    }
}

impl Look {
    /// The class that sets the colour.
    pub(crate) fn class(self) -> String {
        format!("c{}", self.0 % COLOURS)
    }

    /// The path of the marker around a point: circle, square, triangle, diamond, triangle downwards.
    pub(crate) fn marker(self, x: f64, y: f64) -> String {
        let r = 4.4;
        match self.0 % SHAPES {
            0 => format!(
                "M{:.1} {y:.1}a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0 -{d} 0Z",
                x - r,
                d = 2.0 * r
            ),
            1 => format!("M{:.1} {:.1}h7.8v7.8h-7.8Z", x - 3.9, y - 3.9),
            2 => format!("M{x:.1} {:.1}l5 8.6h-10Z", y - 5.4),
            3 => format!("M{x:.1} {:.1}l5.4 5.4l-5.4 5.4l-5.4 -5.4Z", y - 5.4),
            _ => format!("M{x:.1} {:.1}l5 -8.6h-10Z", y + 5.4),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn forty_systems_look_different() {
        let mut palette = Palette::default();
        let looks: HashSet<(String, String)> = (0..40)
            .map(|n| palette.look(&format!("system {n}")))
            .map(|look| (look.class(), look.marker(0.0, 0.0)))
            .collect();
        assert_eq!(looks.len(), 40);
        assert_eq!(palette.look("system 3"), Look(3));
    }
}
