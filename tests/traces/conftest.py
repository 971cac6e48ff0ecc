"""Files to read."""

import pyarrow as pa
import pyarrow.parquet
import pytest


@pytest.fixture
def file(tmp_path):
    """Make a file of this name and content."""

    def make(name, content=b""):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return make


@pytest.fixture
def arrow(tmp_path):
    """Make a file of these columns, of a format by its ending."""

    def make(name, _schema=None, **columns):
        table = pa.table(columns, schema=_schema)
        path = tmp_path / name
        if path.suffix == ".parquet":
            pa.parquet.write_table(table, path, row_group_size=2)
        else:
            with pa.ipc.new_file(path, table.schema) as writer:
                writer.write_table(table)
        return str(path)

    return make
