//! The day of `stats batch` as a picture: SVG, and PNG with glyphs that are built in, since a server has no fonts.

use super::mail_day::{DayOfMail, MINUTES};
use crate::exit::{Exit, Failure};
use crate::output::thousands;
use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster, get_raster_width};
use plotters::chart::DualCoordChartContext;
use plotters::coord::types::RangedCoordi64;
use plotters::prelude::*;
use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{BackendColor, BackendCoord, BackendTextStyle, DrawingErrorKind};
use std::io;
use std::path::Path;

/// Pixels of the picture.
const SIZE: (u32, u32) = (1_440, 620);
const DELIVERED: RGBColor = RGBColor(20, 20, 20);
const SUM: RGBColor = RGBColor(150, 150, 150);
const ARRIVALS: RGBColor = RGBColor(40, 110, 180);
const UNSENT: RGBColor = RGBColor(190, 60, 40);

/// Writes an SVG file.
///
/// # Errors
/// The file cannot be written.
pub(super) fn write_svg(path: &Path, day: &DayOfMail) -> Result<(), Failure> {
    let mut text = String::new();
    draw(SVGBackend::with_string(&mut text, SIZE), day).map_err(|error| not_drawn(path, &error))?;
    std::fs::write(path, text).map_err(|error| not_written(path, &error))
}

/// Writes a PNG file.
///
/// # Errors
/// The file cannot be written.
pub(super) fn write_png(path: &Path, day: &DayOfMail) -> Result<(), Failure> {
    let (width, height) = SIZE;
    let mut pixels = vec![0; 3 * (width * height) as usize];
    let backend = BuiltInGlyphs(BitMapBackend::with_buffer(&mut pixels, SIZE));
    draw(backend, day).map_err(|error| not_drawn(path, &error))?;
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let written = encoder.write_header().and_then(|mut writer| writer.write_image_data(&pixels));
    written.map_err(|error| not_drawn(path, &error))?;
    std::fs::write(path, file).map_err(|error| not_written(path, &error))
}

fn not_drawn(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(Exit::Io, format!("{}: the picture cannot be drawn: {error}", path.display()))
}

fn not_written(path: &Path, error: &io::Error) -> Failure {
    Failure::new(Exit::CannotCreate, format!("{}: {error}; name a file that can be written", path.display()))
}

/// The scales of the chart.
struct Scales {
    /// The highest rate of deliveries an hour.
    peak: i64,
    /// Depth of the part below the axis, in deliveries an hour.
    below: i64,
    /// Attempts without success are drawn at this part of the scale of deliveries, so that they fit below the axis.
    unit: i64,
    /// Deliveries of the day.
    total: i64,
}

impl Scales {
    fn of(day: &DayOfMail) -> Self {
        let peak = number(day.peak()).max(60);
        let unit = (number(day.peak_unsent()) * 4 / peak).max(1);
        Self { peak, below: (peak / 4).max(1), unit, total: number(day.total().sent).max(1) }
    }
}

fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX / 4)
}

type DrawResult<B> = Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;
type Axes<'a, B> = DualCoordChartContext<
    'a,
    B,
    Cartesian2d<RangedCoordi64, RangedCoordi64>,
    Cartesian2d<RangedCoordi64, RangedCoordi64>,
>;

/// Draws the day: rates an hour at the left, delivered mail at the right, hours below.
fn draw<B: DrawingBackend>(backend: B, day: &DayOfMail) -> DrawResult<B> {
    let area = backend.into_drawing_area();
    area.fill(&WHITE)?;
    let scales = Scales::of(day);
    let minutes = MINUTES as i64;
    let mut chart = ChartBuilder::on(&area)
        .caption(day.title(), ("sans-serif", 20))
        .margin(16)
        .x_label_area_size(36)
        .y_label_area_size(90)
        .right_y_label_area_size(90)
        .build_cartesian_2d(0..minutes, -scales.below..scales.peak)?
        .set_secondary_coord(0..minutes, -(scales.total / 4).max(1)..scales.total);
    let hour = |minute: &i64| format!("{:02}:00", minute / 60);
    let up = |value: &i64| if *value < 0 { String::new() } else { thousands(value.unsigned_abs()) };
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_labels(13)
        .x_label_formatter(&hour)
        .y_label_formatter(&up)
        .y_desc("deliveries an hour")
        .draw()?;
    chart.configure_secondary_axes().y_label_formatter(&up).y_desc("delivered since midnight").draw()?;
    draw_deliveries(&mut chart, day)?;
    draw_below(&mut chart, day, &scales)?;
    area.present()
}

/// Draws deliveries as spikes, and their sum as a line.
fn draw_deliveries<B: DrawingBackend>(chart: &mut Axes<'_, B>, day: &DayOfMail) -> DrawResult<B> {
    let mut sum = 0;
    let sums = (0_i64..).zip(&day.minutes).map(|(minute, counts)| {
        sum += number(counts.sent);
        (minute, sum)
    });
    chart.draw_secondary_series(LineSeries::new(sums, SUM.stroke_width(3)))?;
    let spikes = (0_i64..).zip(&day.minutes).filter(|(_, counts)| counts.sent > 0);
    chart.draw_series(spikes.map(|(minute, counts)| {
        Rectangle::new([(minute, 0), (minute + 1, number(counts.sent * 60))], DELIVERED.filled())
    }))?;
    Ok(())
}

