//! Tag of a service level: the nodes of a cluster that coordinate its requests.
//!
//! ```text
//!   dc:analytics > rack:dc1/r2 > nodes:10.0.0.4,10.0.0.5      alternatives, best first
//! ```
//!
//! Parsed once, and applied by the choice of nodes. A tag without `dc` only places coordinators.
//! With `dc` it also bounds the consistency of requests.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// Alternatives of a tag, at most: each is tried for each request.
const ALTERNATIVES_MAX: usize = 8;
/// Nodes of an alternative, at most: each is compared for each request.
const NODES_MAX: usize = 32;
/// Longest name of a datacenter or rack, bytes.
const NAME_BYTES_MAX: usize = 255;

/// Tag of a level. Clones are cheap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tag(Arc<[Alternative]>);

/// Nodes of a tag.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Alternative {
    /// Nodes of a datacenter.
    Datacenter(Box<str>),
    /// Nodes of a rack.
    Rack {
        /// Datacenter of the rack.
        datacenter: Box<str>,
        /// Name of the rack there.
        rack: Box<str>,
    },
    /// Nodes with these addresses.
    Nodes(Vec<IpAddr>),
}

impl Tag {
    /// Parses the text of a tag.
    ///
    /// # Errors
    /// One sentence for the client.
    pub fn parse(text: &str) -> Result<Tag, String> {
        let alternatives: Vec<Alternative> = text
            .split('>')
            .take(ALTERNATIVES_MAX + 1)
            .map(|part| Alternative::parse(part.trim()).ok_or(part))
            .collect::<Result<_, _>>()
            .map_err(|part| {
                format!(
                    "'tag' takes 'dc:NAME', 'rack:DC/NAME' or 'nodes:ADDRESS,...', at most \
                     {ALTERNATIVES_MAX} of them joined by ' > ' (given {})",
                    shortened(part.trim())
                )
            })?;
        if alternatives.len() > ALTERNATIVES_MAX {
            return Err(format!("'tag' takes at most {ALTERNATIVES_MAX} alternatives"));
        }
        Ok(Tag(alternatives.into()))
    }

    /// Returns the alternatives, best first: at least one.
    #[must_use]
    pub fn alternatives(&self) -> &[Alternative] {
        &self.0
    }

    /// Returns the datacenters among the alternatives. If there is one, requests must not depend on
    /// others.
    pub fn datacenters(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|alternative| match alternative {
            Alternative::Datacenter(name) => Some(&**name),
            _ => None,
        })
    }

    /// Returns true if there is a datacenter among the alternatives.
    pub fn has_datacenter(&self) -> bool {
        self.datacenters().next().is_some()
    }
}

impl Alternative {
    fn parse(text: &str) -> Option<Alternative> {
        let name = |text: &str| {
            let text = text.trim();
            let is_name = !text.is_empty() && text.len() <= NAME_BYTES_MAX && !text.contains('\'');
            is_name.then(|| Box::from(text))
        };
        let (kind, rest) = text.split_once(':')?;
        match kind.trim() {
            "dc" => Some(Alternative::Datacenter(name(rest)?)),
            "rack" => {
                let (datacenter, rack) = rest.split_once('/')?;
                Some(Alternative::Rack { datacenter: name(datacenter)?, rack: name(rack)? })
            }
            "nodes" => {
                let nodes = rest.split(',').take(NODES_MAX + 1).map(|node| node.trim().parse().ok());
                let nodes: Vec<IpAddr> = nodes.collect::<Option<_>>()?;
                (nodes.len() <= NODES_MAX).then_some(Alternative::Nodes(nodes))
            }
            _ => None,
        }
    }
}

/// Returns the beginning of a text, for a message.
fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(NAME_BYTES_MAX)]
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, alternative) in self.0.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { " > " })?;
            alternative.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Alternative {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Alternative::Datacenter(name) => write!(f, "dc:{name}"),
            Alternative::Rack { datacenter, rack } => write!(f, "rack:{datacenter}/{rack}"),
            Alternative::Nodes(nodes) => {
                for (at, node) in nodes.iter().enumerate() {
                    write!(f, "{}{node}", if at == 0 { "nodes:" } else { "," })?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_is_shown_in_the_form_that_sets_it() {
        let check = |text: &str, expected: &str| {
            let tag = Tag::parse(text).expect(text);
            assert_eq!(tag.to_string(), expected);
            assert_eq!(Tag::parse(expected), Ok(tag));
        };
        check("dc:analytics", "dc:analytics");
        check(" rack:dc1/r2>dc: b ", "rack:dc1/r2 > dc:b");
        check("nodes:10.0.0.4, 10.0.0.5,::1", "nodes:10.0.0.4,10.0.0.5,::1");
        let tag = Tag::parse("dc:a > nodes:10.0.0.4 > dc:b").expect("valid");
        assert_eq!(tag.datacenters().collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn wrong_or_long_tag_is_refused() {
        let (many, nodes) = (["dc:a"; 9].join(">"), format!("nodes:{}", ["10.0.0.1"; 33].join(",")));
        let wrong = ["", "a", "dc:", "rack:r1", "rack:/r", "nodes:", "nodes:a", "dc:a >", "DC:a", "dc:a'b"];
        for text in wrong.into_iter().chain([&*many, &*nodes]) {
            let message = Tag::parse(text).expect_err(text);
            assert!(message.starts_with("'tag' takes ") && message.len() < 500, "{message}");
        }
    }
}
