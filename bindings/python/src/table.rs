//! Tables that any library with Arrow reads, without a copy.

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchIterator};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{Schema, SchemaRef};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::sync::Arc;

/// Rows in Arrow's form. Each call of `__arrow_c_stream__` gives all rows.
#[pyclass(frozen, module = "packtrain")]
pub struct Table {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

impl Table {
    /// The rows of these batches, which have one schema; without any it has no columns.
    pub fn new(batches: Vec<RecordBatch>) -> Self {
        let schema = batches.first().map(RecordBatch::schema);
        Self {
            schema: schema.unwrap_or_else(|| Arc::new(Schema::empty())),
            batches,
        }
    }
}

#[pymethods]
impl Table {
    /// The columns are as they are: the protocol lets a producer ignore `requested_schema`.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let batches = self.batches.clone().into_iter().map(Ok);
        let reader = RecordBatchIterator::new(batches, SchemaRef::clone(&self.schema));
        let stream = FFI_ArrowArrayStream::new(Box::new(reader));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(&*self.schema)
            .map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    fn __len__(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    fn __repr__(&self) -> String {
        let names = self.schema.fields().iter().map(|field| &field.name()[..]);
        let names: Vec<_> = names.collect();
        format!(
            "<packtrain.Table: {} rows of {}>",
            self.__len__(),
            names.join(", ")
        )
    }
}
