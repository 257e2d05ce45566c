//! S3 signatures, keys, chunks and lists. Their tests sign requests by hand, so they are beside the others that do: in
//! `s3` (`audited.rs`, `audited_bodies.rs`), and with real clients in `s3_clients` (`b01_…`, `s17_…`).
