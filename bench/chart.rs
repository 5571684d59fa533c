//! The medians as bars over a logarithmic scale, with a whisker to the p99 where there is one: an SVG in
//! light and dark colours.
//!
//! It must never draw a figure that is not in the table.

use std::fmt::Write;

use serde_json::Value;

use crate::Result;
use crate::report::{Block, Measurements};
use crate::setup;
use crate::table::{millis, say};

const WIDTH: f64 = 900.0;
/// Where bars begin and end; names are to the left, figures to the right.
const LEFT: f64 = 270.0;
const RIGHT: f64 = 775.0;
const TOP: f64 = 54.0;
const BAR: f64 = 18.0;
const TITLE: f64 = 30.0;
const FOOT: f64 = 30.0;

/// Of the scale, in microseconds: from 0.1 ms to 10 s.
const FROM: f64 = 1e2;
const TO: f64 = 1e7;

const STYLE: &str = "\
:root{color-scheme:light dark}\
text{font:12px system-ui,sans-serif;fill:#1f2328}.t{font-weight:600}.m{fill:#59636e}\
.e{text-anchor:end}.c{text-anchor:middle}\
.p{fill:#0f766e}.o{fill:#8c959f}.g{stroke:#d1d9e0}.w{stroke:#1f2328;stroke-width:1.5}.b{fill:#fff}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.m{fill:#9198a1}.p{fill:#2dd4bf}.o{fill:#6e7681}\
.g{stroke:#30363d}\
.w{stroke:#e6edf3}.b{fill:#0d1117}}";

/// Writes `paddock.svg` beside the JSON.
pub(crate) fn write(machine: &Value, report: &Measurements) -> Result<()> {
    let file = setup::results()?.join("paddock.svg");
    std::fs::write(&file, draw(machine, report)?)?;
    say(&file.display().to_string());
    Ok(())
}

fn draw(machine: &Value, report: &Measurements) -> Result<String> {
    let blocks: Vec<_> = report.blocks.iter().filter(|block| !block.lines.is_empty()).collect();
    let rows: f64 = blocks.iter().map(|block| TITLE + height(block)).sum();
    let bottom = TOP + rows;
    let height = bottom + FOOT;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\
         <title>paddock: how long things take</title><style>{STYLE}</style>\
         <rect class=\"b\" width=\"{WIDTH}\" height=\"{height}\"/>"
    );
    let field = |name: &str| machine[name].as_str().map_or_else(|| machine[name].to_string(), str::to_owned);
    let head = format!(
        "Milliseconds, logarithmic: bar to the median, line to the p99. {}, {} cores, {}.",
        field("processor"),
        field("cores"),
        field("date")
    );
    text(&mut svg, 12.0, 20.0, "m", &head)?;
    let mut tick = FROM;
    while tick <= TO {
        let x = place(tick);
        write!(svg, "<line class=\"g\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>")?;
        text(&mut svg, x, TOP - 8.0, "m c", &format!("{}", tick / 1e3))?;
        tick *= 10.0;
    }
    let mut y = TOP;
    for block in blocks {
        text(&mut svg, 12.0, y + TITLE - 8.0, "t", block.title)?;
        y += TITLE;
        for line in &block.lines {
            let figures = line.times.figures().ok_or_else(|| format!("no sample of {}", line.name))?;
            let (middle, end) = (y + BAR / 2.0, place(exact(figures.median)));
            text(&mut svg, LEFT - 8.0, middle + 4.0, "e", &line.name)?;
            let class = if line.name.starts_with("paddock") { "p" } else { "o" };
            let (top, thick, wide) = (y + 3.0, BAR - 6.0, end - LEFT);
            write!(
                svg,
                "<rect class=\"{class}\" x=\"{LEFT}\" y=\"{top}\" width=\"{wide:.1}\" height=\"{thick}\"/>"
            )?;
            if let Some(p99) = figures.p99 {
                let x = place(exact(p99));
                let (above, below) = (middle - 4.0, middle + 4.0);
                write!(svg, "<path class=\"w\" d=\"M{end:.1} {middle}H{x:.1}M{x:.1} {above}V{below}\"/>")?;
            }
            let rate = line.per_second.map_or_else(String::new, |rate| format!(" · {rate:.1}/s"));
            let figure = format!("{}{rate}", millis(figures.median));
            text(&mut svg, RIGHT + 8.0, middle + 4.0, "m", &figure)?;
            y += BAR;
        }
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

fn height(block: &Block) -> f64 {
    block.lines.iter().map(|_| BAR).sum()
}

fn place(micros: f64) -> f64 {
    let share = (micros.clamp(FROM, TO) / FROM).log10() / (TO / FROM).log10();
    LEFT + share * (RIGHT - LEFT)
}

fn text(svg: &mut String, x: f64, y: f64, class: &str, text: &str) -> Result<()> {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    Ok(write!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{text}</text>")?)
}

#[expect(clippy::cast_precision_loss, reason = "at most a minute in microseconds")]
fn exact(micros: u64) -> f64 {
    micros as f64
}
