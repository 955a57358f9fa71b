//! Parser of `WITH name = value AND …`.

use super::{Parser, Result};
use crate::ast::{Duration, OptionValue, Options, TableProperties};
use crate::lexer::Kind;

impl Parser<'_> {
    /// Parses an optional `WITH …`.
    pub(super) fn with_options(&mut self) -> Result<Options> {
        if self.at_word("WITH") { self.required_options() } else { Ok(Options::new()) }
    }

    /// Parses a mandatory `WITH …`.
    pub(super) fn required_options(&mut self) -> Result<Options> {
        self.expect_word("WITH")?;
        let mut options = Options::new();
        self.option(&mut options)?;
        while self.eat_word("AND") {
            self.option(&mut options)?;
        }
        Ok(options)
    }

    fn option(&mut self, options: &mut Options) -> Result<()> {
        let start = *self;
        // Fold quoted names to lower case too, as the tree documents.
        let name = self.any_word()?.to_ascii_lowercase();
        self.expect(Kind::Equal, "'='")?;
        if options.iter().any(|(other, _)| *other == name) {
            return Err(start.error(format!("Multiple definitions for property '{name}'")));
        }
        let value = if self.at(Kind::LeftBrace) {
            OptionValue::Map(self.option_map()?)
        } else {
            self.option_value()?
        };
        options.push((name, value));
        Ok(())
    }

    /// Parses a mandatory `WITH …` of a table or a view.
    pub(super) fn table_properties(&mut self) -> Result<TableProperties> {
        self.expect_word("WITH")?;
        let mut properties = TableProperties::default();
        loop {
            if self.at_word("CLUSTERING") && self.peek_is_word("ORDER") {
                let start = *self;
                self.expect_words(&["CLUSTERING", "ORDER", "BY"])?;
                if !properties.clustering_order.is_empty() {
                    return Err(start.error("CLUSTERING ORDER BY is given twice"));
                }
                properties.clustering_order =
                    self.parenthesized(|p| Ok((p.identifier()?, p.clustering_order()?)))?;
            } else if self.at_word("COMPACT") && self.peek_is_word("STORAGE") {
                self.expect_words(&["COMPACT", "STORAGE"])?;
                properties.compact_storage = true;
            } else {
                self.option(&mut properties.options)?;
            }
            if !self.eat_word("AND") {
                return Ok(properties);
            }
        }
    }

    /// Parses `{k: v, …}`.
    pub(super) fn option_map(&mut self) -> Result<Vec<(String, OptionValue)>> {
        self.expect(Kind::LeftBrace, "'{'")?;
        if self.eat(Kind::RightBrace) {
            return Ok(Vec::new());
        }
        let entries = self.comma_separated(|p| {
            let key = match p.current.kind {
                Kind::Integer => p.advance().text.to_owned(),
                Kind::String | Kind::DollarString => p.string()?,
                _ => p.any_word()?,
            };
            p.expect(Kind::Colon, "':'")?;
            Ok((key, p.option_value()?))
        })?;
        self.expect(Kind::RightBrace, "'}'")?;
        Ok(entries)
    }

    /// Parses a value that is not a map.
    fn option_value(&mut self) -> Result<OptionValue> {
        let negative = self.eat(Kind::Minus);
        let text = self.current.text;
        let value = match self.current.kind {
            Kind::Integer => {
                let digits = if negative { format!("-{text}") } else { text.to_owned() };
                OptionValue::Integer(digits.parse().map_err(|_| self.error("number out of range"))?)
            }
            Kind::Float => match text.parse::<f64>() {
                Ok(number) if number.is_finite() => {
                    OptionValue::Float(if negative { -number } else { number })
                }
                _ => return Err(self.error("number out of range")),
            },
            Kind::Duration => match Duration::parse(text) {
                Some(duration) => OptionValue::Duration(if negative { duration.negated() } else { duration }),
                None => return Err(self.error("duration out of range")),
            },
            _ if negative => return Err(self.expected("a number")),
            Kind::String | Kind::DollarString => return Ok(OptionValue::String(self.string()?)),
            Kind::Word if self.at_word("TRUE") => OptionValue::Boolean(true),
            Kind::Word if self.at_word("FALSE") => OptionValue::Boolean(false),
            Kind::Word if self.at_word("NULL") => OptionValue::Null,
            Kind::Word | Kind::Uuid => OptionValue::String(text.to_ascii_lowercase()),
            _ => return Err(self.expected("a value")),
        };
        self.advance();
        Ok(value)
    }
}