/// Draws arrivals as ticks below the axis, and attempts without success below them.
fn draw_below<B: DrawingBackend>(chart: &mut Axes<'_, B>, day: &DayOfMail, scales: &Scales) -> DrawResult<B> {
    let Scales { below, unit, .. } = *scales;
    let unsent = (0_i64..).zip(&day.minutes).filter(|(_, counts)| counts.unsent() > 0);
    chart.draw_series(unsent.map(|(minute, counts)| {
        let depth = (number(counts.unsent() * 60) / unit).min(below * 3 / 4);
        Rectangle::new([(minute, -below / 4), (minute + 1, -below / 4 - depth)], UNSENT.filled())
    }))?;
    let arrivals = (0_i64..).zip(&day.minutes).filter(|(_, counts)| counts.arrivals > 0);
    chart.draw_series(arrivals.map(|(minute, _)| {
        PathElement::new([(minute, -below / 40), (minute, -below / 5)], ARRIVALS.stroke_width(1))
    }))?;
    let scale = if unit > 1 { format!("not delivered (1/{unit} of the scale)") } else { "not delivered".to_owned() };
    for (text, colour, at) in [("arrivals", ARRIVALS, below / 40), (&scale, UNSENT, below / 3)] {
        let style = ("sans-serif", 14).into_font().color(&colour);
        chart.draw_series([Text::new(text.to_owned(), (6, -at), style)])?;
    }
    Ok(())
}

/// A picture of pixels in which text is drawn with glyphs that are built in.
struct BuiltInGlyphs<'p>(BitMapBackend<'p>);

impl DrawingBackend for BuiltInGlyphs<'_> {
    type ErrorType = <BitMapBackend<'static> as DrawingBackend>::ErrorType;

    fn get_size(&self) -> (u32, u32) {
        self.0.get_size()
    }

    fn ensure_prepared(&mut self) -> Result<(), DrawingErrorKind<Self::ErrorType>> {
        self.0.ensure_prepared()
    }

    fn present(&mut self) -> Result<(), DrawingErrorKind<Self::ErrorType>> {
        self.0.present()
    }

    fn draw_pixel(&mut self, at: BackendCoord, color: BackendColor) -> Result<(), DrawingErrorKind<Self::ErrorType>> {
        self.0.draw_pixel(at, color)
    }

    fn draw_rect<S: plotters_backend::BackendStyle>(
        &mut self,
        from: BackendCoord,
        to: BackendCoord,
        style: &S,
        fill: bool,
    ) -> Result<(), DrawingErrorKind<Self::ErrorType>> {
        self.0.draw_rect(from, to, style, fill)
    }

    fn estimate_text_size<S: BackendTextStyle>(
        &self,
        text: &str,
        _style: &S,
    ) -> Result<(u32, u32), DrawingErrorKind<Self::ErrorType>> {
        Ok((u32::try_from(text.chars().count()).unwrap_or(u32::MAX / 16) * glyph_width(), GLYPH_HEIGHT))
    }

    fn draw_text<S: BackendTextStyle>(
        &mut self,
        text: &str,
        style: &S,
        at: BackendCoord,
    ) -> Result<(), DrawingErrorKind<Self::ErrorType>> {
        let (width, height) = self.estimate_text_size(text, style)?;
        let is_upright = matches!(style.transform(), FontTransform::None);
        let half = |length: u32| i32::try_from(length / 2).unwrap_or(0);
        let left = match style.anchor().h_pos {
            HPos::Left => 0,
            HPos::Center => half(width),
            HPos::Right => 2 * half(width),
        };
        let up = match style.anchor().v_pos {
            VPos::Top => 0,
            VPos::Center => half(height),
            VPos::Bottom => 2 * half(height),
        };
        let color = style.color();
        for (x, y, strength) in pixels_of(text) {
            let (x, y) = (x - left, y - up);
            // The only other direction here is that of the text beside an axis, from below to above.
            let (x, y) = if is_upright { (x, y) } else { (y, -x) };
            let alpha = color.alpha * f64::from(strength) / 255.0;
            self.0.draw_pixel((at.0 + x, at.1 + y), BackendColor { alpha, ..color })?;
        }
        Ok(())
    }
}

/// Pixels of a glyph from above to below.
const GLYPH_HEIGHT: u32 = 16;

fn glyph_width() -> u32 {
    u32::try_from(get_raster_width(FontWeight::Regular, RasterHeight::Size16)).unwrap_or(GLYPH_HEIGHT)
}

/// The pixels of a text: place and strength.
fn pixels_of(text: &str) -> impl Iterator<Item = (i32, i32, u8)> {
    let glyph = |c: char| get_raster(c, FontWeight::Regular, RasterHeight::Size16);
    let glyphs =
        (0_i32..).zip(text.chars()).filter_map(move |(index, c)| Some((index, glyph(c).or_else(|| glyph('?'))?)));
    glyphs.flat_map(|(index, glyph)| {
        let from = index * i32::try_from(glyph_width()).unwrap_or(0);
        let rows = (0_i32..).zip(glyph.raster().iter());
        rows.flat_map(move |(y, row)| {
            (0_i32..)
                .zip(row.iter())
                .filter(|(_, strength)| **strength > 0)
                .map(move |(x, strength)| (from + x, y, *strength))
        })
        .collect::<Vec<_>>()
    })
}
