import numpy as np
import pytest

from rag_descriptors.cache.meters import TextMeter
from rag_descriptors.errors import CacheError

nan = float("nan")


def test_the_meter_counts_each_text_once(meter):
    meter.count([b"a", b"b"], np.array([True, False]), n_encoded=2)
    meter.count([b"a", b"c"], np.array([True, False]), n_encoded=1)
    meter.count([], np.array([], bool), n_encoded=0)
    assert (meter.distinct, meter.cut, meter.encoded) == (3, 1, 3)


def test_texts_that_cannot_be_counted(tmp_path):
    with pytest.raises(CacheError, match=r"a temporary file of what was counted: .*Make room for it in TMPDIR"):
        TextMeter(tmp_path)
