//! What was measured as a drawing.

use plotters::prelude::*;

use super::sweep::Level;

/// Tokens a second, and the time to the first token, over the number of calls at the same time; as SVG.
pub(super) fn svg(model: &str, levels: &[Level]) -> Result<String, String> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (900, 700)).into_drawing_area();
        area.fill(&WHITE).map_err(|error| error.to_string())?;
        let (above, below) = area.split_vertically(350);
        let tokens = |level: &Level| Some(level.tokens_per_second);
        draw(&above, &format!("{model}: tokens/s"), levels, tokens)?;
        let first = |level: &Level| level.first_token_p95;
        let title = format!("{model}: time to first token, p95, in seconds");
        draw(&below, &title, levels, first)?;
        area.present().map_err(|error| error.to_string())?;
    }
    Ok(text)
}

fn draw(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    title: &str,
    levels: &[Level],
    of: impl Fn(&Level) -> Option<f64>,
) -> Result<(), String> {
    let points: Vec<(f64, f64)> = levels
        .iter()
        .filter_map(|level| Some((f64::from(level.concurrency), of(level)?)))
        .collect();
    let widest = points.iter().map(|(x, _)| *x).fold(1.0, f64::max);
    let highest = points
        .iter()
        .map(|(_, y)| *y)
        .fold(f64::MIN_POSITIVE, f64::max);
    let failed = |error: &dyn std::error::Error| error.to_string();
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..widest * 1.05, 0.0..highest * 1.1)
        .map_err(|error| failed(&error))?;
    chart
        .configure_mesh()
        .x_desc("calls at the same time")
        .draw()
        .map_err(|error| failed(&error))?;
    chart
        .draw_series(LineSeries::new(points.iter().copied(), &BLUE))
        .map_err(|error| failed(&error))?;
    let dots = points
        .iter()
        .map(|point| Circle::new(*point, 4, BLUE.filled()));
    chart.draw_series(dots).map_err(|error| failed(&error))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::sweep::Answered;
    use super::*;

    #[test]
    fn each_measured_level_is_a_dot_in_both_drawings() {
        let call = Answered {
            first_token: Duration::from_millis(200),
            duration: Duration::from_secs(1),
            tokens: 10,
        };
        let levels: Vec<Level> = [1, 2, 4]
            .map(|level| Level::of(level, &[call], &[], Duration::from_secs(1)))
            .to_vec();
        let drawing = svg("m <&> n", &levels).unwrap();
        assert_eq!(drawing.matches("<circle").count(), 6, "{drawing}");
        assert!(drawing.contains("m &lt;&amp;&gt; n"));
        // Nothing was measured: still a drawing.
        assert!(svg("m", &[]).unwrap().starts_with("<svg"));
    }
}
