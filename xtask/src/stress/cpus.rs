//! Division of the CPUs between the server and the loads.

/// CPUs of the server and of the loads. With one CPU both have it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cpus {
    pub(super) server: Vec<usize>,
    pub(super) loads: Vec<usize>,
}

impl Cpus {
    /// Divides the CPUs that this process may use. The server gets `count` of them, or half.
    pub(super) fn divide(count: Option<usize>) -> Result<Cpus, String> {
        let list = server_process::kernel::status("self", "Cpus_allowed_list");
        Ok(Cpus::of(&parse(&list.unwrap_or_else(|| "0".to_owned()))?, count))
    }

    fn of(allowed: &[usize], count: Option<usize>) -> Cpus {
        let half = allowed.len() / 2;
        let count = count.unwrap_or(half).clamp(1, allowed.len().saturating_sub(1).max(1));
        let (server, rest) = allowed.split_at(count.min(allowed.len()));
        Cpus { server: server.to_vec(), loads: if rest.is_empty() { server } else { rest }.to_vec() }
    }

    /// Returns the number of all CPUs.
    pub(super) fn count(&self) -> usize {
        if self.are_shared() { self.server.len() } else { self.server.len() + self.loads.len() }
    }

    /// Returns true if server and loads use the same CPUs.
    pub(super) fn are_shared(&self) -> bool {
        self.server == self.loads
    }
}

/// Returns the CPUs as `taskset` and `--cores` accept them. One CPU is a range, since `--cores 3`
/// are three CPUs.
pub(super) fn list(cpus: &[usize]) -> String {
    let numbers: Vec<String> = cpus.iter().map(usize::to_string).collect();
    if let [one] = &numbers[..] { format!("{one}-{one}") } else { numbers.join(",") }
}

/// Parses a list of the kernel, such as `0-2,5`.
fn parse(list: &str) -> Result<Vec<usize>, String> {
    let mut cpus = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| {
            text.parse::<usize>().map_err(|_| format!("expected CPUs such as 0-2,5, got `{list}`."))
        };
        cpus.extend(number(first)?..=number(last)?);
    }
    Ok(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_divided_in_half_or_as_specified() {
        let check = |allowed: &[usize], count, server: &[usize], loads: &[usize]| {
            assert_eq!(Cpus::of(allowed, count), Cpus { server: server.to_vec(), loads: loads.to_vec() });
        };
        check(&[0], None, &[0], &[0]);
        check(&[0, 1], None, &[0], &[1]);
        check(&[0, 1, 2, 5], None, &[0, 1], &[2, 5]);
        check(&[0, 1, 2, 5], Some(1), &[0], &[1, 2, 5]);
        check(&[0, 1, 2, 5], Some(9), &[0, 1, 2], &[5]);
    }

    #[test]
    fn lists_are_parsed_and_printed() {
        assert_eq!(parse("0-2,5"), Ok(vec![0, 1, 2, 5]));
        assert!(parse("all").unwrap_err().contains("`all`"));
        assert_eq!([list(&[3]), list(&[0, 2])], ["3-3", "0,2"]);
    }
}
