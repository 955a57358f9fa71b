//! Division of a node's window, against an exact model with fractions, and by hand.

use sched::cluster::{PartSpec, Parts};
use testkit::Random;

const MILLI: u64 = 1000;
const WHOLE_PPM: u64 = 1_000_000;

fn by_shares(shares: u32) -> PartSpec {
    PartSpec { shares, min_ppm: 0, limit_ppm: None }
}

fn with_minimum(shares: u32, min_ppm: u32) -> PartSpec {
    PartSpec { min_ppm, ..by_shares(shares) }
}

fn with_limit(shares: u32, limit_ppm: u32) -> PartSpec {
    PartSpec { limit_ppm: Some(limit_ppm), ..by_shares(shares) }
}

/// Exact part of a claim, as a fraction.
#[derive(Clone, Copy, Debug)]
struct Fraction {
    numerator: u128,
    denominator: u128,
}

impl Fraction {
    /// Returns true if a whole number differs by less than 1.
    fn is_near(self, whole: u64) -> bool {
        (u128::from(whole) * self.denominator).abs_diff(self.numerator) < self.denominator
    }
}

/// Fills claims (weight and most) in rounds: claims that a round would overfill leave it with their
/// most, until a round overfills none.
fn model(amount: u64, claims: &[[u64; 2]]) -> Vec<Fraction> {
    let mut is_full: Vec<bool> = claims.iter().map(|&[weight, _]| weight == 0).collect();
    loop {
        let sum = |full: bool, of: fn(&[u64; 2]) -> u64| -> u128 {
            let claims = claims.iter().zip(&is_full).filter(|&(_, &is_full)| is_full == full);
            claims.map(|(claim, _)| u128::from(of(claim))).sum()
        };
        let left = u128::from(amount) - sum(true, |claim| claim[1]);
        let weights = sum(false, |claim| claim[0]);
        let part =
            |&[weight, _]: &[u64; 2]| Fraction { numerator: left * u128::from(weight), denominator: weights };
        let overfills = |at: usize| {
            let Fraction { numerator, denominator } = part(&claims[at]);
            !is_full[at] && numerator > u128::from(claims[at][1]) * denominator
        };
        let over: Vec<usize> = (0..claims.len()).filter(|&at| overfills(at)).collect();
        if over.is_empty() {
            let full = |most: u64| Fraction { numerator: most.into(), denominator: 1 };
            let fraction = |(claim, &is_full): (&[u64; 2], &bool)| match is_full {
                true => full(claim[1]),
                false => part(claim),
            };
            return claims.iter().zip(&is_full).map(fraction).collect();
        }
        over.into_iter().for_each(|at| is_full[at] = true);
    }
}

/// Returns the exact parts of levels. Minimums and limits are rounded down to thousandths.
fn model_of_levels(window: u32, levels: &[PartSpec], demands: &[u64]) -> Vec<Fraction> {
    let of_window = |ppm: u64| u64::from(window) * MILLI * ppm / WHOLE_PPM;
    let most = |at: usize| {
        let limit_ppm = levels[at].limit_ppm.map_or(WHOLE_PPM, u64::from);
        (demands[at] * MILLI).min(of_window(limit_ppm))
    };
    let minimums: Vec<[u64; 2]> = (0..levels.len())
        .map(|at| {
            let min_ppm = u64::from(levels[at].min_ppm);
            [min_ppm, if min_ppm == 0 { 0 } else { most(at).min(of_window(min_ppm)) }]
        })
        .collect();
    let amount = u64::from(window) * MILLI;
    let reserved: u64 = minimums.iter().map(|minimum| minimum[1]).sum();
    if reserved >= amount {
        return model(amount, &minimums);
    }
    let claims: Vec<[u64; 2]> =
        (0..levels.len()).map(|at| [u64::from(levels[at].shares), most(at) - minimums[at][1]]).collect();
    let mut parts = model(amount - reserved, &claims);
    for (part, [_, minimum]) in parts.iter_mut().zip(minimums) {
        part.numerator += u128::from(minimum) * part.denominator;
    }
    parts
}

