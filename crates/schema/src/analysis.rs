//! Analysis of values for an index: texts that differ only in case, composition or accents are the
//! same term, and so are the two forms of an IPv4 address.
//!
//! 1. Without `case_sensitive`, letters become lower case.
//! 2. With `normalize`, the text gets Unicode's normalization form C.
//! 3. With `ascii`, characters of Latin scripts, digits and punctuation become ASCII where they
//!    have an equivalent: the mappings of Lucene's ASCIIFoldingFilter, from Unicode's compatibility
//!    decompositions and [`FOLDED`]. Rare symbols outside of those blocks stay as they are.

use std::borrow::Cow;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::{decompose_compatible, is_combining_mark};

/// Changes of an index to its values. The default changes none.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Analysis {
    /// True if letters become lower case.
    pub ignores_case: bool,
    /// True for Unicode's normalization form C.
    pub normalizes: bool,
    /// True if characters become ASCII.
    pub folds: bool,
    /// True if IPv4 addresses become IPv6 addresses, as in Cassandra's storage-attached indexes:
    /// they are equal to those, and sorted among them.
    pub maps_addresses: bool,
}

/// Beginning of an IPv6 address that is an IPv4 address.
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// Characters without a decomposition to ASCII, and their equivalents.
const FOLDED: &[(char, &str)] = &[
    ('Æ', "AE"),
    ('æ', "ae"),
    ('Ǣ', "AE"),
    ('ǣ', "ae"),
    ('Ǽ', "AE"),
    ('ǽ', "ae"),
    ('Œ', "OE"),
    ('œ', "oe"),
    ('Ø', "O"),
    ('ø', "o"),
    ('Ǿ', "O"),
    ('ǿ', "o"),
    ('Ð', "D"),
    ('ð', "d"),
    ('Đ', "D"),
    ('đ', "d"),
    ('Þ', "TH"),
    ('þ', "th"),
    ('ß', "ss"),
    ('ẞ', "SS"),
    ('Ħ', "H"),
    ('ħ', "h"),
    ('ı', "i"),
    ('ȷ', "j"),
    ('Ł', "L"),
    ('ł', "l"),
    ('Ŋ', "N"),
    ('ŋ', "n"),
    ('Ŧ', "T"),
    ('ŧ', "t"),
    ('ƀ', "b"),
    ('Ɓ', "B"),
    ('Ɔ', "O"),
    ('Ƈ', "C"),
    ('ƈ', "c"),
    ('Ɖ', "D"),
    ('Ɗ', "D"),
    ('Ǝ', "E"),
    ('Ə', "A"),
    ('ə', "a"),
    ('Ɛ', "E"),
    ('Ƒ', "F"),
    ('ƒ', "f"),
    ('Ɠ', "G"),
    ('Ɨ', "I"),
    ('Ƙ', "K"),
    ('ƙ', "k"),
    ('ƚ', "l"),
    ('Ɯ', "M"),
    ('Ɲ', "N"),
    ('ƞ', "n"),
    ('Ɵ', "O"),
    ('Ƥ', "P"),
    ('ƥ', "p"),
    ('ƫ', "t"),
    ('Ƭ', "T"),
    ('ƭ', "t"),
    ('Ʈ', "T"),
    ('Ʋ', "V"),
    ('Ƴ', "Y"),
    ('ƴ', "y"),
    ('Ƶ', "Z"),
    ('ƶ', "z"),
    ('«', "\""),
    ('»', "\""),
    ('‐', "-"),
    ('‑', "-"),
    ('‒', "-"),
    ('–', "-"),
    ('—', "-"),
    ('‘', "'"),
    ('’', "'"),
    ('‚', "'"),
    ('‛', "'"),
    ('“', "\""),
    ('”', "\""),
    ('„', "\""),
    ('′', "'"),
    ('″', "\""),
    ('‵', "'"),
    ('‶', "\""),
    ('‸', "^"),
    ('‹', "'"),
    ('›', "'"),
    ('⁄', "/"),
    ('⁎', "*"),
    ('⁏', ";"),
    ('⁒', "%"),
    ('⁓', "~"),
];

impl Analysis {
    /// Returns true if it changes no text.
    #[must_use]
    pub fn is_none(self) -> bool {
        self == Analysis::default()
    }

