//! Pages and files: the elements of a report as one HTML page without scripts, fonts or images. It
//! is light or dark as the reader's system, and light on paper. Colours are those of Okabe and Ito,
//! which colour-blind readers can distinguish, darker on white for text. Lines also have names,
//! dashes and marks.

use std::fmt::Write as _;

use crate::draw::draw;
use crate::model::{Figure, Layout, NARROW, WIDE, escaped};

const COLOURS: &str = include_str!("colours.css");
const CHART: &str = include_str!("chart.css");
const PAGE: &str = include_str!("page.css");

/// Layout of each of the two drawings.
pub const HALF: Layout = Layout { width: 600.0, panel: 112.0, text: 14.0 };
/// Space between the drawings, and around them.
pub const SPACE: f64 = 24.0;

/// Returns the begin of a page, with its styles.
pub fn begin(title: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{}</title><style>{COLOURS}{CHART}{PAGE}</style></head><body>",
        escaped(title)
    )
}

/// Ends a page.
pub fn end(out: &mut String) {
    out.push_str("</body></html>\n");
}

/// Writes notes that limit what the results are worth. Writes nothing if there are none.
pub fn notes_element(out: &mut String, heading: &str, notes: &[String]) {
    if notes.is_empty() {
        return;
    }
    let _ = write!(out, "<div class=\"doubts\"><h2>{heading}</h2><ul>");
    for note in notes {
        let _ = write!(out, "<li>{}</li>", escaped(note));
    }
    out.push_str("</ul></div>");
}

/// Writes a figure twice: for a page, and for a telephone, where text would be too small otherwise.
pub fn figure_element(out: &mut String, figure: &Figure, caption: &str) {
    let _ = write!(
        out,
        "<figure><div class=\"wide\">{}</div><div class=\"narrow\">{}</div><figcaption>{caption}</figcaption></figure>",
        draw(figure, &WIDE),
        draw(&Figure { tips: Vec::new(), ..figure.clone() }, &NARROW)
    );
}

/// Opens a table. The first column has names, the others have numbers.
pub fn open_table(out: &mut String, columns: &[&str]) {
    out.push_str("<div class=\"wide-table\"><table><thead><tr>");
    for (index, column) in columns.iter().enumerate() {
        let class = if index == 0 { "" } else { " class=\"n\"" };
        // Writing to a String cannot fail.
        let _ = write!(out, "<th{class}>{column}</th>");
    }
    out.push_str("</tr></thead><tbody>");
}

/// Writes a row.
pub fn row(out: &mut String, name: &str, numbers: &[String]) {
    let _ = write!(out, "<tr><td>{}</td>", escaped(name));
    for number in numbers {
        let _ = write!(out, "<td class=\"n\">{number}</td>");
    }
    out.push_str("</tr>");
}

/// Writes a heading over all columns.
pub fn heading(out: &mut String, columns: usize, text: &str) {
    let _ = write!(out, "<tr class=\"part\"><td colspan=\"{columns}\">{}</td></tr>", escaped(text));
}

/// Closes a table.
pub fn close_table(out: &mut String) {
    out.push_str("</tbody></table></div>");
}

/// Returns drawings as an SVG file with its styles and background, and a footer. Drawings have the
/// font size of [`HALF`].
pub fn file(title: &str, footer: &str, width: f64, height: f64, drawings: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height:.0}\" font-size=\"{}\" \
         role=\"img\"><title>{}</title><style>{COLOURS}{CHART}</style><rect width=\"100%\" height=\"100%\" \
         rx=\"8\" style=\"fill: var(--ground)\"/>{drawings}<text x=\"{:.1}\" y=\"{:.1}\" \
         font-size=\"12\">{}</text></svg>\n",
        HALF.text,
        escaped(title),
        SPACE + HALF.text * 4.4,
        height - 10.0,
        escaped(footer)
    )
}
