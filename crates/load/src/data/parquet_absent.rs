//! Replacement of the Parquet writer in a build without feature `parquet`. Always fails.

use std::path::Path;

use super::fill::FillState;
use super::{Decimals, Table, TableSource};
use crate::LoadError;

fn refused<T>() -> Result<T, LoadError> {
    let reason = "--parquet is not part of this program; build it with cargo feature `parquet`, or use --csv";
    Err(LoadError::Usage(reason.to_owned()))
}

pub(crate) fn begin(_folder: &Path, _tables: &[&Table]) -> Result<(), LoadError> {
    refused()
}

pub(crate) fn write(
    _source: &dyn TableSource,
    _index: usize,
    _folder: &Path,
    _decimals: Decimals,
    _shared: &FillState,
) -> Result<(), LoadError> {
    refused()
}
