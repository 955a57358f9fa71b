//! Replication of a keyspace: checked and completed as in Cassandra, for a cluster of one node. It
//! is stored and shown, and has no effect.

use std::collections::BTreeMap;

use engine::{DATACENTER, Error};

const PACKAGE: &str = "org.apache.cassandra.locator.";
const CLASS: &str = "class";
const FACTOR: &str = "replication_factor";

type Replication = BTreeMap<String, String>;

/// Checks the replication of the keyspace `name` and completes it: `SimpleStrategy` has a factor,
/// and a factor of `NetworkTopologyStrategy` becomes that of the datacenter. `before` is the
/// replication before an ALTER, or empty.
///
/// # Errors
/// Returns Cassandra's error for a strategy or an option that it does not accept.
pub(super) fn checked(
    name: &str,
    mut given: Replication,
    before: &Replication,
) -> Result<Replication, Error> {
    let Some(class) = given.remove(CLASS) else {
        return config("Missing replication strategy class".into());
    };
    let class = class.strip_prefix(PACKAGE).unwrap_or(&class).to_owned();
    match class.as_str() {
        "SimpleStrategy" => {
            let earlier = before.get(FACTOR).map_or("1", String::as_str);
            given.entry(FACTOR.into()).or_insert_with(|| earlier.to_owned());
            check_options(name, &class, FACTOR, &given)?;
        }
        "NetworkTopologyStrategy" => {
            let factor = match given.remove(FACTOR) {
                Some(factor) => {
                    let kept =
                        before.iter().filter(|(option, _)| ![CLASS, FACTOR].contains(&option.as_str()));
                    for (datacenter, factor) in kept {
                        given.entry(datacenter.clone()).or_insert_with(|| factor.clone());
                    }
                    Some(factor)
                }
                None if given.is_empty() => Some(before.get(FACTOR).cloned().unwrap_or_else(|| "1".into())),
                None => None,
            };
            if let Some(factor) = factor {
                check_factor(&factor)?;
                given.entry(DATACENTER.into()).or_insert(factor);
            }
            given.retain(|_, factor| factor != "0");
            if given.is_empty() {
                return config("Configuration for at least one datacenter must be present".into());
            }
            check_options(name, &class, DATACENTER, &given)?;
        }
        "LocalStrategy" => {
            return Err(Error::Invalid(
                "Unable to use given strategy class: LocalStrategy is reserved for internal use.".into(),
            ));
        }
        unknown => {
            let package = if unknown.contains('.') { "" } else { PACKAGE };
            return config(format!("Unable to find replication strategy class '{package}{unknown}'"));
        }
    }
    given.insert(CLASS.into(), class);
    Ok(given)
}

/// Checks that `known` is the only option, and its factor.
fn check_options(name: &str, class: &str, known: &str, given: &Replication) -> Result<(), Error> {
    if let Some(unknown) = given.keys().find(|option| *option != known) {
        return config(format!(
            "Unrecognized strategy option {{{unknown}}} passed to {class} for keyspace {name}"
        ));
    }
    given.values().try_for_each(|factor| check_factor(factor))
}

/// Checks a replication factor. Transient replicas, as in `3/1`, do not exist here.
fn check_factor(factor: &str) -> Result<(), Error> {
    match factor.parse::<i32>() {
        Ok(0..) => Ok(()),
        Ok(_) => config(format!("Replication factor must be non-negative, found {factor}")),
        Err(_) if factor.contains('/') => config("Transient replication is not enabled on this node".into()),
        Err(_) => config(format!("For input string: \"{factor}\"")),
    }
}

fn config<T>(text: String) -> Result<T, Error> {
    Err(Error::Config(text))
}
