//! The figures of a run of the benchmark, block by block, to be found by title and name.
//!
//! It must never contain a figure of another run.

use crate::times::{Figures, Times};

/// The times of one row, and how many a second where a rate was measured.
pub(crate) struct MeasuredRow {
    pub(crate) name: String,
    pub(crate) times: Times,
    pub(crate) per_second: Option<f64>,
}

/// A figure that is not the time of a run.
pub(crate) struct Fact {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
}

/// Rows that are compared with the first one.
pub(crate) struct Block {
    pub(crate) title: &'static str,
    pub(crate) lines: Vec<MeasuredRow>,
    pub(crate) facts: Vec<Fact>,
}

#[derive(Default)]
pub(crate) struct Measurements {
    pub(crate) blocks: Vec<Block>,
}

impl Measurements {
    /// The block of this title; it is made at its first row.
    pub(crate) fn block(&mut self, title: &'static str) -> &mut Block {
        let place = self.blocks.iter().position(|block| block.title == title).unwrap_or(self.blocks.len());
        if place == self.blocks.len() {
            self.blocks.push(Block { title, lines: Vec::new(), facts: Vec::new() });
        }
        &mut self.blocks[place]
    }

    /// Puts the block of this title before all others.
    pub(crate) fn begin_with(&mut self, title: &str) {
        if let Some(place) = self.blocks.iter().position(|block| block.title == title) {
            let block = self.blocks.remove(place);
            self.blocks.insert(0, block);
        }
    }

    pub(crate) fn figures(&self, title: &str, name: &str) -> Option<Figures> {
        self.line(title, name)?.times.figures()
    }

    pub(crate) fn per_second(&self, title: &str, name: &str) -> Option<f64> {
        self.line(title, name)?.per_second
    }

    pub(crate) fn fact(&self, title: &str, name: &str) -> Option<f64> {
        let block = self.blocks.iter().find(|block| block.title == title)?;
        Some(block.facts.iter().find(|fact| fact.name == name)?.value)
    }

    fn line(&self, title: &str, name: &str) -> Option<&MeasuredRow> {
        let block = self.blocks.iter().find(|block| block.title == title)?;
        block.lines.iter().find(|line| line.name == name)
    }
}

impl Block {
    pub(crate) fn line(&mut self, name: impl Into<String>, times: Times, per_second: Option<f64>) {
        self.lines.push(MeasuredRow { name: name.into(), times, per_second });
    }

    pub(crate) fn fact(&mut self, name: impl Into<String>, value: f64, unit: &'static str) {
        self.facts.push(Fact { name: name.into(), value, unit });
    }
}