fn random_level(random: &mut Random, sum_min_ppm: u32) -> PartSpec {
    let shares = random.pick(&[1, 2, 200, 400, 800, 999, 1000]);
    let min_ppm = if random.one_in(2) { 0 } else { random.below(u64::from(sum_min_ppm) + 1) as u32 };
    let limit_ppm = random.one_in(3).then(|| random.within(1, WHOLE_PPM + 1) as u32);
    PartSpec { shares, min_ppm, limit_ppm }
}

fn random_demand(random: &mut Random, window: u32) -> u32 {
    let often = [0, 0, 1, 2, 7, window / 3, window, u32::MAX];
    match random.one_in(2) {
        true => random.pick(&often),
        false => random.below(u64::from(window) + 2) as u32,
    }
}

/// Compares random divisions with the model. One result serves all, as in a front.
fn check_against_model(seed: u64, parts: &mut Parts) {
    let mut random = Random::new(seed);
    let window = random.pick(&[1, 4, 31, 32, 128, 1024, 4_000_000, u32::MAX]);
    let takers = random.pick(&[1, 2, 3, 8, 32, 64]);
    let sum_min_ppm = random.pick(&[0, 20_000, 300_000, 1_000_000]);
    let levels: Vec<PartSpec> =
        (0..random.pick(&[0, 1, 2, 5, 40])).map(|_| random_level(&mut random, sum_min_ppm)).collect();
    let demand: Vec<u32> = (0..levels.len() * takers).map(|_| random_demand(&mut random, window)).collect();
    parts.divide(window, &levels, takers, &demand);

    let rows: Vec<&[u32]> = demand.chunks(takers).collect();
    let demands: Vec<u64> = rows.iter().map(|row| row.iter().map(|&n| u64::from(n)).sum()).collect();
    let exact = model_of_levels(window, &levels, &demands);
    let mut sums = vec![0; takers];
    for (level, exact) in exact.iter().enumerate() {
        let part = parts.level_milli(level);
        assert!(exact.is_near(part), "seed {seed}, level {level}: {part}, not {exact:?}");
        let claims: Vec<[u64; 2]> = rows[level].iter().map(|&n| [1, u64::from(n) * MILLI]).collect();
        let of_takers = model(part, &claims);
        let mut sum = 0;
        for taker in 0..takers {
            let of_taker = parts.part_milli(level, taker);
            assert!(of_takers[taker].is_near(of_taker), "seed {seed}, level {level}, taker {taker}");
            assert!(of_taker <= u64::from(rows[level][taker]) * MILLI, "seed {seed}: more than the demand");
            sum += of_taker;
            sums[taker] += of_taker;
        }
        assert_eq!(sum, part, "seed {seed}, level {level}: takers have all of the level's part");
        check_limit(parts, level, takers, levels[level].limit_ppm.map(|ppm| (window, ppm)));
    }
    check_places(seed, parts, window, sums);
}

/// Checks that the limits of takers add up to that of the level, and have room for their parts.
fn check_limit(parts: &Parts, level: usize, takers: usize, limit: Option<(u32, u32)>) {
    let limits: Option<Vec<u64>> = (0..takers).map(|taker| parts.limit_milli(level, taker)).collect();
    let sum = limits.as_ref().map(|limits| limits.iter().sum());
    let expected = limit.map(|(window, ppm)| u64::from(window) * MILLI * u64::from(ppm) / WHOLE_PPM);
    assert_eq!(sum, expected);
    for (taker, limit) in limits.into_iter().flatten().enumerate() {
        assert!(limit >= parts.part_milli(level, taker));
    }
}

/// Checks the sums of takers: exactly the window, and their places within the stated bounds.
fn check_places(seed: u64, parts: &Parts, window: u32, mut sums: Vec<u64>) {
    let takers = sums.len();
    sums.iter_mut().enumerate().for_each(|(taker, sum)| *sum += parts.spare_milli(taker));
    assert_eq!(sums.iter().sum::<u64>(), u64::from(window) * MILLI, "seed {seed}: no thousandth is lost");
    let spare: Vec<u64> = (0..takers).map(|taker| parts.spare_milli(taker)).collect();
    assert!(spare.iter().max().unwrap() - spare.iter().min().unwrap() <= 1, "seed {seed}: spare is even");
    let (mut all, mut raised) = (0, 0);
    for (taker, sum) in sums.into_iter().enumerate() {
        let places = parts.places(taker);
        assert!(places >= 1, "seed {seed}: each taker has a place");
        let is_raised = sum < MILLI;
        assert!(
            is_raised && places == 1 || (places * MILLI).abs_diff(sum) < MILLI,
            "seed {seed}: {places}, {sum}"
        );
        all += places;
        raised += u64::from(is_raised);
    }
    assert!(all >= u64::from(window), "seed {seed}: no place is lost");
    assert!(all <= u64::from(window) + raised, "seed {seed}: only raised takers exceed the window");
}

