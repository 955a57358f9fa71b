//! Recursive-descent parser with one token of look-ahead, or two where CQL needs them.
//!
//! Each rule is a method. It consumes its phrase and leaves the next token in `current`. Two
//! counters bound the tree, so that neither the parser nor a later walk overflows the stack.
//! `depth` counts nesting. `operations` counts nodes added in a loop (`a + b + c`, `u.f.g`).

mod access;
mod delete;
mod describe;
mod function;
mod insert;
mod options;
mod relation;
mod schema;
mod select;
mod service_level;
mod table;
mod term;
mod types;
mod update;
mod using;

use self::using::UsingScope;
use crate::ast::{QualifiedName, Statement, Truncate};
use crate::error::SyntaxError;
use crate::lexer::{Lexer, Token, TokenKind};
use crate::words::is_reserved;
use crate::{DEPTH_MAX, MARKERS_MAX, TEXT_BYTES_MAX, TOKENS_MAX};

/// Message for statements of more than [`TOKENS_MAX`] tokens.
const TOO_MANY_TOKENS: &str =
    "more than 262144 words, values and signs: send values as bind markers, or several statements";

type Result<T> = std::result::Result<T, SyntaxError>;

/// Parses one statement, with or without a `;` at its end, and counts its tokens.
pub(crate) fn parse(text: &str) -> Result<(Statement, u32)> {
    if text.len() > TEXT_BYTES_MAX {
        let message = format!("expected a statement of at most {TEXT_BYTES_MAX} bytes, got {}", text.len());
        return Err(SyntaxError { message, line: 1, column: 0, is_invalid: false });
    }
    let mut parser = Parser::new(text);
    let statement = parser.statement()?;
    while parser.eat(TokenKind::Semicolon) {}
    if parser.current.kind != TokenKind::End {
        return Err(parser.expected("the end of the statement"));
    }
    if parser.markers > 0 && !takes_markers(&statement) {
        return Err(match statement {
            Statement::CreateMaterializedView(_) => {
                parser.invalid("Bind variables are not allowed in CREATE MATERIALIZED VIEW statements")
            }
            _ => parser.error("bind markers are not allowed in this statement"),
        });
    }
    Ok((statement, parser.tokens))
}

/// Counts the tokens of a text without parsing it.
pub(crate) fn count_tokens(text: &str) -> Result<u32> {
    let mut lexer = Lexer::new(text);
    let mut tokens = 0;
    loop {
        let token = lexer.next();
        match token.kind {
            TokenKind::End | TokenKind::Error(_) => return Ok(tokens),
            _ if tokens == TOKENS_MAX => return Err(SyntaxError::at(text, token.start, TOO_MANY_TOKENS)),
            _ => tokens += 1,
        }
    }
}

/// Returns true if the text has the reserved word IF.
pub(crate) fn has_if(text: &str) -> bool {
    let mut lexer = Lexer::new(text);
    loop {
        let token = lexer.next();
        match token.kind {
            TokenKind::End | TokenKind::Error(_) => return false,
            TokenKind::Word if token.text.eq_ignore_ascii_case("if") => return true,
            _ => {}
        }
    }
}

fn takes_markers(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::Select(_)
            | Statement::Insert(_)
            | Statement::Update(_)
            | Statement::Delete(_)
            | Statement::Batch(_)
    )
}

