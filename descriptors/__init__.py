"""Score columns for tables of RAG traces: how good is what was retrieved, row by row.

A descriptor is a function from named columns to named columns, one row in, one row out.
"""

from rag_descriptors.aggregations import HitAggregation, HitShareAggregation, MeanAggregation
from rag_descriptors.base import Descriptor
from rag_descriptors.cache.store import Cache
from rag_descriptors.entity_recall import ContextEntityRecall
from rag_descriptors.errors import DescriptorError, JudgeError
from rag_descriptors.frame import ScoredFrame, add_descriptors, ascore_frame, score_frame
from rag_descriptors.models.embedder import Embedder, Embeddings, SentenceTransformerEmbedder
from rag_descriptors.models.entities import Entities, EntityExtractor, SpacyExtractor
from rag_descriptors.models.judge import Completion, Judge, Prompt, Usage
from rag_descriptors.models.llm import LiteLLMJudge
from rag_descriptors.relevance import ContextRelevance
from rag_descriptors.relevancy import ContextRelevancy
from rag_descriptors.summary import RunSummary

__all__ = [
    "Cache",
    "Completion",
    "ContextEntityRecall",
    "ContextRelevance",
    "ContextRelevancy",
    "Descriptor",
    "DescriptorError",
    "Embedder",
    "Embeddings",
    "Entities",
    "EntityExtractor",
    "HitAggregation",
    "HitShareAggregation",
    "Judge",
    "JudgeError",
    "LiteLLMJudge",
    "MeanAggregation",
    "Prompt",
    "RunSummary",
    "ScoredFrame",
    "SentenceTransformerEmbedder",
    "SpacyExtractor",
    "Usage",
    "add_descriptors",
    "ascore_frame",
    "score_frame",
]
