//! Drawings of lines made for tests.

use super::*;

fn figure(scale: Scale, points: Vec<(f64, f64)>) -> Figure {
    let line = Line { name: "one & only".to_string(), class: 0, thin: false, points };
    let other =
        Line { name: "the other".to_string(), class: 1, thin: false, points: vec![(0.0, 3.0), (10.0, 3.0)] };
    let panel = Panel {
        title: "a < b".to_string(),
        scale,
        tall: 1.0,
        stacked: false,
        top: None,
        spans: Vec::new(),
        lines: vec![line, other],
        rules: vec![Rule { value: 4.0, label: "four".to_string() }],
        notes: vec![Note { band: 0, between: None, texts: vec!["far too long ".repeat(40), "short".into()] }],
        mark: |value| format!("{value}"),
    };
    Figure {
        label: "a figure".to_string(),
        bands: vec![Band { label: "alone".to_string(), begin: 0.0, end: 10.0 }],
        panels: vec![panel],
        marks: Vec::new(),
        tips: vec![(1.0, "1 s".to_string()), (99.0, "never".to_string())],
    }
}

fn paths(drawing: &str) -> Vec<&str> {
    drawing
        .split("<path class=\"line")
        .skip(1)
        .filter_map(|path| path.split(" d=\"").nth(1)?.split('"').next())
        .collect()
}

#[test]
fn line_breaks_at_a_gap() {
    let points = vec![(0.0, 1.0), (1.0, 2.0), (9.0, 1.0), (10.0, 2.0)];
    for layout in [WIDE, NARROW] {
        let drawing = draw(&figure(Scale::Linear, points.clone()), &layout);
        let d = paths(&drawing)[0];
        assert_eq!((d.matches('M').count(), d.matches('L').count()), (2, 2), "{d}");
        for expected in ["one &amp; only", "a &lt; b", ">alone<", ">four<", ">short<", "<title>1 s</title>"] {
            assert!(drawing.contains(expected), "{expected}");
        }
        assert!(!drawing.contains("never") && !drawing.contains("far too long"));
    }
}

#[test]
fn points_outside_of_phases_are_not_drawn() {
    let figure = figure(Scale::Linear, vec![(-1.0, 9.0), (0.0, 1.0), (10.0, 2.0), (11.0, 9.0)]);
    let time = Time::of(&figure, &WIDE).expect("phases");
    assert_eq!(clipped(&figure, &time).panels[0].lines[0].points, [(0.0, 1.0), (10.0, 2.0)]);
}

#[test]
fn drawing_stays_inside_and_has_only_numbers() {
    for scale in [Scale::Linear, Scale::Log] {
        let points = vec![(0.0, 0.0), (1.0, f64::NAN), (2.0, 5.0), (2.5, 7000.0)];
        let drawing = draw(&figure(scale, points), &NARROW);
        assert!(!drawing.contains("NaN") && !drawing.contains("inf"), "{drawing}");
        for d in paths(&drawing) {
            let numbers = d.split(['M', 'L', ' ']).filter(|number| !number.is_empty());
            let inside = |n: &str| n.parse::<f64>().is_ok_and(|n| (0.0..=NARROW.width).contains(&n));
            assert!(numbers.clone().all(inside), "{d}");
        }
    }
    let mut empty = figure(Scale::Log, vec![(0.0, 0.0)]);
    empty.panels[0].lines.truncate(1);
    empty.panels[0].rules.clear();
    assert!(draw(&empty, &WIDE).contains("nothing was measured"));
}

#[test]
fn areas_are_drawn_with_notes_that_fit() {
    let mut stacked = figure(Scale::Linear, vec![(0.0, 1.0), (10.0, 1.0)]);
    stacked.panels[0].stacked = true;
    stacked.panels[0].notes = vec![
        Note { band: 0, between: Some((0.0, 1.0)), texts: vec!["low".into()] },
        Note { band: 0, between: Some((1.0, 1.01)), texts: vec!["too thin".into()] },
    ];
    let drawing = draw(&stacked, &WIDE);
    assert_eq!(drawing.matches("class=\"area").count(), 2);
    assert!(drawing.contains(">low<") && !drawing.contains("too thin"));
}

#[test]
fn long_names_of_phases_are_wrapped() {
    assert_eq!(wrapped("analytics beside it", 10.0, 60.0), ["analytics", "beside it"]);
    assert_eq!(wrapped("alone", 10.0, 5.0), ["alone"]);
}