    /// Returns the term of a serialized value, which is a text or an address.
    #[must_use]
    pub fn value(self, bytes: &[u8]) -> Cow<'_, [u8]> {
        match std::str::from_utf8(bytes) {
            _ if self.maps_addresses && bytes.len() == 4 => Cow::Owned([&MAPPED[..], bytes].concat()),
            Ok(text) if !self.is_none() && !self.maps_addresses => Cow::Owned(self.term(text).into_bytes()),
            _ => Cow::Borrowed(bytes),
        }
    }

    /// Returns the term of a text.
    #[must_use]
    pub fn term(self, text: &str) -> String {
        let mut out = if self.ignores_case { text.to_lowercase() } else { text.to_owned() };
        if self.normalizes {
            out = out.nfc().collect();
        }
        if self.folds && !out.is_ascii() {
            let mut folded = String::with_capacity(out.len());
            out.chars().for_each(|c| fold(c, &mut folded));
            out = folded;
        }
        out
    }
}

/// Appends a character, or its equivalent in ASCII.
fn fold(c: char, out: &mut String) {
    if c.is_ascii() || !is_folded_block(c) {
        out.push(c);
        return;
    }
    if let Some((_, equivalent)) = FOLDED.iter().find(|(folded, _)| *folded == c) {
        out.push_str(equivalent);
        return;
    }
    let start = out.len();
    decompose_compatible(c, |part| {
        if !is_combining_mark(part) {
            out.push(part);
        }
    });
    if out.len() == start || !out[start..].is_ascii() {
        out.truncate(start);
        out.push(c);
    }
}

/// Returns true for Latin letters, enclosed and superscript ones, and general punctuation.
fn is_folded_block(c: char) -> bool {
    matches!(c,
        '\u{b2}' | '\u{b3}' | '\u{b9}' | '\u{ab}' | '\u{bb}'
        | '\u{c0}'..='\u{24f}'
        | '\u{259}'
        | '\u{1d62}'..='\u{1d65}'
        | '\u{1e00}'..='\u{1eff}'
        | '\u{2010}'..='\u{2053}'
        | '\u{2070}'..='\u{209c}'
        | '\u{2460}'..='\u{24ff}'
        | '\u{fb00}'..='\u{fb06}'
        | '\u{ff01}'..='\u{ff5e}')
        && !matches!(c, '\u{d7}' | '\u{f7}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(analysis: Analysis, pairs: &[(&str, &str)]) {
        for (text, term) in pairs {
            assert_eq!(analysis.term(text), *term, "{text}");
        }
    }

    #[test]
    fn options_change_texts_one_by_one() {
        let none = Analysis::default();
        check(none, &[("Camél ß", "Camél ß"), ("", "")]);
        check(Analysis { ignores_case: true, ..none }, &[("CamÉL", "camél"), ("ΟΔΟΣ", "οδος")]);
        check(Analysis { normalizes: true, ..none }, &[("Cama\u{301}l", "Cam\u{e1}l"), ("A", "A")]);
        check(
            Analysis { folds: true, ..none },
            &[
                ("Éppinger", "Eppinger"),
                ("Łódź Ærø Straße “x”", "Lodz AEro Strasse \"x\""),
                ("ﬁ ① ² Ａ", "fi 1 2 A"),
                ("Ж 日 a\u{301} ½ × ÷", "Ж 日 a\u{301} ½ × ÷"),
            ],
        );
    }

    #[test]
    fn ipv4_addresses_are_terms_among_those_of_ipv6() {
        let own = Analysis { maps_addresses: true, ..Analysis::default() };
        assert_eq!(*own.value(&[1, 2, 3, 4]), [&MAPPED[..], &[1, 2, 3, 4]].concat());
        assert_eq!(*own.value(&[0x61; 16]), [0x61; 16]);
        assert!(own.value(&[]).is_empty());
        assert_eq!(*Analysis::default().value(&[1, 2, 3, 4]), [1, 2, 3, 4]);
    }

    #[test]
    fn case_is_ignored_before_accents_are_folded() {
        let all = Analysis { ignores_case: true, normalizes: true, folds: true, maps_addresses: false };
        check(all, &[("E\u{301}PPINGER", "eppinger"), ("ÆØ", "aeo")]);
    }
}
