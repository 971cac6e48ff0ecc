"""A cache and a meter that go with the test."""

import pytest

from rag_descriptors import Cache
from rag_descriptors.cache.meters import TextMeter


@pytest.fixture
def cache():
    cache = Cache()
    yield cache
    cache.close()


@pytest.fixture
def meter():
    meter = TextMeter()
    yield meter
    meter.close()
