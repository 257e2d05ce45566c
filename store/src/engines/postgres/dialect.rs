//! The dialects: how a commit protects what it compared until it is done.

/// How commits are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// READ COMMITTED with locks, in functions of the schema. PostgreSQL, and services that are PostgreSQL.
    Locking,
    /// SERIALIZABLE, without locks that are relied on, and without functions.
    Serializable,
}

/// What speaks PostgreSQL's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Product {
    PostgreSql,
    CockroachDb,
    YugabyteDb,
}

impl Product {
    /// The product that answers `version()` with this.
    pub(super) fn of(version: &str) -> Product {
        match version {
            _ if version.contains("CockroachDB") => Product::CockroachDb,
            _ if version.contains("Yugabyte") || version.contains("-YB-") => Product::YugabyteDb,
            _ => Product::PostgreSql,
        }
    }
}

impl Dialect {
    /// The setting in a URL.
    pub(super) fn read(text: Option<&str>) -> Result<Option<Dialect>, String> {
        match text {
            None => Ok(None),
            Some("locking") => Ok(Some(Dialect::Locking)),
            Some("serializable") => Ok(Some(Dialect::Serializable)),
            Some(other) => Err(format!("dialect=`{other}` is unknown; it is `locking` or `serializable`, or left out")),
        }
    }

    /// The dialect for a product, of which `version` is what it says of itself. Otherwise why there is none.
    pub(super) fn choose(asked: Option<Dialect>, product: Product, version: &str) -> Result<Dialect, String> {
        match (product, asked) {
            (Product::PostgreSql, asked) => Ok(asked.unwrap_or(Dialect::Locking)),
            (Product::CockroachDb | Product::YugabyteDb, None | Some(Dialect::Serializable)) => {
                Ok(Dialect::Serializable)
            }
            (Product::CockroachDb | Product::YugabyteDb, Some(Dialect::Locking)) => Err(format!(
                "it is {version}, whose locks do not protect what is compared here; leave out dialect=locking"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POSTGRES: &str = "PostgreSQL 15.18 (Debian 15.18-0+deb12u1) on x86_64-pc-linux-gnu, compiled by gcc, 64-bit";
    const COCKROACH: &str = "CockroachDB CCL v25.2.0 (x86_64-pc-linux-gnu, built 2025/05/09, go1.23.7)";
    const YUGABYTE: &str = "PostgreSQL 15.12-YB-2025.1.0.0-b0 on x86_64-pc-linux-gnu, compiled by clang, 64-bit";

    fn chosen(asked: Option<&str>, version: &str) -> Result<Dialect, String> {
        Dialect::choose(Dialect::read(asked)?, Product::of(version), version)
    }

    #[test]
    fn the_product_decides() {
        assert_eq!(chosen(None, POSTGRES), Ok(Dialect::Locking));
        assert_eq!(chosen(Some("locking"), POSTGRES), Ok(Dialect::Locking));
        assert_eq!(chosen(Some("serializable"), POSTGRES), Ok(Dialect::Serializable));
        for version in [COCKROACH, YUGABYTE] {
            assert_eq!(chosen(None, version), Ok(Dialect::Serializable));
            assert_eq!(chosen(Some("serializable"), version), Ok(Dialect::Serializable));
            let why = chosen(Some("locking"), version).unwrap_err();
            assert!(why.contains(version) && why.contains("dialect=locking"), "{why}");
        }
        assert!(chosen(Some("snapshot"), POSTGRES).unwrap_err().contains("`locking` or `serializable`"));
    }
}
