//! Which CPUs the server gets and which the load process.

/// The division of the CPUs that this process may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpus {
    /// The server's.
    pub server: Vec<u32>,
    /// The load process's.
    pub load: u32,
    /// Whether both share the only CPU.
    pub shared: bool,
}

impl Cpus {
    /// All but the last CPU for the server, unless `server` names others; the last one that is left for
    /// the load process. On one CPU they share it.
    ///
    /// # Errors
    /// A CPU that this process may not use.
    pub fn divide(allowed: &[u32], server: Option<&[u32]>) -> Result<Cpus, String> {
        let Some((&last, before)) = allowed.split_last() else {
            return Err("this process may use no CPU".into());
        };
        if let Some(&bad) = server.into_iter().flatten().find(|cpu| !allowed.contains(cpu)) {
            return Err(format!("CPU {bad} may not be used; these may: {}", list(allowed)));
        }
        let server = match server {
            Some(server) if !server.is_empty() => server.to_vec(),
            _ if before.is_empty() => vec![last],
            _ => before.to_vec(),
        };
        let free = allowed.iter().copied().rfind(|cpu| !server.contains(cpu));
        Ok(Cpus { server, load: free.unwrap_or(last), shared: free.is_none() })
    }

    /// The server's CPUs as the command line takes them: `0,1,2`.
    pub fn server_list(&self) -> String {
        list(&self.server)
    }

    /// What a reader must know.
    pub fn in_words(&self) -> String {
        let (server, load) = (self.server_list(), self.load);
        if self.shared {
            return format!(
                "server and load process share CPU {load}: what is measured includes their switching"
            );
        }
        format!("server on CPU {server}, load process on CPU {load}")
    }
}

fn list(cpus: &[u32]) -> String {
    cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_cpu_is_for_the_load() {
        let cpus = Cpus::divide(&[0, 1, 2, 5], None).unwrap();
        assert_eq!((cpus.server_list().as_str(), cpus.load, cpus.shared), ("0,1,2", 5, false));
        let cpus = Cpus::divide(&[0, 1, 2, 5], Some(&[5, 2])).unwrap();
        assert_eq!((cpus.server_list().as_str(), cpus.load, cpus.shared), ("5,2", 1, false));
    }

    #[test]
    fn one_cpu_is_shared_and_said_so() {
        let cpus = Cpus::divide(&[3], None).unwrap();
        assert_eq!((cpus.server.as_slice(), cpus.load, cpus.shared), (&[3][..], 3, true));
        assert!(cpus.in_words().contains("share CPU 3"));
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_refused() {
        let error = Cpus::divide(&[0, 1], Some(&[7])).unwrap_err();
        assert_eq!(error, "CPU 7 may not be used; these may: 0,1");
        assert!(Cpus::divide(&[], None).is_err());
    }
}
