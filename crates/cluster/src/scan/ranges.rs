//! Ranges of tokens that a core reads of a table. Pure.
//!
//! ```text
//!  tokens    MIN ├────────── core 0 ──────────┼────────── core 1 ──────────┤ MAX
//!  ring         ───▲────────▲──────────▲──────────▲─────────▲─────────▲───
//!  ranges        ├─┼──┼──┼──┼──┼──┼──┼─┼──┼─┼ …
//! ```
//!
//! 1. Each core has one span of equal width. The spans do not depend on the ring: cores see a new
//!    topology at different times, and every row must be read once all the same.
//! 2. A span is cut at the tokens of the ring, so that the replicas of one token have all of a
//!    range.
//! 3. Longer ranges are cut once more, so that a span has at least [`RANGES_MIN`].
//!
//! Behind the last token of the ring its first node begins anew. The spans end at the last token of
//! all, so no range wraps around.

use std::ops::RangeInclusive;

use schema::Token;

/// Ranges of a core, at least: a failed one costs little, and a scan moves on between nodes.
pub(crate) const RANGES_MIN: u64 = 32;

/// Tokens above `after`, up to `to`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TokenRange {
    pub(crate) after: Token,
    pub(crate) to: Token,
}

impl TokenRange {
    pub(crate) fn contains(self, token: Token) -> bool {
        self.after < token && token <= self.to
    }

    fn width(self) -> u64 {
        self.to.abs_diff(self.after)
    }
}

/// Returns the part of `tokens` that a core reads. `None`: it is empty. The token `Token::MIN` is
/// in no part, because no partition has it.
pub(crate) fn span_of(core: usize, cores: usize, tokens: &RangeInclusive<Token>) -> Option<TokenRange> {
    let edge = |at: usize| match at == cores {
        true => Token::MAX,
        false => {
            let above = ((1_u128 << 64) * at as u128 / cores as u128) as u64;
            Token::MIN.wrapping_add_unsigned(above)
        }
    };
    let span = TokenRange {
        after: edge(core).max(tokens.start().saturating_sub(1)),
        to: edge(core + 1).min(*tokens.end()),
    };
    (span.after < span.to).then_some(span)
}

/// Cuts a span at the tokens of the ring, and long ranges once more. `ring` is ascending.
pub(crate) fn cut(span: TokenRange, ring: &[Token]) -> Vec<TokenRange> {
    let width_max = span.width().div_ceil(RANGES_MIN).max(1);
    let inside = ring.iter().copied().filter(|token| span.contains(*token) && *token != span.to);
    let mut ranges = Vec::new();
    let mut after = span.after;
    for to in inside.chain([span.to]) {
        let width = to.abs_diff(after);
        let parts = width.div_ceil(width_max);
        let begin = after;
        for part in 1..=parts {
            let end = begin
                .wrapping_add_unsigned((u128::from(width) * u128::from(part) / u128::from(parts)) as u64);
            ranges.push(TokenRange { after, to: end });
            after = end;
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use testkit::Random;

    use super::*;

    const ALL: RangeInclusive<Token> = Token::MIN..=Token::MAX;

    #[test]
    fn every_token_is_in_one_range_of_one_core() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let cores = 1 + random.index(7);
            // Each core has another ring.
            let ring = |random: &mut Random| {
                let edges = [Token::MIN, Token::MAX, 0, -1];
                let mut ring: Vec<Token> =
                    (0..random.index(40)).map(|_| random.next_u64() as Token).collect();
                ring.extend((0..random.index(3)).map(|_| random.pick(&edges)));
                ring.sort_unstable();
                ring.dedup();
                ring
            };
            let mut next = Token::MIN;
            for core in 0..cores {
                let span = span_of(core, cores, &ALL).expect("all tokens");
                let ring = ring(&mut random);
                let ranges = cut(span, &ring);
                assert!(ranges.len() as u64 >= RANGES_MIN, "seed {seed}");
                for range in ranges {
                    assert_eq!(range.after, next, "seed {seed}: no gap, no overlap");
                    assert!(range.after < range.to, "seed {seed}");
                    let crosses = |token: &&Token| range.contains(**token) && **token != range.to;
                    assert_eq!(ring.iter().find(crosses), None, "seed {seed}: the replicas of one token");
                    next = range.to;
                }
            }
            assert_eq!(next, Token::MAX, "seed {seed}");
        }
    }

    #[test]
    fn span_is_that_part_of_the_wanted_tokens() {
        let check = |core, tokens, expected: Option<(Token, Token)>| {
            let expected = expected.map(|(after, to)| TokenRange { after, to });
            assert_eq!(span_of(core, 2, &tokens), expected, "{tokens:?}");
        };
        check(0, ALL, Some((Token::MIN, 0)));
        check(1, ALL, Some((0, Token::MAX)));
        check(0, 0..=0, Some((-1, 0)));
        check(1, 0..=0, None);
        check(1, -5..=7, Some((0, 7)));
        check(0, -5..=7, Some((-6, 0)));
        check(0, Token::MIN..=Token::MIN, None);
        check(1, Token::MAX..=Token::MAX, Some((Token::MAX - 1, Token::MAX)));
    }

    #[test]
    fn narrow_span_has_no_empty_ranges() {
        let span = TokenRange { after: 4, to: 7 };
        let one = |after, to| TokenRange { after, to };
        assert_eq!(cut(span, &[5, 7]), [one(4, 5), one(5, 6), one(6, 7)]);
    }
}