/// State of the parser. A copy serves for look-ahead and for error positions.
#[derive(Clone, Copy)]
struct Parser<'a> {
    lexer: Lexer<'a>,
    current: Token<'a>,
    markers: u32,
    depth: u32,
    operations: u32,
    tokens: u32,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Parser<'a> {
        let mut lexer = Lexer::new(text);
        let current = lexer.next();
        Parser { lexer, current, markers: 0, depth: 0, operations: 0, tokens: 0 }
    }

    fn statement(&mut self) -> Result<Statement> {
        let word = if self.current.kind == TokenKind::Word { self.current.text } else { "" };
        let is = |keyword: &str| word.eq_ignore_ascii_case(keyword);
        // Frequent statements first.
        if is("SELECT") {
            self.select()
        } else if is("INSERT") {
            self.insert()
        } else if is("UPDATE") {
            self.update()
        } else if is("DELETE") {
            self.delete()
        } else if is("BEGIN") {
            self.batch()
        } else if is("USE") {
            self.advance();
            self.refuse_marker("keyspace")?;
            Ok(Statement::Use(self.identifier()?))
        } else if is("TRUNCATE") {
            self.advance();
            self.eat_table();
            let table = self.qualified()?;
            Ok(Statement::Truncate(Truncate { table, using: self.using(UsingScope::Read)? }))
        } else if is("COMPACT") {
            self.advance();
            self.eat_table();
            Ok(Statement::Compact(self.qualified()?))
        } else if is("FLUSH") {
            self.advance();
            self.eat_table();
            Ok(Statement::Flush(self.qualified()?))
        } else if is("SCRUB") {
            self.advance();
            self.eat_table();
            Ok(Statement::Scrub(self.qualified()?))
        } else if is("CREATE") {
            self.create()
        } else if is("ALTER") {
            self.alter()
        } else if is("DROP") {
            self.drop()
        } else if is("GRANT") {
            self.grant()
        } else if is("REVOKE") {
            self.revoke()
        } else if is("LIST") {
            self.list()
        } else if is("ATTACH") {
            self.attach()
        } else if is("DETACH") {
            self.detach()
        } else if is("CANCEL") {
            self.cancel()
        } else if is("DESCRIBE") || is("DESC") {
            self.describe()
        } else {
            Err(self.expected("a statement"))
        }
    }

    // Tokens.

    fn advance(&mut self) -> Token<'a> {
        let token = self.current;
        self.current = self.lexer.next();
        self.tokens += 1;
        if self.tokens > TOKENS_MAX {
            self.current.kind = TokenKind::Error(TOO_MANY_TOKENS);
        }
        token
    }

    /// Returns the token after the current one.
    fn peek(&self) -> Token<'a> {
        let mut lexer = self.lexer;
        lexer.next()
    }

    fn at(&self, kind: TokenKind) -> bool {
        self.current.kind == kind
    }

    fn at_word(&self, keyword: &str) -> bool {
        is_word(&self.current, keyword)
    }

    fn peek_is_word(&self, keyword: &str) -> bool {
        is_word(&self.peek(), keyword)
    }

    fn eat(&mut self, kind: TokenKind) -> bool {
        let found = self.at(kind);
        if found {
            self.advance();
        }
        found
    }

    fn eat_word(&mut self, keyword: &str) -> bool {
        let found = self.at_word(keyword);
        if found {
            self.advance();
        }
        found
    }

    fn expect(&mut self, kind: TokenKind, symbol: &str) -> Result<()> {
        if self.eat(kind) { Ok(()) } else { Err(self.expected(symbol)) }
    }

    fn expect_word(&mut self, keyword: &str) -> Result<()> {
        if self.eat_word(keyword) { Ok(()) } else { Err(self.expected(keyword)) }
    }

    fn expect_words(&mut self, keywords: &[&str]) -> Result<()> {
        keywords.iter().try_for_each(|keyword| self.expect_word(keyword))
    }

    fn if_exists(&mut self) -> Result<bool> {
        if !(self.at_word("IF") && self.peek_is_word("EXISTS")) {
            return Ok(false);
        }
        self.expect_words(&["IF", "EXISTS"])?;
        Ok(true)
    }

    fn if_not_exists(&mut self) -> Result<bool> {
        if !self.eat_word("IF") {
            return Ok(false);
        }
        self.expect_words(&["NOT", "EXISTS"])?;
        Ok(true)
    }

    // Names.

    /// True if the current token can be a name.
    fn at_name(&self) -> bool {
        is_name(&self.current)
    }

    fn peek_is_name(&self) -> bool {
        is_name(&self.peek())
    }

    /// Parses a name, except of a role or a level. Folds it to lower case unless it is quoted.
    fn identifier(&mut self) -> Result<String> {
        if !self.at_name() {
            return Err(self.no_alternative());
        }
        self.any_word()
    }

    /// Parses a name. Accepts reserved words.
    fn any_word(&mut self) -> Result<String> {
        match self.current.kind {
            TokenKind::Word => Ok(self.advance().text.to_ascii_lowercase()),
            TokenKind::QuotedName if self.current.text.len() > 2 => {
                Ok(unquote(self.advance().text, "\"\"", "\""))
            }
            TokenKind::QuotedName => Err(self.error("a name cannot be empty")),
            _ => Err(self.no_alternative()),
        }
    }

    /// Refuses a bind marker in place of a name.
    fn refuse_marker(&self, of: &str) -> Result<()> {
        match self.at(TokenKind::Question) {
            true => Err(self.error(format!("Bind variables cannot be used for {of} names"))),
            false => Ok(()),
        }
    }

    fn identifiers(&mut self) -> Result<Vec<String>> {
        self.comma_separated(Parser::identifier)
    }

    fn qualified(&mut self) -> Result<QualifiedName> {
        self.refuse_marker("table")?;
        let first = self.identifier()?;
        if self.eat(TokenKind::Dot) {
            Ok(QualifiedName { keyspace: Some(first), name: self.identifier()? })
        } else {
            Ok(QualifiedName { keyspace: None, name: first })
        }
    }

    /// Parses the name of a role or a level: an identifier or a string.
    fn role_name(&mut self) -> Result<String> {
        match self.current.kind {
            TokenKind::String if self.current.text.len() > 2 => self.string(),
            TokenKind::DollarString if self.current.text.len() > 4 => self.string(),
            TokenKind::String | TokenKind::DollarString => Err(self.error("a name cannot be empty")),
            _ => self.identifier(),
        }
    }

    fn string(&mut self) -> Result<String> {
        match self.current.kind {
            TokenKind::String => Ok(unquote(self.advance().text, "''", "'")),
            TokenKind::DollarString => {
                let text = self.advance().text;
                Ok(text[2..text.len() - 2].to_owned())
            }
            TokenKind::Error(_) if self.current.text.starts_with(['\'', '$']) => {
                Err(self.expected("a string"))
            }
            // Do not show the token: it may be an unquoted password.
            _ => Err(self.error("expecting a string in single quotes")),
        }
    }

    // Phrases.

    /// Parses one or more phrases with commas between them.
    fn comma_separated<T>(&mut self, mut phrase: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut phrases = Vec::with_capacity(4);
        phrases.push(phrase(self)?);
        while self.eat(TokenKind::Comma) {
            phrases.push(phrase(self)?);
        }
        Ok(phrases)
    }

    /// Parses one or more phrases with AND between them.
    fn and_separated<T>(&mut self, mut phrase: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let mut phrases = Vec::with_capacity(2);
        phrases.push(phrase(self)?);
        while self.eat_word("AND") {
            phrases.push(phrase(self)?);
        }
        Ok(phrases)
    }

    /// Parses `(a, b)`, at least one phrase.
    fn parenthesized<T>(&mut self, phrase: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        self.expect(TokenKind::LeftParen, "'('")?;
        let phrases = self.comma_separated(phrase)?;
        self.expect(TokenKind::RightParen, "')'")?;
        Ok(phrases)
    }

    /// Parses the definitions `(a, b)` of a table or type. As in Cassandra, nothing may stand
    /// behind a comma.
    fn definitions<T>(&mut self, mut phrase: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        self.expect(TokenKind::LeftParen, "'('")?;
        let mut phrases = vec![phrase(self)?];
        while self.eat(TokenKind::Comma) {
            if !self.at(TokenKind::Comma) && !self.at(TokenKind::RightParen) {
                phrases.push(phrase(self)?);
            }
        }
        self.expect(TokenKind::RightParen, "')'")?;
        Ok(phrases)
    }

    /// Parses `(a, b)` or `()`.
    fn parenthesized_or_empty<T>(&mut self, phrase: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        if self.at(TokenKind::LeftParen) && self.peek().kind == TokenKind::RightParen {
            self.advance();
            self.advance();
            return Ok(Vec::new());
        }
        self.parenthesized(phrase)
    }

    // Limits.

    /// Enters a nesting level. The caller decrements `depth` afterwards. It need not do so after an
    /// error, because parsing then ends.
    fn enter(&mut self) -> Result<()> {
        if self.depth == DEPTH_MAX {
            return Err(self.error(format!("nested more than {DEPTH_MAX} deep")));
        }
        self.depth += 1;
        Ok(())
    }

    /// Parses a phrase one nesting level deeper.
    fn nested<T>(&mut self, phrase: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.enter()?;
        let result = phrase(self);
        self.depth -= 1;
        result
    }

    /// Counts an operation, which makes the tree deeper without nesting in the text.
    fn count_operation(&mut self) -> Result<()> {
        if self.operations == DEPTH_MAX {
            return Err(self.error(format!("more than {DEPTH_MAX} operations in one expression")));
        }
        self.operations += 1;
        Ok(())
    }

    fn next_marker(&mut self) -> Result<u16> {
        if self.markers == MARKERS_MAX {
            return Err(self.error(format!("more than {MARKERS_MAX} bind markers")));
        }
        // MARKERS_MAX is `u16::MAX`, and indexes start at 0.
        let index = self.markers as u16;
        self.markers += 1;
        Ok(index)
    }

    // Errors.

    /// Returns an error at the current token.
    fn error(&self, message: impl Into<String>) -> SyntaxError {
        SyntaxError::at(self.lexer.text(), self.current.start, message)
    }

    /// Returns an error of a text that follows the grammar.
    fn invalid(&self, message: impl Into<String>) -> SyntaxError {
        SyntaxError { is_invalid: true, ..self.error(message) }
    }

    /// Returns an error without a position.
    fn repeated(message: String) -> SyntaxError {
        SyntaxError { message, line: 0, column: 0, is_invalid: false }
    }

    /// Returns an error: the current token is not `what`.
    fn expected(&self, what: &str) -> SyntaxError {
        self.unexpected(|found| format!("mismatched input {found} expecting {what}"))
    }

    /// Returns an error: nothing that the grammar allows here begins with the current token.
    fn no_alternative(&self) -> SyntaxError {
        self.unexpected(|found| format!("no viable alternative at input {found}"))
    }

    fn unexpected(&self, message: impl FnOnce(String) -> String) -> SyntaxError {
        if let TokenKind::Error(reason) = self.current.kind {
            return self.error(format!("{reason}: {}", quote_token(self.current.text)));
        }
        let found = if self.at(TokenKind::End) { "<EOF>" } else { self.current.text };
        self.error(message(quote_token(found)))
    }
}

fn is_word(token: &Token<'_>, keyword: &str) -> bool {
    token.kind == TokenKind::Word && token.text.eq_ignore_ascii_case(keyword)
}

fn is_name(token: &Token<'_>) -> bool {
    match token.kind {
        TokenKind::Word => !is_reserved(token.text),
        TokenKind::QuotedName => true,
        _ => false,
    }
}

/// Removes the quotes and replaces doubled quotes by single ones.
fn unquote(text: &str, doubled: &str, single: &str) -> String {
    let inner = &text[1..text.len() - 1];
    if inner.contains(doubled) { inner.replace(doubled, single) } else { inner.to_owned() }
}

/// Formats a token for a message: quoted, and at most 40 characters long. Never shows a string,
/// because it may be a password. `Parser::string` hides unquoted passwords.
fn quote_token(text: &str) -> String {
    const CHARS_MAX: usize = 40;
    if text.starts_with('\'') || text.starts_with("$$") {
        return "a string".to_owned();
    }
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("'{}…'", &text[..end]),
        None => format!("'{text}'"),
    }
}
