//! An HTTP API that a map file describes.
