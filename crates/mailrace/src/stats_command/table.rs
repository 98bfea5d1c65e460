//! Tables as text, as HTML, and as JSON.

use crate::terminal_text::plain;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Numbers or words under a title.
pub(super) struct Table {
    pub(super) title: &'static str,
    /// Heads of the columns; the last one is words and stands at the left, the others are numbers.
    pub(super) columns: Vec<&'static str>,
    pub(super) rows: Vec<Vec<String>>,
    /// A line below the table.
    pub(super) remark: Option<String>,
}

impl Table {
    /// Returns the table as lines of text.
    pub(super) fn to_text(&self) -> Vec<String> {
        let mut lines = vec![self.title.to_owned()];
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            cells.chain(self.columns.get(column).map(|head| head.len())).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let mut line = String::new();
            for (index, (cell, width)) in cells.zip(&widths).enumerate() {
                let is_last = index + 1 == widths.len();
                let written =
                    if is_last { write!(line, "  {}", plain(cell)) } else { write!(line, "  {cell:>width$}") };
                written.expect("a string takes everything");
            }
            line.trim_end().to_owned()
        };
        if self.columns.len() > 1 {
            lines.push(line(&mut self.columns.iter().copied()));
        }
        lines.extend(self.rows.iter().map(|row| line(&mut row.iter().map(String::as_str))));
        lines.extend(self.remark.iter().map(|remark| format!("  {remark}")));
        lines
    }

    /// Appends the table as HTML.
    pub(super) fn write_html(&self, out: &mut String) {
        write!(out, "<h2>{}</h2>\n<table>\n<tr>", escaped(self.title)).expect("a string takes everything");
        for head in &self.columns {
            write!(out, "<th>{}</th>", escaped(head)).expect("a string takes everything");
        }
        out.push_str("</tr>\n");
        for row in &self.rows {
            out.push_str("<tr>");
            for cell in row {
                write!(out, "<td>{}</td>", escaped(cell)).expect("a string takes everything");
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</table>\n");
        if let Some(remark) = &self.remark {
            writeln!(out, "<p>{}</p>", escaped(remark)).expect("a string takes everything");
        }
    }

    /// Returns the rows as objects: the heads of the columns are the keys, and numbers are numbers.
    pub(super) fn to_json(&self) -> Value {
        let cell =
            |text: &String| text.replace(',', "").parse::<u64>().map_or_else(|_| json!(text), |number| json!(number));
        let row = |row: &Vec<String>| {
            Value::Object(self.columns.iter().map(|key| (*key).to_owned()).zip(row.iter().map(cell)).collect())
        };
        Value::Array(self.rows.iter().map(row).collect())
    }
}

/// Text in HTML: nothing in it is a tag or an entity, turns the order of a line, or is not seen.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in plain(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_in_columns_and_never_markup() {
        let rows = vec![vec!["1,000".to_owned(), "<b>\u{1b}[2J&\"".to_owned()], vec!["7".to_owned(), "x".to_owned()]];
        let table = Table { title: "T", columns: vec!["count", "name"], rows, remark: None };
        assert_eq!(table.to_text(), ["T", "  count  name", "  1,000  <b>?[2J&\"", "      7  x"]);
        let mut html = String::new();
        table.write_html(&mut html);
        assert!(html.contains("<td>1,000</td><td>&lt;b&gt;?[2J&amp;&quot;</td>"), "{html}");
        assert_eq!(table.to_json()[0]["count"], 1_000);
    }
}
