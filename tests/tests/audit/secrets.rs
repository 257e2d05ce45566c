//! Files and process settings that keep secrets.