#[test]
fn random_divisions_match_the_exact_model() {
    let mut parts = Parts::default();
    (0..3_000).for_each(|seed| check_against_model(seed, &mut parts));
}

/// Checks the parts of levels with one taker each, in thousandths of a place.
fn check(window: u32, levels: &[PartSpec], demand: &[u32], expected: &[u64]) {
    let mut parts = Parts::default();
    parts.divide(window, levels, 1, demand);
    let found: Vec<u64> = (0..levels.len()).map(|level| parts.level_milli(level)).collect();
    assert_eq!(found, expected, "{levels:?} {demand:?}");
}

#[test]
fn backlogged_levels_divide_by_shares() {
    let levels = [by_shares(200), by_shares(400), by_shares(800)];
    check(70, &levels, &[900, 900, 900], &[10_000, 20_000, 40_000]);
    check(1, &levels, &[900, 900, 900], &[143, 286, 571]);
    check(70, &levels, &[900, 5, 900], &[13_000, 5_000, 52_000]);
    check(70, &levels, &[3, 0, 2], &[3_000, 0, 2_000]);
}

#[test]
fn minimum_comes_before_shares_and_ends_at_the_demand() {
    let levels = [with_minimum(500, 400_000), by_shares(500)];
    check(100, &levels, &[900, 900], &[70_000, 30_000]);
    check(100, &levels, &[20, 900], &[20_000, 80_000]);
    let all = [with_minimum(1, 900_000), with_minimum(1, 300_000), by_shares(1000)];
    check(100, &all, &[900, 900, 900], &[75_000, 25_000, 0]);
}

#[test]
fn limit_bounds_a_level_and_what_it_leaves_goes_to_others() {
    let levels = [with_limit(800, 100_000), by_shares(200)];
    check(100, &levels, &[900, 900], &[10_000, 90_000]);
    let below_its_minimum = PartSpec { min_ppm: 500_000, ..with_limit(1, 100_000) };
    check(100, &[below_its_minimum, by_shares(1)], &[900, 900], &[10_000, 90_000]);
}

#[test]
fn small_shares_are_not_rounded_away() {
    let levels: Vec<PartSpec> = (0..1000).map(|level| by_shares(if level == 0 { 999 } else { 1 })).collect();
    let mut parts = Parts::default();
    parts.divide(1, &levels, 1, &[5; 1000]);
    assert_eq!(parts.level_milli(0), 500, "999 of 1,998 shares, and not the rest that others round off");
    assert_eq!((0..1000).map(|level| parts.level_milli(level)).sum::<u64>(), 1000);
}

#[test]
fn takers_divide_a_level_by_demand_and_spare_evenly() {
    let mut parts = Parts::default();
    parts.divide(30, &[by_shares(1)], 3, &[2, 90, 90]);
    assert_eq!([0, 1, 2].map(|taker| parts.part_milli(0, taker)), [2_000, 14_000, 14_000]);
    assert_eq!([0, 1, 2].map(|taker| parts.places(taker)), [2, 14, 14]);
    parts.divide(30, &[by_shares(1)], 3, &[2, 0, 1]);
    assert_eq!([0, 1, 2].map(|taker| parts.spare_milli(taker)), [9_000; 3]);
    assert_eq!([0, 1, 2].map(|taker| parts.places(taker)), [11, 9, 10]);
}

#[test]
fn each_taker_has_a_place_however_many_levels_wait() {
    let levels = [by_shares(1); 200];
    let mut parts = Parts::default();
    parts.divide(4, &levels, 64, &[1; 200 * 64]);
    assert_eq!((0..64).map(|taker| parts.places(taker)).sum::<u64>(), 64, "one a taker, not one a level");
    parts.divide(4, &levels, 64, &[0; 200 * 64]);
    assert!((0..64).all(|taker| parts.places(taker) == 1), "the first request of a taker need not wait");
}
