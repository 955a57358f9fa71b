//! Parser of `WITH name = value AND …`.

use std::collections::HashSet;

use schema::ClusteringOrder;

use super::{Parser, Result};
use crate::ast::{Duration, OptionList, OptionValue, TableProperties};
use crate::lexer::TokenKind;

impl Parser<'_> {
    /// Parses an optional `WITH …`.
    pub(super) fn with_options(&mut self) -> Result<OptionList> {
        if self.at_word("WITH") { self.required_options() } else { Ok(OptionList::new()) }
    }

    /// Parses a mandatory `WITH …`.
    pub(super) fn required_options(&mut self) -> Result<OptionList> {
        self.expect_word("WITH")?;
        let mut options = OptionList::new();
        self.option(&mut options)?;
        while self.eat_word("AND") {
            self.option(&mut options)?;
        }
        Ok(options)
    }

    fn option(&mut self, options: &mut OptionList) -> Result<()> {
        // Fold quoted names to lower case too, as the tree documents.
        let name = self.identifier()?.to_ascii_lowercase();
        self.expect(TokenKind::Equal, "'='")?;
        if options.iter().any(|(other, _)| *other == name) {
            return Err(Parser::repeated(format!("Multiple definitions for property '{name}'")));
        }
        let value = if self.at(TokenKind::LeftBrace) {
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
                    self.parenthesized(|p| Ok((p.identifier()?, p.column_order()?)))?;
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

    /// Parses ASC or DESC, which a definition must name.
    fn column_order(&mut self) -> Result<ClusteringOrder> {
        match self.at_word("ASC") || self.at_word("DESC") {
            true => self.clustering_order(),
            false => Err(self.expected("ASC or DESC")),
        }
    }

    /// Parses `{k: v, …}`.
    pub(super) fn option_map(&mut self) -> Result<Vec<(String, OptionValue)>> {
        self.expect(TokenKind::LeftBrace, "'{'")?;
        if self.eat(TokenKind::RightBrace) {
            return Ok(Vec::new());
        }
        let mut names = HashSet::new();
        let entries = self.comma_separated(|p| {
            let key = match p.current.kind {
                TokenKind::Integer => p.advance().text.to_owned(),
                TokenKind::String | TokenKind::DollarString => p.string()?,
                _ => p.any_word()?,
            };
            if !names.insert(key.clone()) {
                return Err(Parser::repeated(format!("Multiple definition for property {key}")));
            }
            p.expect(TokenKind::Colon, "':'")?;
            let is_word =
                p.at(TokenKind::Word) && !["TRUE", "FALSE", "NULL"].iter().any(|word| p.at_word(word));
            if is_word {
                // A word begins a function call here.
                p.advance();
                return Err(p.no_alternative());
            }
            Ok((key, p.option_value()?))
        })?;
        self.expect(TokenKind::RightBrace, "'}'")?;
        Ok(entries)
    }

    /// Parses a value that is not a map.
    fn option_value(&mut self) -> Result<OptionValue> {
        let negative = self.eat(TokenKind::Minus);
        let text = self.current.text;
        let value = match self.current.kind {
            TokenKind::Integer => {
                let digits = if negative { format!("-{text}") } else { text.to_owned() };
                OptionValue::Integer(digits.parse().map_err(|_| self.error("number out of range"))?)
            }
            TokenKind::Float => match text.parse::<f64>() {
                Ok(number) if number.is_finite() => {
                    OptionValue::Float(if negative { -number } else { number })
                }
                _ => return Err(self.error("number out of range")),
            },
            TokenKind::Duration => match Duration::parse(text) {
                Ok(duration) => OptionValue::Duration(if negative { duration.negated() } else { duration }),
                Err(error) => return Err(self.invalid(error.to_string())),
            },
            _ if negative => return Err(self.expected("a number")),
            TokenKind::String | TokenKind::DollarString => return Ok(OptionValue::String(self.string()?)),
            TokenKind::Word if self.at_word("TRUE") => OptionValue::Boolean(true),
            TokenKind::Word if self.at_word("FALSE") => OptionValue::Boolean(false),
            TokenKind::Word if self.at_word("NULL") => OptionValue::Null,
            TokenKind::Word | TokenKind::Uuid => OptionValue::String(text.to_ascii_lowercase()),
            _ => return Err(self.expected("a value")),
        };
        self.advance();
        Ok(value)
    }
}
