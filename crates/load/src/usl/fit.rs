//! Least squares on relative errors, with the bounds λ > 0, 0 ≤ σ ≤ 1 and κ ≥ 0.
//!
//! 1. N/X is linear in a = 1/λ, b = σ/λ and c = κ/λ: N/X = a + b·(N−1) + c·N·(N−1). Dividing by N/X
//!    makes the error of every point relative. Points with large N would dominate otherwise.
//! 2. Sum the normal equations of that linear problem once.
//! 3. The bounds are b ≥ 0, c ≥ 0 and b ≤ a. At the minimum each is either met with equality or has
//!    no effect. Solve for each combination of equalities. The problem is convex, so that the
//!    solution within the bounds with the least error is the minimum.

use serde::{Deserialize, Serialize};

use super::law::Usl;

/// One measurement: requests in flight and answers a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Requests in flight.
    pub n: f64,
    /// Answers a second.
    pub throughput_per_s: f64,
}

/// Least number of different N. Three parameters need three, and a fourth to contradict them.
const DIFFERENT_MIN: usize = 4;

/// Free parameters of each combination, as multiples of a, b and c. The first has no equality.
const COMBINATIONS: [&[[f64; 3]]; 6] = [
    &[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
    &[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], // κ = 0
    &[[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], // σ = 0
    &[[1.0, 0.0, 0.0]],                  // σ = κ = 0
    &[[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]], // σ = 1
    &[[1.0, 1.0, 0.0]],                  // σ = 1, κ = 0
];

/// Matrix and right side of the normal equations.
#[derive(Clone, Copy, Default)]
struct Normal {
    matrix: [[f64; 3]; 3],
    right: [f64; 3],
}

/// Fits the law to measurements. Points without throughput are left out. Returns `None` for fewer
/// than four different N.
pub fn fit(points: &[Point]) -> Option<Usl> {
    let used = || points.iter().filter(|point| point.n >= 1.0 && point.throughput_per_s > 0.0);
    let mut different: Vec<f64> = used().map(|point| point.n).collect();
    different.sort_by(f64::total_cmp);
    different.dedup();
    if different.len() < DIFFERENT_MIN {
        return None;
    }
    fit_within(used().map(|point| (point.n, point.throughput_per_s)))
}

/// Fits the law to N and throughput, both positive, without checking the number of points.
pub(super) fn fit_within(points: impl Iterator<Item = (f64, f64)>) -> Option<Usl> {
    let mut normal = Normal::default();
    for (n, x) in points {
        // The terms of N/X, divided by N/X. Their sum is to be 1.
        let row = [x / n, x / n * (n - 1.0), x * (n - 1.0)];
        for i in 0..3 {
            for j in 0..3 {
                normal.matrix[i][j] += row[i] * row[j];
            }
            normal.right[i] += row[i];
        }
    }
    let mut best: Option<(f64, [f64; 3])> = None;
    for (index, free) in COMBINATIONS.iter().enumerate() {
        let Some(terms) = solve(&normal, free) else { continue };
        let [a, b, c] = terms;
        if a <= 0.0 || b < 0.0 || c < 0.0 || b > a * (1.0 + 1e-12) {
            continue;
        }
        let error = error(&normal, &terms);
        if best.is_none_or(|(least, _)| error < least) {
            best = Some((error, terms));
        }
        if index == 0 {
            break;
        }
    }
    let (_, [a, b, c]) = best?;
    Some(Usl { lambda: 1.0 / a, sigma: (b / a).min(1.0), kappa: c / a })
}

/// Returns the sum of squared relative errors, less the number of points.
fn error(normal: &Normal, terms: &[f64; 3]) -> f64 {
    let row = |i: usize| (0..3).map(|j| normal.matrix[i][j] * terms[j]).sum::<f64>();
    (0..3).map(|i| terms[i] * (row(i) - 2.0 * normal.right[i])).sum()
}

/// Solves for the free parameters by Gaussian elimination with the largest pivot, and returns a, b
/// and c. `None`: the equations are singular. Scales each row by its diagonal first, since columns
/// that differ by N² would look singular.
fn solve(normal: &Normal, free: &[[f64; 3]]) -> Option<[f64; 3]> {
    let size = free.len();
    let mut rows = [[0.0f64; 4]; 3];
    let product = |i: usize, j: usize| -> f64 {
        let of_row = |k: usize| (0..3).map(|l| normal.matrix[k][l] * free[j][l]).sum::<f64>();
        (0..3).map(|k| free[i][k] * of_row(k)).sum()
    };
    let mut scale = [1.0f64; 3];
    for (i, scale) in scale.iter_mut().enumerate().take(size) {
        *scale = product(i, i).sqrt();
        if *scale <= 0.0 || !scale.is_finite() {
            return None;
        }
    }
    for i in 0..size {
        for j in 0..size {
            rows[i][j] = product(i, j) / (scale[i] * scale[j]);
        }
        rows[i][3] = (0..3).map(|k| free[i][k] * normal.right[k]).sum::<f64>() / scale[i];
    }
    for column in 0..size {
        let pivot =
            (column..size).max_by(|a, b| rows[*a][column].abs().total_cmp(&rows[*b][column].abs()))?;
        rows.swap(column, pivot);
        if rows[column][column].abs() < 1e-10 {
            return None;
        }
        for row in 0..size {
            if row != column {
                let factor = rows[row][column] / rows[column][column];
                let pivot = rows[column];
                for (cell, above) in rows[row].iter_mut().zip(pivot) {
                    *cell -= factor * above;
                }
            }
        }
    }
    let mut terms = [0.0; 3];
    for i in 0..size {
        let value = rows[i][3] / rows[i][i] / scale[i];
        for (term, part) in terms.iter_mut().zip(free[i]) {
            *term += value * part;
        }
    }
    Some(terms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(law: &Usl, noise: f64) -> Vec<Point> {
        let at = |(index, n): (usize, &f64)| {
            let sign = if index % 2 == 0 { 1.0 } else { -1.0 };
            Point { n: *n, throughput_per_s: law.throughput(*n) * (1.0 + sign * noise) }
        };
        [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0].iter().enumerate().map(at).collect()
    }

    fn check(lambda: f64, sigma: f64, kappa: f64) {
        let law = Usl { lambda, sigma, kappa };
        let exact = fit(&points(&law, 0.0)).expect("a law");
        assert!((exact.lambda / lambda - 1.0).abs() < 1e-6, "{exact:?}");
        assert!((exact.sigma - sigma).abs() < 1e-6 && (exact.kappa - kappa).abs() < 1e-8, "{exact:?}");
        let noisy = fit(&points(&law, 0.02)).expect("a law");
        assert!((noisy.lambda / lambda - 1.0).abs() < 0.1, "{noisy:?}");
        for n in [1.0, 10.0, 100.0] {
            assert!((noisy.throughput(n) / law.throughput(n) - 1.0).abs() < 0.06, "{noisy:?} at {n}");
        }
    }

    #[test]
    fn known_laws_are_recovered() {
        check(1000.0, 0.02, 0.0001);
        check(25_000.0, 0.1, 0.0);
        check(5.0, 0.0, 0.002);
        check(40_000.0, 0.0, 0.0);
        check(100_000.0, 0.9, 0.01);
    }

    #[test]
    fn parameters_stay_within_their_bounds() {
        let measured = |throughput: fn(f64) -> f64| -> Usl {
            let point = |n: f64| Point { n, throughput_per_s: throughput(n) };
            fit(&[1.0, 2.0, 4.0, 8.0, 16.0].map(point)).expect("a law")
        };
        // Throughput that falls at once would need σ above 1, throughput beyond λ·N one below 0.
        let falling = measured(|n| 100.0 / n.powf(0.2));
        assert!(falling.sigma <= 1.0 && falling.kappa >= 0.0, "{falling:?}");
        let superlinear = measured(|n| 100.0 * n.powf(1.2));
        assert!(superlinear.sigma >= 0.0 && superlinear.kappa >= 0.0, "{superlinear:?}");
        assert_eq!((superlinear.sigma, superlinear.kappa), (0.0, 0.0));
    }

    #[test]
    fn fewer_than_four_different_n_determine_no_law() {
        let point = |n, throughput_per_s| Point { n, throughput_per_s };
        assert_eq!(fit(&[]), None);
        let positive = [point(1.0, 5.0), point(2.0, 9.0), point(4.0, 15.0)];
        assert_eq!(fit(&positive.repeat(3)), None);
        assert_eq!(fit(&[positive.to_vec(), vec![point(8.0, 0.0), point(0.0, 7.0)]].concat()), None);
        assert!(fit(&[positive.to_vec(), vec![point(8.0, 20.0)]].concat()).is_some());
    }
}
