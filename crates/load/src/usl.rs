//! The Universal Scalability Law: throughput X with N requests in flight,
//!
//! ```text
//!              λ·N
//! X(N) = ────────────────────────
//!        1 + σ·(N−1) + κ·N·(N−1)
//! ```
//!
//! λ is the throughput of one request in flight. σ is the serial part (contention), κ the cost of
//! coordination (coherence). With κ > 0 there is a best N, beyond which throughput falls.

use serde::{Deserialize, Serialize};

/// One measurement: requests in flight and answers a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Requests in flight.
    pub n: f64,
    /// Answers a second.
    pub throughput_per_s: f64,
}

/// A fitted law.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Usl {
    /// Answers a second with one request in flight.
    pub lambda: f64,
    /// Contention, 0 to 1.
    pub sigma: f64,
    /// Coherence, 0 or more.
    pub kappa: f64,
    /// Share of the variance that the law explains, at most 1.
    pub r_squared: f64,
}

impl Usl {
    /// Returns the answers a second with `n` requests in flight.
    pub fn throughput(&self, n: f64) -> f64 {
        self.lambda * n / (1.0 + self.sigma * (n - 1.0) + self.kappa * n * (n - 1.0))
    }

    /// Returns the number of requests in flight with the highest throughput. `None`: it never
    /// falls.
    pub fn best(&self) -> Option<f64> {
        (self.kappa > 0.0).then(|| ((1.0 - self.sigma).max(0.0) / self.kappa).sqrt().max(1.0))
    }
}

/// Fits the law to measurements by least squares on relative errors.
///
/// 1. N/X is linear in 1/λ, σ/λ and κ/λ: N/X = a + b·(N−1) + c·N·(N−1). Dividing by N/X makes the
///    error of every point relative. Points with many requests in flight would dominate otherwise.
/// 2. Solve the normal equations of that linear problem of three parameters.
/// 3. Negative σ and κ have no meaning. Omit such a term and fit the rest again.
///
/// Returns `None` for fewer than three points with positive values, or points without a solution.
pub fn fit(points: &[Point]) -> Option<Usl> {
    let points: Vec<Point> =
        points.iter().copied().filter(|p| p.n >= 1.0 && p.throughput_per_s > 0.0).collect();
    if points.len() < 3 {
        return None;
    }
    let attempts = [[true, true], [true, false], [false, true], [false, false]];
    let fits = attempts.iter().filter_map(|terms| fit_terms(&points, *terms));
    // Prefer the law with all terms. Otherwise take the smallest error.
    let mut best: Option<(f64, Usl)> = None;
    for (index, usl) in fits.enumerate() {
        let error = relative_error(&points, &usl);
        if index == 0 && usl.sigma > 0.0 && usl.kappa > 0.0 {
            return Some(usl);
        }
        if best.is_none_or(|(least, _)| error < least) {
            best = Some((error, usl));
        }
    }
    best.map(|(_, usl)| usl)
}

fn relative_error(points: &[Point], usl: &Usl) -> f64 {
    points.iter().map(|p| (p.throughput_per_s / usl.throughput(p.n) - 1.0).powi(2)).sum()
}

fn fit_terms(points: &[Point], [with_sigma, with_kappa]: [bool; 2]) -> Option<Usl> {
    let mut normal = [[0.0f64; 4]; 3];
    for point in points {
        let y = point.n / point.throughput_per_s;
        let row = [
            1.0 / y,
            if with_sigma { (point.n - 1.0) / y } else { 0.0 },
            if with_kappa { point.n * (point.n - 1.0) / y } else { 0.0 },
        ];
        for i in 0..3 {
            for j in 0..3 {
                normal[i][j] += row[i] * row[j];
            }
            normal[i][3] += row[i];
        }
    }
    for (term, used) in [(1, with_sigma), (2, with_kappa)] {
        if !used {
            normal[term] = [0.0; 4];
            normal[term][term] = 1.0;
        }
    }
    let [a, b, c] = solve(normal)?;
    if a <= 0.0 || b < 0.0 || c < 0.0 {
        return None;
    }
    let mut usl = Usl { lambda: 1.0 / a, sigma: b / a, kappa: c / a, r_squared: 0.0 };
    let mean = points.iter().map(|p| p.throughput_per_s).sum::<f64>() / points.len() as f64;
    let total: f64 = points.iter().map(|p| (p.throughput_per_s - mean).powi(2)).sum();
    let left: f64 = points.iter().map(|p| (p.throughput_per_s - usl.throughput(p.n)).powi(2)).sum();
    usl.r_squared = if total > 0.0 { 1.0 - left / total } else { 1.0 };
    Some(usl)
}

/// Solves by Gaussian elimination with the largest pivot. `None`: the equations are singular.
/// Scales each row by its diagonal first, since columns that differ by N² would look singular.
fn solve(mut rows: [[f64; 4]; 3]) -> Option<[f64; 3]> {
    let scale: [f64; 3] = std::array::from_fn(|i| rows[i][i].sqrt());
    if scale.iter().any(|s| *s <= 0.0 || !s.is_finite()) {
        return None;
    }
    for i in 0..3 {
        for j in 0..3 {
            rows[i][j] /= scale[i] * scale[j];
        }
        rows[i][3] /= scale[i];
    }
    for column in 0..3 {
        let pivot = (column..3).max_by(|a, b| rows[*a][column].abs().total_cmp(&rows[*b][column].abs()))?;
        rows.swap(column, pivot);
        if rows[column][column].abs() < 1e-10 {
            return None;
        }
        for row in 0..3 {
            if row != column {
                let factor = rows[row][column] / rows[column][column];
                let pivot = rows[column];
                for (cell, above) in rows[row].iter_mut().zip(pivot) {
                    *cell -= factor * above;
                }
            }
        }
    }
    Some(std::array::from_fn(|i| rows[i][3] / rows[i][i] / scale[i]))
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
        let law = Usl { lambda, sigma, kappa, r_squared: 1.0 };
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
    fn best_concurrency_is_the_maximum() {
        let law = Usl { lambda: 1.0, sigma: 0.02, kappa: 0.0002, r_squared: 1.0 };
        let best = law.best().expect("throughput falls");
        assert!((best - 70.0).abs() < 1e-9);
        assert!(law.throughput(best) > law.throughput(best - 5.0).max(law.throughput(best + 5.0)));
        assert_eq!(Usl { kappa: 0.0, ..law }.best(), None);
    }

    #[test]
    fn too_few_points_determine_no_law() {
        let point = |n, throughput_per_s| Point { n, throughput_per_s };
        assert_eq!(fit(&[]), None);
        assert_eq!(fit(&[point(1.0, 5.0), point(2.0, 0.0), point(0.0, 7.0), point(4.0, 9.0)]), None);
        // Three measurements of one concurrency determine λ, but not the scaling.
        let same = fit(&[point(1.0, 5.0), point(1.0, 5.0), point(1.0, 5.0)]);
        assert!(same.is_none_or(|law| law.sigma == 0.0 && law.kappa == 0.0));
    }
}
