//! Tests of the segmenter.
