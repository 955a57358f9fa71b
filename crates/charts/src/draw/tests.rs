//! Drawings of lines made for tests.

use super::*;
use crate::axis::Scale;
use crate::model::{Line, NARROW, Note, Rule, WIDE};

fn figure(scale: Scale, points: Vec<(f64, f64)>) -> Figure {
    let line = Line { name: "one & only".to_string(), class: 0, thin: false, points };
    let other =
        Line { name: "the other".to_string(), class: 1, thin: false, points: vec![(0.0, 3.0), (10.0, 3.0)] };
    let panel = Panel {
        rules: vec![Rule { value: 4.0, label: "four".to_string() }],
        notes: vec![Note { band: 0, between: None, texts: vec!["far too long ".repeat(40), "short".into()] }],
        moments: vec![5.0, 11.0],
        ..Panel::of_lines("a < b", scale, vec![line, other], |value| format!("{value}"))
    };
    Figure {
        label: "a figure".to_string(),
        bands: vec![Band { label: "alone".to_string(), begin: 0.0, end: 10.0 }],
        panels: vec![panel],
        across: Across::Time,
        tips: vec![(1.0, "1 s".to_string()), (99.0, "never".to_string())],
    }
}

/// Text of a drawing.
#[derive(Debug)]
struct Text<'a> {
    class: &'a str,
    anchor: &'a str,
    x: f64,
    y: f64,
    words: &'a str,
}

fn texts(drawing: &str) -> Vec<Text<'_>> {
    let parsed = drawing.split("<text ").skip(1).map(|text| {
        let attribute = |name: &str| {
            let value = text.split_once(&format!("{name}=\"")).and_then(|(_, rest)| rest.split_once('"'));
            value.expect("each text has it").0
        };
        let (words, _) = text.split_once('>').and_then(|(_, rest)| rest.split_once('<')).expect("an element");
        let number = |name: &str| attribute(name).parse().expect("a number");
        let x = number("x");
        let y = number("y");
        Text { class: attribute("class"), anchor: attribute("text-anchor"), x, y, words }
    });
    parsed.collect()
}

/// Checks that labels along an axis differ, and that their boxes do not overlap.
fn check_labels(labels: &[(f64, f64, &str)], seed: u64) {
    for (index, (at, extent, words)) in labels.iter().enumerate() {
        for (other_at, other_extent, other) in &labels[..index] {
            assert_ne!(words, other, "seed {seed}: {labels:?}");
            let apart = f64::midpoint(*extent, *other_extent);
            assert!((at - other_at).abs() >= apart - 0.11, "seed {seed}: {words} and {other} in {labels:?}");
        }
    }
}

#[test]
fn labels_of_any_range_differ_and_do_not_overlap() {
    let formats: [fn(f64) -> String; 5] = [
        crate::numbers::rate,
        crate::numbers::round_time,
        crate::numbers::number,
        |value| format!("{value:.0} %"),
        |value| format!("{value:.1}"),
    ];
    for seed in 1..=2000 {
        let mut random = testkit::Random::new(seed);
        let mut of_any_size = |least: f64, most: f64| least * (most / least).powf(random.fraction());
        let begin = of_any_size(1.0, 1e9);
        let length = of_any_size(0.02, 1e5);
        let top = of_any_size(1e-4, 1e9);
        let low = top * of_any_size(1e-6, 1.0);
        let scale = random.pick(&[Scale::Linear, Scale::Log]);
        let mut figure = figure(scale, vec![(begin, low), (begin + length, top)]);
        figure.bands[0] = Band { label: "alone".to_string(), begin, end: begin + length };
        let panel = &mut figure.panels[0];
        panel.lines.truncate(1);
        panel.rules.clear();
        (panel.mark, panel.tall) = (random.pick(&formats), random.pick(&[0.3, 0.9, 1.8]));
        if random.one_in(3) {
            let count = 1 + random.below(30);
            let mark = |n: u64| (begin + length * n as f64 / count as f64, format!("{}", n * n * n / 2));
            figure.across = Across::Values { title: "cubes", marks: (0..=count).map(mark).collect() };
        }
        let layout = random.pick(&[WIDE, NARROW]);
        let drawing = draw(&figure, &layout);
        let texts = texts(&drawing);
        let labels =
            |anchor: &'static str| texts.iter().filter(move |it| it.class == "mark" && it.anchor == anchor);
        let across: Vec<_> =
            labels("middle").map(|it| (it.x, width(it.words, layout.text), it.words)).collect();
        let up: Vec<_> = labels("end").map(|it| (it.y, layout.text, it.words)).collect();
        assert!(!across.is_empty() && !up.is_empty(), "seed {seed}: {drawing}");
        check_labels(&across, seed);
        check_labels(&up, seed);
    }
}

#[test]
fn both_axes_have_titles() {
    let mut figure = figure(Scale::Log, vec![(0.0, 1.0), (10.0, 2.0)]);
    let titles = |figure: &Figure| {
        let drawing = draw(figure, &WIDE);
        let shown = texts(&drawing).into_iter().filter(|it| ["title", "across"].contains(&it.class));
        shown.map(|it| it.words.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(titles(&figure), ["a &lt; b (logarithmic)", "time, seconds"]);
    figure.across = Across::Values { title: "cores", marks: vec![(1.0, "1".to_string())] };
    assert_eq!(titles(&figure)[1], "cores");
}

#[test]
fn names_of_short_phases_do_not_overlap() {
    let mut figure = figure(Scale::Linear, vec![(0.0, 1.0), (10.0, 2.0)]);
    let band = |n: u32| Band {
        label: format!("phase {n} with a long name"),
        begin: f64::from(n) * 0.5,
        end: f64::from(n) * 0.5 + 0.4,
    };
    figure.bands = (0..6).map(band).chain([Band { label: "last".into(), begin: 3.0, end: 10.0 }]).collect();
    let drawing = draw(&figure, &NARROW);
    let texts = texts(&drawing);
    let names: Vec<&Text> = texts.iter().filter(|it| it.class == "phase").collect();
    for (index, name) in names.iter().enumerate() {
        for other in &names[..index] {
            let apart = (width(name.words, NARROW.text) + width(other.words, NARROW.text)) / 2.0;
            let is_free = (name.x - other.x).abs() >= apart || (name.y - other.y).abs() >= NARROW.text;
            assert!(is_free && name.y > 0.0, "{name:?} {other:?}");
        }
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
    assert_eq!(unbroken("burst on 1 000 keys 2"), "burst on 1\u{a0}000 keys 2");
}
