//! tmp
use super::*;
pub(super) fn run(
    _: Setting,
    _: &Options,
    _: &mut impl FnMut(Row),
) -> Result<SettingReport, DemoError> {
    Err(LabError::Cancelled.into())
}
