//! S3 calls and names that clients send. The tests of these findings (`b04_…`, `b05_…`, `b_slash_…`, `b_small_…` and others) need
//! requests that are signed by hand, so they are in the suite `s3`: `abandoned`, `answers`, `checksums` and `folders`.
