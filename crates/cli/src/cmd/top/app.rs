//! What is selected and how it is sorted: the state of the screen, without the screen.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::row::{COLUMNS, Interval, Row};

/// What a key asks for beside a change of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    Nothing,
    Quit,
    /// Ctrl-C.
    Interrupt,
}

/// The state of the screen.
#[derive(Clone, Debug, Default)]
pub struct App {
    /// `None` before the first interval is over.
    pub interval: Option<Interval>,
    /// The service that is selected, by its id.
    selected: Option<String>,
    /// Whether its layers are shown.
    pub is_open: bool,
    /// The column by which services are sorted; `None` for the order of kinds and names.
    pub sort: Option<usize>,
    /// The first of the parts that is shown.
    pub scroll: usize,
}

impl App {
    /// Shows a new interval. The selection stays on its service.
    pub fn update(&mut self, mut interval: Interval) {
        sort(&mut interval.services, self.sort);
        self.interval = Some(interval);
        if self.selected().is_none() {
            self.is_open = false;
            self.selected = self.services().first().map(|row| row.id.clone());
        }
    }

    /// Returns the services, sorted.
    pub fn services(&self) -> &[Row] {
        self.interval.as_ref().map_or(&[], |interval| &interval.services)
    }

    /// Returns the place of the selected service.
    pub fn at(&self) -> Option<usize> {
        let id = self.selected.as_ref()?;
        self.services().iter().position(|row| row.id == *id)
    }

    /// Returns the selected service.
    pub fn selected(&self) -> Option<&Row> {
        self.at().map(|at| &self.services()[at])
    }

    /// Acts on a key.
    pub fn key(&mut self, key: KeyEvent) -> Wish {
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                return Wish::Interrupt;
            }
            KeyCode::Char('q') => return Wish::Quit,
            KeyCode::Esc | KeyCode::Backspace | KeyCode::Left if self.is_open => {
                self.is_open = false
            }
            KeyCode::Esc => return Wish::Quit,
            KeyCode::Enter | KeyCode::Right => {
                self.is_open = self.selected().is_some();
                self.scroll = 0;
            }
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::PageUp => self.step(-10),
            KeyCode::PageDown => self.step(10),
            KeyCode::Char('s' | '>') => self.sort_by(1),
            KeyCode::Char('S' | '<') => self.sort_by(COLUMNS.len()),
            _ => {}
        }
        Wish::Nothing
    }

    fn step(&mut self, by: isize) {
        if self.is_open {
            let last = self.selected().map_or(0, |row| row.parts.len().saturating_sub(1));
            self.scroll = self.scroll.saturating_add_signed(by).min(last);
            return;
        }
        let last = self.services().len().saturating_sub(1);
        let at = self.at().unwrap_or(0).saturating_add_signed(by).min(last);
        self.selected = self.services().get(at).map(|row| row.id.clone());
    }

    /// Goes on by so many columns; the order by kinds and names is one of them.
    fn sort_by(&mut self, columns: usize) {
        let places = COLUMNS.len() + 1;
        let at = (self.sort.map_or(0, |column| column + 1) + columns) % places;
        self.sort = at.checked_sub(1);
        let order = self.sort;
        if let Some(interval) = &mut self.interval {
            sort(&mut interval.services, order);
        }
    }
}

/// Sorts by a column, the largest first, else by kinds and names.
pub fn sort(services: &mut [Row], column: Option<usize>) {
    services.sort_by(|one, two| {
        let names = || (one.kind, &one.name, &one.id).cmp(&(two.kind, &two.name, &two.id));
        match column {
            Some(column) => {
                let (one, two) = (one.figures.key(column), two.figures.key(column));
                two.total_cmp(&one).then_with(names)
            }
            None => names(),
        }
    });
}
