//! Starting the lcores.

use crate::build::Built;
use crate::error::EngineError;
use crate::runtime::Running;

pub(crate) fn start(_built: Built) -> Result<Running, EngineError> {
    unimplemented!("the lcores follow")
}
