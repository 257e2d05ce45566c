//! S3 signatures, keys, chunks and lists.
